"""Templates and headers of the page. Templates escape all values, and pages load nothing from other sites."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response, status
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from airflow_mv_provider.api import words
from airflow_mv_provider.api.attempts import took_ms, waited_s
from airflow_mv_provider.api.detail import to_come_text
from airflow_mv_provider.api.table_list import COLUMNS
from airflow_mv_provider.core.airflow_key import run_of
from airflow_mv_provider.core.moment import utc_text
from airflow_mv_provider.core.strategy_names import MEANINGS
from airflow_mv_provider.report_text.audit_text import finding_text
from airflow_mv_provider.report_text.figures import number, partition_text, shown, size, value_text
from airflow_mv_provider.report_text.freshness_text import measure_text

# Inline scripts and styles are forbidden too, so markup that escaping missed could not run.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def render(
    template: str, request: Request, status_code: int = 200, *, facts: object = None, within: int = 0, **values: Any
) -> Response:
    """Return a rendered template, with relative addresses only, because a proxy may serve Airflow under any path.

    facts   : everything that the template shows, except what is relative to now; None for a page that is not polled
    within  : by how many segments the address is longer than that of the page into which the script puts the answer
    returns : status 304 without a body if the browser has a rendering of the same facts
    """
    headers = HEADERS
    if facts is not None:
        tag = sha256(repr(facts).encode()).hexdigest()[:32]
        headers = HEADERS | {"ETag": f'"{tag}"'}
        # A proxy that compresses makes it a weak one, W/"...".
        if request.headers.get("if-none-match", "").removeprefix("W/") == headers["ETag"]:
            return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers=headers)
    # Counted in the route's own path, "/tables/{name}": the prefix before it belongs to the mount and the proxy.
    depth = getattr(request.scope.get("route"), "path", "/").count("/") - 1 - within
    base = "../" * depth or "./"
    text = _environment().get_template(template).render(base=base, airflow="../" * (depth + 1), **values)
    return HTMLResponse(text, status_code, headers=headers)


def quoted(name: str) -> str:
    """Return a name quoted as one segment of a relative address."""
    return quote(name, safe="")


# Parameters of an address that say nothing.
_DEFAULTS = (("show", "all"), ("page", 1))


def _plain(value: object) -> object:
    """Return a text with unprintable characters spelled out, for screen readers and terminals; Jinja escapes it."""
    return shown(value) if type(value) is str else value  # Markup objects come from Jinja itself


def _given(query: dict[str, Any]) -> dict[str, Any]:
    """Return the query parameters that differ from the defaults."""
    return {name: value for name, value in query.items() if value != "" and (name, value) not in _DEFAULTS}


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("airflow_mv_provider.api"),
        autoescape=True,
        finalize=_plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {"columns": COLUMNS, "tones": words.TONES, "meanings": MEANINGS, "scopes": words.SCOPES}
    found.filters |= {
        "ago": words.ago,
        "clock": words.clock,
        "finding": finding_text,
        "forecast": to_come_text,
        "given": _given,
        "iso": words.iso,
        "listed": words.listed,
        "measure": measure_text,
        "moment": utc_text,
        "ms_of": words.ms_of,
        "number": number,
        "outcome_word": words.outcome_word,
        "partition": partition_text,
        "phase_word": words.phase_word,
        "process": words.process_text,
        "quoted": quoted,
        "short": words.short,
        "run_of": run_of,
        "size": size,
        "value_text": value_text,
        "way": words.way,
        "waited_s": waited_s,
        "took_ms": took_ms,
    }
    return found

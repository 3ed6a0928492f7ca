"""Notify people how a refresh ended, `on_failure_callback=RefreshNotifier(http_conn_id="alerts")`; or of a late table.

As one of a task's `notifiers` it reports that a refresh waits for a decision, with the difference. The message is one
text: table, outcome, the error with its code and hint or the numbers of rows, and a link. Without a connection it is
logged. With one it is posted as JSON `{"text": ..., "refresh": {...}}`, which Slack, Mattermost and most other services
accept unchanged.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, Connection, Context

from airflow_mv_provider.compat import BaseHook, conf
from airflow_mv_provider.core.outcome import ENDED_WELL, Outcome, RefreshReport
from airflow_mv_provider.core.submission import is_explained_by
from airflow_mv_provider.exceptions import ConnectionUnknownError, MvError
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.links import page_url
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.operators.task import MvOperator
from airflow_mv_provider.report_text.figures import duration_text, time_text
from airflow_mv_provider.report_text.freshness_text import measure_text
from airflow_mv_provider.report_text.health_text import problem_text

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.overview import TableLine
    from airflow_mv_provider.metadata.status import TableStatus
    from airflow_mv_provider.runner.settings import Settings

_TIMEOUT_S = 10
_MAX_DIFFERENCE = 3000  # characters: Slack cuts a message off at 4,000


class RefreshNotifier(BaseNotifier):
    """Notify how the refresh of the calling task ended.

    Args:
        http_conn_id: Connection whose host, and password as the secret part of the path, form the webhook's address;
            without it the message is logged.
        prefix: Text before the message, such as a name to mention.
    """

    template_fields = ("prefix",)

    def __init__(self, http_conn_id: str | None = None, *, prefix: str = "") -> None:
        super().__init__()
        self.http_conn_id = http_conn_id
        self.prefix = prefix

    def notify(self, context: Context) -> None:
        """Post the message, or log it without a connection."""
        report = _report(context)
        text = f"{self.prefix} {message(report, context)}".strip()
        if self.http_conn_id is None:
            self.log.warning("%s", text)
            return
        facts = None if report is None else _facts(report)
        _post(_address_of(BaseHook.get_connection(self.http_conn_id)), {"text": text, "refresh": facts})


class FreshnessNotifier(BaseNotifier):
    """Notify that a table is late: `AsyncCallback(FreshnessNotifier, {"table": "orders"})` of a deadline.

    As a callback of a task its message has the table's freshness.

    Args:
        table: Name of a registered table.
        http_conn_id: As of `RefreshNotifier`.
        prefix: As of `RefreshNotifier`.
        mv_conn_id: Connection of the metadata database; its default is that of `hooks.mv`.
        context: Given by Airflow when a deadline was missed.
    """

    template_fields = ("prefix",)

    def __init__(
        self,
        table: str,
        http_conn_id: str | None = None,
        *,
        prefix: str = "",
        mv_conn_id: str | None = None,
        context: Context | None = None,
    ) -> None:
        super().__init__(context)
        self.table, self.http_conn_id, self.prefix = table, http_conn_id, prefix
        self.mv_conn_id = mv_conn_id

    def notify(self, context: Context) -> None:
        """Post the message, or log it without a connection."""
        hook = MvHook(self.mv_conn_id)
        address = None if self.http_conn_id is None else _address_of(BaseHook.get_connection(self.http_conn_id))
        self._send(hook.settings(), address, context)

    async def async_notify(self, context: Context) -> None:
        """Do the same in the triggerer, without blocking its event loop."""
        settings = await MvHook(self.mv_conn_id).asettings()
        found = None if self.http_conn_id is None else await BaseHook.aget_connection(self.http_conn_id)
        await asyncio.to_thread(self._send, settings, None if found is None else _address_of(found), context)

    def _send(self, settings: Settings, address: str | None, context: Context) -> None:
        from airflow_mv_provider.runner.local import open_database

        engine = open_database(settings, reads_only=True)
        try:
            reader = Reader(engine)
            found = reader.status(reader.table(self.table))
        finally:
            engine.dispose()
        run = _run_of(context)
        where = f"{f'{run}. ' if run else ''}{_host()}{page_url(self.table)}"
        text = f"{self.prefix} {self.table}: {freshness_text(found)} {where}"
        if address is None:
            self.log.warning("%s", text.strip())
            return
        names = ("table", "fresh_as_of", "source_as_of", "measured_from", "freshness_target", "is_late", "late_at")
        _post(address, {"text": text.strip(), "table": {name: getattr(found, name) for name in names}})


def freshness_text(found: TableStatus) -> str:
    """Return whether a table is late, and since when, as a sentence."""
    if found.freshness_target is None:
        return "the table has no freshness target."
    target = duration_text(found.freshness_target)
    if found.late_at is None:
        return f"late: no refresh of everything has succeeded; its target is {target}."
    is_late = "is late since" if found.is_late else "is not late before"
    return f"{is_late} {time_text(found.late_at)} UTC; its target is {target}, {measure_text(found.measured_from)}."


def _run_of(context: Context) -> str:
    """Return the DAG and the run of a callback's context: that of a deadline is plain JSON."""
    run: Any = context.get("dag_run")
    if run is None:
        return ""
    if isinstance(run, dict):
        return f"DAG {run.get('dag_id')}, run {run.get('dag_run_id')}"
    return f"DAG {run.dag_id}, run {run.run_id}"


def message(report: RefreshReport | None, context: Context) -> str:
    """Return the text about a refresh; about the task only, if it began none."""
    run = context["dag_run"]
    where = f"DAG {run.dag_id}, run {run.run_id}"
    if report is None:
        reason = _first_line(context.get("exception")) or "the task ended before its refresh began."
        if (stalled := _stalled(context)) is None:
            return f"{where}: {reason}"
        return f"{stalled.table}: stalled. {problem_text(stalled.health)} {where}. {_host()}{page_url(stalled.table)}"
    rows = f"{report.rows_inserted:,} rows inserted, {report.rows_updated:,} updated, {report.rows_deleted:,} deleted;"
    facts = f"[{report.error.code}] {report.error.message} {report.error.hint}" if report.error else rows
    hold = report.hold if report.outcome is Outcome.RUNNING else None
    is_held = hold is not None and hold.decision is None
    if hold is not None and is_held:
        facts = f"{hold.reason} Answer it in Airflow, or with `amv approve` or `amv reject`."
    place = page_url(report.table, report.refresh_id)
    outcome = "awaiting approval" if is_held else report.outcome.replace("_", " ")
    text = f"{report.table}: {outcome}. {facts} {where}. {_host()}{place}"
    difference = "\n".join(getattr(context.get("task"), "held_difference", ())) if is_held else ""
    return f"{text}\n{difference[:_MAX_DIFFERENCE]}" if difference else text


def _host() -> str:
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return base[: len(base) - len(_path(base))] if base else ""


def _stalled(context: Context) -> TableLine | None:
    """Return the table whose refresh the task could not begin; None if another reason made it fail."""
    task = context.get("task")
    table = task.linked_table if isinstance(task, MvOperator) else None
    if table is None or not isinstance(task, MvOperator):
        return None
    with suppress(MvError), task.hook().reading() as reader:
        found = next((line for line in reader.overview(table).lines if line.obstacle is not None), None)
        said = _failure(context) or ""
        return found if found is not None and found.obstacle is not None and found.obstacle.error.code in said else None
    return None


def _report(context: Context) -> RefreshReport | None:
    """Return the refresh that the task worked on last; None if the callback is not about it or the database is down."""
    task = context.get("task")
    if not isinstance(task, MvOperator):
        return None
    with suppress(MvError), task.hook().reading() as reader:
        key, own = task.caller(context).key, getattr(task, "refresh_id", None)
        refresh_id = task.linked_refresh or (reader.newest_of(key, own) if own else reader.worked_on(key))
        report = None if refresh_id is None else reader.report(refresh_id)
        if report is not None and report.table != (task.linked_table or report.table):
            return None  # of another table of its ingestion, whose tasks share a key
        return report if report is not None and is_explained_by(report, _failure(context)) else None
    return None


def _failure(context: Context) -> str | None:
    exception = context.get("exception")
    return None if exception is None else str(exception)


def _facts(report: RefreshReport) -> dict[str, Any]:
    names = ("table", "refresh_id", "outcome", "trigger", "user", "scope", "main_version", "started_at", "finished_at")
    facts = {name: getattr(report, name) for name in names}
    rows = {name: getattr(report, name) for name in ("rows_inserted", "rows_updated", "rows_deleted")}
    is_good = report.outcome in ENDED_WELL
    is_bad = not is_good and not (report.outcome is Outcome.RUNNING and report.hold is not None)
    return facts | rows | {"is_failure": is_bad, "error": asdict(report.error) if report.error else None}


def _address_of(connection: Connection) -> str:
    host = connection.host or ""
    address = host if "://" in host else f"{connection.schema or 'https'}://{host}"
    if not address.startswith(("https://", "http://")):
        raise ConnectionUnknownError(
            f"connection {connection.conn_id}", "the host is not a web address.", hint="Use https://..."
        )
    port = f":{connection.port}" if connection.port else ""
    return f"{address}{port}/{(connection.password or '').lstrip('/')}".rstrip("/")


def _post(address: str, document: dict[str, Any]) -> None:
    body = json.dumps(document, default=str).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method="POST")
    urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()  # nosec B310  # only http and https come through _address


def _first_line(error: object) -> str:
    return next(iter(str(error or "").strip().splitlines()), "")[:500]


def _path(address: str) -> str:
    _, _, rest = address.partition("://")
    _, slash, path = rest.partition("/")
    return slash + path

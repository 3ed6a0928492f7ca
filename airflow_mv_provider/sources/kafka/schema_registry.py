"""Confluent's schema registry, or one with the same interface: the schemas that the ids in records stand for.

Its address and login are in the `extra` of the topic's connection, as `schema.registry.url`,
`schema.registry.basic.auth.user.info` (user:password) and `schema.registry.ssl.ca.location`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    DependencyError,
    MvError,
    SourceDeniedError,
    SourceUnavailableError,
)
from airflow_mv_provider.sources.credentials import Credentials

PREFIX = "schema.registry."
_KNOWN = ("url", "basic.auth.user.info", "ssl.ca.location")
_UNKNOWN_ID = 40403  # the registry's own code
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Registry:
    """How a registry is reached.

    url : with several, separated by commas, the next is asked if one does not answer
    """

    url: str
    client: Mapping[str, Any] = field(repr=False)


def registry_of(credentials: Credentials) -> Registry:
    """Return how the registry of a connection is reached.

    raises : ConnectionUnknownError, whose message contains no value of the connection
    """
    given = {name.removeprefix(PREFIX): text for name, text in credentials.options.items() if name.startswith(PREFIX)}
    if unknown := sorted(set(given) - set(_KNOWN)):
        known = ", ".join(f"{PREFIX}{name}" for name in _KNOWN)
        raise _wrong(credentials, f"{PREFIX}{unknown[0][:60]} in its extra is not known: known are {known}.")
    urls = [url.strip() for url in given.get("url", "").split(",") if url.strip()]
    if not urls:
        raise _wrong(credentials, f"the connection names no schema registry: give {PREFIX}url in its extra.")
    for url in urls:
        found = urlsplit(url)
        if found.scheme not in ("http", "https") or not found.hostname:
            raise _wrong(credentials, f"its {PREFIX}url is not http://host:port or https://host:port.")
        if "@" in found.netloc:
            raise _wrong(credentials, f"its {PREFIX}url has a login: give it as {PREFIX}basic.auth.user.info.")
    if (login := given.get("basic.auth.user.info")) is not None and ":" not in login:
        raise _wrong(credentials, f"its {PREFIX}basic.auth.user.info is not user:password.")
    return Registry(",".join(urls), given | {"url": ",".join(urls)})


def schemas_of(registry: Registry, ids: Iterable[int], timeout_s: float) -> dict[int, str | None]:
    """Return the Avro schemas with some ids; None for an id that the registry does not know.

    cost   : a round trip an id; each is asked once, without retries
    raises : SourceUnavailableError, SourceDeniedError; DependencyError, where the client is not installed.
             None of their messages contains the registry's own text
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
    except ImportError as error:
        hint = "pip install 'confluent-kafka[schema-registry]'"
        raise DependencyError("source", "Python has no client for a schema registry.", hint=hint) from error
    found: dict[int, str | None] = {}
    settings = {**registry.client, "timeout": min(timeout_s, _CONNECT_S), "max.retries": 0}
    try:
        with SchemaRegistryClient(settings) as client:
            for each in sorted(set(ids)):
                try:
                    schema = client.get_schema(each)
                except SchemaRegistryError as error:
                    if error.error_code != _UNKNOWN_ID:
                        raise _refused(error.http_status_code, registry) from None  # its text is the server's
                    found[each] = None
                else:
                    is_avro = (schema.schema_type or "AVRO") == "AVRO" and not schema.references
                    found[each] = schema.schema_str if is_avro else None
    except MvError:
        raise
    except Exception as error:
        # The client raises the errors of the HTTP library that it has found, which it does not name.
        raise _unavailable(registry, type(error).__name__) from None
    return found


def _refused(status: int, registry: Registry) -> MvError:
    if status in (401, 403):
        hint = f"Correct {PREFIX}basic.auth.user.info of the connection, or grant the login to read schemas."
        return SourceDeniedError("source", f"the schema registry {registry.url} refuses the login.", hint=hint)
    return _unavailable(registry, f"the registry answers with HTTP {status}")


def _unavailable(registry: Registry, problem: str) -> SourceUnavailableError:
    hint = f"Check that it runs and that {PREFIX}url of the connection is correct, then refresh again."
    return SourceUnavailableError(
        "source", f"the schema registry {registry.url} does not answer: {problem}.", hint=hint
    )


def _wrong(credentials: Credentials, problem: str) -> ConnectionUnknownError:
    return ConnectionUnknownError(credentials.conn_id, problem, hint="Correct the connection: see docs/kafka.md.")

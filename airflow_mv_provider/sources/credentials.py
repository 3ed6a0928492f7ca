"""What a source needs to log in to its server, and where a process without Airflow finds it.

    AIRFLOW_CONN_<ID>      an Airflow connection, as Airflow's own URI or JSON
    AMV_CONN_<ID>_FILE     a file with the same content, for secrets that are mounted as files

In Airflow's tasks the hook replaces `of_environment` by Airflow's own lookup, with its secrets backends.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_mv_provider.core.secret import every_spelling, may_be_secret
from airflow_mv_provider.exceptions import ConnectionUnknownError, UnsafeLocationError


@dataclass(frozen=True, slots=True)
class Credentials:
    """A connection to a database.

    kind     : Airflow's type of the connection, such as postgres or sqlite
    host     : for SQLite the file, unless `database` is it
    options  : the connection's `extra`
    """

    conn_id: str
    kind: str
    host: str | None = None
    port: int | None = None
    database: str | None = None
    user: str | None = None
    password: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Credentials(conn_id={self.conn_id!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no output may contain."""
        hidden = [value for name, value in self.options.items() if may_be_secret(name, "")]
        of_logins = (value.partition(":")[2] for value in hidden)  # user:password
        return every_spelling([self.password, *hidden, *of_logins])


Lookup = Callable[[str], Credentials]
"""Returns a connection by its id. raises : ConnectionUnknownError"""


def of_environment(conn_id: str, environ: Mapping[str, str] | None = None) -> Credentials:
    """Return a connection from the environment, as Airflow would find it there.

    raises : ConnectionUnknownError, whose message does not contain the connection
    """
    known = os.environ if environ is None else environ
    variable, file = f"AIRFLOW_CONN_{conn_id.upper()}", known.get(f"AMV_CONN_{conn_id.upper()}_FILE")
    text = known.get(variable)
    if not text and file:
        try:
            text = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            # From None: a UnicodeDecodeError holds the file's bytes, which are secret.
            hint = f"Check the file that AMV_CONN_{conn_id.upper()}_FILE names."
            raise ConnectionUnknownError(conn_id, f"{file} cannot be read as text.", hint=hint) from None
    if not text:
        hint = f"Create the connection in Airflow; for the command line set {variable}, as a URI or as JSON."
        raise ConnectionUnknownError(conn_id, "there is no connection of this id.", hint=hint)
    try:
        return _of_json(conn_id, json.loads(text)) if text.startswith("{") else _of_uri(conn_id, text)
    except (ValueError, TypeError, KeyError, AttributeError):
        # From None: these errors quote what they cannot parse, which may be a piece of the password.
        problem = "the connection is neither a URI (postgresql://user:password@host:5432/database) nor JSON."
        raise ConnectionUnknownError(conn_id, problem, hint="Quote special characters of a URI as %XX.") from None


def confined_to(hosts: Sequence[str], find: Lookup) -> Lookup:
    """Return a lookup that refuses connections to other hosts than these.

    hosts   : names, or patterns such as `*.db.example.com`; none allows every host. SQLite is a file, not a host
    returns : a lookup that raises UnsafeLocationError as well
    """
    if not hosts:
        return find

    def confined(conn_id: str) -> Credentials:
        found = find(conn_id)
        # PostgreSQL's client takes several; connections of Kafka name them, and a registry's, in their extra.
        of_kafka = found.options if found.kind == "kafka" else {}
        named = (of_kafka.get("bootstrap.servers") or found.host or "localhost").lower().split(",")
        named += [urlsplit(url.strip()).netloc for url in of_kafka.get("schema.registry.url", "").lower().split(",")]
        if found.kind == "sqlite":
            return found
        for host in (re.sub(r":\d+$", "", each.strip()) for each in named if each):
            if not any(fnmatchcase(host, pattern.lower()) for pattern in hosts):
                problem = f"the connection {conn_id!r} leads to the host {host!r}, which is not among the source hosts."
                raise UnsafeLocationError(
                    "source", problem, hint="Add the host to AMV_SOURCE_HOSTS, or choose another."
                )
        return found

    return confined


def _of_uri(conn_id: str, text: str) -> Credentials:
    found = urlsplit(text)
    if not found.scheme:
        raise ValueError("no scheme")
    user, password = (unquote(part) if part else None for part in (found.username, found.password))
    host = found.netloc.rpartition("@")[2]
    if found.port is not None:
        host = host.rpartition(":")[0]
    return Credentials(
        *(conn_id, found.scheme, unquote(host).strip("[]") or None, found.port, unquote(found.path[1:]) or None),
        *(user, password, dict(parse_qsl(found.query))),
    )


def _of_json(conn_id: str, found: Mapping[str, Any]) -> Credentials:
    extra = found.get("extra") or {}
    if isinstance(extra, str):
        extra = json.loads(extra)
    port = found.get("port")
    return Credentials(
        *(conn_id, str(found["conn_type"]), found.get("host") or None, int(port) if port else None),
        *(found.get("schema") or None, found.get("login") or None, found.get("password") or None),
        {str(name): str(value) for name, value in extra.items()},
    )

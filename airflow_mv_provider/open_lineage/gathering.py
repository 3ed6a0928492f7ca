"""Gather what a task's refresh has read and written, while the task still has its database open.

Airflow's integration asks for it after the task's end, in a process that is forked from the task's, where connections
must not be used. So the facts are values.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.identifier import ERRORS_SUFFIX
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.location import absolute_source
from airflow_mv_provider.core.outcome import RefreshReport
from airflow_mv_provider.core.state import RefreshRecord, TableRecord
from airflow_mv_provider.exceptions import MvError

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.reader import Reader
    from airflow_mv_provider.sources.credentials import Credentials

log = logging.getLogger(__name__)

_PORTS = {"postgres": 5432, "mysql": 3306, "kafka": 9092}
_INTEGRATION = "airflow.providers.openlineage"


@dataclass(frozen=True, slots=True)
class Place:
    """A dataset's name, as OpenLineage has them: what it lies in, and which one in there."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Gathered:
    """One refresh, as far as lineage is concerned.

    inputs   : by name; of a source that is one input, the name is empty
    versions : of the inputs, by the same names, as far as they have any
    """

    report: RefreshReport
    definition: RefreshableTable
    main: Place
    errors: Place
    inputs: Mapping[str, Place] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def is_wanted() -> bool:
    """True if Airflow's integration is installed and switched on."""
    if _INTEGRATION not in sys.modules and find_spec("airflow.providers") is None:
        return False
    try:
        from airflow.providers.openlineage.conf import is_disabled
    except ImportError:
        return False
    return not is_disabled()


def gathered(
    reader: Reader, refresh_id: str | None, credentials_of: Callable[[str], Credentials] | None
) -> Gathered | None:
    """Return what a refresh has read and written; None if there is no such refresh, or the database does not answer.

    credentials_of : returns a connection's; None where there are none
    """
    try:
        record = None if refresh_id is None else reader.refresh(refresh_id)
        if record is None:
            return None
        report = reader.report(record.id)
        return _gathered(report, record, reader.table(report.table), credentials_of)
    except MvError as error:
        log.warning("OpenLineage gets no datasets of this refresh: %s", error)
        return None


def _gathered(
    report: RefreshReport,
    record: RefreshRecord,
    table: TableRecord,
    credentials_of: Callable[[str], Credentials] | None,
) -> Gathered:
    return Gathered(
        report=report,
        definition=record.definition,
        main=place_of(table.location),
        errors=place_of(f"{table.location}{ERRORS_SUFFIX}"),
        inputs=_inputs(record.definition, table.warehouse, credentials_of),
        versions=record.frontier.versions(),
    )


def _inputs(
    definition: RefreshableTable, warehouse: str, credentials_of: Callable[[str], Credentials] | None
) -> dict[str, Place]:
    source = definition.source
    if source.connection_id is None:
        return {name: place_of(absolute_source(path, warehouse)) for name, path in source.named_paths.items()}
    if source.dataset is None or credentials_of is None:
        return {}
    return {"": place_in(credentials_of(source.connection_id), source.dataset)}


def place_of(location: str) -> Place:
    """Return the dataset at a location; for a pattern of files, their folder."""
    folder = re.split(r"/[^/]*[*?\[{]", location, maxsplit=1)[0]
    scheme, found, rest = folder.partition("://")
    if not found:
        return Place("file", folder)
    host, _, path = rest.partition("/")
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    return Place(f"{scheme}://{host}" if host else scheme, path.rstrip("/") if host else f"/{path}")


def place_in(connection: Credentials, dataset: str) -> Place:
    """Return the dataset that is a table or topic of what a connection leads to; no login or password is in it."""
    kind = {"postgresql": "postgres", "mariadb": "mysql"}.get(connection.kind, connection.kind)
    servers = connection.options.get("bootstrap.servers", "").split(",")[0] if kind == "kafka" else ""
    host = connection.host or "localhost"
    namespace = f"{kind}://{servers or f'{host}:{connection.port or _PORTS.get(kind, 0)}'}"
    if kind == "kafka":
        return Place(namespace, dataset)
    if kind == "sqlite":
        return Place("file", f"{connection.host or connection.database}/{dataset}")
    schema = "public." if kind == "postgres" and "." not in dataset else ""
    return Place(namespace, f"{connection.database}.{schema}{dataset}")

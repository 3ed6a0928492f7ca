"""The hook that finds the metadata database and the warehouse from Airflow's configuration.

Each setting is taken from the first of these sources that has it; `tests/provider/test_hook.py` checks the order:

    1  the connection that a task names    mv_conn_id
    2  the [mv] section                    AIRFLOW__MV__SQL_ALCHEMY_CONN, AIRFLOW__MV__WAREHOUSE, ...
    3  AMV_* variables                     AMV_DATABASE_URL, AMV_WAREHOUSE, ... as the command line reads them
    4  the connection mv_state_default     host, schema, login, password and extra give the address
    5  the embedded default                SQLite under AIRFLOW_HOME; the warehouse has no default
"""

from __future__ import annotations

import logging
import os
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import Connection
from airflow.sdk.log import mask_secret
from sqlalchemy import URL

from airflow_mv_provider.compat import AirflowNotFoundException, BaseHook, conf
from airflow_mv_provider.core.deployment_checks import executor_of_several_hosts
from airflow_mv_provider.exceptions import ConnectionUnknownError, MvError, SettingError
from airflow_mv_provider.metadata.reader import Reader

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store
    from airflow_mv_provider.runner.refresh import Refresher
    from airflow_mv_provider.runner.settings import Settings
    from airflow_mv_provider.runner.watching import Watcher
    from airflow_mv_provider.sources.credentials import Credentials

_DATABASE, _DATABASE_FILE, _WAREHOUSE = "AMV_DATABASE_URL", "AMV_DATABASE_URL_FILE", "AMV_WAREHOUSE"
_VARIABLE_OF_OPTION = {
    "sql_alchemy_conn": _DATABASE,
    "warehouse": _WAREHOUSE,
    "source_roots": "AMV_SOURCE_ROOTS",
    "source_hosts": "AMV_SOURCE_HOSTS",
    "source_databases": "AMV_SOURCE_DATABASES",
    "lease_s": "AMV_LEASE_S",
    "handover_s": "AMV_HANDOVER_S",
    "answer_s": "AMV_ANSWER_S",
    "history_days": "AMV_HISTORY_DAYS",
    "spark_remote": "AMV_SPARK_REMOTE",
    "s3_single_driver": "AMV_S3_SINGLE_DRIVER",
    "fingerprint_rows": "AMV_FINGERPRINT_ROWS",
}
_OTHER_DATABASE = "Set `[mv] sql_alchemy_conn`, or the connection mv_state_default, to PostgreSQL."
log = logging.getLogger(__name__)


class MvHook(BaseHook):
    """Open the metadata database and a refresh runner.

    Args:
        mv_conn_id: A connection of type `mv`; without it, `mv_state_default` supplies settings that no other source
            has.
    """

    conn_name_attr = "mv_conn_id"
    default_conn_name = "mv_state_default"
    conn_type = "mv"
    hook_name = "Refreshable tables (state)"

    def __init__(self, mv_conn_id: str | None = None) -> None:
        super().__init__()
        self.mv_conn_id = mv_conn_id

    def settings(self) -> Settings:
        """Return the settings of this hook.

        Raises:
            DefinitionError
            AirflowNotFoundException: When the connection `mv_conn_id` does not exist.
        """
        from airflow_mv_provider.runner.settings import from_environment

        named = _of_connection(self.get_connection(self.mv_conn_id)) if self.mv_conn_id else {}
        known = self._known(named)
        if not _is_complete(known):
            known = ChainMap(*known.maps, _without_a_database_twice(known, self._default_connection()))
        return replace(_masked(_shared(from_environment(environ=known))), connections=self.credentials)

    async def asettings(self, *, opens_database: bool = True) -> Settings:
        """Return the same as `settings`, for a trigger: connections are read without blocking the event loop.

        Args:
            opens_database: False if it needs the warehouse alone.
        """
        from airflow_mv_provider.runner.settings import from_environment

        named = _of_connection(await self.aget_connection(self.mv_conn_id)) if self.mv_conn_id else {}
        known = self._known(named)
        if not _is_complete(known):
            try:
                default = _of_connection(await self.aget_connection(self.default_conn_name))
            except AirflowNotFoundException:
                default = {}
            known = ChainMap(*known.maps, _without_a_database_twice(known, default))
        found = _masked(from_environment(environ=known))
        return _shared(found) if opens_database else found

    def environment(self) -> dict[str, str]:
        """Return this hook's settings as AMV_* variables for another program; one may be secret."""
        from airflow_mv_provider.runner.settings import DAY_MS

        settings = self.settings()
        return _present(
            {
                _DATABASE: settings.database_url,
                _WAREHOUSE: settings.warehouse,
                "AMV_SOURCE_ROOTS": ":".join(settings.source_roots),
                "AMV_SOURCE_HOSTS": ",".join(settings.source_hosts),
                "AMV_SOURCE_DATABASES": ",".join(settings.source_databases),
                "AMV_LEASE_S": settings.lease_ms / 1000,
                "AMV_HANDOVER_S": settings.handover_ms / 1000,
                "AMV_ANSWER_S": settings.answer_ms / 1000,
                "AMV_HISTORY_DAYS": settings.history_ms / DAY_MS,
                "AMV_SPARK_REMOTE": settings.spark_remote,
                "AMV_S3_SINGLE_DRIVER": "true" if settings.is_s3_single_driver else None,
                "AMV_FINGERPRINT_ROWS": str(settings.fingerprint_rows),
            }
        )

    def store(self) -> Store:
        """Return the store, its database at this package's version; raises the errors of `runner.local.open_store`."""
        from airflow_mv_provider.runner.local import open_store

        settings = self.settings()
        if settings.database_url.startswith("sqlite"):
            log.warning("The metadata database is SQLite, for one host that runs all of Airflow. %s", _OTHER_DATABASE)
        return open_store(settings)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Provide a read-only reader of the database inside the block: one connection, no Spark, no migration."""
        from airflow_mv_provider.runner.local import open_database

        engine = open_database(self.settings(), reads_only=True)
        try:
            yield Reader(engine)
        finally:
            engine.dispose()

    def refresher(
        self, watch: Watcher = lambda progress: None, is_gone: Callable[[str], bool] = lambda owner_key: False
    ) -> Refresher:
        """Return a runner for this process; it starts Spark when a step first needs it.

        Args:
            watch, is_gone: As of `Refresher`.
        """
        from airflow_mv_provider.runner.refresh import Refresher

        settings = self.settings()
        return Refresher(self.store(), settings, watch=watch, is_gone=is_gone)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the database answers, with a message; for the test button in Airflow's connection form."""
        try:
            with self.reading() as reader:
                return True, f"{len(reader.tables())} refreshable tables"
        except MvError as error:
            return False, str(error)

    def credentials(self, conn_id: str) -> Credentials:
        """Return the connection of a source, from wherever Airflow finds its connections; Airflow masks its password.

        raises : ConnectionUnknownError
        """
        from airflow_mv_provider.sources.credentials import Credentials

        try:
            found = self.get_connection(conn_id)
        except AirflowNotFoundException:
            raise ConnectionUnknownError(conn_id, "Airflow has no connection of this id.") from None
        return Credentials(
            conn_id=conn_id,
            kind=str(found.conn_type),
            host=found.host,
            port=found.port,
            database=found.schema,
            user=found.login,
            password=found.password,
            options={name: str(value) for name, value in found.extra_dejson.items()},
        )

    def _known(self, named: Mapping[str, str]) -> ChainMap[str, str]:
        return ChainMap(dict(named), _options(), _present(os.environ))

    def _default_connection(self) -> Mapping[str, str]:
        try:
            return _of_connection(self.get_connection(self.default_conn_name))
        except AirflowNotFoundException:
            return {}


def _is_complete(known: Mapping[str, str]) -> bool:
    return _WAREHOUSE in known and (_DATABASE in known or _DATABASE_FILE in known)


def _options() -> dict[str, str]:
    return _present({var: conf.get("mv", name, fallback=None) for name, var in _VARIABLE_OF_OPTION.items()})


def _shared(settings: Settings) -> Settings:
    """Return settings whose database all hosts that run tasks can see.

    raises : SettingError
    """
    executor = executor_of_several_hosts(conf.get("core", "executor", fallback=""))
    if executor and settings.database_url.startswith("sqlite"):
        problem = f"SQLite works on one host only, and {executor} runs tasks on several."
        raise SettingError("metadata database", problem, hint=_OTHER_DATABASE)
    return settings


def _masked(settings: Settings) -> Settings:
    """Return settings whose secrets Airflow hides in its logs."""
    from airflow_mv_provider.runner.settings import secrets_of

    for secret in secrets_of(settings):
        mask_secret(secret)
    return settings


def _of_connection(connection: Connection) -> dict[str, str]:
    """Return a connection's settings as AMV_* variables."""
    extra = connection.extra_dejson
    return _present(
        {
            _DATABASE: _address(connection, extra),
            _WAREHOUSE: extra.get("warehouse"),
            "AMV_SOURCE_ROOTS": extra.get("source_roots"),
        }
    )


def _address(connection: Connection, extra: Mapping[str, Any]) -> str | None:
    if not connection.host:
        file = extra.get("sqlite_file")
        return f"sqlite:///{file}" if file else None
    sslmode = extra.get("sslmode")
    return URL.create(
        "postgresql+psycopg",
        username=connection.login,
        password=connection.password,
        host=connection.host,
        port=connection.port,
        database=connection.schema,
        query={"sslmode": str(sslmode)} if sslmode else {},
    ).render_as_string(hide_password=False)


def _without_a_database_twice(known: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return `more` without its database if `known` has one, by address or by file."""
    is_named = _DATABASE in known or _DATABASE_FILE in known
    return {name: value for name, value in more.items() if not (is_named and name == _DATABASE)}


def _present(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value not in (None, "")}

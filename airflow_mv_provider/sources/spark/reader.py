"""A batch data source of Spark as source: read once into a copy, and compared each time unless it has a version."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import ConnectionUnknownError, DefinitionError, SourceFunctionError
from airflow_mv_provider.sources.credentials import Credentials
from airflow_mv_provider.sources.files.table_logs import check_no_table
from airflow_mv_provider.sources.imported import imported
from airflow_mv_provider.sources.projection import projected
from airflow_mv_provider.sources.reader import SourceReader
from airflow_mv_provider.sources.spark.frontier import SparkFrontier
from airflow_mv_provider.sources.spark.model import SparkSource, option_obstacle
from airflow_mv_provider.spark.errors import understood
from airflow_mv_provider.spark.session import hide_passwords
from airflow_mv_provider.spark.zone import in_utc

ALLOWED = "AMV_SPARK_OPTIONS"
_FILES = ("avro", "binaryfile", "text", "xml")  # formats of files alone, which a table's log may say more about


class SparkReader(SourceReader[SparkSource, SparkFrontier]):
    """A reader of one data source, which is opened once in an attempt: columns and rows are of the same read."""

    def __init__(
        self,
        spark: SparkSession,
        source: SparkSource,
        warehouse: str,
        roots: Sequence[str],
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(spark, source, warehouse, roots)
        if obstacle := option_obstacle(source, os.environ.get(ALLOWED, "")):
            hint = f"To allow more, set {ALLOWED}='{source.format}=option,option' where refreshes run."
            raise DefinitionError("source", f"{obstacle}.", hint=hint)
        self._credentials = credentials

    def probe(self) -> SparkFrontier:
        """Return the source's version, the result of its version query; see `SourceReader`.

        cost   : one read of one row, if the definition has a query
        raises : DefinitionError, SourceFunctionError, ConnectionUnknownError
        """
        if self._source.version is None:
            _ = self._rows  # a wrong format or option is named before anything is acquired
            return SparkFrontier(None)
        with understood("source"):
            found = self._opened(self._source.version).limit(2).collect()
        if len(found) != 1:
            problem = f"`version` has {'more than one row' if found else 'no row'}; it has to be one."
            raise DefinitionError("source", problem)
        return SparkFrontier(json.dumps([str(value) for value in found[0]], ensure_ascii=False))

    def read(self, _frontier: SparkFrontier, extra: Sequence[str] = ()) -> DataFrame:
        """Return the source's rows, projected; see `SourceReader`."""
        return projected(self._rows, self._source.select, extra)

    def determinism(self, frontier: SparkFrontier) -> Determinism:
        """Return that the rows may differ between reads, unless a version identifies the state; see `SourceReader`."""
        if frontier.token is None:
            return Determinism("the definition has no `version` that shows whether its rows have changed")
        if self._source.select is not None:
            return Determinism("a projection of a data source may return other rows at each read")
        return Determinism()

    def verify(self, _frontier: SparkFrontier) -> None:
        """Do nothing: the version was read before the rows, so it is at most older; see `SourceReader`."""

    @cached_property
    def _rows(self) -> DataFrame:
        if self.locations and self._source.format.lower() in _FILES:
            warehouse, others = self._roots
            check_no_table(self._spark, self.locations[0], (warehouse, *others), ())
        with understood("source"):
            rows = self._opened(self._source.options)
            _ = rows.schema  # over Spark Connect this is the first analysis
            if rows.isStreaming:
                raise DefinitionError("source", f"{self._source.format} is a stream; a table needs rows that end.")
        # Of the formats that Spark itself reads here; a connector's times are its own affair.
        if self._source.format.lower() == "avro":
            return rows.select(*in_utc(self._spark, rows.schema, is_of_any_time=False))
        return rows

    def _opened(self, options: Mapping[str, str]) -> DataFrame:
        secret = self._secret_options()
        hide_passwords(self._spark, tuple(secret))
        reader = self._spark.read.format(self._format).options(**options, **secret)
        return reader.load(self.locations[0]) if self.locations else reader.load()

    @cached_property
    def _format(self) -> str:
        """The name by which Spark's session knows the format; a class of Python is registered in it first."""
        if not self._source.is_python:
            return self._source.format
        where = f"data source {self._source.format}"
        found = imported(where, self._source.format)
        if not (inspect.isclass(found) and issubclass(found, DataSource)):
            raise SourceFunctionError(where, "this is not a class derived from pyspark's DataSource.")
        self._spark.dataSource.register(found)
        return found.name()

    def _secret_options(self) -> dict[str, str]:
        mine = self._credentials
        if mine is None:
            return {}
        parts = {"login": mine.user, "password": mine.password, "host": mine.host, "schema": mine.database}
        parts["port"] = None if mine.port is None else str(mine.port)
        found = {}
        for option, part in self._source.credentials.items():
            value = mine.options.get(part.removeprefix("extra.")) if part.startswith("extra.") else parts[part]
            if value is None:
                problem = f"the connection has no {part}, which the option {option} is to have."
                raise ConnectionUnknownError(mine.conn_id, problem, hint="Complete the connection.")
            found[option] = value
        return found

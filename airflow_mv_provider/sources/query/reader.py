"""A SQL query as source: every table that it reads is an input, pinned by its version.

A query that only filters rows of one input and computes columns from them follows the input's change data feed: the
rows that the input has lost and gained, put through the query, are those that its result has lost and gained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.changeset import Changeset, Whole
from airflow_mv_provider.core.definition.identifier import RESERVED_PREFIX
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import UnpinnedTableError
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from airflow_mv_provider.sources.delta.model import DeltaSource
from airflow_mv_provider.sources.delta.reader import DeltaReader
from airflow_mv_provider.sources.projection import determinism, projected, projected_determinism, with_more
from airflow_mv_provider.sources.query.frontier import QueryFrontier
from airflow_mv_provider.sources.query.model import NamedTable, Query
from airflow_mv_provider.sources.query.spark_plan import pinned_sql, unpinned_relation
from airflow_mv_provider.sources.reader import SourceReader
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.compare import corrections
from airflow_mv_provider.spark.errors import understood

_UNDERIVABLE = "the changes of a query's result cannot be derived from those of its inputs"


class QueryReader(SourceReader[Query, QueryFrontier]):
    """A reader of a query over Delta tables at pinned versions."""

    def __init__(self, spark: SparkSession, source: Query, warehouse: str, roots: Sequence[str]) -> None:
        super().__init__(spark, source, warehouse, roots)
        self._inputs = {
            name: DeltaReader(spark, _source(given), warehouse, roots) for name, given in source.inputs.items()
        }
        self._checked: str | None = None
        self._views: list[str] = []

    def probe(self) -> QueryFrontier:
        """Return the id and newest version of each input; see `SourceReader`."""
        found = QueryFrontier(tuple(sorted((name, reader.probe()) for name, reader in self._inputs.items())))
        self.locations = tuple(location for reader in self._inputs.values() for location in reader.locations)
        return found

    def read(self, frontier: QueryFrontier, extra: Sequence[str] = ()) -> DataFrame:
        """Return the query's rows over its inputs at their pinned versions; see `SourceReader`.

        raises : UnpinnedTableError, if the query reads a relation that is not an input
        """
        return self.project(self._rows(frontier), extra)

    def marked(self, frontier: QueryFrontier, extra: Sequence[str] = (), *, is_numbered: bool) -> DataFrame:
        """Return the query's rows before the projection; all of them are decoded; see `SourceReader`."""
        return self._rows(frontier).select("*", marking.origin())

    def project(self, rows: DataFrame, extra: Sequence[str] = (), *more: str) -> DataFrame:
        """Return the query's rows after the definition's projection; see `SourceReader`."""
        return projected(rows, with_more(rows, self._source.select, more), extra)

    def _rows(self, frontier: QueryFrontier) -> DataFrame:
        sql = self._sql(frontier)
        with understood("query"):
            rows = self._spark.sql(sql)
            _ = rows.schema  # over Spark Connect this is the first analysis
            if sql != self._checked:
                self._check(sql)
        return rows

    def changes(self, since: Frontier, until: QueryFrontier) -> Changeset:
        """Return what the only input shows, or that no row of any input has changed; see `SourceReader`."""
        if not isinstance(since, QueryFrontier):
            return Whole()
        before, inputs = dict(since.inputs), dict(until.inputs)
        if before.keys() != inputs.keys():
            return Whole()
        found = [self._inputs[name].changes(before[name], at) for name, at in inputs.items()]
        if all(each.at_most == 0 for each in found):
            return Whole(_UNDERIVABLE, at_most=0)
        only = found[0] if len(found) == 1 else None
        if only is None:
            return Whole(_UNDERIVABLE)
        if isinstance(only, Whole):
            return replace(only, at_most=None)
        if self._source.select or not self.determinism(until).is_row_for_row:
            return Whole(_UNDERIVABLE)
        return only

    def changed(self, since: QueryFrontier, until: QueryFrontier, main: DataFrame) -> DataFrame:
        """Return the rows that the query lost and gained with those of its one input; see `SourceReader`."""
        ((name, before),), ((_, at),) = since.inputs, until.inputs
        rows = self._inputs[name].changed(before, at, main)
        found = (self._of_rows(name, rows, sign) for sign in (-1, 1))
        return reduce(DataFrame.unionAll, found)

    def _of_rows(self, name: str, rows: DataFrame, sign: int) -> DataFrame:
        """Return the query's rows over the rows of one sign, (columns of the query, _mv_sign int)."""
        view = f"{RESERVED_PREFIX}changes_{uuid4().hex}"
        rows.where(F.col(corrections.SIGN) == sign).drop(corrections.SIGN).createOrReplaceTempView(view)
        self._views.append(view)
        sql = pinned_sql(self._source.sql, {name: f"SELECT * FROM {view}"})  # nosec B608  # our own name
        with understood("query"):
            return self._spark.sql(sql).withColumn(corrections.SIGN, F.lit(sign))

    def close(self) -> None:
        """Forget the views of `feed`; over Spark Connect they are looked up whenever its rows are read."""
        while self._views:
            self._spark.catalog.dropTempView(self._views.pop())

    def determinism(self, frontier: QueryFrontier) -> Determinism:
        """Return whether Spark finds the query and its projection deterministic; see `SourceReader`."""
        sql = self._sql(frontier)
        found = determinism(self._spark, sql, self._source.sql, "query")
        if self._source.select and found.nondeterminism_reason is None:
            return projected_determinism(self._spark, self._source.select, f"({sql})")
        return found

    def time_ms(self, frontier: QueryFrontier) -> int | None:
        """Return the time of the newest commit among its inputs; see `SourceReader`."""
        found = [self._inputs[name].time_ms(at) for name, at in frontier.inputs]
        return max((each for each in found if each is not None), default=None)

    def verify(self, frontier: QueryFrontier) -> None:
        """Check that no input was replaced by another table; see `SourceReader`."""
        for name, at in frontier.inputs:
            self._inputs[name].verify(at)

    def _sql(self, frontier: QueryFrontier) -> str:
        pinned = {name: self._pinned(name, at) for name, at in frontier.inputs}
        return pinned_sql(self._source.sql, pinned)

    def _pinned(self, name: str, at: DeltaFrontier) -> str:
        table = self._inputs[name].table_at(at)
        return f"SELECT * FROM {table.sql} VERSION AS OF {at.version}"  # nosec B608  # quoted; a whole number

    def _check(self, sql: str) -> None:
        """Check in Spark's plan, which resolves views, SQL functions and paths, that the query reads only its inputs.

        raises : UnpinnedTableError
        """
        explained = self._spark.sql(f"EXPLAIN EXTENDED {sql}").collect()[0][0]
        if (other := unpinned_relation(explained)) is not None:
            raise UnpinnedTableError("query", f"the query reads {other}, which is not among its inputs.")
        self._checked = sql


def _source(given: str | NamedTable) -> DeltaSource:
    return DeltaSource(path=given) if isinstance(given, str) else DeltaSource(table=given.table)

"""A SQL query as source: every table that it reads is an input, pinned by its version.

A query that only filters rows of one input and computes columns from them follows the input's change data feed: the
rows that the input has lost and gained, put through the query, are those that its result has lost and gained. Of other
queries only the units are computed again that the changes of their inputs can have touched: `following`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core import cost
from airflow_mv_provider.core.changeset import ChangedInput, Changeset, Units, Whole
from airflow_mv_provider.core.explanation import Following, Obstacle
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import StrategyError, UnpinnedTableError
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from airflow_mv_provider.sources.delta.model import DeltaSource
from airflow_mv_provider.sources.delta.reader import DeltaReader
from airflow_mv_provider.sources.projection import Plans, determinism, projected, projected_determinism, with_more
from airflow_mv_provider.sources.query.following import Followed, Input, Kept, Touched, followed, net, signed, touched
from airflow_mv_provider.sources.query.frontier import QueryFrontier
from airflow_mv_provider.sources.query.model import NamedTable, Query
from airflow_mv_provider.sources.query.spark_plan import pinned_sql, unpinned_relation
from airflow_mv_provider.sources.query.units.shape import NotIncrementalError
from airflow_mv_provider.sources.reader import ViewReader
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.compare import corrections
from airflow_mv_provider.spark.errors import translated, understood


class QueryReader(ViewReader[Query, QueryFrontier]):
    """A reader of a query over Delta tables at pinned versions."""

    def __init__(self, spark: SparkSession, source: Query, warehouse: str, roots: Sequence[str]) -> None:
        super().__init__(spark, source, warehouse, roots)
        self._inputs = {
            name: DeltaReader(spark, _source(given), warehouse, roots) for name, given in source.inputs.items()
        }
        self._plans = Plans(spark)
        self._judged: tuple[QueryFrontier, Determinism] | None = None
        self._kept = Kept(spark, [], [])
        self._followed: tuple[QueryFrontier, Followed | Obstacle] | None = None

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
            self._check(sql)
        return rows

    def changes(self, since: Frontier, until: QueryFrontier) -> Changeset:
        """Return whether the inputs' changes show those of the result; see `SourceReader`."""
        if not isinstance(since, QueryFrontier):
            return Whole()
        before, inputs = dict(since.inputs), dict(until.inputs)
        if before.keys() != inputs.keys():
            return Whole()
        found = {name: self._inputs[name].changes(before[name], at) for name, at in inputs.items()}
        if all(each.at_most == 0 for each in found.values()):
            return Whole("no row of its inputs has changed", at_most=0)
        for name, each in found.items():
            if isinstance(each, Whole) and each.at_most != 0:
                return Whole(f"{name}: {each.reason}" if len(found) > 1 else each.reason, is_another=each.is_another)
        if self._is_row_for_row(until):
            return next(iter(found.values()))
        changed = [name for name, each in found.items() if each.at_most != 0]
        of = self._as_followed(until)
        if isinstance(of, Followed):
            changed = [name for name in changed if of.reads(name)]
            if not changed:
                return Whole("no row of an input that it reads has changed", at_most=0)
        queries = of if isinstance(of, Obstacle) else self._affected(of, changed)
        if isinstance(of, Obstacle) or isinstance(queries, Obstacle):
            assert isinstance(queries, Obstacle)
            return Whole(f"not incremental: {queries.reason}")
        sizes = (
            ChangedInput(
                name,
                found[name].at_most if name in changed else 0,
                self._inputs[name].num_rows(at) if name in changed else None,
                self._inputs[name].num_bytes(at),
            )
            for name, at in until.inputs
        )
        return Units(of.unit_columns, tuple(sizes), queries)

    def _is_row_for_row(self, until: QueryFrontier) -> bool:
        return len(until.inputs) == 1 and not self._source.select and self.determinism(until).is_row_for_row

    def following(self, frontier: QueryFrontier) -> Following:
        """Return whether it follows changes of each of its inputs; see `ViewReader`."""
        if self._is_row_for_row(frontier):
            return Following(inputs=tuple((name, None) for name, _ in frontier.inputs))
        of = self._as_followed(frontier)
        if isinstance(of, Obstacle):
            return Following(obstacle=of)
        each = ((name, self._affected(of, [name])) for name, _ in frontier.inputs)
        inputs = tuple((name, found if isinstance(found, Obstacle) else None) for name, found in each)
        return Following(of.unit_columns, inputs=inputs)

    def _affected(self, of: Followed, changed: Sequence[str]) -> tuple[str, ...] | Obstacle:
        """Return queries for the units that changes of some inputs touch, or why there are none."""
        try:
            return of.shown(self._spark, changed)
        except NotIncrementalError as error:
            return error.obstacle

    def _as_followed(self, until: QueryFrontier) -> Followed | Obstacle:
        """Return the query as it can be followed, or why it cannot."""
        if self._followed is None or self._followed[0] != until:
            self._followed = until, self._understood(until)
        return self._followed[1]

    def _understood(self, until: QueryFrontier) -> Followed | Obstacle:
        if self._source.select:
            return Obstacle("`select` stands next to the query", "write it in the query")
        inputs = {name: (self._pinned(name, at), self._inputs[name].read(at).schema) for name, at in until.inputs}
        try:
            with understood("query"):
                return followed(self._spark, self._plans, self._source.sql, inputs, self.key)
        except NotIncrementalError as error:
            return error.obstacle

    def changed(self, since: QueryFrontier, until: QueryFrontier, main: DataFrame) -> DataFrame:
        """Return the rows that the query lost and gained, perhaps with others that it has still; see `SourceReader`."""
        if self._is_row_for_row(until):
            ((name, before),), ((_, at),) = since.inputs, until.inputs
            rows = self._inputs[name].changed(before, at, main)
            return reduce(DataFrame.unionAll, (self._of_rows(name, rows, sign) for sign in (-1, 1)))
        of = self._as_followed(until)
        if isinstance(of, Obstacle):
            raise StrategyError("query", f"not incremental: {of.reason}.")
        try:
            with translated("query"):
                inputs = self._between(of, since, until, main)
                found = touched(of, inputs, self._kept)
                self._check_worth(found, until, main)
                self.note = _text(of, found)
                return signed(of, self._source.sql, inputs, main, found, self._kept)
        except NotIncrementalError as error:
            raise StrategyError("query", f"not incremental: {error}.") from error

    def _check_worth(self, found: Touched, until: QueryFrontier, main: DataFrame) -> None:
        """Check that computing the touched units again costs less than computing everything, unless it was requested.

        raises : StrategyError
        """
        if self.must_follow:
            return
        sizes = [self._inputs[name].num_bytes(at) for name, at in until.inputs]
        if None in sizes:
            return
        num_rows = main.count()
        if not cost.is_worth_units(found.num_units, num_rows, sum(each or 0 for each in sizes)):
            problem = f"its inputs' changes touch {found.num_units:,} units, and the table has {num_rows:,} rows"
            raise StrategyError("query", f"{problem}: computing all of it costs less.")

    def _between(self, of: Followed, since: QueryFrontier, until: QueryFrontier, main: DataFrame) -> list[Input]:
        """Return the inputs at the two ends of a change; those without a changed row as they are at its end."""
        found, before = [], dict(since.inputs)
        for name, at in until.inputs:
            reader, was = self._inputs[name], before[name]
            changes = reader.changes(was, at)
            rows = None
            if changes.at_most == 0 or not of.reads(name):
                was = at
            else:
                rows = self._kept.once(net(reader.changed(was, at, main), changes))
            found.append(Input(name, self._pinned(name, was), self._pinned(name, at), reader.read(at), rows))
        return found

    def _of_rows(self, name: str, rows: DataFrame, sign: int) -> DataFrame:
        """Return the query's rows over the rows of one sign, (columns of the query, _mv_sign int)."""
        some = self._kept.view(rows.where(F.col(corrections.SIGN) == sign).drop(corrections.SIGN))
        sql = pinned_sql(self._source.sql, {name: some})
        with understood("query"):
            return self._spark.sql(sql).withColumn(corrections.SIGN, F.lit(sign))

    def close(self) -> None:
        """Forget what was kept to compute changes."""
        self._kept.forget()

    def determinism(self, frontier: QueryFrontier) -> Determinism:
        """Return whether Spark finds the query and its projection deterministic; see `SourceReader`."""
        if self._judged is None or self._judged[0] != frontier:
            self._judged = frontier, self._determinism(self._sql(frontier))
        return self._judged[1]

    def _determinism(self, sql: str) -> Determinism:
        found = determinism(self._spark, sql, self._source.sql, "query", self._plans)
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
        if (other := unpinned_relation(self._plans.explained(sql))) is not None:
            raise UnpinnedTableError("query", f"the query reads {other}, which is not among its inputs.")


def _text(of: Followed, found: Touched) -> str:
    """Return how much is computed again, for the report."""
    what = f"{found.num_units:,} unit{'' if found.num_units == 1 else 's'} of {', '.join(of.unit_columns)}"
    by_input = ", ".join(f"{name}: {number:,}" for name, number in sorted(found.by_input.items()))
    return f"{what} computed again ({by_input})"


def _source(given: str | NamedTable) -> DeltaSource:
    return DeltaSource(path=given) if isinstance(given, str) else DeltaSource(table=given.table)

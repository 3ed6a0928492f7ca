"""Apply a definition's projection to a source's rows, and determine whether it is deterministic.

Spark's analysis decides, so no job runs and Spark Connect works too: every expression is marked as deterministic or
not, and an aggregate function refuses an argument that is not. `sources.query.spark_plan` lists the functions that
Spark calls deterministic only because their value is fixed within one query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import KeyColumnError
from airflow_mv_provider.sources.query.spark_plan import changing_literal, changing_value, is_row_by_row, reads_more
from airflow_mv_provider.spark.conflicts import ordering
from airflow_mv_provider.spark.errors import condition_of, understood

MORE_THAN_ROWS = "the projection uses more than one row at a time"
_NOT_DETERMINISTIC = "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION"
_MAX_FIELDS = "spark.sql.debug.maxToStringFields"  # by default a plan shows only an operator's first 25 columns


def projected_with(rows: DataFrame, select: Sequence[str] | None, column: str) -> DataFrame:
    """As `projected`, but also keep `column` of `rows`."""
    found = projected(rows, select)
    return found if column in found.columns else projected(rows, (*(select or ()), column))


def with_more(
    rows: DataFrame, select: Sequence[str] | None, more: Sequence[str], others: Collection[str] = ()
) -> Sequence[str] | None:
    """Return a projection that also keeps `more` columns of `rows`; a `*` in it includes neither these nor `others`."""
    others = {*more, *others}
    if not others:
        return select
    of_source = [quoted(name) for name in rows.columns if name not in others]
    wanted = (each for text in select or ("*",) for each in (of_source if text.strip() == "*" else [text]))
    return [*wanted, *map(quoted, more)]


def projected(rows: DataFrame, select: Sequence[str] | None, extra: Sequence[str] = ()) -> DataFrame:
    """Return `rows` after the projection `select`, if there is one; lazy.

    extra  : names of the columns that rows are ordered by, looked up after the projection, then before it
    returns : the columns of the projection, and those of `extra` that it lacks, renamed by `ordering`
    raises  : DefinitionError, if Spark cannot analyse the projection; KeyColumnError, if one of `extra` does not exist
    """
    with understood("select"):
        found = rows.selectExpr(*select) if select else rows
        lacking = [name for name in extra if name not in found.columns]
        if not lacking:
            return found
        if missing := [name for name in lacking if name not in rows.columns]:
            known = ", ".join(dict.fromkeys((*found.columns, *rows.columns)))
            problem, hint = f"order_by column {missing[0]!r} is not among {known}.", "Correct `order_by`."
            raise KeyColumnError("source", problem, column=missing[0], hint=hint)
        kept = (f"{quoted(name)} AS {quoted(ordering(name))}" for name in lacking)
        return rows.selectExpr(*(select or ["*"]), *kept)


def projected_determinism(spark: SparkSession, select: Sequence[str] | None, relation: str) -> Determinism:
    """Return whether the projection of a pinned `relation` (SQL) returns the same rows each time.

    raises : DefinitionError, if Spark cannot analyse it
    """
    if not select:
        return Determinism()
    wanted = "\n, ".join(select)  # an expression may end in a comment
    return determinism(spark, f"SELECT {wanted}\nFROM {relation}", wanted, "projection")  # nosec B608  # the author's


class Plans:
    """Plans of queries over pinned relations; for each Delta asks for the files of every relation, so once is enough.

    Cost:
        0.1 to 0.3 s for each query.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._found: dict[str, str] = {}

    def explained(self, sql: str) -> str:
        """Return what EXPLAIN EXTENDED shows, with all columns of each operator."""
        if sql not in self._found:
            with _all_columns(self._spark):
                self._found[sql] = str(self._spark.sql(f"EXPLAIN EXTENDED {sql}").collect()[0][0])
        return self._found[sql]


def determinism(spark: SparkSession, sql: str, author_sql: str, what: str, plans: Plans | None = None) -> Determinism:
    """Return whether `sql`, a query over pinned relations, returns the same rows each time.

    author_sql : the part of `sql` that comes from the definition
    what       : "projection" or "query"; only a query may contain subqueries, because its inputs are pinned
    raises     : DefinitionError, if Spark cannot analyse it
    """
    with understood("select" if what == "projection" else what):
        explained = (plans or Plans(spark)).explained(sql)
        spark.sql(sql).schema  # noqa: B018  # EXPLAIN does not raise if there is no plan
        is_constant = _is_deterministic(spark, sql)
    changing = changing_literal(author_sql) or changing_value(explained)
    nondeterminism_reason: str | None = None
    if changing is not None:
        nondeterminism_reason = f"the {what} is not deterministic ({changing})"
    elif not is_constant:
        nondeterminism_reason = f"the {what} is not deterministic"
    elif what == "projection" and reads_more(explained):
        nondeterminism_reason = "the projection contains a subquery, which reads tables that are not pinned"
    return Determinism(nondeterminism_reason, is_row_by_row(explained))


def _is_deterministic(spark: SparkSession, sql: str) -> bool:
    """True if Spark marks all expressions of a query as deterministic, including those in SQL functions."""
    try:
        spark.sql(f"SELECT any_value(EXISTS(\n{sql}\n))").schema  # noqa: B018  # nosec B608  # the author's
    except AnalysisException as error:
        if condition_of(error) != _NOT_DETERMINISTIC:
            raise
        return False
    return True


@contextmanager
def _all_columns(spark: SparkSession) -> Iterator[None]:
    """Show all columns of an operator in plans inside the block."""
    before = spark.conf.get(_MAX_FIELDS)
    spark.conf.set(_MAX_FIELDS, "1000000")
    try:
        yield
    finally:
        spark.conf.set(_MAX_FIELDS, before or "25")

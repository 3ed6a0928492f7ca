"""Which values that an event of Debezium leaves out are of no concern to `select`: main's take their place after it.

"*", name     the value passes as it is, so it can be filled in later
upper(name)   an expression needs it now: without it the event is incomplete
not selected  it is not needed
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.sources.kafka.replay import AT, UNFILLED, refused
from airflow_mv_provider.spark.causes.streams import UNFILLED_EVENT


def left_to_main(
    select: Sequence[str], names: Sequence[str], gaps: Collection[str], without: Callable[[Collection[str]], DataFrame]
) -> Column:
    """Return the names of a row's missing values that main has to fill in, after the projection.

    select  : with "*" replaced by the names
    names   : of the row's columns
    gaps    : those of them that an event may leave out
    without : returns a frame with what `select` may use, but for some of the gaps
    cost    : an analysis, or one for each gap; no job
    raises  : while it is evaluated: EventIncompleteError
    """
    passed = [name for name in names if name in select or quoted(name) in select]
    expressions = [each for each in select if each not in {text for name in passed for text in (name, quoted(name))}]
    needed = F.array(*map(F.lit, _needed(expressions, gaps, without))).cast("array<string>")
    lacking = F.array_join(F.array_intersect(F.col(UNFILLED), needed), ", ")
    error = refused(
        UNFILLED_EVENT, F.col(AT), F.concat(lacking, F.lit(" is not in the event, and `select` computes with it"))
    )
    left = F.array_intersect(F.col(UNFILLED), F.array(*map(F.lit, passed)).cast("array<string>"))
    return F.when(lacking != "", error.cast("array<string>")).otherwise(left)


def _needed(
    expressions: Sequence[str], gaps: Collection[str], without: Callable[[Collection[str]], DataFrame]
) -> list[str]:
    """Return the gaps that expressions refer to: they cannot be analysed without them. A "*" may refer to any."""
    if any("*" in each for each in expressions):
        return list(gaps)
    if not expressions or _can_be_analysed(expressions, without(gaps)):
        return []
    return [gap for gap in gaps if not _can_be_analysed(expressions, without([gap]))]


def _can_be_analysed(expressions: Sequence[str], frame: DataFrame) -> bool:
    try:
        _ = frame.selectExpr(*expressions).schema
    except AnalysisException:
        return False
    return True

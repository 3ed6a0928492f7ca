"""Find, without failing, the rows for which SQL of a definition raises an error.

Spark has no function for that. `try_to_binary` evaluates its argument inside the same try as itself, so it is NULL if
anything in the argument raises. The argument here is never NULL, and Spark's optimizer cannot leave out any part of it.

A session evaluates common parts of expressions once, and outside of that try: `prepare` switches this off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

_COMMON_PARTS = "spark.sql.subexpressionElimination.enabled"
_NAME = r"(?:`(?:[^`]|``)+`|\w+)"
# A column, perhaps of a struct and under another name, or all columns: reading it cannot raise.
_PLAIN = re.compile(
    rf"\s*(?!not\b){_NAME}(?:\.{_NAME})*(?:\s+(?:as\s+)?{_NAME})?\s*|\s*(?:{_NAME}\.)*\*\s*", re.IGNORECASE
)
_TRUE = "X'74727565'"  # the text of true in UTF-8


def prepare(spark: SparkSession) -> None:
    """Make a session evaluate what this module returns as it is written."""
    spark.conf.set(_COMMON_PARTS, "false")


def is_true(condition: str) -> Column:
    """Return whether an SQL condition is true or NULL; False for a row for which it raises."""
    text = f"try_to_binary(string(coalesce(({condition}\n), true)), 'utf-8')"  # the line break ends a comment
    return F.coalesce(F.expr(f"{text} = {_TRUE}"), F.lit(False))


def is_computable(expressions: Sequence[str]) -> Column:
    """Return whether none of some expressions, as `select` has them, raises for a row; never NULL."""
    inside = ", ".join(f"{expression}\n" for expression in expressions)
    return F.expr(f"try_to_binary(string(size(array(struct({inside})))), 'utf-8') IS NOT NULL")


def fallible(rows: DataFrame, select: Sequence[str]) -> tuple[str, ...]:
    """Return the expressions of a projection that may raise for a row, and can be looked at row by row; runs no job.

    Left out are those that use several rows, make several, or name the alias of another one.
    """
    found = tuple(text for text in select if not _PLAIN.fullmatch(text))
    if not found or _is_accepted(rows, found):
        return found
    return tuple(text for text in found if _is_accepted(rows, [text]))


def _is_accepted(rows: DataFrame, expressions: Sequence[str]) -> bool:
    try:
        rows.where(is_computable(expressions)).schema  # noqa: B018  # a Connect client analyses only now
    except AnalysisException:
        return False
    return True

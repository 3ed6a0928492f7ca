"""The range of each key column among changed rows, as conditions by which Delta skips files of main.

Delta's log has the smallest and the largest value of each column in each data file. Where main lies about in the order
of its key, as after a load from files that came one after the other, a MERGE of neighbouring rows then reads few of its
files. Delta compares these values with literals only, so the ranges are values in the MERGE's condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.identifier import literal, quoted
from airflow_mv_provider.spark.layout import Layout, sql_type

_MAX_CHARS = 64  # of a text: the condition is written to main's log
_INTEGERS = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z")


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The smallest and the largest value of one key column among some rows; None if it is unknown."""

    column: str
    kind: str
    low: int | str | None
    high: int | str | None

    def sql(self, alias: str) -> str | None:
        """Return the condition that a row of `alias` lies in the range; None if no literal is as precise."""
        if self.low is None or self.high is None or (found := _literals(self.kind, self.low, self.high)) is None:
            return None
        column = f"{quoted(alias)}.{quoted(self.column)}"
        return f"{column} >= {found[0]} AND {column} <= {found[1]}"


def ranged(layout: Layout) -> Mapping[str, str]:
    """Return the key columns that ranges are kept of, with their types: integers, texts and dates."""
    kinds = {name: sql_type(layout.column(name)) for name in layout.table.key}
    return {name: kind for name, kind in kinds.items() if kind in _INTEGERS or kind in ("string", "date")}


def extremes(layout: Layout) -> list[Column]:
    """Return aggregates over rows: the smallest and the largest value of each column of `ranged`.

    A text that is no UTF-8 is NULL, because it would arrive as another text.
    """
    return [
        _as_value(extreme(quoted(name)), kind) for name, kind in ranged(layout).items() for extreme in (F.min, F.max)
    ]


def _as_value(extreme: Column, kind: str) -> Column:
    if kind == "string":
        return F.when(F.is_valid_utf8(extreme), extreme)
    return extreme.cast("bigint" if kind in _INTEGERS else "string")


def key_ranges(layout: Layout, groups: Iterable[Sequence[int | str | None]]) -> tuple[KeyRange, ...]:
    """Return the ranges that cover several groups of rows.

    groups : the values of `extremes` of each group
    """
    found = list(groups)
    return tuple(
        KeyRange(name, kind, _of(min, found, 2 * place), _of(max, found, 2 * place + 1))
        for place, (name, kind) in enumerate(ranged(layout).items())
    )


def within_sql(alias: str, ranges: Iterable[KeyRange]) -> list[str]:
    """Return the conditions that a row of `alias` has a key in each of the ranges; true for each row in them."""
    return [condition for each in ranges if (condition := each.sql(alias)) is not None]


def _of(
    extreme: Callable[[Iterable[int | str]], int | str], groups: Iterable[Sequence[int | str | None]], place: int
) -> int | str | None:
    """Return the extreme of all groups; None if it is unknown of one of them."""
    values = [group[place] for group in groups]
    known = [value for value in values if value is not None]
    return extreme(known) if known and len(known) == len(values) else None


def _literals(kind: str, low: int | str, high: int | str) -> tuple[str, str] | None:
    """Return two values as literals of exactly the column's type: Delta skips no file by a cast."""
    texts = str(low), str(high)
    if kind in _INTEGERS:
        return f"{texts[0]}{_INTEGERS[kind]}", f"{texts[1]}{_INTEGERS[kind]}"
    if kind == "date":
        # Spark's texts of years before 0 and after 9999 have a sign, and do not sort as their dates do.
        return (f"DATE '{texts[0]}'", f"DATE '{texts[1]}'") if all(map(_DATE.match, texts)) else None
    return (literal(texts[0]), literal(texts[1])) if max(map(len, texts)) <= _MAX_CHARS else None

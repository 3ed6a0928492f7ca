"""The rows with one key: at a version of main, as its feed shows what commits did to them, and in a history."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.approval.row_history import Row, RowVersion, changes_between
from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.history import History
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.problems import nearest
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.exceptions import ArgumentError
from airflow_mv_provider.spark import delta, typed_values
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import columns, sql_type

_KIND, _VERSION = "_change_type", "_commit_version"
_FEED_COLUMNS = (_KIND, _VERSION, "_commit_timestamp")
_BEFORE, _AFTER = ("delete", "update_preimage"), ("insert", "update_postimage")
_MAX_VERSIONS = 1000
_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx"
_MAX_COPIES = 100  # rows with one key, which only another writer can have made


@dataclass(frozen=True, slots=True)
class OneRow:
    """Which rows of main are meant.

    key    : the text of each key column's value, as Spark spells it
    types  : of the key columns, as SQL
    column : the only column that is looked at beside the key; None for all
    """

    key: Mapping[str, str]
    types: Mapping[str, str]
    column: str | None = None

    @property
    def condition(self) -> Column:
        """The condition that a row has the key; typed literals let Delta skip files."""
        each = (F.col(quoted(c)) == F.lit(value).cast(self.types[c]) for c, value in self.key.items())
        return reduce(Column.__and__, each)

    def names(self, rows: DataFrame, *internal: str) -> list[str] | None:
        """Return which columns of rows are looked at; None if they lack one of the key."""
        if not {name.lower() for name in self.key} <= {name.lower() for name in rows.columns}:
            return None
        wanted = None if self.column is None else {self.column, *self.key}
        return [name for name in rows.columns if name not in internal and (wanted is None or name in wanted)]


def asked(spark: SparkSession, ref: TableRef, where: str, key: Mapping[str, str], column: str | None) -> OneRow:
    """Return the row of main with this key.

    key    : the text of each key column's value
    column : in any case
    cost   : one job without rows
    raises : ArgumentError, if a value is none of its column, or main lacks a column
    """
    with translated(where):
        columns_of_main = schema.columns_of(delta.schema_of(spark, ref).jsonValue())
    known = {each.name.lower(): each for each in columns_of_main}
    names = [each.name for each in known.values()]
    for name in (*key, *([] if column is None else [column])):
        if name.lower() not in known:
            problem = f"the table has no column {name[:80]!r}{nearest(name, names)}."
            raise ArgumentError(where, problem, hint=f"Its columns: {', '.join(names)[:300]}.")
    typed = [(known[name.lower()], value) for name, value in key.items()]
    texts = typed_values.canonicalize(spark, typed, where)
    for (kept, value), text in zip(typed, texts, strict=True):
        if kept.shown_type.startswith("decimal") and not _is_same_number(value, text):
            problem = f"{value[:80]!r} is not a value of {kept.name!r}, which is a {kept.shown_type}."
            raise ArgumentError(where, problem)
    return OneRow(
        {kept.name: text for (kept, _), text in zip(typed, texts, strict=True)},
        {kept.name: sql_type(kept) for kept, _ in typed},
        None if column is None else known[column.lower()].name,
    )


def _is_same_number(text: str, other: str) -> bool:
    """True if a cast has not rounded."""
    try:
        return Decimal(text.strip()) == Decimal(other)
    except InvalidOperation:
        return False


def rows_at(main: delta.Main, where: str, one: OneRow, version: int) -> tuple[Row, ...] | None:
    """Return the rows with the key at a version; None if main had no such key column then.

    cost   : a scan of the files whose statistics may have the key, in one job
    raises : MvError, also if the version cannot be read any more
    """
    rows = delta.read(main.spark, main.ref, version)
    with translated(where):
        names = one.names(rows)
        if names is None:
            return None
        found = rows.where(one.condition).select(as_json(names)).limit(_MAX_COPIES).collect()
    return tuple(parsed(row[0]) for row in found)


def changes_in_feed(
    main: delta.Main, where: str, one: OneRow, first: int, last: int
) -> dict[int, tuple[tuple[Row | None, Row | None], ...]]:
    """Return what each version from `first` to `last` did to the rows with the key, by the change feed; in one job.

    raises : MvError, if the feed does not have all of these versions, or they do not have the same columns
    """
    with translated(where):
        feed = delta.change_feed(main.spark, main.ref, first, last)
        names = one.names(feed, *_FEED_COLUMNS) or []
        found = feed.where(one.condition).select(_KIND, _VERSION, as_json(names)).collect()
    gone, new = defaultdict[int, list[Row]](list), defaultdict[int, list[Row]](list)
    for kind, version, row in found:
        if kind in _BEFORE:
            gone[version].append(parsed(row))
        elif kind in _AFTER:
            new[version].append(parsed(row))
    return {version: changes_between(gone[version], new[version]) for version in sorted({*gone, *new})}


def versions_of(spark: SparkSession, where: str, found: delta.Main, history: History, one: OneRow) -> list[RowVersion]:
    """Return the versions of a row, oldest first, the newest thousand; times as ISO 8601, UTC.

    cost : a scan of the files whose statistics may have the key, in one job
    """
    names = history.names
    start, end = (F.date_format(quoted(name), _ISO).alias(name) for name in names[:2])
    rows = delta.newest(spark, found.ref)
    own = (start, end, *columns(names[2:]))
    with translated(where):
        kept = [name for name in rows.columns if name not in names]
        newest = rows.where(one.condition).orderBy(F.col(quoted(names[0])).desc()).limit(_MAX_VERSIONS)
        listed = newest.select(*own, as_json(kept)).collect()
    return [RowVersion(*(*own_values, parsed(row))) for *own_values, row in reversed(listed)]


def as_json(names: Sequence[str]) -> Column:
    """Return a row's values of these columns as one JSON object."""
    return F.to_json(F.struct(*columns(names)), {"ignoreNullFields": "false"})


def parsed(text: str) -> dict[str, Any]:
    """Return the values of a JSON object; a fraction stays text, because a decimal has more digits than a float."""
    found: dict[str, Any] = json.loads(text, parse_float=str)
    return found

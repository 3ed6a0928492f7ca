"""Which versions of rows end and begin: by main's corrections, or by comparing current versions with main's rows.

    changes   recorded corrections ────────────┐
    compare   main's rows, current versions ───┴─▶ actions, which `spark.history` merges

Each action concerns one key:

    C  close   the current version ends
    N  new     a version begins
    P  patch   the current version gets other values in columns that begin no version
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.history import CHANGED, DELETED, OPENED, History
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.spark.compare import hashing
from airflow_mv_provider.spark.compare.corrections import OP, brings_row
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import columns, same_values, sql_type

ACTION, AT, HOW, LATE = "_mv_action", "_mv_at", "_mv_how", "_mv_late"
ACTION_COLUMNS = (
    schema.Column(ACTION, "string"),
    schema.Column(AT, "timestamp"),
    schema.Column(HOW, "string"),
    schema.Column(LATE, "boolean"),
)
_GONE = "_mv_gone"
_OLD, _NEW = "o", "n"
_FAR_S = 253_402_300_799  # the end of the year 9999


@dataclass(frozen=True, slots=True)
class Versions:
    """What a history's rows are made of.

    columns    : main's, which each version has
    valid_ms   : from when new versions are valid, unless a column of theirs says that
    refresh_id : of the refresh that begins them
    """

    table: RefreshableTable
    columns: tuple[schema.Column, ...]
    valid_ms: int
    refresh_id: str

    @property
    def history(self) -> History:
        assert self.table.history is not None
        return self.table.history

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def all_columns(self) -> tuple[schema.Column, ...]:
        """The columns of the history."""
        return (*self.columns, *self.history.own_columns)

    @property
    def at(self) -> Column:
        """From when new versions are valid."""
        return F.timestamp_millis(F.lit(self.valid_ms))

    @property
    def no_end(self) -> Column:
        """The end of a version that has none."""
        return F.lit(self.history.valid_to_current).cast("timestamp")


def actions_of_corrections(corrections: DataFrame, of: Versions) -> DataFrame:
    """Return the actions of main's corrections, which alone decide them: (_mv_action, _mv_at, _mv_how, *columns)."""
    op, key = F.col(OP), columns(of.table.key)
    came = corrections.where(brings_row())
    gone = corrections.where(~brings_row())
    how = F.when(op == "I", OPENED).otherwise(CHANGED)
    moved = gone.select(*key, F.lit(True).alias("_mv_moved")).distinct()
    if of.table.may_move:  # the key is deleted in one partition and inserted in another: its row has changed
        came = came.join(moved, _same_key(came, moved, of), "left").select(came["*"], F.col("_mv_moved"))
        how = F.when(F.col("_mv_moved"), CHANGED).otherwise(how)
    new = came.select(F.lit("N").alias(ACTION), of.at.alias(AT), how.alias(HOW), *columns(of.names))
    keys = corrections.where(~op.isin("I", "R")).select(*key)  # an X stands before its R
    keys = keys.distinct() if of.table.may_move else keys
    ends = (F.lit("C").alias(ACTION), of.at.alias(AT), F.lit(None).cast("string").alias(HOW))
    return new.unionByName(keys.select(*ends, *key), allowMissingColumns=True)


def changed_rows(corrections: DataFrame, of: Versions) -> DataFrame:
    """Return main's rows of the keys that corrections concern: (*columns, _mv_gone boolean), one for each key."""
    came = corrections.where(brings_row()).select(*columns(of.names), F.lit(False).alias(_GONE))
    gone = corrections.where(~brings_row()).select(*columns(of.table.key)).distinct()
    gone = gone.join(came, _same_key(gone, came, of), "left_anti").withColumn(_GONE, F.lit(True))
    return came.unionByName(gone, allowMissingColumns=True)


def actions_between(current: DataFrame, rows: DataFrame, of: Versions, *, is_all: bool) -> DataFrame:
    """Return the actions that bring current versions to main's rows: (_mv_action, _mv_at, _mv_how, *columns).

    current : versions of the history, those that are current
    rows    : one row for each key: as `changed_rows` returns them, or all rows of main, (*columns)
    is_all  : a current version without one of `rows` is of a row that is gone
    """
    history, names = of.history, of.names
    rows = rows.select(*columns(names), F.lit(False).alias(_GONE)) if is_all else rows
    keys = rows.select(*columns(of.table.key))
    current = current if is_all else current.join(keys, _same_key(current, keys, of), "left_semi")
    old = _one_for_each_key(current, of).alias(_OLD)
    new = rows.alias(_NEW)
    on = same_values("o", "n", of.table.key)
    both = old.join(new, reduce(Column.__and__, on), "full" if is_all else "right")
    had = F.col(f"o.{quoted(history.is_current)}").isNotNull()
    is_doubled = had & (F.col("o._mv_copies") > 1)  # by another program: all of them end, and one begins
    is_marked = had & (F.col(f"o.{quoted(history.operation)}") == DELETED)
    is_there = F.coalesce(~F.col(f"{_NEW}.{_GONE}"), F.lit(False))

    def is_same(kept: Sequence[str]) -> Column:
        chosen = [column for column in of.columns if column.name in kept]
        pair = (hashing.row_hash(chosen, partial(_value_of, side)) for side in (_OLD, _NEW))
        return F.expr(" = ".join(pair)) if chosen else F.lit(True)

    is_as_tracked = is_same(history.tracked(names))
    at = time_of(of, _NEW)
    begun = F.col(f"o.{quoted(history.valid_from)}")
    after = F.when(is_there, at).otherwise(of.at)
    # A late time, or the same one, is ordered behind the version that it follows.
    ordered = F.when(begun.isNull(), after).otherwise(F.greatest(after, begun + F.expr("INTERVAL 1 MICROSECOND")))
    ended = {"close": "C", "mark": "CD", "keep": ""}[history.deletes]
    what = (
        F.when(is_there & ~had, "N")
        .when(is_there & is_marked, "CN")
        .when(is_there & (is_doubled | ~is_as_tracked), "CU")
        .when(is_there & ~is_same(names), "P")
        .when(~is_there & is_marked, "C" if history.deletes == "close" else "")  # another rule has marked it
        .when(~is_there & had, ended)
        .otherwise("")
    )
    value = [F.when(is_there, F.col(f"n.{quoted(c)}")).otherwise(F.col(f"o.{quoted(c)}")).alias(c) for c in names]
    found = both.select(what.alias("_mv_what"), ordered.alias(AT), (after < ordered).alias(LATE), *value)
    each = F.explode(F.split("_mv_what", "")).alias("_mv_each")
    found = found.where("_mv_what <> ''").select(each, AT, LATE, *columns(names)).where("_mv_each <> ''")
    letter = F.col("_mv_each")
    action = F.when(letter.isin("C", "P"), letter).otherwise("N")
    how = F.when(letter == "N", OPENED).when(letter == "U", CHANGED).when(letter == "D", DELETED)
    return found.select(action.alias(ACTION), AT, how.alias(HOW), LATE, *columns(names))


@dataclass(frozen=True, slots=True)
class Differences:
    """How current versions differ from main's rows, and what is wrong among all versions.

    missing     : rows of main without a current version
    extra       : current versions without a row of main
    overlapping : versions that begin before the one before them of the same key has ended
    """

    missing: int
    extra: int
    different: int
    same: int
    overlapping: int


def differences(versions: DataFrame, rows: DataFrame, of: Versions) -> Differences:
    """Compare current versions with main's rows, and look for versions that overlap.

    versions : all of the history
    rows     : (*columns) of main
    cost     : a shuffle of main and the current versions by key, and one of the begins and ends of all versions
    """
    history = of.history
    old = _one_for_each_key(versions.where(F.col(quoted(history.operation)) != DELETED), of).alias(_OLD)
    new = rows.select(*columns(of.names), F.lit(True).alias("_mv_there")).alias(_NEW)
    on = same_values("o", "n", of.table.key)
    both = old.join(new, reduce(Column.__and__, on), "full")
    had, is_there = F.col(f"o.{quoted(history.is_current)}").isNotNull(), F.col("_mv_there").isNotNull()
    pair = (hashing.row_hash(of.columns, partial(_value_of, side)) for side in (_OLD, _NEW))
    is_same = F.expr(" = ".join(pair))
    counts = (is_there & ~had, had & ~is_there, had & is_there & ~is_same, had & is_there & is_same)
    begun, ended = F.col(quoted(history.valid_from)), F.col(quoted(history.valid_to))
    before = F.lag(F.coalesce(ended, F.timestamp_seconds(F.lit(_FAR_S)))).over(
        Window.partitionBy(*columns(of.table.key)).orderBy(begun, ended.asc_nulls_last())
    )
    with translated(of.table.name):
        found_counts = both.agg(*map(F.count_if, counts)).collect()[0]
        overlapping = versions.select((begun < before).alias("is")).agg(F.count_if("is")).collect()[0][0]
    return Differences(*(*found_counts, overlapping))


def behind(actions: DataFrame, ended: DataFrame, of: Versions) -> DataFrame:
    """Return actions whose versions begin after all that their keys have had.

    A row that comes back with the time that it had would be valid while it was gone.

    ended : versions that have ended
    """
    keys, last = columns(of.table.key), F.col("_mv_last")
    ends = ended.groupBy(*keys).agg(F.max(quoted(of.history.valid_to)).alias("_mv_last"))
    both = actions.join(ends, _same_key(actions, ends, of), "left").select(actions["*"], last)
    is_before = (F.col(ACTION) == "N") & (F.col(AT) < last)
    moved = {AT: F.when(is_before, last).otherwise(F.col(AT)), LATE: F.coalesce(is_before, F.lit(False)) | F.col(LATE)}
    return both.select(*(moved[c].alias(c) if c in moved else F.col(quoted(c)) for c in actions.columns))


def has_twice(rows: DataFrame, of: Versions) -> bool:
    """True if a key has several rows.

    cost : a shuffle of the rows by key
    """
    copies = rows.groupBy(*columns(of.table.key)).agg(F.count(F.lit(1)).alias("_mv_copies"))
    with translated(of.table.name):
        return not copies.where("_mv_copies > 1").isEmpty()


def unfit_times(rows: DataFrame, of: Versions, latest_ms: int) -> tuple[int, int]:
    """Return how many rows have no time, and how many one that is later than the latest that one may have.

    cost : a scan of the rows
    """
    name = of.history.time_column
    assert name is not None
    time = F.col(quoted(name))
    is_ahead = time.cast("timestamp") > F.timestamp_millis(F.lit(latest_ms))
    with translated(of.table.name):
        missing, ahead = rows.agg(F.count_if(time.isNull()), F.count_if(is_ahead)).collect()[0]
    return missing, ahead


def _value_of(alias: str, column: schema.Column) -> str:
    return f"{alias}.{quoted(column.name)}"


def is_current(of: Versions) -> Column:
    """Return the condition that a version is current."""
    return F.col(quoted(of.history.is_current))


def time_of(of: Versions, alias: str | None) -> Column:
    """Return from when the version of a row is valid: its own time, or when it came if it has none."""
    name = of.history.time_column
    if name is None:
        return of.at
    own = F.col(quoted(name) if alias is None else f"{alias}.{quoted(name)}")
    return F.coalesce(own.cast("timestamp"), of.at)


def _one_for_each_key(current: DataFrame, of: Versions) -> DataFrame:
    """Return the current versions as main's columns are now, and how many a key has: (…, _mv_copies).

    Of several, which only another program can have made, it is the latest.
    """
    rows = current.where(is_current(of))
    have = {c.name.lower(): c for c in schema.columns_of(rows.schema.jsonValue())}
    begun = F.col(quoted(of.history.valid_from))

    def value(column: schema.Column) -> Column:
        # Its type may be narrower than main's by now, and a hash of another type is another hash.
        found = have.get(column.name.lower())
        if found is not None and found.type == column.type:
            return F.col(quoted(found.name)).alias(column.name)
        text = F.lit(None) if found is None else F.col(quoted(found.name))
        return text.try_cast(sql_type(column)).alias(column.name)

    others = [value(column) for column in of.columns if column.name not in of.table.key]
    kept = F.struct(begun, *others, *columns((of.history.is_current, of.history.operation)))
    number = F.count(F.lit(1)).alias("_mv_copies")
    latest = rows.groupBy(*columns(of.table.key)).agg(F.max_by(kept, begun).alias("_mv_version"), number)
    return latest.select(*columns(of.table.key), "_mv_version.*", "_mv_copies")


def _same_key(left: DataFrame, right: DataFrame, of: Versions) -> Column:
    return reduce(Column.__and__, (left[quoted(k)].eqNullSafe(right[quoted(k)]) for k in of.table.key))

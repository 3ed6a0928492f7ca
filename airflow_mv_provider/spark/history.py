"""Write the versions of a table's rows to its history, in one commit for each publish.

    main's rows ─▶ one overwrite, where a history begins
    actions ─────▶ one MERGE into the current versions (`spark.compare.versions`)

The MERGE reads the partition of current versions alone, so its cost does not grow with those that have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.history import OPENED, History
from airflow_mv_provider.core.definition.identifier import literal, quoted
from airflow_mv_provider.core.fence import CommitNote
from airflow_mv_provider.core.progress.publishing import MergeFacts, merge_form
from airflow_mv_provider.spark import delta, storage
from airflow_mv_provider.spark.bitmap import bitmap_of
from airflow_mv_provider.spark.compare.versions import ACTION, ACTION_COLUMNS, AT, HOW, LATE, Versions, behind, time_of
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import columns

# Of a new history. Statistics of when versions end, behind however many columns: shedding and as-of queries skip files
# by them, and by default Delta has them of the first 32 columns.
PROPERTIES = {"delta.dataSkippingNumIndexedCols": "-1"}


def begin(found: Main, rows: DataFrame, of: Versions, note: CommitNote) -> None:
    """Write main's rows as the first versions, in one commit that replaces whatever there is.

    rows : (*columns), each key once
    """
    own = dict(zip(("from", "to", "is_current", "how", "refresh"), of.history.names, strict=True))
    versions = rows.select(
        *columns(of.names),
        time_of(of, None).alias(own["from"]),
        of.no_end.alias(own["to"]),
        F.lit(True).alias(own["is_current"]),
        F.lit(OPENED).alias(own["how"]),
        F.lit(of.refresh_id).alias(own["refresh"]),
    )
    with translated(of.table.name):
        found.overwrite(versions, note, new_partitions=[of.history.is_current])


def kept_actions(
    spark: SparkSession, actions: DataFrame, ended: DataFrame, of: Versions, path: str
) -> tuple[DataFrame, int, int]:
    """Write actions that took a join, and return them as read back, how many they are, and how many versions are late.

    ended : versions that have ended
    late  : its own time is not after the begin of the version that it follows
    cost  : a job; if a column has the versions' times, a scan of what has ended since the earliest of a new row, too
    """
    end = quoted(of.history.valid_to)
    with translated(of.table.name):
        storage.write(actions, path)
        found = storage.read(spark, of.table.name, path, [*ACTION_COLUMNS, *of.columns])
        is_new = F.col(ACTION) == "N"
        num_late = F.count_if(is_new & F.col(LATE))
        opened = F.min(F.when(is_new & (F.col(HOW) == OPENED), F.unix_micros(AT)))  # others follow a current version
        number, late, first_us = found.agg(F.count(F.lit(1)), num_late, opened).collect()[0]
        if of.history.time_column is not None and first_us is not None:
            moved = behind(found, ended.where(F.col(end) > F.timestamp_micros(F.lit(first_us))), of)
            num_moved = moved.where(is_new & F.col(LATE)).count()
            if num_moved > late:
                return moved, number, num_moved
    return found, number, late


def write(
    spark: SparkSession,
    found: Main,
    actions: DataFrame,
    of: Versions,
    note: CommitNote,
    *,
    num_changes: int,
    num_rows: int,
) -> None:
    """Apply actions to the history's current versions in one commit; its log decides whether that happened.

    num_changes : about how many actions there are
    num_rows    : of main
    cost        : a scan of the current versions' keys, and a write of those that end and begin
    """
    view, present = f"mv_history_{note.refresh_id}", found_columns(spark, found)
    missing = [c for c in of.columns if present.get(c.name.lower()) != c.type]
    actions.createOrReplaceTempView(view)
    facts = MergeFacts(
        num_changes=num_changes,
        num_bytes=0,
        num_columns=len(of.columns),
        num_rows=num_rows,
        inserts=True,
        has_null_keys=False,
        is_retry=False,
    )
    has_bitmap = merge_form(facts).has_bitmap
    try:
        with bitmap_of(spark, view, of.table, num_changes) if has_bitmap else nullcontext() as keys:
            match = [f"t.{quoted(of.history.is_current)}", f"s.{ACTION} <> 'N'"]
            match += [f"t.{quoted(name)} <=> s.{quoted(name)}" for name in of.table.key]
            match += [keys.may_match_sql()] if keys is not None else []
            sql = _merge_sql(found, view, of, match, is_evolving=bool(missing))
            with found.transaction(note):
                spark.sql(sql).collect()
    finally:
        spark.catalog.dropTempView(view)


def found_columns(spark: SparkSession, found: Main) -> dict[str, schema.Type]:
    """Return the types of the history's columns, by their names in lower case."""
    return {c.name.lower(): c.type for c in schema.columns_of(delta.schema_of(spark, found.ref).jsonValue())}


def _merge_sql(found: Main, view: str, of: Versions, match: Sequence[str], *, is_evolving: bool) -> str:
    history, names = of.history, of.names
    start, end, current, how, refresh = map(quoted, history.names)
    target, evolving = ("", "WITH SCHEMA EVOLUTION ") if is_evolving else ("t.", "")
    patched = [name for name in names if name not in history.tracked(names)]
    patches = ", ".join(f"{target}{quoted(name)} = s.{quoted(name)}" for name in patched)
    patch = f"WHEN MATCHED AND s.{ACTION} = 'P' THEN UPDATE SET {patches}"  # nosec B608  # every name is quoted
    to_current = "NULL" if history.valid_to_current is None else literal(history.valid_to_current)
    into = ", ".join([*map(quoted, names), start, end, current, how, refresh])
    values = [f"s.{quoted(name)}" for name in names]
    values += [f"s.{AT}", f"CAST({to_current} AS TIMESTAMP)", "TRUE", f"s.{HOW}", literal(of.refresh_id)]
    chosen, listed = " AND ".join(match), ", ".join(values)
    return f"""
        MERGE {evolving}INTO {found.ref.sql} AS t USING {quoted(view)} AS s
        ON {chosen}
        WHEN MATCHED AND s.{ACTION} = 'C' THEN UPDATE SET {target}{end} = s.{AT}, {target}{current} = FALSE
        {patch if patched else ""}
        WHEN NOT MATCHED AND s.{ACTION} = 'N' THEN INSERT ({into}) VALUES ({listed})
    """  # nosec B608  # every name is quoted, every value a literal


def shed(found: Main, history: History, before_ms: int, note: CommitNote) -> None:
    """Delete versions that ended before a time, in one commit; none if there are none.

    cost : a scan of the ends of those that have ended; the files that have such versions are marked or removed
    """
    current, end = quoted(history.is_current), quoted(history.valid_to)
    with found.noted(note):
        found.spark.sql(
            f"DELETE FROM {found.ref.sql} WHERE NOT {current} AND {end} < timestamp_millis({int(before_ms)})"  # nosec B608  # names are quoted
        ).collect()

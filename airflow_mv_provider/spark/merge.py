"""Publish the recorded changes in one conditional commit.

    all recorded changes ──▶ one MERGE ──▶ main

The MERGE verifies every row: an insert whose key exists, an update or delete whose key is missing, or an old hash that
differs calls raise_error, which aborts the MERGE before any commit. A MERGE that inserts nothing does not look for
missing keys: without a clause for rows that do not match, Spark can broadcast the changes instead of sorting main. If
another writer has removed a row, main's log shows that writer, and the commit has changed fewer rows than recorded.
WHEN NOT MATCHED BY SOURCE is never used: it rewrites files of every partition. A row that moved is a delete in one
partition and an insert in the other, so the partition columns are part of the match.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from pyspark.sql import SparkSession

from airflow_mv_provider.core.definition.identifier import literal, quoted
from airflow_mv_provider.core.fence import CommitNote
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.core.progress.publishing import MergeFacts, merge_form
from airflow_mv_provider.core.progress.recorded import RecordedChunk
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.bitmap import Bitmap, bitmap_of
from airflow_mv_provider.spark.compare import hashing, recorded_changes
from airflow_mv_provider.spark.compare.corrections import OLD_HASH, OP
from airflow_mv_provider.spark.errors import ROW_MISMATCH
from airflow_mv_provider.spark.key_ranges import KeyRange, within_sql
from airflow_mv_provider.spark.layout import Layout
from airflow_mv_provider.spark.partitions import MAX_NAMED, is_member_sql

log = logging.getLogger(__name__)


def publish(
    spark: SparkSession,
    main: delta.Main,
    layout: Layout,
    chunks: Sequence[RecordedChunk],
    note: CommitNote,
    *,
    is_retry: bool = False,
) -> None:
    """Merge exactly the recorded chunks into main, in one commit; main's log decides whether the commit happened.

    layout   : includes main's current columns; if it is evolving, even a MERGE without rows changes main's schema
    chunks   : chunks that are committed already are skipped
    is_retry : nothing is broadcast, in case that memory did not suffice for it
    raises   : SealBrokenError, when a chunk no longer reads back as recorded; MainMovedError, when a row of main has
               changed since the comparison, or another writer committed meanwhile; FencedError
    """
    chunks = [chunk for chunk in chunks if chunk.committed_version is None]
    found = recorded_changes.verified(spark, layout, chunks)
    view = f"mv_changes_{note.refresh_id}"
    parts = [part for chunk in chunks for part in chunk.partitions]
    touched = [part.partition for part in parts if part.counts.changes]
    facts = MergeFacts(
        num_changes=sum(chunk.num_rows for chunk in chunks),
        num_bytes=sum(chunk.num_bytes for chunk in chunks),
        num_columns=len(layout.columns),
        num_rows=sum(part.counts.main for part in parts),
        inserts=any(part.counts.inserted for part in parts),
        has_null_keys=found.has_null_key,
        is_retry=is_retry,
    )
    form = merge_form(facts)
    log.debug("%s: MERGE of %d changes: %s", layout.table.name, facts.num_changes, form.why)
    (found.rows.hint("broadcast") if form.is_broadcast else found.rows).createOrReplaceTempView(view)
    try:
        with bitmap_of(spark, view, layout.table, facts.num_changes) if form.has_bitmap else nullcontext() as keys:
            sql = merge_sql(
                *(main.ref, view, layout, touched),
                has_null_keys=facts.has_null_keys,
                may_insert=facts.inserts,
                keys=keys,
                ranges=() if facts.has_null_keys else found.ranges,
            )
            with main.transaction(note):
                spark.sql(sql).collect()
    finally:
        spark.catalog.dropTempView(view)


def merge_sql(
    main: TableRef,
    view: str,
    layout: Layout,
    touched: Sequence[str],
    *,
    has_null_keys: bool,
    may_insert: bool = True,
    keys: Bitmap | None = None,
    ranges: Iterable[KeyRange] = (),
) -> str:
    """Return the MERGE of the changes in `view` into main.

    touched       : the partitions that change; a short list lets Delta skip the files of all others; an empty list
                    means that `view` has no row
    has_null_keys : main holds rows with a NULL key that must be deleted; a plain `=` would not match them
    may_insert    : `view` has rows to insert
    keys          : a bitmap of the changes' keys, which keeps rows that cannot match out of the join
    ranges        : which keys `view` has, by which Delta skips files of main
    """
    table, op = layout.table, f"s.{OP}"
    equals = "<=>" if has_null_keys else "="
    match = [f"t.{quoted(k)} {equals} s.{quoted(k)}" for k in table.key]
    match += [f"t.{quoted(p)} <=> s.{quoted(p)}" for p in table.group_by if p not in table.key]
    match += [f"{op} <> 'R'"]
    if not touched:
        match = ["FALSE"]  # only main's schema changes: no file of main is read
    elif table.partition_by and len(touched) <= MAX_NAMED:
        match.append(is_member_sql("t", layout, touched))
    match += within_sql("t", ranges)
    if keys is not None:
        match.append(keys.may_match_sql())
    old_hash = hashing.row_hash(layout.columns, layout.in_main("t"))
    as_expected = f"{old_hash} = s.{OLD_HASH}"
    first = quoted(layout.names[0])
    stop = f"raise_error({literal(ROW_MISMATCH)})"
    names = ", ".join(quoted(n) for n in layout.names)
    values = ", ".join(f"s.{quoted(n)}" for n in layout.names)
    inserting = f"""
        WHEN NOT MATCHED AND {op} IN ('I', 'R') THEN INSERT ({names}) VALUES ({values})
        WHEN NOT MATCHED THEN INSERT ({first}) VALUES ({stop})"""
    # A column that main lacks so far resolves only without the table alias.
    target, evolving = ("", "WITH SCHEMA EVOLUTION ") if layout.is_evolving else ("t.", "")
    update = ", ".join(f"{target}{quoted(n)} = s.{quoted(n)}" for n in layout.names)
    return f"""
        MERGE {evolving}INTO {main.sql} AS t USING {quoted(view)} AS s
        ON {" AND ".join(match)}
        WHEN MATCHED AND {op} = 'X' THEN DELETE
        WHEN MATCHED AND {op} = 'D' AND {as_expected} THEN DELETE
        WHEN MATCHED AND {op} = 'U' AND {as_expected} THEN UPDATE SET {update}
        WHEN MATCHED THEN UPDATE SET t.{first} = {stop}{inserting if may_insert else ""}
    """  # nosec B608  # every name is quoted, every value a literal

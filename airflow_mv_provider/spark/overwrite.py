"""Publish by replacing all of main's rows with the sealed rows, in one fenced commit.

    staged copy, or the source at its pin ──▶ one overwrite ──▶ main

No row of main is read. Main's log shows foreign commits that happened meanwhile, and another round corrects for them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation

from airflow_mv_provider.core.fence import CommitNote
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.core.progress.totals import Totals
from airflow_mv_provider.exceptions import SealBrokenError
from airflow_mv_provider.spark import delta, storage
from airflow_mv_provider.spark.compare import hashing, totals
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns


def publish(
    main: delta.Main, layout: Layout, seal: Seal, rows: DataFrame, note: CommitNote, *, is_small: bool = False
) -> bool:
    """Overwrite main; main's log decides whether the commit happened.

    rows     : the desired rows, each key once
    is_small : they are written to one file
    returns  : True if the written rows are the sealed rows
    cost     : one scan of the rows and one write; for a staged copy, also a scan of its hashes beforehand
    raises   : SealBrokenError, before anything is written; FencedError, MainMovedError
    """
    table, names = layout.table, columns(layout.names)
    if seal.rows is not None:
        _check_copy(rows, layout, seal.rows, seal.totals)
    seen = Observation()
    with translated(table.name):
        written = hashing.aligned(rows, layout).observe(seen, *totals.measure()).select(*names)
        if table.partition_by:
            written = written.hint("rebalance", *columns(table.partition_by))
        if is_small:
            written = written.coalesce(1)
        main.overwrite(written, note, new_partitions=table.partition_by if layout.changes_main else None)
    return totals.observed(seen)[0] == seal.totals


def _check_copy(rows: DataFrame, layout: Layout, path: str, sealed: Totals) -> None:
    copy = storage.read(rows.sparkSession, layout.table.name, path, [*layout.columns, hashing.HASHED])
    with translated(layout.table.name):
        found = Totals(*copy.agg(*totals.measure()).collect()[0])
    if found != sealed:
        raise SealBrokenError(layout.table.name, f"the copy at {path} does not match the seal.")

"""What a refresh reads and keeps of its source by file, if the source's kind identifies files.

published totals by file ──▶ files that are new: read ──▶ the changes, and the totals by file of the next publish
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.progress.published import Kept, Published
from airflow_mv_provider.core.progress.totals import Totals, total
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark import delta, marking
from airflow_mv_provider.spark.compare import feed, hashing, totals
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import struct_type

Files = dict[str, Totals]
"""The totals of the source's files, by identity."""


def known(work: Work, published: Published, since: Frontier, *, is_of_all: bool) -> Files | None:
    """Return what the last publish kept of the files; None if it is of no use.

    since     : the source at the last publish
    is_of_all : all of its files must be known, because what is new is added to them
    """
    files = work.source.files
    if files is None or published.files is None or work.definition.source.watermark is not None:
        return None
    found = totals.read_files(work.spark, work.table.name, work.place_of(published.files))
    return found if found and (not is_of_all or found.keys() >= set(files.file_ids(since).values())) else None


def read_new(work: Work, before: Mapping[str, Totals]) -> tuple[DataFrame, Files]:
    """Read and copy the rows of the files that are not known.

    returns : these rows, (*columns, _mv_hash bigint); and the files that the source has now
    raises  : SchemaMismatchError; SourceChangedError; and any other error of reading the source
    """
    frontier, files = work.refresh.frontier, work.source.files
    assert files is not None
    ids = files.file_ids(frontier)
    new = {file: identity for file, identity in ids.items() if identity not in before}
    same = {identity: before[identity] for identity in ids.values() if identity in before}
    if not new:
        return delta.no_rows(work.spark, struct_type([*work.layout.columns, hashing.HASHED])), same
    marked = files.of_files(frontier, list(new))
    rows = feed.copied(marked, work.layout, work.unwritten("new"), totals.IN_FILE)
    with translated(work.table.name):
        return rows.drop(marking.IN_FILE), same | totals.by_file(rows, new)


def keep(work: Work, files: Files) -> Kept:
    """Write the totals of the source's files for the next refresh."""
    kept = work.keepable(f"{work.own.epoch}-files")
    with translated(work.table.name):
        totals.write_files(work.spark, files, work.place_of(kept))
    return kept


def of_rows(work: Work, rows: DataFrame, ids: Mapping[str, str]) -> Files | None:
    """Return the totals of the files of a source that was read whole; None if they are not worth keeping.

    rows : (…, _mv_hash bigint, _mv_file string)
    ids  : the identities of the files, by path
    """
    with translated(work.table.name):
        found = totals.by_file(rows, ids)
    return found if strategy.keeps_file_sums(work.refresh.choice, total(found.values()).num_rows) else None

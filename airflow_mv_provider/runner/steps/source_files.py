"""What a refresh reads and keeps of its source by file, if the source's kind identifies files.

    published list of files ──▶ files that are new, read and copied ──┐
                                                                      ├─▶ the changes, and the list of the next publish
                            ──▶ former rows of files that are gone ───┘    (written beside the digests)

A copy lies outside of the refresh's workspace (`core.progress.file_rows`). It is deleted when the published list no
longer needs it: in CLEANUP, or by the sweep.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.location import Workspace, files_of
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.progress.file_rows import (
    FileRows,
    are_kept,
    copies_of,
    is_mostly_outdated,
    total,
)
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.exceptions import SealBrokenError
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark import delta, marking, storage
from airflow_mv_provider.spark.compare import feed, file_sums, hashing
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import struct_type

log = logging.getLogger(__name__)

_WHATS: tuple[Literal["all", "new", "joined"], ...] = ("all", "new", "joined")
Files = dict[str, FileRows]
"""What is known of the source's files, by identity."""


def known(work: Work, published: PublishedDigests, since: Frontier, *, is_by_files: bool) -> Files | None:
    """Return what the last publish kept of the files; None if it is of no use.

    since : the source at the last publish; where files were only added, all of its files must be known
    """
    before = work.source.file_ids(since)
    if before is None or published.path is None or work.definition.source.watermark is not None:
        return None
    found = file_sums.read(work.spark, work.table.name, files_of(published.path))
    return found if found and (is_by_files or found.keys() >= set(before.values())) else None


def read_new(work: Work, before: Mapping[str, FileRows]) -> tuple[DataFrame, Files]:
    """Read and copy the rows of the files that are not known.

    returns : these rows, (*columns, _mv_hash bigint); and the files that the source has now
    raises  : SchemaMismatchError; SourceChangedError; and any other error of reading the source
    """
    frontier, place = work.refresh.frontier, work.workspace
    ids = work.source.file_ids(frontier) or {}
    new = {file: identity for file, identity in ids.items() if identity not in before}
    kept = {identity: before[identity] for identity in ids.values() if identity in before}
    if not new:
        return delta.no_rows(work.spark, struct_type([*work.layout.columns, hashing.HASHED])), kept
    name = place.copy_name(work.own.epoch, "new") if work.definition.source.may_keep_rows else None
    path = work.unwritten(place.new_files(work.own.epoch)) if name is None else place.copy_of(name)
    rows = feed.copied(work.source.of_files(frontier, list(new)), work.layout, path, file_sums.IN_FILE)
    with translated(work.table.name):
        found = file_sums.measured(rows, new)
        if name is not None:
            found = file_sums.kept_in(work.spark, found, place, name)
    return rows.drop(marking.IN_FILE), kept | found


def former_rows(work: Work, before: Mapping[str, FileRows], since: Frontier) -> DataFrame | None:
    """Return the rows that files had at `since` which the source no longer has; lazy. None if they were not kept.

    returns : (*columns, _mv_hash bigint, _mv_file string), unverified
    """
    then, now = (set((work.source.file_ids(each) or {}).values()) for each in (since, work.refresh.frontier))
    if not then <= before.keys():
        return None
    gone = [before[identity] for identity in sorted(then - now)]
    if not are_kept(gone):
        return None
    try:
        rows = file_sums.rows_of(work.spark, gone, work.layout, work.workspace)
    except SealBrokenError as error:
        log.warning("%s: the kept rows of the source's files are not used: %s", work.table.name, error.problem)
        return None
    kind = [*work.layout.columns, hashing.HASHED, file_sums.IN_FILE]
    return delta.no_rows(work.spark, struct_type(kind)) if rows is None else rows


def keep(work: Work, files: Files, seal: Seal) -> Seal:
    """Write the list of files that belongs to the seal's digests, and return the seal with the size of their copies."""
    place = work.workspace
    assert seal.digests is not None
    if files and is_mostly_outdated(files.values()):
        name = place.copy_name(work.own.epoch, "joined")
        kept = {identity: each for identity, each in files.items() if each.copy is not None}
        try:
            file_sums.joined(work.spark, kept, work.layout, place, name)
            files |= file_sums.kept_in(work.spark, kept, place, name)
        except SealBrokenError as error:
            log.warning("%s: the kept rows of the source's files are not joined: %s", work.table.name, error.problem)
    with translated(work.table.name):
        file_sums.write(work.spark, files, files_of(seal.digests))
    return replace(seal, kept_bytes=sum(copy.num_bytes for copy in copies_of(files.values())))


def of_copy(work: Work, path: str, ids: Mapping[str, str]) -> Files | None:
    """Return what is to be kept of the files of a source that was copied whole; None if nothing is.

    path : (…, _mv_hash bigint, _mv_file string)
    ids  : the identities of the files, by path
    """
    name, place = work.table.name, work.workspace
    with translated(name):
        found = file_sums.measured(storage.read(work.spark, name, path, [hashing.HASHED, file_sums.IN_FILE]), ids)
        if not strategy.keeps_file_sums(work.refresh.choice, total(each.sums for each in found.values())[0]):
            return None
        whole = place.copy_name(work.own.epoch, "all")
        return file_sums.kept_in(work.spark, found, place, whole) if path == place.copy_of(whole) else found


def place_of_copy(work: Work, published: PublishedDigests | None, *, is_by_file: bool) -> str:
    """Return where the rows of a whole source are copied to: if they may be kept, to where copies are kept."""
    place, epoch = work.workspace, work.own.epoch
    published_rows = None if published is None else published.num_rows
    if is_by_file and strategy.may_keep_copy(work.definition, work.refresh.choice, published_rows):
        return place.copy_of(place.copy_name(epoch, "all"))
    return work.unwritten(place.staging(epoch))


def remove_unneeded(work: Work, kept: PublishedDigests | None, outdated: str | None) -> None:
    """Delete the copies that this publish has made unnecessary: former ones, and this refresh's own.

    kept     : the digests of main
    outdated : the refresh whose digests were main's before this publish; they and the lists beside them are still there
    """
    place, own = work.workspace, work.own
    if not work.definition.source_kind.identifies_files:
        return
    needed = needed_copies(work.spark, work.table.name, kept)
    if needed is None:
        return
    former = frozenset[str]()
    if outdated is not None and kept is not None and kept.kept_bytes:
        lists = files_of(f"{Workspace(place.warehouse, place.table_uuid, outdated).digests_root}/*")
        former = _names(file_sums.read(work.spark, work.table.name, lists))
    first = work.store.first_epoch(own.refresh_id)
    mine = {place.copy_name(epoch, what) for epoch in range(first, own.epoch + 1) for what in _WHATS}
    if needed.isdisjoint(mine):
        storage.remove_copies(work.spark, place)
        mine = set()
    for name in sorted((former | mine) - needed):
        storage.remove_copy(work.spark, place, name)


def needed_copies(spark: SparkSession, table: str, kept: PublishedDigests | None) -> frozenset[str] | None:
    """Return the names of the copies that the list beside main's digests needs; None if it cannot be read."""
    if kept is None or kept.path is None or not kept.kept_bytes:
        return frozenset()
    return _names(file_sums.read(spark, table, files_of(kept.path))) or None


def _names(files: Mapping[str, FileRows]) -> frozenset[str]:
    return frozenset(copy.name for copy in copies_of(files.values()))

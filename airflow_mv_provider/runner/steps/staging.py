"""The step of REFRESHING: read the source, or only its changes, and prepare the seal that MERGING brings into main.

    incremental   what the source lists since the last publish becomes corrections; if it cannot be read, as below
    corrections   all rows are compared with main's
    replace       main is empty, or most of its rows are expected to change: they are summed up and not compared

All produce the same seal: the totals of the source's rows, and the corrections that turn main into them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.changeset import SignedRows, Units, Upserts, Whole
from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import RESERVED_PREFIX
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.chunk import WHOLE, Chunk, plan_chunks
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.published import (
    Kept,
    Published,
    bytes_in_memory,
    is_outgrown,
    layers_below,
    shard_count,
)
from airflow_mv_provider.core.progress.publishing import (
    ReplaceFacts,
    is_worth_replacing,
    may_replace,
    strategy_of_changes,
)
from airflow_mv_provider.core.progress.recorded import RecordedChunk
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.core.progress.totals import Totals, total, with_added
from airflow_mv_provider.core.strategy_names import Strategy
from airflow_mv_provider.exceptions import (
    DefinitionError,
    EngineError,
    InterruptedRefreshError,
    MainUnsupportedError,
    MvError,
    SchemaMismatchError,
    SealBrokenError,
    SourceChangedError,
    SourceFileError,
    StrategyError,
)
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps import checking, source_files, verifying
from airflow_mv_provider.runner.steps.approval import may_come_to_wait
from airflow_mv_provider.runner.steps.error_table import ErrorTable
from airflow_mv_provider.runner.steps.fencing import FencedMain
from airflow_mv_provider.runner.steps.recording import overwritten, recorded_chunks
from airflow_mv_provider.runner.steps.work import Work, totals_of_main
from airflow_mv_provider.spark import delta, marking, partitions, storage
from airflow_mv_provider.spark.compare import (
    corrections,
    feed,
    fingerprints,
    hashing,
    keys,
    recorded_changes,
    totals,
    whole,
)
from airflow_mv_provider.spark.compare.recorded_changes import Written
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import any_null

log = logging.getLogger(__name__)

# Errors that reading a feed may raise and reading the source would not: mostly for files that were vacuumed away, or
# for a projection of a column that only files have.
_UNREADABLE = (
    *(DefinitionError, EngineError, MainUnsupportedError, SchemaMismatchError),
    *(SourceChangedError, SourceFileError, StrategyError),
)


@dataclass(frozen=True, slots=True)
class Staged:
    """The result of staging, ready to be sealed.

    recorded : the corrections, chunk by chunk
    frozen   : frozen partitions that differ from the source and will not be changed
    reason   : the choice's reason and why staging changed the strategy; None if there is nothing to add
    """

    seal: Seal
    chunks: tuple[Chunk, ...]
    recorded: tuple[RecordedChunk, ...]
    frozen: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of the source, and how it differs from main.

    partitions : the totals of the source's rows, of those that are compared
    written    : the corrections; None if no row differs, or if main is overwritten
    overwritten : by partition; None if the rows were compared
    copy       : where the rows were copied to
    hashed     : all rows, (*columns, _mv_hash bigint); None if only changes were read
    files      : the totals of the source's files
    was_joined : all rows were compared, and no fingerprints of main's are known
    """

    partitions: Mapping[str, Totals]
    written: Written | None = None
    overwritten: Mapping[str, Counts] | None = None
    copy: str | None = None
    hashed: DataFrame | None = None
    files: source_files.Files | None = None
    was_joined: bool = False

    @property
    def num_changes(self) -> int | None:
        """How many rows differ; None if main is overwritten without a comparison."""
        if self.overwritten is not None:
            return None
        parts = self.written.partitions.values() if self.written else ()
        return sum(part.inserted + part.updated + part.deleted for part in parts)


def stage(work: Work, fenced: FencedMain, errors: ErrorTable) -> Staged:
    """Read what the refresh's strategy reads, and compute its totals and corrections.

    raises : the errors of keys, checks, schema and source; StrategyError, if a strict table's changes cannot be read
    """
    try:
        checking.check_valid(work)
        return _staged(work, fenced, errors)
    finally:
        work.close_source()  # a snapshot keeps a database from cleaning up, and nothing is read after the seal


def _staged(work: Work, fenced: FencedMain, errors: ErrorTable) -> Staged:
    problem: str | None = None
    if work.refresh.choice.strategy == "incremental":
        found = _changes(work, fenced)
        if isinstance(found, _Read):
            seal = _seal(work, fenced, found, "incremental")
            if work.has_bad_events:
                seal = replace(seal, rejected=errors.collect_events(work.copied_events))
            note = work.source.reader.note
            staged = _ready(work, fenced, checking.checked(work, seal), found)
            return replace(staged, reason=f"{work.refresh.choice.reason}; {note}") if note else staged
        problem = found
    return _everything(work, fenced, errors, problem)


# -- changes alone -----------------------------------------------------------------------------------------------------


def _changes(work: Work, fenced: FencedMain) -> _Read | str:
    """Stage the source's changes since the last publish; return why they cannot be read or applied, if they cannot.

    raises : StrategyError, if they cannot be read and the table is strict
    """
    published, batch = fenced.published(), work.refresh.batch
    since = work.store.binding(work.table.id, batch.lower) if batch else None
    before = totals_of_main(work, published)
    if published is None or since is None or before is None:
        return "the table has changed since the last publish"
    if work.layout.changes_main:
        return "the table's columns change"
    main = delta.read(work.spark, work.table.main, fenced.base)
    is_requested = work.refresh.choice.wanted == "incremental"
    work.source.reader.must_follow = is_requested
    may_compare = work.refresh.choice.is_looked_for and not is_requested
    try:
        with durable(Write.STAGING):
            found = work.source.changes(since.frontier, work.refresh.frontier)
            if isinstance(found, Whole):
                raise StrategyError(work.table.name, f"{found.reason}.")
            known = source_files.known(work, published, since.frontier, is_of_all=isinstance(found, SignedRows))
            if isinstance(found, Upserts) and work.source.files and known is None:
                return "the totals of the source's files are not kept"
            written, files = _write_changes(work, main, published, since.frontier, found, known)
    except _UNREADABLE as error:
        return _unreadable(work, error, may_compare=may_compare)
    work.source.reader.verify(work.refresh.frontier)
    if written is None:
        problem = "the rows of the source's new files do not show all that has changed"
        log.warning("%s: %s, so everything is compared", work.table.name, problem)
        return problem
    # Main's rows with the keys of upserts were looked up already, in all partitions, and no two upserts have one key.
    feed.check_keys(work.spark, work.layout, written, main, are_new_known=isinstance(found, Upserts))
    _check_storable(work, written)
    after = with_added(before, written.added)
    num_rows = total(after.values()).num_rows
    is_counted = isinstance(found, Upserts) or (isinstance(found, SignedRows) and found.is_counted)
    if is_counted and known is None and (there := work.source.reader.num_rows(work.refresh.frontier)) != num_rows:
        problem = f"the source has {there:,} rows, its changes account for {num_rows:,}."
        return _unreadable(work, SealBrokenError(work.table.name, problem), may_compare=may_compare)
    if batch is not None and strategy.is_verified(work.definition, batch.lower, batch.upper):
        verifying.check_changes(work, main, after, written)
    return _Read(after, written if written.num_rows else None, files=files or None)


def _write_changes(
    work: Work,
    main: DataFrame,
    published: Published,
    since: Frontier,
    found: SignedRows | Units | Upserts,
    known: source_files.Files | None,
) -> tuple[Written | None, source_files.Files]:
    """Write the corrections that turn main into the source.

    known   : the totals that are kept of the source's files
    returns : the corrections, None if they do not account for all changes; the files of the source, if known
    """
    layout, path = work.layout, work.unwritten("changes")
    if known is not None:
        new, files = source_files.read_new(work, known)
        if isinstance(found, Upserts):
            expected = total(files.values())
            written = _write_upserts(work, new, main, published, path, expected.num_rows)
            return (written if published.totals + written.total == expected else None), files
        feed.write(new.withColumn(corrections.SIGN, F.lit(1)), layout, path)
        return recorded_changes.measured(work.spark, layout, path), files
    match found:
        case SignedRows() | Units():
            feed.write(_signed_rows(work, since, main), layout, path)
        case Upserts():
            frontier, reader = work.refresh.frontier, work.source.reader
            new = feed.copied(work.source.changed(since, frontier, main, layout), layout, work.unwritten("new"))
            num_rows = reader.num_rows(frontier) if reader.is_unique(layout.table.key) else None
            return _write_upserts(work, new, main, published, path, num_rows), {}
        case _:
            assert_never(found)
    return recorded_changes.measured(work.spark, layout, path), {}


def _signed_rows(work: Work, since: Frontier, main: DataFrame) -> DataFrame:
    """Return the rows that the source lost and gained; those of a log are copied first, as they are read once."""
    layout, source = work.layout, work.source
    if not work.definition.source_kind.is_log:
        return source.changed(since, work.refresh.frontier, main, layout)

    def copied(events: DataFrame) -> DataFrame:
        marks = (c for c in schema.columns_of(events.schema.jsonValue()) if c.name.startswith(RESERVED_PREFIX))
        return feed.copied(events, layout, work.unwritten("new"), *marks)

    if work.has_bad_events:
        marks = [name for name in work.copied_events.columns if name.startswith(RESERVED_PREFIX)]
        events = layout.shaped(work.copied_events, *marks)
    else:
        events = source.log.events(since, work.refresh.frontier, copied)
    return source.log.signed(events, layout.shaped(main), layout.table.key)


def _write_upserts(
    work: Work, new: DataFrame, main: DataFrame, published: Published, path: str, num_rows: int | None
) -> Written:
    """Write the corrections by which rows that came or changed replace main's rows with their keys.

    If main would then have more rows than the source, some were deleted, and the keys of both sides show which.

    new      : (*columns, _mv_hash bigint)
    num_rows : of the source; None if that does not show deleted rows, because two with one key could hide one
    raises   : DuplicateKeyError, if two of the new rows have one key; and any error of reading the source
    """
    spark, layout = work.spark, work.layout
    keys.check_unique(new.where(~any_null(work.definition.key)), work.definition)
    if num_rows is not None:
        feed.write_replacing(new, main, layout, path)
        written = recorded_changes.measured(spark, layout, path)
        if (published.totals + written.total).num_rows <= num_rows:
            return written
        path = work.unwritten("changes")
    feed.write_replacing(new, main, layout, path, layout.shaped(work.whole_source))
    return recorded_changes.measured(spark, layout, path)


def _unreadable(work: Work, error: MvError, *, may_compare: bool = False) -> str:
    """Return why the changes cannot be read.

    may_compare : all rows may be compared although the table is strict: nothing else was asked for
    raises      : StrategyError, if the table is strict
    """
    work.lease.check()  # the error may come from a cancel, which interrupts Spark's reading
    name = work.table.name
    if work.definition.strict and not may_compare:
        raise StrategyError(name, f"the source's changes cannot be read: {error.problem}") from error
    if isinstance(error, StrategyError):
        log.info("%s: %s", name, error.problem)
        return error.problem.rstrip(".")
    log.warning("%s: the source's changes cannot be read, so all of the source is read: %s", name, error)
    return f"the source's changes cannot be read ({error.code})"


# -- all rows ----------------------------------------------------------------------------------------------------------


def _everything(work: Work, fenced: FencedMain, errors: ErrorTable, problem: str | None) -> Staged:
    layout, facts = work.layout, _replace_facts(work, fenced)
    partitions.check_values(work.spark, layout)  # before the rows, whose scope may be planned with these values
    rows = work.source_rows(fenced.base)
    with durable(Write.STAGING):
        found = _read_all(work, fenced, rows, facts)
    collected = errors.collect()
    work.source.reader.verify(work.refresh.frontier)
    main = delta.read(work.spark, work.table.main, fenced.base)
    _check_keys(work, found, main)
    chosen, reason = strategy_of_changes(
        *(work.definition, work.refresh.scope, facts), total(found.partitions.values()).num_rows, found.num_changes
    )
    seal = replace(_seal(work, fenced, found, chosen), rejected=collected)
    seal = checking.checked(work, seal)
    has_frozen = work.definition.frozen_before is not None
    differing = whole.frozen_differences(work.whole_source, main, layout) if has_frozen else ()
    choice = work.refresh.choice
    is_reported = chosen != choice.strategy or bool(layout.dropped)
    why = reason if problem is None and is_reported else problem
    staged = _ready(work, fenced, seal, found)
    return replace(staged, frozen=differing, reason=f"{choice.reason}; {why}" if why else None)


def _read_all(work: Work, fenced: FencedMain, rows: DataFrame, facts: ReplaceFacts) -> _Read:
    """Read the source's rows, and compare them with main's unless main is overwritten anyway."""
    layout, choice, definition = work.layout, work.refresh.choice, work.definition
    known, before = _known(work, fenced.published()), None
    determinism = work.source.reader.determinism(work.refresh.frontier)
    is_by_file = work.is_copied and strategy.is_file_by_file(definition, work.refresh.scope, determinism)
    in_files = work.source.files if is_by_file else None
    ids = in_files.file_ids(work.refresh.frontier) if in_files else None
    is_unlikely = strategy.is_expected_unchanged(choice)
    if ids and is_unlikely and known is not None:
        # Before anything is copied: the files may have been written anew with the same rows.
        before, _ = totals.by_partition(hashing.aligned(rows, layout), definition)
        if before == known.partitions:
            return _Read(before)
    hashed, copy, files = _read_once(work, rows, ids or {})
    found = _Read({}, copy=copy, hashed=hashed, files=files)
    main = layout.shaped(partitions.in_scope(delta.read(work.spark, work.table.main, fenced.base), layout))
    may_overwrite, summed = may_replace(definition, work.refresh.scope, facts), None
    if facts.is_empty or may_overwrite:
        summed = whole.summed_up(hashed, layout, None if choice.wanted == "replace" else known)
    if summed is not None and is_worth_replacing(facts, total(summed.partitions.values()).num_rows, summed.num_changes):
        if summed.null_keys:
            raise keys.null_key(hashed, definition, summed.null_keys)
        parts = summed.partitions
        is_same = known is not None and with_added({}, parts) == with_added({}, known.partitions)
        if is_same and not layout.dropped:
            return replace(found, partitions=parts)
        if facts.is_empty:
            return _loaded(work, replace(found, partitions=parts), may_overwrite=may_overwrite)
        if layout.dropped or total(parts.values()).num_rows:
            counts, is_unique = keys.counted(hashed, main, definition)
            if sum(each.desired for each in counts.values()) != total(parts.values()).num_rows:
                parts, _ = totals.by_partition(hashed, definition)  # Spark had summed up some tasks' rows twice
            if not is_unique or definition.may_move:
                keys.check_unique(hashed, definition)
            return replace(found, partitions=parts, overwritten=counts)
    compared = whole.compared(
        *(hashed, main, layout, known, work.unwritten),
        small=work.settings.fingerprint_rows,
        summed=summed,
        are_totals_first=strategy.are_totals_first(definition, choice) and before is None,
    )
    if compared.null_keys:
        raise keys.null_key(hashed, definition, compared.null_keys)
    return replace(found, partitions=compared.partitions, written=compared.written, was_joined=compared.was_joined)


def _read_once(
    work: Work, rows: DataFrame, ids: Mapping[str, str]
) -> tuple[DataFrame, str | None, source_files.Files | None]:
    """Return the source's rows with their hashes, copied unless the source reads the same rows again.

    ids     : of each of the source's files its identity; none if its totals are not kept by file
    returns : the rows, (*columns, _mv_hash bigint); where their copy lies; what is known of the files
    """
    layout = work.layout
    if not work.is_copied:
        return hashing.aligned(rows, layout), None, None
    copy = work.unwritten("staging")
    if not ids:
        return feed.copied(rows, layout, copy), copy, None
    assert work.source.files is not None
    marked = layout.shaped(work.source.files.of_files(work.refresh.frontier), marking.IN_FILE)
    hashed = feed.copied(marked, layout, copy, totals.IN_FILE)
    return hashed.drop(marking.IN_FILE), copy, source_files.of_rows(work, hashed, ids)


def _loaded(work: Work, found: _Read, *, may_overwrite: bool) -> _Read:
    """Return how rows come into a main that is empty.

    found  : the rows and their totals
    raises : DuplicateKeyError
    """
    table, layout, hashed = work.definition, work.layout, found.hashed
    assert hashed is not None
    if not total(found.partitions.values()).num_rows and not layout.dropped:
        return found
    keys.check_unique(hashed, table)
    if may_overwrite:
        counts = {name: Counts(each.num_rows, 0, each.num_rows) for name, each in found.partitions.items()}
        return replace(found, overwritten=counts)
    path = work.unwritten("changes")
    with translated(table.name):
        storage.write(corrections.insertions(hashed, layout), path)
    return replace(found, written=recorded_changes.measured(work.spark, layout, path))


def _replace_facts(work: Work, fenced: FencedMain) -> ReplaceFacts:
    return ReplaceFacts(
        choice=work.refresh.choice,
        dropped=work.layout.dropped,
        is_evolving=work.layout.is_evolving,
        own_columns=work.layout.left_alone,
        is_empty=fenced.is_empty,
        is_adopting=work.is_adopting,
        may_be_held=may_come_to_wait(work),
    )


def _check_keys(work: Work, found: _Read, main: DataFrame) -> None:
    """Check keys and partition values that main cannot have, and rows that a commit of some partitions cannot move."""
    table, layout, spark = work.definition, work.layout, work.spark
    if (written := found.written) is None:
        if found.overwritten is not None:
            assert found.hashed is not None
            keys.check_storable(table, found.partitions, found.hashed)
        return
    if work.is_adopting:
        recorded_changes.check_adoptable(spark, layout, written)
    if work.must_not_move:
        recorded_changes.check_unmoved(spark, layout, written, main)
    feed.check_keys(spark, layout, written, main, are_new_known=not table.may_move)
    _check_storable(work, written)


def _check_storable(work: Work, written: Written) -> None:
    """Refuse partition values of new rows that Delta would store as other values."""
    changes = recorded_changes.read(work.spark, work.layout, written.path)
    keys.check_storable(work.definition, written.partitions, changes.where(corrections.brings_row()))


# -- the seal ----------------------------------------------------------------------------------------------------------


def _known(work: Work, published: Published | None) -> whole.Known | None:
    """Return what is known of main's rows that are compared."""
    before, layout = totals_of_main(work, published), work.layout
    if published is None or before is None or layout.changes_main:
        return None
    if not layout.is_whole:
        before = partitions.of_scope(work.spark, layout, before)
    if not published.fingerprints:
        return whole.Known(before)
    paths = [work.place_of(each) for each in published.fingerprints]
    try:
        found = fingerprints.read(work.spark, layout, paths)
    except SealBrokenError as error:
        log.info("%s: the fingerprints of its rows are not used: %s", work.table.name, error.problem)
        return whole.Known(before)
    return whole.Known(before, tuple(partitions.in_scope(each, layout) for each in found), published.num_shards)


def _seal(work: Work, fenced: FencedMain, found: _Read, chosen: Strategy) -> Seal:
    parts = dict(found.partitions)
    if not work.definition.partition_by:
        parts.setdefault(WHOLE_TABLE, Totals())
    sealed = tuple(SealedPartition(name, t.num_rows, t.digest, t.mixed) for name, t in sorted(parts.items()))
    path = found.written.path if found.written else None
    try:
        kept, num_shards = _fingerprints(work, fenced.published(), found)
    except InterruptedRefreshError:
        raise
    except MvError as error:
        log.info("%s: no fingerprints of its rows are kept: %s", work.table.name, error.problem)
        kept, num_shards = (), 0
    with translated(work.table.name):
        size = sum(storage.num_bytes(work.spark, each) for each in (found.copy, path) if each is not None)
    return Seal(
        found.copy,
        size,
        sealed,
        work.layout.columns,
        strategy=chosen,
        changes=path,
        base=fenced.base,
        fingerprints=kept,
        num_shards=num_shards,
        files=source_files.keep(work, found.files) if found.files else None,
    )


def _fingerprints(work: Work, published: Published | None, found: _Read) -> tuple[tuple[Kept, ...], int]:
    """Write the fingerprints of main's future rows, or a layer of them; return all layers.

    cost : as `fingerprints.write_layer`; after many changes or refreshes as `fingerprints.write`
    """
    table, layout, place = work.definition, work.layout, f"{work.own.epoch}-fingerprints"
    if found.overwritten is not None:
        return (), 0  # an overwritten table may be overwritten again; the first comparison of it writes them
    if found.written is None and not found.was_joined:
        return (published.fingerprints, published.num_shards) if published else ((), 0)
    num_rows = total(found.partitions.values()).num_rows
    most_rows = max((each.num_rows for each in found.partitions.values()), default=0)
    if found.was_joined:
        if found.hashed is None or not work.refresh.scope.is_everything or num_rows < work.settings.fingerprint_rows:
            return (), 0
        num_shards = shard_count(most_rows)
    elif published is None or not published.fingerprints or is_outgrown(most_rows, published.num_shards):
        return (), 0  # the next comparison of all rows writes them
    else:
        num_shards = published.num_shards
    if not fingerprints.fit(work.spark, bytes_in_memory([most_rows], num_shards)):
        return (), 0  # those of one partition would not, so they would hardly ever be used
    kept = work.keepable(place)
    if found.was_joined:
        assert found.hashed is not None
        fingerprints.write(found.hashed, table, num_shards, work.place_of(kept))
        return (kept,), num_shards
    assert published is not None
    assert found.written is not None
    changes = recorded_changes.read(work.spark, layout, found.written.path)
    below = layers_below(published.fingerprints, published.num_rows, found.written.num_rows)
    if below:
        fingerprints.write_layer(changes, table, num_shards, work.place_of(kept))
    else:
        former = [work.place_of(each) for each in published.fingerprints]
        fingerprints.write_with(changes, layout, num_shards, former, work.place_of(kept))
    return (*below, kept), num_shards


def _ready(work: Work, fenced: FencedMain, seal: Seal, found: _Read) -> Staged:
    chunks: tuple[Chunk, ...] = WHOLE
    if work.is_progressive and work.definition.partition_by:
        chunks = plan_chunks(seal.partitions, chunk_rows=work.definition.chunk_rows)
    if found.overwritten is not None:
        recorded: tuple[RecordedChunk, ...] = (overwritten(work.own, found.overwritten, seal.totals, fenced.base),)
    else:
        with translated(work.table.name):
            size = storage.num_bytes(work.spark, seal.changes) if seal.changes else 0
        recorded = recorded_chunks(
            *(chunks, found.written, found.partitions, work.own), base=fenced.base, num_bytes=size
        )
    return Staged(seal, chunks, recorded)

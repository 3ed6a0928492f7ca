"""The step of REFRESHING: read the source, or only its changes, and prepare the seal that MERGING brings into main.

    incremental   writes the feed's corrections and the digests that main will have; if the feed fails, as below
    all others    write digests of every row, and a copy if the source cannot be read again at its pinned frontier

Both produce the same seal. The strategy is finally decided here, because only here is it known how many rows differ.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core import cost, strategy
from airflow_mv_provider.core.cost import Strategy
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.progress import file_rows
from airflow_mv_provider.core.progress.chunk import Chunk, plan_chunks
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.progress.file_rows import Sums
from airflow_mv_provider.core.progress.joined import join_obstacle
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.exceptions import (
    DefinitionError,
    EngineError,
    MainUnsupportedError,
    MvError,
    SchemaMismatchError,
    SealBrokenError,
    SourceChangedError,
    SourceFileError,
    StrategyError,
)
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps import checking, source_files
from airflow_mv_provider.runner.steps.error_table import ErrorTable
from airflow_mv_provider.runner.steps.fencing import FencedMain
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark import delta, marking, partitions, staging
from airflow_mv_provider.spark.compare import corrections, feed, frozen, hashing, joined, keys, replay
from airflow_mv_provider.spark.compare.buckets import Buckets
from airflow_mv_provider.spark.layout import any_null

log = logging.getLogger(__name__)

# Errors that reading a feed may raise and reading the source would not: mostly for files that were vacuumed away, or
# for a projection of a column that only files have.
_UNREADABLE = (
    *(DefinitionError, EngineError, MainUnsupportedError, SchemaMismatchError),
    *(SourceChangedError, SourceFileError),
)


@dataclass(frozen=True, slots=True)
class Staged:
    """The result of staging, ready to be sealed.

    buckets : the buckets in which it and main differ, if known already
    frozen  : frozen partitions that differ from the source and will not be changed
    reason  : the choice's reason and why staging changed the strategy; None if there is nothing to add
    """

    seal: Seal
    chunks: tuple[Chunk, ...]
    buckets: Buckets | None
    frozen: tuple[str, ...]
    reason: str | None


def stage(work: Work, fenced: FencedMain, errors: ErrorTable) -> Staged:
    """Read what the refresh's strategy reads, and compute its counts and digests.

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
        found = _changes(work, fenced, errors)
        if isinstance(found, Seal):
            return Staged(checking.checked(work, found), (Chunk(0, None),), None, (), None)
        problem = found
    return _everything(work, fenced, errors, problem)


def _changes(work: Work, fenced: FencedMain, errors: ErrorTable) -> Seal | str:
    """Stage the source's changes since the last publish; return why they cannot be read or applied, if they cannot.

    raises : StrategyError, if they cannot be read and the table is strict
    """
    published, batch, place = fenced.published_totals(), work.refresh.batch, work.workspace
    since = work.store.binding(work.table.id, batch.lower) if batch else None
    if published is None or since is None:
        return "the table has changed since the last publish"
    if work.layout.changes_main:
        return "the table's columns change"
    main = delta.read(work.spark, work.table.main, fenced.base)
    if not (are_kept := published.path is not None):
        part = work.unwritten(place.digests_of_part(work.own.epoch))
        published = feed.digests_of(main, work.layout, published, part)
    watermark, is_by_files = work.definition.source.watermark, work.refresh.choice.is_by_files
    may_compare = is_by_files and work.refresh.choice.wanted != "incremental"
    known = source_files.known(work, published, since.frontier, is_by_files=is_by_files)
    if is_by_files and known is None and work.source.file_ids(since.frontier) is not None:
        return "the sums of the source's files are not kept"
    try:
        with durable(Write.STAGING):
            path, files = _write_changes(work, main, published, since.frontier, known)
    except _UNREADABLE as error:
        return _unreadable(work, error, may_compare=may_compare)
    work.source.verify(work.refresh.frontier)
    if path is None:
        problem = "the rows of the source's new files do not show all that has changed"
        log.warning("%s: %s, so everything is compared", work.table.name, problem)
        return problem
    num_rows = None if watermark is None else work.whole_source.count
    if work.definition.source_kind.lists_upserts or (is_by_files and known is None):
        num_rows = lambda: work.source.num_rows(work.refresh.frontier)  # noqa: E731
    try:
        to = work.unwritten(place.digests(work.own.epoch))
        found = feed.seal(work.spark, work.layout, path, main, published, to, num_rows, may_add_layer=are_kept)
    except SealBrokenError as error:
        return _unreadable(work, error, may_compare=may_compare)
    if work.has_bad_events:
        found = replace(found, rejected=errors.collect_events(work.copied_events))
    return source_files.keep(work, files, found) if files else found


def _write_changes(
    work: Work, main: DataFrame, published: PublishedDigests, since: Frontier, known: source_files.Files | None
) -> tuple[str | None, source_files.Files]:
    """Write the corrections that turn main into the source.

    known   : what is kept of the source's files
    returns : where the corrections lie, None if they do not account for all changes; the files of the source, if known
    """
    path, upper = work.unwritten(work.workspace.feed(work.own.epoch)), work.refresh.frontier
    is_by_files, watermark = work.refresh.choice.is_by_files, work.definition.source.watermark
    if work.definition.source_kind.is_log:
        if work.has_bad_events:
            marks = [column.name for column in replay.marks_of(work.copied_events)]
            events = work.layout.shaped(work.copied_events, *marks)
        else:
            events = _copied_events(work, since)
        feed.write(replay.feed(events, main, work.layout), work.layout, path)
        return path, {}
    if work.definition.source_kind.lists_upserts:
        return _write_upserts(work, main, published, since, path), {}
    if watermark is not None:
        feed.write(feed.late(work.whole_source, main, work.layout, watermark), work.layout, path)
        return path, {}
    if known is not None:
        new, files = source_files.read_new(work, known)
        if not is_by_files:
            feed.write(new.withColumn(corrections.SIGN, F.lit(1)), work.layout, path)
            return path, files
        sums = file_rows.total(each.sums for each in files.values())
        former = source_files.former_rows(work, known, since)
        if former is None:
            return _write_replacing(work, new, main, published, path, sums), files
        keys.check_unique(new.where(~any_null(work.definition.key)), work.definition)
        feed.write_between(new, former, work.layout, path)
        # The former rows are as trustworthy as this: main with the corrections has exactly the sums of all files.
        return path if feed.sums_with(work.spark, work.layout, path, published) == sums else None, files
    feed.write(work.source.feed(since, upper), work.layout, path)
    return path, {}


def _copied_events(work: Work, since: Frontier) -> DataFrame:
    """Copy the last event of each key since the last publish; if one truncates, also the newer ones from before it."""
    upper, place = work.refresh.frontier, work.workspace.new_files(work.own.epoch)
    events = work.source.events(since, upper)
    copy = feed.copied(events, work.layout, work.unwritten(place), *replay.marks_of(events))
    noticed = replay.noticed_in(copy)
    if noticed.snapshot_end is not None:
        work.source.check_begun(since, upper, noticed.snapshot_end)
    if (cut := noticed.cut) is None:
        return copy
    log.info("%s: rows that are newer than a TRUNCATE are read once more", work.table.name)
    events = work.source.events(since, upper, cut)
    return feed.copied(events, work.layout, work.unwritten(place), *replay.marks_of(events))


def _write_upserts(work: Work, main: DataFrame, published: PublishedDigests, since: Frontier, path: str) -> str:
    """Write the corrections of a source that lists rows that came or changed, and not those that were deleted.

    If the source's keys are unique, the number of its rows shows whether any was deleted. Otherwise two rows with one
    key could hide a deleted one, so the keys are read.

    returns : where the corrections lie
    raises  : DuplicateKeyError; SourceChangedError; and any other error of reading the source
    """
    layout, definition = work.layout, work.definition
    rows = work.source.upserts(since, work.refresh.frontier, main)
    new = feed.copied(rows, layout, work.unwritten(work.workspace.new_files(work.own.epoch)))
    keys.check_unique(new.where(~any_null(definition.key)), definition)
    if work.source.is_unique(definition.key):
        feed.write_replacing(new, main, layout, path)
        num_rows = feed.sums_with(work.spark, layout, path, published)[0]
        if num_rows == work.source.num_rows(work.refresh.frontier):
            return path
        path = work.unwritten(work.workspace.feed(work.own.epoch))
    feed.write_replacing(new, main, layout, path, layout.shaped(work.whole_source))
    return path


def _write_replacing(
    work: Work,
    new: DataFrame,
    main: DataFrame,
    published: PublishedDigests,
    path: str,
    sums: Sums,
) -> str | None:
    """Write the corrections that turn main into the source, as the rows of its new files show them.

    new     : the rows of new files, (*columns, _mv_hash bigint)
    sums    : of all the source's rows
    returns : where the corrections lie; None if they do not account for all changes
    raises  : DuplicateKeyError, if two rows of new files have one key: the sums would not show that
    """
    spark, layout = work.spark, work.layout
    keys.check_unique(new.where(~any_null(work.definition.key)), work.definition)
    feed.write_replacing(new, main, layout, path)
    found = feed.sums_with(spark, layout, path, published)
    if sums[0] < found[0]:
        path = work.unwritten(work.workspace.feed(work.own.epoch))
        feed.write_replacing(new, main, layout, path, work.whole_source)
        found = feed.sums_with(spark, layout, path, published)
    return path if sums == found else None


def _unreadable(work: Work, error: MvError, *, may_compare: bool = False) -> str:
    """Return why the changes cannot be read.

    may_compare : all rows may be compared although the table is strict: nothing else was asked for
    raises      : StrategyError, if the table is strict
    """
    work.lease.check()  # the error may come from a cancel, which interrupts Spark's reading
    name = work.table.name
    if work.definition.strict and not may_compare:
        raise StrategyError(name, f"the source's changes cannot be read: {error.problem}") from error
    log.warning("%s: the source's changes cannot be read, so all of the source is read: %s", name, error)
    return f"the source's changes cannot be read ({error.code})"


def _everything(work: Work, fenced: FencedMain, errors: ErrorTable, problem: str | None) -> Staged:
    layout, rows = work.layout, work.source_rows(fenced.base)
    partitions.check_values(work.spark, layout)
    with ExitStack() as undo:
        at_once = _joined(work, fenced, rows)
        digested, files = (None, None) if at_once else _digested(work, fenced, rows)
        if digested is not None:
            undo.callback(digested.close)
        collected = errors.collect()
        work.source.verify(work.refresh.frontier)
        found = at_once if digested is None else staging.seal(work.spark, digested, rows, layout)
        assert found is not None
        seal, buckets = replace(found, rejected=collected), digested.buckets if digested else None
        seal = checking.checked(work, source_files.keep(work, files, seal) if files else seal)
        main = delta.read(work.spark, work.table.main, fenced.base)
        if work.definition.may_move and (work.is_progressive or not layout.is_whole):
            keys.check_unmoved(work.spark, seal, rows, main, layout, buckets)
        has_frozen = work.definition.frozen_before is not None
        differing = frozen.differing(work.whole_source, main, layout) if has_frozen else ()
        choice, (chosen, reason) = work.refresh.choice, _strategy(work, fenced, seal, buckets)
        undo.pop_all()
    seal = replace(seal, strategy=chosen)
    is_reported = chosen != choice.strategy or bool(layout.dropped)
    why = reason if problem is None and is_reported else problem
    return Staged(seal, _chunks(work, seal), buckets, differing, f"{choice.reason}; {why}" if why else None)


def _joined(work: Work, fenced: FencedMain, rows: DataFrame) -> Seal | None:
    """Compare the source's rows with main's by one join; None if they are too many, or cannot be sealed like that."""
    if not work.settings.joins_small:
        return None
    refresh, published, is_evolving = work.refresh, fenced.published_totals(), work.layout.changes_main
    why_not = join_obstacle(work.definition, refresh.scope, refresh.choice, published, is_evolving=is_evolving)
    if published is None or why_not is not None:
        return None
    place, epoch = work.workspace, work.own.epoch
    main = delta.read(work.spark, work.table.main, fenced.base)
    with durable(Write.STAGING):
        copy = work.unwritten(place.staging(epoch)) if work.is_copied else None
        rows = hashing.aligned(rows, work.layout) if copy is None else feed.copied(rows, work.layout, copy)
        return joined.sealed(rows, main, work.layout, published, work.unwritten(place.feed(epoch)), copy)


def _digested(work: Work, fenced: FencedMain, rows: DataFrame) -> tuple[staging.Staged, source_files.Files | None]:
    """Digest the source's rows; return what is staged, and what is to be kept of the source's files, if anything is."""
    place, epoch, layout, choice = work.workspace, work.own.epoch, work.layout, work.refresh.choice
    published = fenced.published_digests()
    determinism = work.source.determinism(work.refresh.frontier)
    is_whole = work.refresh.scope.is_everything
    sums = work.unwritten(place.digests(epoch) if is_whole else place.digests_of_part(epoch))
    is_by_file = work.is_copied and strategy.is_file_by_file(work.definition, work.refresh.scope, determinism)
    ids = work.source.file_ids(work.refresh.frontier) if is_by_file else None
    copy = source_files.place_of_copy(work, published, is_by_file=bool(ids)) if work.is_copied else None
    if ids:
        rows = layout.shaped(work.source.of_files(work.refresh.frontier), marking.IN_FILE)
    with durable(Write.STAGING), ExitStack() as undo:
        staged = staging.load(
            *(rows, layout, (copy, sums), published),
            is_large_first=strategy.is_large_first(work.definition, choice),
            is_copied_at_once=not ids or not strategy.is_expected_unchanged(choice),
        )
        undo.callback(staged.close)
        files = None
        if ids and staged.rows and not staged.is_as_published:
            files = source_files.of_copy(work, staged.rows, ids)
        undo.pop_all()
    return staged, files


def _strategy(work: Work, fenced: FencedMain, seal: Seal, buckets: Buckets | None) -> tuple[Strategy, str]:
    """Return the strategy and its reason, decided from where the source and main were found to differ."""
    layout = work.layout
    if layout.dropped:
        return "replace", f"the table is rewritten without {', '.join(layout.dropped)}"
    if layout.is_evolving:
        return "corrections", "the table's columns change in a MERGE"
    if layout.left_alone and not fenced.is_empty:
        return "corrections", f"replacing the table would lose {', '.join(layout.left_alone)}, which the source lacks"
    if _is_replaced(work, fenced, seal, buckets):
        return "replace", "staging showed that most rows differ"
    return "corrections", "staging showed that most rows are the same"


def _is_replaced(work: Work, fenced: FencedMain, seal: Seal, buckets: Buckets | None) -> bool:
    wanted = work.refresh.choice.wanted
    is_possible = strategy.replace_obstacle(work.definition, work.refresh.scope) is None
    if not is_possible or not seal.num_rows or wanted == "corrections":
        return False
    if fenced.is_empty:
        return True  # there is nothing to compare with
    if strategy.count_obstacle(work.definition) is not None:
        return False
    is_adopting = work.definition.adopt and work.store.state(work.table.id).published_version is None
    if wanted == "replace":
        return not is_adopting  # the keys of an adopted table must be compared
    if buckets is None:
        return False  # it is not known how much differs without reading main
    num_buckets = sum(part.buckets for part in buckets.partitions.values())
    num_rows = max(seal.num_rows, buckets.main_rows)
    return cost.is_worth_replacing(num_rows, cost.scattered(buckets.num_differing, num_buckets, num_rows))


def _chunks(work: Work, seal: Seal) -> tuple[Chunk, ...]:
    if seal.strategy == "replace" or seal.changes is not None:
        return (Chunk(0, None),)
    return plan_chunks(
        seal.partitions,
        chunk_rows=work.definition.chunk_rows,
        is_partitioned=work.definition.is_partitioned,
        is_sliceable=work.definition.hash_partitions is None,
    )

"""One epoch's work on one refresh: run what is left, one durable step after the other.

    plan.remaining ──▶ first step ──▶ its durable write ──▶ look at what is durable now ──▶ plan.remaining ──▶ ...

An attempt knows nothing of the one before it. It fences main first, so that whoever worked under an older epoch fails,
and reads everything else from the database and from main's log. It raises what goes wrong; `recovery` decides what
becomes of the refresh then.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import assert_never

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core import plan, schema
from airflow_mv_provider.core.fence import (
    Commit,
    Move,
    Standing,
    fence_version,
    has_fence,
    last_epoch,
    next_move,
    next_txn_version,
)
from airflow_mv_provider.core.guard import Counts, judge
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress import (
    Chunk,
    PublishedDigests,
    RecordedChunk,
    Seal,
    digests_to_keep,
    plan_chunks,
    total,
)
from airflow_mv_provider.core.state import Ownership, RefreshRecord, TableRecord, is_main_as_published
from airflow_mv_provider.core.strategy import is_copied
from airflow_mv_provider.exceptions import (
    EngineError,
    EpochRegressionError,
    FencedError,
    GuardRefusedError,
    LeaseLostError,
    MainMovedError,
    MainUnsupportedError,
    MetadataUnavailableError,
    MvError,
)
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.comparison import Comparison
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.lease import Lease
from airflow_mv_provider.runner.phase_clock import PhaseClock
from airflow_mv_provider.runner.progress import Progress, Watcher
from airflow_mv_provider.runner.publish import Publisher, note_of
from airflow_mv_provider.sources.reader import SourceReader
from airflow_mv_provider.spark import staging, storage
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.digests import Buckets
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout

log = logging.getLogger(__name__)

_MAX_ROUNDS = 5
_MAX_FENCES = 3


class Attempt:
    """The steps of one refresh under one epoch.

    spark : a session of this attempt's own
    """

    def __init__(
        self,
        store: Store,
        spark: SparkSession,
        table: TableRecord,
        refresh: RefreshRecord,
        own: Ownership,
        source: SourceReader,
        lease: Lease,
        watch: Watcher,
    ) -> None:
        self.store = store
        self.spark = spark
        self.table = table
        self.definition = refresh.definition
        self.refresh = refresh
        self.own = own
        self.lease = lease
        self.main = Main(spark, table.location, table.uuid)
        self.workspace = Workspace(table.warehouse, table.uuid, own.refresh_id)
        self.publisher = self._new_publisher(refresh)
        self._has_tried_before = False
        self._source = source
        self._watch = watch
        self._is_fenced = False
        self._base = 0  # main's version that chunks are compared with; set by the fence
        self._commits: list[Commit] = []  # main's log up to the base, at least since the last publish
        self._comparison: Comparison | None = None  # of the seal with main at the base
        self._delta_id = ""
        self._num_fences = 0
        self._clock = PhaseClock()

    def run(self, until: Phase = Phase.NORMAL) -> None:
        """Do what is left up to phase `until`.

        raises : LeaseLostError, RefreshCancelledError, and whatever a step raises
        """
        while (phase := self._phase()) is not until:
            chunks, recorded = self.store.chunks(self.own.refresh_id)
            steps = plan.remaining(
                phase,
                is_fenced=self._is_fenced,
                chunks=chunks,
                recorded={chunk.number for chunk in recorded},
            )
            if not steps:
                return
            # Once a commit was tried it may be there: the log decides, and the publisher asks again before each try.
            is_cancellable = phase is not Phase.CLEANUP and not self.has_committed and not self.has_tried_publish
            self.lease.check(is_cancellable=is_cancellable)
            self._clock.start(phase)
            try:
                self._run_step(steps[0], phase, recorded, len(chunks))
            except MvError:
                # Interrupted for a cancel, or overtaken and its files gone: say that, not what Spark made of it.
                self._check_after_failure(is_cancellable=is_cancellable)
                raise
            finally:
                self._clock.stop()
            if isinstance(steps[0], plan.Clean):
                return

    def close(self) -> None:
        """Let Spark forget what it keeps for this attempt."""
        if self._comparison is not None:
            self._comparison.close()
            self._comparison = None

    def _check_after_failure(self, *, is_cancellable: bool) -> None:
        with suppress(MetadataUnavailableError):
            self.lease.check(is_cancellable=is_cancellable)

    def _run_step(self, step: plan.Step, phase: Phase, recorded: tuple[RecordedChunk, ...], num_chunks: int) -> None:
        def say(message: str) -> None:
            log.info("%s refresh %s epoch %d: %s", self.table.name, self.own.refresh_id, self.own.epoch, message)
            self._watch(Progress(self.table.name, self.own.refresh_id, phase, message, len(recorded), num_chunks))

        match step:
            case plan.Fence():
                say(f"fencing main for epoch {self.own.epoch}")
                self._fence()
            case plan.Stage():
                say(f"staging {self.refresh.frontier.describe()}")
                self._stage()
            case plan.Compare(chunk):
                say("comparing the whole table" if chunk.partitions is None else f"comparing {_named(chunk)}")
                self._compare(chunk)
            case plan.Publish():
                say("publishing")
                self._publish(recorded)
            case plan.Clean():
                say("cleaning up")
                self._clean()
            case _:
                assert_never(step)

    # -- fence ---------------------------------------------------------------------------------------------------

    def _fence(self) -> None:
        self._prepare_main()
        published = self.store.state(self.table.id).published_version
        newest = self.main.log()[0].version
        try:
            with durable(Write.FENCE):
                self.main.fence(note_of(self.table, self.refresh, self.own, "fence", fence_version(self.own.epoch)))
        except (FencedError, EngineError, MainMovedError) as error:
            # Failed, or done with its answer lost: the log tells which.
            self.lease.check(is_cancellable=False)
            log.info("The fence of epoch %d met %s", self.own.epoch, error)
        commits = self.main.log(newest if published is None else min(newest, published))
        if last_epoch(commits) > self.own.epoch:
            raise FencedError(self.table.name, f"epoch {last_epoch(commits)} owns main; this is {self.own.epoch}.")
        self._is_fenced = has_fence(commits, self.own.epoch)
        self._base = commits[0].version
        self._commits = commits
        self._num_fences += 1
        if not self._is_fenced and self._num_fences == _MAX_FENCES:
            raise EpochRegressionError(
                self.table.name, f"main's log refused epoch {self.own.epoch} although it shows no later one."
            )

    def _prepare_main(self) -> None:
        """Create main if it is missing; refuse what cannot be ours.

        Once sealed, the source is not asked any more: it may be gone.
        """
        found = self.main.detail()
        if self.refresh.seal is not None:
            if found is None:
                raise MainMovedError(self.table.name, "main was dropped while its refresh was under way.")
            self._delta_id = found.delta_id
            return
        rows = self._source_rows()
        columns = schema.columns_of(rows.schema.jsonValue())
        schema.check_source(self.table.name, columns, self.definition.key, self.definition.partition_by)
        if found is None:
            if storage.has_files(self.spark, self.table.location):
                raise MainUnsupportedError(self.table.location, "what lies there is not Delta.")
            with durable(Write.CREATE_MAIN):
                self.main.create(rows.schema, self.definition.partition_by)
            found = self.main.detail()
            assert found is not None
        self._delta_id = found.delta_id
        if found.partition_by != self.definition.partition_by:
            raise MainUnsupportedError(
                self.table.name,
                f"main is partitioned by {_listed(found.partition_by)}, "
                f"the definition by {_listed(self.definition.partition_by)}.",
                hint="Partitions of a table cannot be changed in place: choose another name.",
            )
        schema.check_same(self.table.name, columns, self._layout.columns)

    # -- stage and seal ------------------------------------------------------------------------------------------

    def _stage(self) -> None:
        layout, published = self._layout, self._published_digests()
        copy = self.workspace.staging(self.own.epoch) if is_copied(self.definition) else None
        rows = self._source_rows()
        schema.check_same(self.table.name, schema.columns_of(rows.schema.jsonValue()), layout.columns)
        with durable(Write.STAGING):
            staged = staging.load(rows, layout, (copy, self.workspace.digests(self.own.epoch)), published)
        self._source.verify(self.refresh.frontier)
        seal, buckets = staging.seal(self.spark, staged, rows, layout, published)
        self._comparison = self._new_comparison(seal, buckets)
        chunks = plan_chunks(
            seal.partitions,
            chunk_rows=self.definition.chunk_rows,
            is_partitioned=bool(self.definition.partition_by),
        )
        with durable(Write.SEAL):
            self.store.seal(self.own, seal, chunks, self._clock.spent())

    # -- merge ---------------------------------------------------------------------------------------------------

    def _compare(self, chunk: Chunk) -> None:
        refresh = self._current()
        assert refresh.seal is not None
        if self._comparison is None:
            self._comparison = self._new_comparison(refresh.seal)
        record = self._comparison.compare(chunk, refresh.merge_round)
        with durable(Write.PROGRESS):
            self.store.record_chunk(self.own, record)

    def _new_comparison(self, seal: Seal, buckets: Buckets | None = None) -> Comparison:
        return Comparison(
            self.main,
            self._layout,
            seal,
            self._source_rows,
            self.workspace,
            self.own.epoch,
            self._base,
            self._published_digests(),
            is_adopting=self.definition.adopt and self.store.state(self.table.id).published_version is None,
            buckets=buckets,
        )

    def _published_digests(self) -> PublishedDigests | None:
        """Return the digests of the last publish, if main at the base provably still is what they say."""
        state = self.store.state(self.table.id)
        if state.published_hash != self.definition.content_hash or self._base != self._commits[0].version:
            return None
        return state.published_digests if is_main_as_published(state, self._delta_id, self._commits) else None

    def _publish(self, recorded: tuple[RecordedChunk, ...]) -> None:
        """Take one step of the compare-and-append; the next look at main's log confirms it."""
        counts = total(recorded)
        commits, standing = self.publisher.look(recorded)
        match next_move(standing, has_changes=bool(counts.changes)):
            case Move.DONE:
                self._published(standing, counts)
            case Move.START_OVER:
                self._start_over(standing, counts)
            case Move.MERGE:
                if not self.has_committed:
                    self._judge(counts)
                self.publisher.merge(self._layout, recorded, next_txn_version(commits, self.own.epoch))

    def fence_and_look(self) -> bool:
        """Fence main, so that nothing of an older epoch can follow; say whether main holds a commit of this refresh."""
        while not self._is_fenced:
            self._fence()
        _, recorded = self.store.chunks(self.own.refresh_id)
        return self.has_committed or (bool(recorded) and bool(self.publisher.look(recorded)[1].published))

    def _judge(self, counts: Counts) -> None:
        refusal = judge(self.definition.guards, counts, self.refresh.overrides)
        if refusal:
            raise GuardRefusedError(self.table.name, f"{refusal.guard}: {refusal.problem}", guard=refusal.guard)

    def _published(self, standing: Standing, counts: Counts) -> None:
        version = standing.published[-1].version if standing.published else standing.latest
        seal = self._current().seal
        assert seal is not None
        with durable(Write.PUBLISHED):
            self.store.published(
                self.own,
                main_version=version,
                delta_id=self._delta_id,
                counts=counts,
                digests=digests_to_keep(seal, self.own.refresh_id),
                bytes_main=standing.bytes_added,
                seconds=self._clock.spent(),
            )

    def _start_over(self, standing: Standing, counts: Counts) -> None:
        """Discard the corrections: they were for a main that is no more."""
        who = ", ".join(f"{c.operation} at version {c.version}" for c in standing.foreign[:3])
        if self._current().merge_round + 1 >= _MAX_ROUNDS:
            raise MainMovedError(self.table.name, f"another writer kept changing main ({who}).")
        log.warning("%s: main was changed by others (%s); comparing again", self.table.name, who)
        done = counts if standing.published else None
        with durable(Write.DISCARD):
            self.store.discard_chunks(self.own, done, standing.bytes_added)
        self._has_tried_before = True
        self.publisher = self._new_publisher(self._current())
        self._base = standing.latest
        self.close()

    # -- clean up ------------------------------------------------------------------------------------------------

    def _clean(self) -> None:
        outdated, kept = self._current().outdated_digests_of, self.store.state(self.table.id).published_digests
        with durable(Write.STAGING_DELETE):
            storage.remove(self.spark, self.workspace)
            if outdated is not None:
                storage.remove_digests(self.spark, replace(self.workspace, refresh_id=outdated))
            if kept is None:
                storage.remove_digests(self.spark, self.workspace)
        with durable(Write.NORMAL):
            self.store.finish(self.own, self._clock.spent())

    # -- what the steps share ------------------------------------------------------------------------------------

    def _phase(self) -> Phase:
        state = self.store.state(self.table.id)
        if state.refresh_id != self.own.refresh_id or state.epoch != self.own.epoch:
            raise LeaseLostError(self.table.name, f"epoch {self.own.epoch} no longer owns the table.")
        return state.phase

    @property
    def has_tried_publish(self) -> bool:
        """True if a commit of this epoch may have reached main."""
        return self._has_tried_before or self.publisher.num_tries > 0

    def _new_publisher(self, refresh: RefreshRecord) -> Publisher:
        return Publisher(self.spark, self.main, self.table, refresh, self.own, self.lease)

    @property
    def has_committed(self) -> bool:
        """True if main is known to hold a commit of this refresh that another round has to follow."""
        return self._current().has_committed

    def _current(self) -> RefreshRecord:
        found = self.store.refresh(self.own.refresh_id)
        assert found is not None
        return found

    def _source_rows(self) -> DataFrame:
        return self._source.read(self.refresh.frontier)

    @cached_property
    def _layout(self) -> Layout:
        with translated(self.table.name):
            found = self.spark.read.format("delta").load(self.table.location).schema
        return Layout(self.definition, schema.columns_of(found.jsonValue()))


def _named(chunk: Chunk) -> str:
    if chunk.is_rest:
        return "partitions that the source no longer has"
    assert chunk.partitions is not None
    first, last = chunk.partitions[0], chunk.partitions[-1]
    return f"partition {first}" if first == last else f"{len(chunk.partitions)} partitions, {first} to {last}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"

"""A refresh from seal to finish: progress only grows, the history keeps the figures, and what ended leaves nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from airflow_mv_provider.core.guard import Counts, NullCount
from airflow_mv_provider.core.outcome import Outcome, PartitionReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import REST, Chunk, plan_chunks
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE, partition_name
from airflow_mv_provider.core.progress.recorded import PartitionCounts
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.core.progress.totals import Totals
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.metadata.status import PartitionStatus, TableStatus
from tests.metadata.reading import num_read
from tests.metadata.rows import (
    CHUNKS,
    ERROR,
    FIRST,
    GONE,
    P1,
    P2,
    P3,
    RECORDED,
    SEAL,
    acquired,
    dump,
    publish,
    recorded,
    registered,
    walk,
)


@pytest.fixture
def own(store, table):
    return acquired(store, table)


def waiting(partition: str, rows: int) -> PartitionStatus:
    return PartitionStatus(partition, False, rows, 0, 0, 0)


def test_seal_moves_to_merging_with_everything_that_merging_needs(store, table, own):
    store.merging.seal(own, SEAL, CHUNKS, {"REFRESHING": 1.5})

    assert store.state(table.id).phase is Phase.MERGING
    assert store.chunks(own.refresh_id) == (CHUNKS, ())
    refresh = store.refresh(own.refresh_id)
    assert replace(refresh.seal, partitions=()) == replace(SEAL, partitions=())
    assert set(refresh.seal.partitions) == set(SEAL.partitions), "digests are 64 bits with a sign"
    report = store.report(own.refresh_id)
    assert (report.phase, report.bytes_staging, report.phase_seconds) == (Phase.MERGING, 1000, {"REFRESHING": 1.5})


def test_table_without_partitions_is_one_chunk(store, table, own):
    nulls = (NullCount("amount", 3, 60), NullCount("mail", 0, 60))
    seal = replace(SEAL, partitions=(SealedPartition(WHOLE_TABLE, 60, 5),), nulls=nulls)

    store.merging.seal(own, seal, (Chunk(0, None),), {})

    assert store.refresh(own.refresh_id).seal == seal
    assert store.chunks(own.refresh_id) == ((Chunk(0, None),), ())


def test_empty_source_is_sealed_too(store, table, own):
    store.merging.seal(own, replace(SEAL, partitions=()), (Chunk(0, None),), {})
    whole = recorded(0, PartitionCounts(P1, Counts(0, 9, 0, 0, 9)), is_whole=True)

    store.merging.record_chunk(own, whole)

    assert store.chunks(own.refresh_id) == ((Chunk(0, None),), (whole,))


def test_seal_that_fails_half_way_leaves_nothing(store, table, own):
    before = dump(store.engine)

    with pytest.raises(Exception, match=r"(?i)unique"):
        store.merging.seal(own, SEAL, (*CHUNKS, CHUNKS[0]), {})

    assert dump(store.engine) == before


def test_recorded_chunks_are_given_back_as_they_were(store, table, own):
    walk(store, own, Phase.MERGING)

    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)

    chunks, found = store.chunks(own.refresh_id)
    assert chunks == CHUNKS, "partitions that only main has belong to the rest and are not planned"
    assert found == RECORDED


def test_seal_stays_what_it_was_when_chunks_are_recorded(store, table, own):
    walk(store, own, Phase.MERGING)
    before = store.refresh(own.refresh_id).seal

    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)

    after = store.refresh(own.refresh_id).seal
    assert set(after.partitions) == set(before.partitions)


def test_chunk_without_corrections_is_recorded_too(store, table, own):
    walk(store, own, Phase.MERGING)
    nothing = recorded(0, PartitionCounts(P1, Counts(10, 10)), PartitionCounts(P2, Counts(20, 20)), path=None)
    nothing = replace(nothing, num_rows=0, digest=0, num_bytes=0)

    store.merging.record_chunk(own, nothing)

    assert store.chunks(own.refresh_id)[1] == (nothing,)


def test_progress_only_grows(store, table, own):
    walk(store, own, Phase.MERGING)

    seen = [store.status(table)]
    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)
        seen.append(store.status(table))

    assert [(s.partitions_completed, s.partitions_total) for s in seen] == [(0, 3), (2, 3), (3, 3), (4, 4)]
    for earlier, later in pairwise(seen):
        completed = {p for p in earlier.partitions if p.is_completed}
        assert completed <= set(later.partitions), "what is completed stays as it is"


def test_status_tells_each_partitions_progress_and_counts(store, table, own):
    walk(store, own, Phase.MERGING)
    store.merging.record_chunk(own, FIRST)

    status = store.status(table)

    assert status.partitions == (
        PartitionStatus(P1, True, 10, 2, 1, 1),
        PartitionStatus(P2, True, 20, 0, 0, 0),
        waiting(P3, 30),
    )


def test_discarded_chunks_are_compared_again_in_the_next_round(store, table, own):
    walk(store, own, Phase.MERGING)
    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)
    staged = store.report(own.refresh_id).bytes_staging

    store.merging.discard_chunks(own, None, 0)

    assert store.chunks(own.refresh_id) == (CHUNKS, ())
    assert store.status(table).partitions == (waiting(P1, 10), waiting(P2, 20), waiting(P3, 30))
    refresh, report = store.refresh(own.refresh_id), store.report(own.refresh_id)
    assert (refresh.merge_round, refresh.has_committed) == (1, False)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted, report.bytes_main) == (0, 0, 0, 0)
    assert report.bytes_staging == staged == 1000 + 300
    assert set(refresh.seal.partitions) == set(SEAL.partitions)


def test_discarded_table_without_partitions_keeps_its_progress_row(store, table, own):
    store.merging.seal(own, replace(SEAL, partitions=(SealedPartition(WHOLE_TABLE, 0, 0),)), (Chunk(0, None),), {})
    store.merging.record_chunk(own, recorded(0, PartitionCounts(WHOLE_TABLE, Counts(0, 5, 0, 0, 5))))

    store.merging.discard_chunks(own, None, 0)

    assert store.status(table).partitions == (waiting(WHOLE_TABLE, 0),)


def test_what_a_lost_round_put_into_main_is_counted(store, table, own):
    walk(store, own, Phase.MERGING)

    store.merging.discard_chunks(own, Counts(60, 33, 32, 1, 5), 700)
    publish(store, own)

    report, refresh = store.report(own.refresh_id), store.refresh(own.refresh_id)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (64, 2, 10)
    assert (report.rows_unchanged, report.bytes_main, refresh.has_committed) == (27, 1200, True)


def test_published_main_is_what_the_next_refresh_starts_from(store, table, own):
    walk(store, own, Phase.CLEANUP)

    state = store.state(table.id)
    assert (state.phase, state.epoch, state.refresh_id) == (Phase.CLEANUP, 1, own.refresh_id)
    assert (state.published_upper, state.published_version, state.published_commit) == (1, 6, "r:1")
    assert (state.published_hash, state.is_main_trusted) == (table.definition.content_hash, True)
    assert state.is_lease_live


@pytest.mark.parametrize("is_published", [True, False])
def test_main_that_nobody_knows_is_compared_as_a_whole_by_the_next_refresh(store, table, own, is_published):
    """Neither that it is as it was published is believed any more, nor what refreshes of some partitions covered."""
    walk(store, own, Phase.NORMAL)
    walk(store, acquired(store, table, scope=Scope(start="1", end="2")), Phase.NORMAL)
    before = store.state(table.id)
    assert (before.is_main_trusted, len(before.covered)) == (True, 1)
    last = acquired(store, table, scope=Scope(start="2", end="3"))
    walk(store, last, Phase.MERGING)

    if is_published:
        publish(store, last, is_main_known=False, totals=None)
    else:
        store.abandon(last, Outcome.ABANDONED, ERROR, {}, is_main_known=False)

    state = store.state(table.id)
    assert (state.is_main_trusted, state.covered) == (False, ())


def test_published_totals_replace_those_of_the_publish_before(store, table, own):
    walk(store, own, Phase.NORMAL)
    first = store.state(table.id).published_totals
    second = acquired(store, table)
    walk(store, second, Phase.NORMAL)

    now = store.state(table.id).published_totals
    assert (first.refresh_id, first.totals) == (own.refresh_id, SEAL.totals)
    assert now.refresh_id == second.refresh_id
    assert store.refresh(own.refresh_id).outdated_kept == ()
    assert store.refresh(second.refresh_id).outdated_kept == (own.refresh_id,)


def test_totals_of_partitions_that_have_changed_replace_those_that_are_known(store, table, own):
    walk(store, own, Phase.NORMAL)
    before = store.partition_totals(table.id)
    second = acquired(store, table)
    walk(store, second, Phase.MERGING)
    changed = {P1: Totals(1, 2, 3), P2: Totals(), GONE: Totals(4, 5, 6)}

    publish(store, second, partitions=changed, are_all_partitions=False)

    assert before == {part.partition: part.totals for part in SEAL.partitions}
    assert store.partition_totals(table.id) == {P1: Totals(1, 2, 3), P3: before[P3], GONE: Totals(4, 5, 6)}


def test_nothing_is_known_of_partitions_where_nothing_is_of_main(store, table, own):
    walk(store, own, Phase.MERGING)

    publish(store, own, totals=None)

    assert (store.state(table.id).published_totals, store.partition_totals(table.id)) == (None, {})


def test_corrections_may_be_recorded_with_the_seal(store, table, own):
    store.merging.seal(own, SEAL, CHUNKS, {}, recorded=RECORDED)

    chunks, found = store.chunks(own.refresh_id)
    assert (chunks, found) == (CHUNKS, RECORDED)
    assert set(store.refresh(own.refresh_id).seal.partitions) == set(SEAL.partitions)
    assert store.done(own.refresh_id).recorded == {0, 1, REST}
    status = store.status(table)
    assert (status.partitions_completed, status.partitions_total) == (4, 4)


def test_partitions_that_nobody_counted_are_as_they_were(store, table, own):
    store.merging.seal(own, SEAL, (Chunk(0, None),), {}, recorded=[recorded(0, FIRST.partitions[0], is_whole=True)])

    _, (found,) = store.chunks(own.refresh_id)

    counts = {part.partition: part.counts for part in found.partitions}
    assert counts == {P1: FIRST.partitions[0].counts, P2: Counts(20, 20), P3: Counts(30, 30)}


def test_published_hash_is_of_the_definition_the_refresh_began_with(store, table, own):
    registered(store, key=["other"])

    walk(store, own, Phase.CLEANUP)

    assert store.state(table.id).published_hash == table.definition.content_hash


def test_finished_refresh_leaves_its_history_and_nothing_else(store, table, own, clock):
    walk(store, own, Phase.CLEANUP)
    clock.pass_ms(1000)

    store.finish(own, {"CLEANUP": 0.25, "MERGING": 0.5})

    tables = dump(store.engine)
    assert tables["refresh_progress"] == tables["refresh_chunk"] == []
    state = store.state(table.id)
    assert (state.phase, state.refresh_id, state.owner_key, state.owner_process) == (Phase.NORMAL, None, None, None)
    report = store.report(own.refresh_id)
    assert (report.outcome, report.phase, report.epoch, report.error) == (Outcome.PUBLISHED, Phase.NORMAL, 1, None)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted, report.rows_unchanged) == (32, 1, 5, 27)
    assert (report.bytes_main, report.bytes_staging, report.main_version) == (500, 1300, 6)
    assert report.phase_seconds == {"REFRESHING": 1.5, "MERGING": 2.5, "CLEANUP": 0.25}
    assert report.partitions == (
        PartitionReport(P1, 2, 1, 1, 7),
        PartitionReport(P2, 0, 0, 0, 20),
        PartitionReport(P3, 30, 0, 0, 0),
        PartitionReport(GONE, 0, 0, 4, 0),
    )
    assert report.started_at < report.finished_at
    assert report.started_at.endswith("+00:00")


def test_status_between_refreshes_shows_the_last_one(store, table, own):
    walk(store, own, Phase.NORMAL)

    status = store.status(table)

    assert status == TableStatus(
        table="orders",
        phase=Phase.NORMAL,
        epoch=1,
        main_version=6,
        is_main_trusted=True,
        refresh_id=None,
        owner=None,
        owned_since=None,
        is_lease_live=False,
        is_cancel_requested=False,
        partitions_completed=0,
        partitions_total=0,
        partitions=(),
        last=store.report(own.refresh_id),
        fresh_as_of=store.report(own.refresh_id).started_at,
    )


def test_status_during_a_refresh_shows_who_and_since_when(store, table, own):
    status = store.status(table)

    assert (status.phase, status.refresh_id, status.owner) == (Phase.REFRESHING, own.refresh_id, "host:one")
    assert status.owned_since <= store.report(own.refresh_id).started_at
    assert status.last is None


def test_history_keeps_the_changed_partitions_of_a_table_with_very_many(store, table, own):
    names = [partition_name([f"{i:05}"]) for i in range(1500)]
    parts = tuple(SealedPartition(name, 1, i) for i, name in enumerate(names))
    store.merging.seal(own, Seal("/s", 1, parts), (Chunk(0, tuple(names)), Chunk(REST, ())), {})
    counts = [Counts(1, 1, 0, int(i >= 1400), 0) for i in range(1500)]
    store.merging.record_chunk(
        own,
        recorded(0, *(PartitionCounts(n, c) for n, c in zip(names, counts, strict=True))),
    )
    store.merging.record_chunk(own, recorded(REST))

    publish(store, own)

    found = store.report(own.refresh_id).partitions
    assert len(found) == 1000
    assert [p.partition for p in found] == sorted(p.partition for p in found)
    assert [p.partition for p in found if p.rows_updated] == names[1400:]


@pytest.mark.parametrize(
    "value", ["", "it's", '"', "😀", "a\nb", "\x00", "x" * 3000, "%s", ":p", "\\"], ids=lambda v: repr(v)[:12]
)
def test_partition_of_any_name_finds_its_row_again(store, table, own, value):
    name = partition_name([value])
    store.merging.seal(
        own, replace(SEAL, partitions=(SealedPartition(name, 1, 2),)), (Chunk(0, (name,)), Chunk(REST, ())), {}
    )
    chunk = recorded(0, PartitionCounts(name, Counts(1, 0, 1, 0, 0)))

    store.merging.record_chunk(own, chunk)

    assert store.chunks(own.refresh_id)[1] == (chunk,)
    assert [p.partition for p in store.status(table).partitions] == [name]


@pytest.mark.sample(1)  # of two databases: they are many rows
def test_a_hundred_thousand_partitions_are_sealed_and_counted(store, table):
    own = acquired(store, table)
    parts = tuple(SealedPartition(partition_name([f"day {n}"]), 7, n) for n in range(100_000))
    seal = replace(SEAL, partitions=parts)
    chunks = plan_chunks(parts, chunk_rows=5_000_000)

    store.merging.seal(own, seal, chunks, {})

    planned, recorded = store.chunks(own.refresh_id)
    assert (len(planned), recorded) == (201, ())
    assert sum(len(chunk.partitions or ()) for chunk in planned) == 100_000
    found = store.refresh(own.refresh_id)
    assert found is not None
    assert found.seal is not None
    assert found.seal.num_rows == 700_000
    store.abandon(own, Outcome.CANCELLED, None, {})
    assert store.report(own.refresh_id).outcome is Outcome.CANCELLED


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
def test_steps_together_read_as_many_partitions_as_there_are(store, table):
    """Twice as many partitions are twice as many chunks; if all were read in each step, it would be four times."""

    def num_read_by_all_steps(num_partitions: int) -> int:
        own = acquired(store, table)
        parts = tuple(SealedPartition(partition_name([f"day {n:05}"]), 7, n) for n in range(num_partitions))
        chunks = plan_chunks(parts, chunk_rows=7)
        store.merging.seal(own, replace(SEAL, partitions=parts), chunks, {})
        before = num_read(store.engine, lambda: None)

        def steps() -> None:
            done = store.done(own.refresh_id)
            for chunk in chunks:
                store.state(table.id)
                found = (PartitionCounts(name, Counts(7, 0, 7, 0, 0)) for name in chunk.partitions or ())
                store.merging.record_chunk(own, recorded(chunk.number, *found), is_progressive=True)
                done = store.done_after(own.refresh_id, done, [chunk.number])
                store.chunks(own.refresh_id, [chunk.number])
                store.merging.record_committed(own, chunk.number, 6, Counts(7, 0, 7, 0, 0), 1)
                done = store.done_after(own.refresh_id, done, [chunk.number])
            assert done == store.done(own.refresh_id)
            assert len(done.committed) == len(chunks)

        read = num_read(store.engine, steps) - before
        store.abandon(own, Outcome.CANCELLED, None, {})
        return read

    few, many = num_read_by_all_steps(200), num_read_by_all_steps(400)

    assert many <= 2.5 * few

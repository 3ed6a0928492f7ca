"""A store as an installation has it after some weeks: written by the store's own methods, at a clock that is set back.

Figures are drawn from a seed, so that screenshots of two runs show the same.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_mv_provider import DeltaSource, Query
from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.core.approval.hold import Hold
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.cost import Estimate
from airflow_mv_provider.core.definition.source import Source
from airflow_mv_provider.core.frontier import BatchDescription
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import ErrorReport, Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import REST, Chunk
from airflow_mv_provider.core.progress.partition import partition_name, partition_values
from airflow_mv_provider.core.progress.published import Published
from airflow_mv_provider.core.progress.recorded import PartitionCounts, RecordedChunk
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.state import Caller, Ownership, TableRecord
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.conftest import Clock
from tests.metadata.rows import a_refresh, registered

HOUR_MS = 3_600_000
GUARD = ErrorReport(
    "MV-GUARD",
    "gold.revenue: max_deleted_fraction: "
    "412,077 of the table's 1,030,000 rows would be deleted (40.0%; the guard allows 30.0%).",
    "If the difference is correct, refresh once with `--override`, the guard's name, and the reason in `--note`.",
)
CORRUPT = ErrorReport(
    "MV-FILE-CORRUPT",
    "web_clicks: raw/clicks/2026-11-21.json, record 18,211: a value of `amount` is not a DECIMAL(12,2).",
    "Correct the record or the schema, then refresh again.",
)
SAMPLE = Sample(
    0,
    (
        *(
            RowChange(
                "delete",
                {"month": month, "sku": sku},
                {"month": month, "sku": sku, "margin": margin, "cost": cost},
                None,
            )
            for month, sku, margin, cost in (
                ("2018-02-01", "A-1040", "12.40", "31.10"),
                ("2018-02-01", "A-1041", "7.95", "18.00"),
                ("2018-05-01", "B-0007", "0.40", "2.25"),
            )
        ),
        *(
            RowChange(
                "update",
                {"month": "2018-06-01", "sku": sku},
                {"month": "2018-06-01", "sku": sku, "margin": old, "cost": "9.10"},
                {"month": "2018-06-01", "sku": sku, "margin": new, "cost": "9.10"},
            )
            for sku, old, new in (("A-1040", "12.40", "12.90"), ("C-3300", None, "4.75"))
        ),
    ),
    {"margin": 171, "cost": 17},
)
JUDGED = (
    Estimate("incremental", 14.2, "chosen", 9_800),
    Estimate("corrections", 61.5, "47.3 s slower", 9_800),
    Estimate("replace", 118.0, "103.8 s slower", 9_800),
)


@dataclass
class Keeper:
    """Refreshes one table again and again; what differs is drawn from a seed."""

    store: Store
    clock: Clock
    table: TableRecord
    partitions: Sequence[str]
    rows_each: int = 40_000
    draw: random.Random = field(default_factory=lambda: random.Random(7))

    def begin(self, choice: Choice, user: str | None = None, key: str | None = None) -> Ownership:
        state = self.store.state(self.table.id)
        upper = state.published_upper + 1
        refresh = a_refresh(
            self.table,
            batch=BatchDescription(state.published_upper, upper),
            frontier=DeltaFrontier("source", 40 + upper),
            choice=choice,
        )
        trigger = "manual" if user else "dag"
        caller = Caller(key or f"one:{upper}", f"worker-{upper % 3}:{4000 + upper}", trigger, user)
        own = self.store.acquire(state, refresh, caller, epoch=state.epoch + 1, lease_ms=60_000)
        assert own is not None
        return own

    def seal(self, own: Ownership, seconds: float) -> None:
        parts = tuple(SealedPartition(name, self.rows_each, 17) for name in self.partitions)
        chunks = (*(Chunk(i, (name,)) for i, name in enumerate(self.partitions)), Chunk(REST, ()))
        way = self.store.report(own.refresh_id).strategy
        size = self.rows_each * len(parts) * (9 if way != "incremental" else 1)
        staged = Seal("/wh/_mv/staging", size, parts, strategy=way)
        self.store.merging.seal(own, staged, chunks, {"REFRESHING": seconds})

    def compare(self, own: Ownership, number: int) -> Counts:
        draw, rows = self.draw, self.rows_each
        changed = draw.random() < 0.4
        inserted, updated, deleted = (int(draw.paretovariate(1.2) * 30) if changed else 0 for _ in range(3))
        inserted, updated, deleted = (min(each, rows // 4) for each in (inserted, updated, deleted // 3))
        counts = Counts(rows, rows - inserted + deleted, inserted, updated, deleted)
        part = PartitionCounts(self.partitions[number], counts)
        chunk = RecordedChunk(number, own.epoch, 0, 5, f"/wh/changes-{number}", 3, -7, 1200, (part,))
        self.store.merging.record_chunk(own, chunk)
        return counts

    def publish(self, own: Ownership, counts: Sequence[Counts], seconds: Mapping[str, float]) -> None:
        total = Counts(
            *(sum(getattr(c, f) for c in counts) for f in ("desired", "main", "inserted", "updated", "deleted"))
        )
        seal = self.store.refresh(own.refresh_id).seal
        state = self.store.state(self.table.id)
        self.store.merging.published(
            own,
            main_version=(state.published_version or 0) + 2,
            commit="r:1",
            counts=total,
            totals=Published(own.refresh_id, seal.totals, "columns"),
            partitions={part.partition: part.totals for part in seal.partitions},
            bytes_main=total.changes * 96 + 20_000,
            main_bytes=total.desired * 61,
            seconds={"MERGING": seconds["MERGING"]},
        )
        self.store.finish(own, {"CLEANUP": seconds["CLEANUP"]})

    def owned(self) -> Ownership:
        """Return the right to go on with what is under way, as its owner has it."""
        state = self.store.state(self.table.id)
        assert state.refresh_id is not None
        return Ownership(self.table.id, state.refresh_id, state.epoch)

    def refresh(self, choice: Choice, user: str | None = None) -> str:
        """Refresh from beginning to end; the clock goes on by what it takes."""
        return self.finish(self.begin(choice, user))

    def finish(self, own: Ownership) -> str:
        """Bring a refresh that has just begun to its end; the clock goes on by what it takes."""
        seconds = {p: round(self.draw.uniform(*r), 1) for p, r in _TAKES.items()}
        self.clock.pass_ms(round(seconds["REFRESHING"] * 1000))
        self.seal(own, seconds["REFRESHING"])
        counts = [self.compare(own, i) for i in range(len(self.partitions))]
        self.clock.pass_ms(round((seconds["MERGING"] + seconds["CLEANUP"]) * 1000))
        self.publish(own, counts, seconds)
        return own.refresh_id

    def refreshes(self, count: int, apart_ms: int) -> None:
        """Refresh so many times, the first `count` intervals ago and the last an interval ago."""
        now = self.clock.ahead_ms
        for number in range(count):
            self.clock.ahead_ms = now - (count - number) * apart_ms
            kind = self.draw.random()
            if number and kind < 0.15:
                self.store.record(
                    a_refresh(self.table, choice=_NOTHING), Caller("dag", "worker-1:4000", "dag"), Outcome.NOTHING_TO_DO
                )
            elif number and kind < 0.2:
                own = self.begin(CORRECTIONS)
                self.clock.pass_ms(8_000)
                self.store.abandon(own, Outcome.FAILED, CORRUPT, {"REFRESHING": 8.0})
            else:
                self.refresh(_FIRST if number == 0 else _INCREMENTAL, user="ann" if kind > 0.9 else None)
        self.clock.ahead_ms = now


_TAKES = {"REFRESHING": (6.0, 14.0), "MERGING": (3.0, 12.0), "CLEANUP": (0.3, 0.9)}
_FIRST = Choice("replace", "first refresh")
_INCREMENTAL = Choice("incremental", "the source changed: Delta version 88", JUDGED)
CORRECTIONS = Choice("corrections", "another writer may have changed the table")
_NOTHING = Choice("skip", "the source and the table are unchanged")


def months(count: int) -> list[str]:
    """Return names of so many partitions, by month."""
    return [partition_name([f"{2018 + i // 12}-{i % 12 + 1:02}-01"]) for i in range(count)]


def fill(store: Store, clock: Clock, *, partitions: int = 100, refreshes: int = 34) -> dict[str, Keeper]:
    """Register tables in every state that the page knows; return who keeps them, by name."""
    keepers = {}
    for number, (name, size) in enumerate(TABLES.items()):
        parts = months(min(size, partitions))
        definition: dict[str, Any] = {"partition_by": ["month"], "key": ["id", "month"]} if size > 1 else {}
        definition["source"] = reading(READS.get(name, (f"raw/{name}",)))
        keeper = Keeper(store, clock, registered(store, name, **definition), parts, draw=random.Random(number))
        keepers[name] = keeper
        keeper.refreshes(refreshes if name == "orders" else 4, HOUR_MS)
    _leave(keepers["inventory"], clock)
    under_way(keepers["orders"])
    clock.ahead_ms -= 900_000
    own = keepers["gold.revenue"].begin(replace(CORRECTIONS, reason="the definition changed"))
    clock.pass_ms(36_600)
    store.abandon(own, Outcome.REFUSED, GUARD, {"REFRESHING": 31.4, "MERGING": 5.2})
    own = keepers["web_clicks"].begin(CORRECTIONS)
    clock.pass_ms(2_200)
    store.abandon(own, Outcome.FAILED, CORRUPT, {"REFRESHING": 2.2})
    clock.ahead_ms += 861_200
    store.pause(keepers["sensors"].table.id, "ann")
    keepers["payments"].begin(_INCREMENTAL)
    hold(keepers["gold.margins"])
    registered(store, "returns")
    return keepers


TABLES = {"orders": 100, "customers": 1, "gold.revenue": 24, "web_clicks": 36, "sensors": 12, "inventory": 8} | {
    "payments": 1,
    "flights": 48,
    "gold.margins": 6,
    "regions": 2,
    "finance.ledger_entries": 60,
}


# Paths of other tables' mains among them.
READS = {
    "gold.revenue": ("orders", "customers", "raw/rates"),
    "gold.margins": ("gold/revenue", "inventory"),
    "finance.ledger_entries": ("payments", "gold/revenue"),
}


def reading(paths: Sequence[str]) -> Source:
    """Return a source that reads Delta tables at these paths."""
    if len(paths) == 1:
        return DeltaSource(paths[0])
    inputs = {path.rpartition("/")[2]: path for path in paths}
    return Query(f"SELECT * FROM {', '.join(inputs)}", inputs=inputs)


def hold(keeper: Keeper, key: str | None = None) -> Hold:
    """Let a refresh wait for a decision about all that it would change; return its hold.

    What another test has left under way or decided is given up first.
    """
    if keeper.store.state(keeper.table.id).refresh_id is not None:
        keeper.store.abandon(keeper.owned(), Outcome.CANCELLED, None, {})
    own = keeper.begin(CORRECTIONS, key=key)
    keeper.clock.pass_ms(12_000)
    keeper.seal(own, 12.0)
    counts = [keeper.compare(own, number) for number in range(len(keeper.partitions))]
    deleted, main = sum(each.deleted for each in counts), sum(each.main for each in counts)
    reason = f"max_deleted_fraction: {deleted:,} of the table's {main:,} rows would be deleted"
    reason += f", usually {deleted // 12:,}; the guard allows 5 times as many."
    empty = RecordedChunk(REST, own.epoch, 0, 5, "/wh/changes-rest", 3, -7, 1200, ())
    keeper.store.merging.record_chunk(own, empty)
    guards = ["max_deleted_fraction"]
    keeper.store.samples.keep(own, SAMPLE)
    return keeper.store.holds.begin(own, 0, reason, guards, hold_ms=24 * HOUR_MS)


def fail_interval(keeper: Keeper) -> None:
    """Let a refresh of one interval fail: the last month of what the table has."""
    scope = Scope(start=partition_values(keeper.partitions[-1])[0], end="2019-01-01")
    caller = Caller("one:interval", "worker-1:4000", "dag")
    keeper.store.record(a_refresh(keeper.table, scope=scope), caller, Outcome.FAILED)


def _leave(keeper: Keeper, clock: Clock) -> None:
    """Let an owner die while it compares, some minutes ago."""
    clock.ahead_ms -= 600_000
    own = keeper.begin(CORRECTIONS)
    keeper.seal(own, 9.0)
    for number in range(3):
        keeper.compare(own, number)
    clock.ahead_ms += 600_000


def under_way(keeper: Keeper, *, done: float = 0.42) -> Ownership:
    """Begin a refresh a minute ago, let its owner die, and let the next one go on; return the right to do so."""
    store, clock = keeper.store, keeper.clock
    clock.ahead_ms -= 90_000
    own = keeper.begin(_INCREMENTAL, user="ann", key="airflow:hourly:refresh_orders:-1:manual")
    clock.pass_ms(21_000)
    keeper.seal(own, 21.0)
    share = round(len(keeper.partitions) * done)
    for number in range(share // 2):
        keeper.compare(own, number)
    clock.pass_ms(19_000)
    state = store.state(keeper.table.id)
    caller = Caller(state.owner_key or "", "worker-2:5120", "manual", "ann")
    newer = store.hand_over(state, caller, epoch=state.epoch + 1, lease_ms=HOUR_MS)
    assert newer is not None
    clock.pass_ms(30_000)
    for number in range(share // 2, share):
        keeper.compare(newer, number)
    store.queue.take_ticket(
        keeper.table.id, Caller("airflow:nightly:x:-1:r", "worker-1:77", "dag"), patience_ms=HOUR_MS
    )
    clock.pass_ms(20_000)
    assert store.state(keeper.table.id).phase is Phase.MERGING
    return newer

"""The effects of one process on the real `Store`: the same steps of `order` as on the small world, write by write.

Bindings, leases, epochs, holds and the run's row are the database's, on SQLite; how far an output is published is what
`runner/ingestion/release` and `runner/pinning` read of it. The topic and the mains are small values, as in the model.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.frontier import BatchDescription
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import ErrorReport, Outcome
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.core.state import Caller, Ownership, RefreshRecord, RefreshState, TableRecord, next_epoch
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.definition_file import parse
from airflow_mv_provider.exceptions import LeaseLostError
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.ingestion.members import members_of
from airflow_mv_provider.runner.ingestion.release import published_frontier
from airflow_mv_provider.runner.pinning import base_of
from airflow_mv_provider.sources.kafka.frontier import KafkaFrontier, starts_of
from airflow_mv_provider.sources.kafka.shared import releasable
from tests.conftest import Clock
from tests.model.ingestion.process import Batch, Facts, assessed
from tests.model.ingestion.world import FOREIGN, OUTPUTS, Design, Main, Rows, Topic, frontier, generation_of, records

LEASE_MS, HOLD_MS = 60_000, 10**12
_GIVEN_UP = ErrorReport("MV-ABANDONED", "it was given up", "", True)
_ONE_CHUNK = (Chunk(0, ('["all"]',)),)
_FILE = """
ingestions:
  - name: shop
    source: {type: kafka, conn_id: shop, envelope: upsert, topic: topic, group: shop}
    outputs: {first: {}, second: {}}
tables:
"""
_TABLE = """
  - name: NAME
    key: [id]
    source: {type: output, of: shop, output: NAME, schema: "id INT, v STRING"}
"""
NAMES = ("first", "second")
Own = tuple[str, int]


@dataclass
class Site:
    """What is durable: the database, and as small values the topic, its group and the mains.

    tables : None where one is not registered
    since  : the model's epoch when a table was registered; a new table begins at 0
    """

    store: Store
    clock: Clock
    topic: Topic = field(default_factory=Topic)
    group: int = 0
    tables: list[TableRecord | None] = field(default_factory=lambda: [None, None])
    mains: list[Main] = field(default_factory=lambda: [Main(), Main()])
    published: list[Rows] = field(default_factory=lambda: [(), ()])
    since: list[int] = field(default_factory=lambda: [0, 0])
    staged: dict[str, Rows] = field(default_factory=dict)
    tables_of: dict[str, int] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)

    def register(self, output: int, since: int = 0) -> None:
        text = _FILE + "".join(_TABLE.replace("NAME", name) for name in NAMES)
        definition = next(each for each in parse(text) if each.name == NAMES[output])
        name = definition.name
        self.tables[output] = self.store.registry.register(definition, warehouse="/wh", location=f"/wh/{name}")
        self.mains[output], self.published[output], self.since[output] = Main(), (), since

    def drop(self, output: int) -> None:
        table = self.table(output)
        assert self.store.registry.begin_drop(self.store.state(table.id))
        assert self.store.registry.forget(table.id)
        self.tables[output] = None

    def decide(self, output: int, decision: Decision) -> None:
        self.store.holds.decide(self.table(output).id, decision, "ann", None)

    def table(self, output: int) -> TableRecord:
        found = self.tables[output]
        assert found is not None
        return found


class Stored:
    """The effects of one process of the caller `key`."""

    def __init__(self, design: Design, site: Site, key: str) -> None:
        self.design, self.site, self.key, self.store = design, site, key, site.store
        self.caller = Caller(key, "host")

    # -- what is read ------------------------------------------------------------------------------------------------

    def look(self, output: int) -> RefreshState | None:
        table = self.site.tables[output]
        return None if table is None else self.store.state(table.id)

    def state_of(self, seen: RefreshState) -> RefreshState:
        return seen

    def identity(self, seen: RefreshState) -> int:
        return seen.table_id

    def find(self) -> KafkaFrontier:
        return frontier(self.site.topic.generation, self.site.topic.end)

    def assess(self, output: int, seen: RefreshState, pin: KafkaFrontier, *, is_reload: bool) -> Batch | str | None:
        site, table = self.site, self.site.tables[output]
        if table is None or table.id != seen.table_id:
            table = None
        base = None if table is None else base_of(self.store, table, seen, seen.published_upper)
        facts = Facts(
            upper=seen.published_upper,
            base=None if base is None else _of_kafka(base.frontier),
            newest=self.store.newest_binding(seen.table_id),
            is_trusted=not site.mains[output].is_touched,
            is_rolled_back=False,
            low=site.topic.low,
        )
        return assessed(self.design, facts, pin, is_reload)

    def tells(self, output: int, code: str) -> None:
        """What people are told is compared as the step's name."""

    def lower(self, output: int, own: Own) -> int:
        return self._batch(own).lower

    def is_of(self, output: int, own: Own, pin: KafkaFrontier) -> bool:
        found = self._pin(own)
        return (found.topic_id, found.offsets) == (pin.topic_id, pin.offsets)

    def rows(self, output: int) -> Rows:
        return self.site.published[output]

    def position(self, output: int) -> KafkaFrontier | None:
        assert self.site.table(output) in members_of(self.store, "shop")
        found = published_frontier(self.store, self.site.table(output))
        return None if found is None else _of_kafka(found)

    def sealed_position(self, output: int) -> KafkaFrontier | None:
        raise AssertionError("what is shipped releases after the publish")

    def is_open(self, output: int) -> bool:
        raise AssertionError("what is shipped counts paused tables")

    def is_there(self, output: int, own: Own) -> bool:
        return not self._is_mine(output, own) or self._read(output, self._pin(own)) is not None

    # -- the state row -----------------------------------------------------------------------------------------------

    def bind(self, pin: KafkaFrontier) -> None:
        self.site.runs[self.key] = self.store.ingestions.bind("shop", pin.describe(), self.caller)

    def ends_run(self) -> None:
        self.store.ingestions.end(self.site.runs[self.key], None, None)

    def acquire(self, output: int, seen: RefreshState, batch: Batch) -> Own | None:
        site, (upper, pin) = self.site, batch
        table = site.tables[output]
        if table is None or table.id != seen.table_id:
            return None
        minted, why = BatchDescription(seen.published_upper, upper), Choice("incremental", "the source changed")
        refresh = RefreshRecord(uuid.uuid4().hex, table.id, table.definition, (), minted, pin, why)
        epoch = next_epoch(seen.epoch, site.mains[output].epoch)
        own = self.store.acquire(seen, refresh, self.caller, epoch=epoch, lease_ms=LEASE_MS)
        if own is None:
            return None
        site.tables_of[own.refresh_id] = own.table_id
        return own.refresh_id, own.epoch

    def hand_over(self, output: int, seen: RefreshState) -> Own | None:
        epoch = next_epoch(seen.epoch, self.site.mains[output].epoch)
        own = self.store.hand_over(seen, self.caller, epoch=epoch, lease_ms=LEASE_MS)
        return None if own is None else (own.refresh_id, own.epoch)

    def seal(self, output: int, own: Own, staged: Rows) -> bool:
        parts = (SealedPartition('["all"]', len(staged), hash(staged)),)
        seal = Seal(f"staging-{own[1]}", 1, parts, strategy="incremental")
        is_sealed = self._write(lambda: self.store.merging.seal(self._own(own), seal, _ONE_CHUNK, {}))
        if is_sealed:
            self.site.staged[own[0]] = staged
        return is_sealed

    def hold(self, output: int, own: Own) -> bool:
        return self._write(lambda: self.store.holds.begin(self._own(own), 0, "held", (), hold_ms=HOLD_MS))

    def published(self, output: int, own: Own) -> bool:
        main = self.site.mains[output]
        facts: dict[str, Any] = {"counts": Counts(), "totals": None, "bytes_main": 0, "seconds": {}}
        if not self._write(lambda: self.store.merging.published(self._own(own), main_version=1, commit=None, **facts)):
            return False
        self.site.published[output] = tuple(row for row in main.rows if row != FOREIGN)
        return True

    def finish(self, output: int, own: Own) -> bool:
        return self._write(lambda: self.store.finish(self._own(own), {}))

    def abandon(self, output: int, own: Own) -> bool:
        return self._write(lambda: self.store.abandon(self._own(own), Outcome.ABANDONED, _GIVEN_UP, {}))

    # -- the source and main -----------------------------------------------------------------------------------------

    def stage(self, output: int, own: Own, pin: KafkaFrontier | None) -> Rows | None:
        return self._read(output, self._pin(own)) if self._is_mine(output, own) else ()

    def _read(self, output: int, until: KafkaFrontier) -> Rows | None:
        site, table = self.site, self.site.table(output)
        base = base_of(self.store, table, self.store.state(table.id), self.store.state(table.id).published_upper)
        since = None if until.begin is not None or base is None else _of_kafka(base.frontier)
        if generation_of(until) != site.topic.generation or (since is None and until.begin is None):
            return None
        (start,) = starts_of(since, until)
        return None if start < site.topic.low else records(site.topic.generation, start, until.offsets[0])

    def fence(self, output: int, own: Own) -> str:
        main = self.site.mains[output]
        if main.epoch > own[1]:
            return "later"
        self.site.mains[output] = main._replace(epoch=own[1])
        return "in main" if main.refresh == own[0] else "not in main"

    def merge(self, output: int, own: Own, *, is_compared: bool) -> str:
        site = self.site
        if site.mains[output].epoch > own[1] or not self._is_mine(output, own):
            return "lost"
        if site.mains[output].is_touched and not is_compared:
            return "moved"
        continues, staged = self._pin(own).begin is None, site.staged[own[0]]
        rows = (*site.published[output], *staged) if continues else staged
        site.mains[output] = Main(rows, own[1], own[0])  # type: ignore[arg-type]
        return "done"

    def release(self, positions: dict[int, KafkaFrontier | None]) -> None:
        published = {NAMES[output]: at for output, at in positions.items()}
        offsets = releasable(dict.fromkeys(published, "topic"), published)
        read = next((at for at in positions.values() if at is not None), None)
        if read is not None and generation_of(read) == self.site.topic.generation and "topic" in offsets:
            self.site.group = offsets["topic"][0]

    # ----------------------------------------------------------------------------------------------------------------

    def _is_mine(self, output: int, own: Own) -> bool:
        """True if the refresh of this process is still the table's."""
        table = self.site.tables[output]
        return table is not None and self.store.state(table.id).refresh_id == own[0]

    def _own(self, own: Own) -> Ownership:
        return Ownership(self.site.tables_of[own[0]], *own)

    def _refresh(self, own: Own) -> RefreshRecord:
        found = self.store.refresh(own[0])
        assert found is not None
        return found

    def _pin(self, own: Own) -> KafkaFrontier:
        return _of_kafka(self._refresh(own).frontier)

    def _batch(self, own: Own) -> BatchDescription:
        batch = self._refresh(own).batch
        assert batch is not None
        return batch

    def _write(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except LeaseLostError:
            return False
        return True


def _of_kafka(found: object) -> KafkaFrontier:
    assert isinstance(found, KafkaFrontier)
    return found


def first_site(store: Store, clock: Clock) -> Site:
    """Both outputs were published with the first record, and that was released; another record came."""
    site = Site(store, clock)
    fx = Stored(Design(), site, "first")
    for output in OUTPUTS:
        site.register(output)
        seen = fx.look(output)
        assert seen is not None
        own = fx.acquire(output, seen, (1, frontier(1, 1, 0)))
        assert own is not None
        assert fx.seal(output, own, records(1, 0, 1))
        assert fx.merge(output, own, is_compared=False) == "done"
        assert fx.published(output, own)
        assert fx.finish(output, own)
    fx.release({output: fx.position(output) for output in OUTPUTS})
    site.topic = Topic(1, 2)
    return site

"""Builders of what the store is given, the walk of a refresh through its phases, and whole dumps of the database."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import Engine, select

from airflow_mv_provider.core.frontier import BatchDescription
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import ErrorReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import REST, Chunk
from airflow_mv_provider.core.progress.partition import partition_name
from airflow_mv_provider.core.progress.published import Kept, Published
from airflow_mv_provider.core.progress.recorded import PartitionCounts, RecordedChunk
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.core.state import Caller, Ownership, RefreshRecord, TableRecord
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.conftest import a_table

LEASE_MS = 60_000
ERROR = ErrorReport("MV-ENGINE", "orders: it failed.", "Look.", True)

P1, P2, P3, GONE = (partition_name([p]) for p in ("1", "2", "3", "gone"))
SEAL = Seal(
    rows="/wh/_mv/x/y/staging-1",
    num_bytes=1000,
    partitions=(SealedPartition(P1, 10, -(2**63)), SealedPartition(P2, 20, 2**63 - 1), SealedPartition(P3, 30, 0)),
)
CHUNKS = (Chunk(0, (P1, P2)), Chunk(1, (P3,)), Chunk(REST, ()))


def recorded(number: int, *parts: PartitionCounts, **changes: Any) -> RecordedChunk:
    """A chunk whose corrections are written."""
    values: dict[str, Any] = {"epoch": 1, "merge_round": 0, "base_version": 5, "path": f"/wh/changes-{number}"}
    values |= {"num_rows": 3, "digest": -7, "num_bytes": 100, "is_whole": False} | changes
    return RecordedChunk(number, **values, partitions=parts)


FIRST = recorded(0, PartitionCounts(P1, Counts(10, 9, 2, 1, 1)), PartitionCounts(P2, Counts(20, 20, 0, 0, 0)))
SECOND = recorded(1, PartitionCounts(P3, Counts(30, 0, 30, 0, 0)))
LAST = recorded(REST, PartitionCounts(GONE, Counts(0, 4, 0, 0, 4)))
RECORDED = (FIRST, SECOND, LAST)
TOTAL = Counts(60, 33, 32, 1, 5)


def a_caller(key: str = "one", **more: Any) -> Caller:
    return Caller(key, f"host:{key}", **more)


def registered(store: Store, name: str = "orders", **changes: Any) -> TableRecord:
    return store.registry.register(
        a_table(name=name, **changes), warehouse="/wh", location=f"/wh/{name.replace('.', '/')}"
    )


def a_refresh(table: TableRecord, *, lower: int = 0, upper: int = 1, **changes: Any) -> RefreshRecord:
    values: dict[str, Any] = {
        "id": uuid.uuid4().hex,
        "table_id": table.id,
        "definition": table.definition,
        "overrides": (),
        "batch": BatchDescription(lower, upper),
        "frontier": DeltaFrontier("source", upper),
        "choice": Choice("corrections", "first refresh"),
    }
    return RefreshRecord(**(values | changes))


def acquired(store: Store, table: TableRecord, key: str = "one", **changes: Any) -> Ownership:
    """Take the table for a new refresh."""
    state = store.state(table.id)
    lower = state.published_upper
    refresh = a_refresh(table, **({"lower": lower, "upper": lower + 1} | changes))
    own = store.acquire(state, refresh, a_caller(key), epoch=state.epoch + 1, lease_ms=LEASE_MS)
    assert own is not None
    return own


def handed_over(store: Store, own: Ownership, key: str = "one") -> Ownership:
    """Take an unfinished refresh under the next epoch."""
    state = store.state(own.table_id)
    newer = store.hand_over(state, a_caller(key), epoch=state.epoch + 1, lease_ms=LEASE_MS)
    assert newer is not None
    return newer


def walk(store: Store, own: Ownership, to: Phase) -> None:
    """Take a refresh from REFRESHING to the phase `to`."""
    if to is Phase.REFRESHING:
        return
    store.merging.seal(own, SEAL, CHUNKS, {"REFRESHING": 1.5})
    if to is Phase.MERGING:
        return
    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)
    publish(store, own)
    if to is Phase.NORMAL:
        store.finish(own, {"CLEANUP": 0.25})


def publish(store: Store, own: Ownership, **changes: Any) -> None:
    facts: dict[str, Any] = {"main_version": 6, "commit": "r:1", "counts": TOTAL, "bytes_main": 500, "main_bytes": 4200}
    kept = (Kept(own.refresh_id, "1-fingerprints"),)
    totals = Published(own.refresh_id, SEAL.totals, "columns", kept, 64)
    parts = {part.partition: part.totals for part in SEAL.partitions}
    facts |= {"totals": totals, "partitions": parts, "seconds": {"MERGING": 2.0}}
    store.merging.published(own, **(facts | changes))


def dump(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table."""
    with engine.begin() as db:
        return {
            table.name: sorted((tuple(row) for row in db.execute(select(table))), key=repr)
            for table in Base.metadata.sorted_tables
        }

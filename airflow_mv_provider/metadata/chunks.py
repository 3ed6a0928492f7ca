"""The chunks of a running refresh: as planned, and as recorded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.recorded import DoneChunks, PartitionCounts, RecordedChunk
from airflow_mv_provider.metadata.models import RefreshChunkRow, RefreshProgressRow


def chunks(
    db: Connection, refresh_id: str, numbers: Collection[int] | None = None
) -> tuple[tuple[Chunk, ...], tuple[RecordedChunk, ...]]:
    """Return a refresh's chunks as planned, and those whose corrections are recorded, with all their partitions.

    numbers : the numbers of the requested chunks; None returns all
    cost    : grows with the partitions; `done` is cheaper if only the state of the chunks is needed
    """
    planned = select(RefreshChunkRow.__table__).where(RefreshChunkRow.refresh_id == refresh_id)
    partitions = select(RefreshProgressRow.__table__).where(RefreshProgressRow.refresh_id == refresh_id)
    if numbers is not None:
        planned = planned.where(RefreshChunkRow.number.in_(numbers))
        partitions = partitions.where(RefreshProgressRow.chunk.in_(numbers))
    chunk_rows = db.execute(planned.order_by(RefreshChunkRow.number < 0, RefreshChunkRow.number)).all()
    members: dict[int, list[Row[Any]]] = {}
    for row in db.execute(partitions):
        members.setdefault(row.chunk, []).append(row)
    found = tuple(_chunk(row, members.get(row.number, [])) for row in chunk_rows)
    recorded = tuple(_recorded(row, members.get(row.number, [])) for row in chunk_rows if row.base_version is not None)
    return found, recorded


def done(db: Connection, refresh_id: str, numbers: Collection[int] | None = None) -> DoneChunks:
    """Return which of these chunks of a refresh are recorded, and which of them main contains.

    numbers : the numbers of the chunks; None for all
    """
    columns = (RefreshChunkRow.number, RefreshChunkRow.path, RefreshChunkRow.committed_version)
    of_refresh = [RefreshChunkRow.refresh_id == refresh_id, RefreshChunkRow.base_version.is_not(None)]
    if numbers is not None:
        of_refresh.append(RefreshChunkRow.number.in_(numbers))
    rows = db.execute(select(*columns).where(*of_refresh)).all()
    has_commit = {row.number for row in rows if row.committed_version is not None}
    needs_none = {row.number for row in rows if row.path is None}
    return DoneChunks(frozenset(row.number for row in rows), frozenset(has_commit | needs_none), bool(has_commit))


def _chunk(row: Row[Any], members: Sequence[Row[Any]]) -> Chunk:
    sealed = sorted(m.partition for m in members if m.sealed_rows or row.number >= 0)
    return Chunk(row.number, None if row.is_whole_table else tuple(sealed))


def _recorded(row: Row[Any], members: Sequence[Row[Any]]) -> RecordedChunk:
    parts = tuple(
        PartitionCounts(
            m.partition,
            Counts(m.sealed_rows, m.main_rows, m.rows_inserted, m.rows_updated, m.rows_deleted),
        )
        for m in members
    )
    return RecordedChunk(
        number=row.number,
        epoch=row.epoch,
        merge_round=row.merge_round,
        base_version=row.base_version,
        path=row.path,
        num_rows=row.num_rows,
        digest=row.digest,
        num_bytes=row.num_bytes,
        partitions=parts,
        committed_version=row.committed_version,
        is_whole=row.is_whole_table,
    )

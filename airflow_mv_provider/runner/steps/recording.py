"""The corrections of one round as they are recorded, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import xor

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.chunk import Chunk, by_chunk
from airflow_mv_provider.core.progress.recorded import PartitionCounts, RecordedChunk
from airflow_mv_provider.core.progress.totals import Totals
from airflow_mv_provider.core.state import Ownership
from airflow_mv_provider.spark.compare.recorded_changes import Written, WrittenPart


def recorded_chunks(
    chunks: Sequence[Chunk],
    written: Written | None,
    sealed: Mapping[str, Totals],
    own: Ownership,
    *,
    base: int,
    merge_round: int = 0,
    num_bytes: int = 0,
) -> tuple[RecordedChunk, ...]:
    """Return the records of all chunks.

    written   : None if no row differs
    sealed    : the totals of the desired rows, by partition
    base      : main's version with which they were compared
    num_bytes : of all corrections
    """
    changed = written.partitions if written else {}
    in_chunk = by_chunk(changed, chunks)
    found = []
    for chunk in chunks:
        parts = {name: changed[name] for name in in_chunk.get(chunk.number, ())}
        num_rows = sum(part.num_rows for part in parts.values())
        share = num_rows / written.num_rows if written and written.num_rows else 0
        found.append(
            RecordedChunk(
                number=chunk.number,
                epoch=own.epoch,
                merge_round=merge_round,
                base_version=base,
                path=written.path if written and parts else None,
                num_rows=num_rows,
                digest=reduce(xor, (part.digest for part in parts.values()), 0),
                num_bytes=round(num_bytes * share),
                partitions=tuple(
                    _counted(name, part, sealed.get(name, Totals()).num_rows) for name, part in parts.items()
                ),
                is_whole=chunk.partitions is None,
            )
        )
    return tuple(found)


def _counted(name: str, part: WrittenPart, desired: int) -> PartitionCounts:
    main = desired - part.inserted + part.deleted
    return PartitionCounts(name, Counts(desired, main, part.inserted, part.updated, part.deleted))


def overwritten(own: Ownership, counts: Mapping[str, Counts], sealed: Totals, base: int) -> RecordedChunk:
    """Return the record of a table that is overwritten without a comparison of its rows.

    counts : by partition, as far as keys show them: a row whose key stays counts as updated
    """
    parts = tuple(PartitionCounts(name, each) for name, each in sorted(counts.items()))
    return RecordedChunk(0, own.epoch, 0, base, None, sealed.num_rows, sealed.digest, 0, parts)

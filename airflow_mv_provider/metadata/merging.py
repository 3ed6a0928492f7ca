"""The owner's writes from the seal to the publish: the chunks, their progress, and the published state of main."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, case, delete, func, insert, select, update

from airflow_mv_provider.core import claim
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import MAX_PARTITIONS_IN_HISTORY
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.published import Published, outdated
from airflow_mv_provider.core.progress.recorded import KeptRows, PartitionCounts, RecordedChunk
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.core.progress.totals import Totals
from airflow_mv_provider.core.scope.scope import Covered
from airflow_mv_provider.core.scope.scope import from_json as scope_from_json
from airflow_mv_provider.core.state import Ownership
from airflow_mv_provider.metadata import partition_totals
from airflow_mv_provider.metadata.claimed import claimed, end_phase
from airflow_mv_provider.metadata.database import StorePart
from airflow_mv_provider.metadata.models import RefreshAttemptRow as Attempt
from airflow_mv_provider.metadata.models import RefreshChunkRow as ChunkRow
from airflow_mv_provider.metadata.models import RefreshDefinitionRow as Definition
from airflow_mv_provider.metadata.models import RefreshProgressRow as Progress
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.rows import NOT_COMPARED, added, is_owned, partition_report
from airflow_mv_provider.metadata.stored_once import began_with, forget_bindings

# What is recorded of a chunk's corrections.
_WRITTEN = ("epoch", "merge_round", "base_version", "path", "num_rows", "digest", "num_bytes", "committed_version")
_MAX_COVERED = 500  # scopes that are kept; a part whose scope is dropped is refreshed once more than needed
_CHANGES = Progress.rows_inserted + Progress.rows_updated + Progress.rows_deleted


class Merging(StorePart):
    """What an owner writes in MERGING; each method takes `Ownership` and raises LeaseLostError."""

    def seal(
        self,
        own: Ownership,
        seal: Seal,
        chunks: Sequence[Chunk],
        seconds: Mapping[str, float],
        frozen: Sequence[str] = (),
        schema_changes: Sequence[str] = (),
        *,
        recorded: Sequence[RecordedChunk] = (),
        is_progressive: bool = False,
        reason: str | None = None,
        partition_type: str | None = None,
    ) -> None:
        """Write the seal and its chunks, and go from REFRESHING to MERGING.

        frozen         : partitions that differ and will be left as they are
        schema_changes : how columns that differ from main's are handled
        recorded       : the corrections of chunks, as `record_chunk` records them
        is_progressive : as there
        reason         : why the seal's strategy differs from the one that was chosen first; None if it does not
        partition_type : type of the first partition column; None if there is none
        """
        stored = asdict(seal)
        del stored["partitions"]
        checks, nulls = stored.pop("checks"), stored.pop("nulls")  # the history keeps them beside the seal
        numbers = {p: chunk.number for chunk in chunks for p in chunk.partitions or ()}
        by_number = {each.number: each for each in recorded}
        found = {part.partition: part for each in recorded for part in each.partitions}
        sealed = {part.partition: part for part in seal.partitions}
        rows = []
        for name in dict.fromkeys((*sealed, *found)):
            of = sealed.get(name, SealedPartition(name, 0, 0))
            number = numbers.get(name, chunks[-1].number)  # a partition that only main has is in the last chunk
            row = {"refresh_id": own.refresh_id, "partition": name, "chunk": number} | NOT_COMPARED
            row |= {"sealed_rows": of.num_rows, "sealed_digest": of.digest, "sealed_mixed": of.mixed}
            if (chunk_of := by_number.get(number)) is not None:
                part = found.get(name, PartitionCounts(name, Counts(of.num_rows, of.num_rows)))
                row |= _compared(part, chunk_of, is_progressive)
            rows.append(row)
        planned = [
            {"refresh_id": own.refresh_id, "number": chunk.number, "is_whole_table": chunk.partitions is None}
            | (_written(by_number[chunk.number]) if chunk.number in by_number else dict.fromkeys(_WRITTEN))
            for chunk in chunks
        ]
        with claimed(self.engine, own, claim.advance(own, Phase.REFRESHING, Phase.MERGING), self._now()) as db:
            end_phase(
                db,
                own,
                seconds,
                phase=Phase.MERGING,
                seal=stored,
                null_counts=nulls,
                strategy=seal.strategy,
                **({} if reason is None else {"reason": reason}),
                bytes_staging=seal.num_bytes,
                rows_rejected=seal.rejected.num_rows,
                frozen=list(frozen),
                schema_changes=list(schema_changes),
                checks=list(checks),
            )
            db.execute(update(State).where(*is_owned(own)).values(partition_type=partition_type))
            if rows:
                db.execute(insert(Progress), rows)
            db.execute(insert(ChunkRow), planned)
            self._count_chunks(db, own, len(recorded))

    def record_chunk(self, own: Ownership, chunk: RecordedChunk, *, is_progressive: bool = False) -> None:
        """Record that a chunk's corrections are written, and what they change in each partition.

        is_progressive : its partitions are completed when main contains the chunk, and not now
        cost : one statement for all partitions without a change, and one for each other
        """
        with claimed(self.engine, own, claim.hold(own, Phase.MERGING), self._now()) as db:
            is_this = (ChunkRow.refresh_id == own.refresh_id, ChunkRow.number == chunk.number)
            db.execute(update(ChunkRow).where(*is_this).values(**_written(chunk)))
            of_chunk = (Progress.refresh_id == own.refresh_id, Progress.chunk == chunk.number)
            blank = _compared(PartitionCounts("", Counts()), chunk, is_progressive)
            db.execute(update(Progress).where(*of_chunk).values(**blank | {"main_rows": Progress.sealed_rows}))
            sealed = set(db.scalars(select(Progress.partition).where(*of_chunk)))
            for part in chunk.partitions:
                if not part.counts.changes and part.partition in sealed:
                    continue
                found = _compared(part, chunk, is_progressive)
                key = {"refresh_id": own.refresh_id, "partition": part.partition}
                if part.partition in sealed:
                    db.execute(update(Progress).filter_by(**key).values(**found))
                else:
                    only_in_main = {"sealed_rows": 0, "sealed_digest": 0, "sealed_mixed": 0}
                    db.execute(insert(Progress).values(**key, chunk=chunk.number, **only_in_main, **found))
            self._count_chunks(db, own, 1)
            staged = Refresh.bytes_staging + chunk.num_bytes
            db.execute(update(Refresh).where(Refresh.id == own.refresh_id).values(bytes_staging=staged))

    def _count_chunks(self, db: Connection, own: Ownership, number: int) -> None:
        is_mine = (Attempt.refresh_id == own.refresh_id, Attempt.epoch == own.epoch)
        db.execute(update(Attempt).where(*is_mine).values(chunks=Attempt.chunks + number))

    def record_committed(self, own: Ownership, number: int, version: int, counts: Counts, bytes_main: int) -> None:
        """Record that main contains a chunk since `version`, and count its changes exactly once."""
        mine = (ChunkRow.refresh_id == own.refresh_id, ChunkRow.number == number)
        with claimed(self.engine, own, claim.hold(own, Phase.MERGING), self._now()) as db:
            is_new = ChunkRow.committed_version.is_(None)
            if db.execute(update(ChunkRow).where(*mine, is_new).values(committed_version=version)).rowcount:
                of_chunk = (Progress.refresh_id == own.refresh_id, Progress.chunk == number)
                db.execute(update(Progress).where(*of_chunk).values(is_completed=True))
                figures = added(counts, bytes_main)
                db.execute(update(Refresh).where(Refresh.id == own.refresh_id).values(**figures))

    def record_kept(self, own: Ownership, chunks: Sequence[KeptRows]) -> None:
        """Record that these chunks' corrections are written again without their deletes, all of them at once."""
        with claimed(self.engine, own, claim.hold(own, Phase.MERGING), self._now()) as db:
            for chunk in chunks:
                is_this = (ChunkRow.refresh_id == own.refresh_id, ChunkRow.number == chunk.number)
                written = {name: getattr(chunk, name) for name in ("path", "num_rows", "digest", "num_bytes")}
                db.execute(update(ChunkRow).where(*is_this).values(**written))
                for partition, num_kept in chunk.deletes.items():
                    is_part = (Progress.refresh_id == own.refresh_id, Progress.partition == partition)
                    left = {"rows_deleted": Progress.rows_deleted - num_kept}
                    db.execute(update(Progress).where(*is_part).values(**left))
            num_kept = sum(sum(chunk.deletes.values()) for chunk in chunks)
            staged = Refresh.bytes_staging + sum(chunk.num_bytes for chunk in chunks)
            is_mine = Refresh.id == own.refresh_id
            db.execute(update(Refresh).where(is_mine).values(num_kept=num_kept, bytes_staging=staged))

    def discard_chunks(
        self, own: Ownership, published: Counts | None, bytes_main: int, *, keeps_rows: bool = False
    ) -> None:
        """Delete all recorded corrections, because another writer changed main; the next round compares again.

        published : the changes of this round that main already contains, None if there are none; they are added to the
                    refresh's counts, and from then on the refresh can only be completed
        keeps_rows : main holds a commit of this refresh that left out its deletes, so the next rounds do too
        """
        blank = dict.fromkeys(_WRITTEN)
        with claimed(self.engine, own, claim.hold(own, Phase.MERGING), self._now()) as db:
            mine = Progress.refresh_id == own.refresh_id
            of_mine = ChunkRow.refresh_id == own.refresh_id
            parts = db.scalars(select(func.count()).where(of_mine, ChunkRow.committed_version.is_not(None))).one()
            db.execute(update(ChunkRow).where(of_mine).values(**blank))
            db.execute(delete(Progress).where(mine, Progress.sealed_rows == 0, Progress.partition != WHOLE_TABLE))
            db.execute(update(Progress).where(mine).values(**NOT_COMPARED))
            values: dict[str, Any] = {"merge_round": Refresh.merge_round + 1, "num_kept": 0 if keeps_rows else None}
            if published is not None:
                values |= added(published, bytes_main)
            if published is not None or parts:
                values["has_committed"] = True
            db.execute(update(Refresh).where(Refresh.id == own.refresh_id).values(**values))

    def published(
        self,
        own: Ownership,
        *,
        main_version: int,
        commit: str | None,
        counts: Counts,
        is_counted: bool = False,
        totals: Published | None,
        partitions: Mapping[str, Totals] | None = None,
        are_all_partitions: bool = True,
        bytes_main: int,
        seconds: Mapping[str, float],
        is_main_known: bool = True,
        is_continued: bool = True,
        num_kept: int | None = None,
        main_bytes: int | None = None,
        pauses: bool = False,
        reason: str | None = None,
    ) -> None:
        """Record that main contains the refresh, and go from MERGING to CLEANUP; a later cancel has no effect.

        commit     : the mark of this package's newest commit up to `main_version`
        is_counted : the refresh's counts already include its changes, commit by commit
        totals     : what is known of main's rows from now on; None if nothing is
        partitions : the totals of natural partitions; of those that have changed, unless `are_all_partitions`
        is_main_known : main is as this refresh left it; else the next one compares everything
        is_continued : outside of its scope main is as the last publish left it, so covered scopes remain covered
        num_kept   : rows that main has and the source has no longer, because their deletes were left out
        main_bytes : of main's data files at that version; None if they are not known
        pauses     : pause the table too, in the name of the user who requested the refresh
        reason     : replaces the reason for the strategy in the history; None keeps it
        """
        with claimed(self.engine, own, claim.advance(own, Phase.MERGING, Phase.CLEANUP), self._now()) as db:
            facts = (Refresh.upper, Definition.definition, Refresh.scope, Refresh.source_fingerprint, Refresh.user_name)
            query = select(*facts).join(Definition, began_with()).where(Refresh.id == own.refresh_id)
            refresh = db.execute(query).one()
            before_this = select(State.published_totals, State.covered).where(*is_owned(own))
            known_before, covered = db.execute(before_this).one()
            definition_hash = RefreshableTable.model_validate(refresh.definition).content_hash
            scope = scope_from_json(refresh.scope)
            is_whole = scope.is_everything or (scope.is_whole and is_continued)
            before = covered if is_continued else []
            former = Published.from_json(known_before) if known_before else None
            partition_totals.keep(db, own.table_id, (totals and partitions) or {}, are_all=are_all_partitions)
            done = Covered(scope, refresh.source_fingerprint, definition_hash)
            db.execute(
                update(State)
                .where(*is_owned(own))
                .values(
                    published_upper=refresh.upper,
                    published_version=main_version,
                    published_commit=commit,
                    published_hash=definition_hash,
                    covered=[] if is_whole or not is_main_known else [*before, done.to_json()][-_MAX_COVERED:],
                    published_totals=asdict(totals) if totals else None,
                    is_main_trusted=is_main_known,
                    num_kept=(num_kept or 0) + (0 if scope.is_everything else State.num_kept),
                    main_bytes=main_bytes,
                )
            )
            if pauses:
                is_open = (*is_owned(own), State.paused_ms.is_(None))
                db.execute(update(State).where(*is_open).values(paused_ms=self._now(), paused_by=refresh.user_name))
            forget_bindings(db, own.table_id)
            figures = (
                (added(counts, bytes_main) if not is_counted else {})
                | {
                    "rows_unchanged": counts.unchanged,
                    "partitions_changed": self._num_changed(db, own.refresh_id),
                    "main_version": main_version,
                    "num_kept": num_kept,
                    "outdated_kept": list(outdated(former, totals)),
                }
                | ({} if reason is None else {"reason": reason})
            )
            shown = self._partitions(db, own.refresh_id)
            end_phase(db, own, seconds, phase=Phase.CLEANUP, partitions=shown, **figures)

    def _num_changed(self, db: Connection, refresh_id: str) -> int:
        query = select(func.count()).where(Progress.refresh_id == refresh_id, _CHANGES > 0)
        return db.scalars(query.select_from(Progress)).one()

    def _partitions(self, db: Connection, refresh_id: str) -> list[dict[str, Any]]:
        found = db.execute(
            select(Progress.__table__)
            .where(Progress.refresh_id == refresh_id)
            .order_by(case((_CHANGES > 0, 0), else_=1), Progress.partition)
            .limit(MAX_PARTITIONS_IN_HISTORY)
        )
        return sorted(
            (
                partition_report(p.partition, Counts(0, p.main_rows, p.rows_inserted, p.rows_updated, p.rows_deleted))
                for p in found
            ),
            key=lambda p: str(p["partition"]),
        )


def _written(chunk: RecordedChunk) -> dict[str, Any]:
    return {name: getattr(chunk, name) for name in _WRITTEN}


def _compared(part: PartitionCounts, chunk: RecordedChunk, is_progressive: bool) -> dict[str, Any]:
    """Return the progress of a partition whose chunk is recorded."""
    counts = part.counts
    return NOT_COMPARED | {
        "is_completed": not is_progressive or chunk.is_committed,
        "main_rows": counts.main,
        "rows_inserted": counts.inserted,
        "rows_updated": counts.updated,
        "rows_deleted": counts.deleted,
    }

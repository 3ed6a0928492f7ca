"""The owner's writes from the seal to the publish: the chunks, their progress, and the published state of main."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, case, delete, func, insert, select, update

from airflow_mv_provider.core import claim
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import MAX_PARTITIONS_IN_HISTORY
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.progress.layers import outdated_layers
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.recorded import KeptRows, RecordedChunk
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.core.scope.scope import Covered
from airflow_mv_provider.core.scope.scope import from_json as scope_from_json
from airflow_mv_provider.core.state import Ownership
from airflow_mv_provider.metadata.claimed import claimed, end_phase
from airflow_mv_provider.metadata.models import RefreshAttemptRow as Attempt
from airflow_mv_provider.metadata.models import RefreshChunkRow as ChunkRow
from airflow_mv_provider.metadata.models import RefreshDefinitionRow as Definition
from airflow_mv_provider.metadata.models import RefreshProgressRow as Progress
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.rows import NOT_COMPARED, added, is_owned, partition_report
from airflow_mv_provider.metadata.stored_once import began_with, forget_bindings

_MAX_COVERED = 500  # scopes that are kept; a part whose scope is dropped is refreshed once more than needed
_CHANGES = Progress.rows_inserted + Progress.rows_updated + Progress.rows_deleted


class Merging:
    """What an owner writes in MERGING. Each method is one transaction; it takes `Ownership` and raises LeaseLostError.

    now : the clock that judges leases
    """

    def __init__(self, engine: Engine, now: Callable[[], ColumnElement[int]]) -> None:
        self.engine = engine
        self._now = now

    def seal(
        self,
        own: Ownership,
        seal: Seal,
        chunks: Sequence[Chunk],
        seconds: Mapping[str, float],
        frozen: Sequence[str] = (),
        schema_changes: Sequence[str] = (),
        *,
        reason: str | None = None,
        partition_type: str | None = None,
    ) -> None:
        """Write the seal and its chunks, and go from REFRESHING to MERGING.

        frozen         : partitions that differ and will be left as they are
        schema_changes : how columns that differ from main's are handled
        reason         : why the seal's strategy differs from the one that was chosen first; None if it does not
        partition_type : type of the first partition column; None if there is none
        """
        stored = asdict(seal) | {"num_rows": seal.num_rows}
        del stored["partitions"]
        checks, nulls = stored.pop("checks"), stored.pop("nulls")  # the history keeps them beside the seal
        # A partition that is cut into slices is assigned to the first slice's chunk.
        chunk_of = {p: chunk.number for chunk in reversed(chunks) for p in chunk.partitions or ()}
        rows = [
            NOT_COMPARED
            | {"refresh_id": own.refresh_id, "partition": p.partition, "chunk": chunk_of.get(p.partition, 0)}
            | {"sealed_rows": p.num_rows, "sealed_digest": p.digest}
            for p in seal.partitions
        ]
        planned = [
            {
                "refresh_id": own.refresh_id,
                "number": chunk.number,
                "is_whole_table": chunk.partitions is None,
                "slice_index": chunk.slice.index if chunk.slice else None,
                "slice_count": chunk.slice.count if chunk.slice else None,
            }
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

    def record_chunk(self, own: Ownership, chunk: RecordedChunk, *, is_progressive: bool = False) -> None:
        """Record that a chunk's corrections are written, and what they change in each partition.

        is_progressive : its partitions are completed when main contains the chunk, and not now
        """
        written = {k: v for k, v in asdict(chunk).items() if k not in ("partitions", "number")}
        with claimed(self.engine, own, claim.hold(own, Phase.MERGING), self._now()) as db:
            is_this = (ChunkRow.refresh_id == own.refresh_id, ChunkRow.number == chunk.number)
            db.execute(update(ChunkRow).where(*is_this).values(**written))
            is_sliced, num_pending = self._slices_left(db, own, chunk.number)
            for part in chunk.partitions:
                counts = {
                    "main_rows": part.counts.main,
                    "rows_inserted": part.counts.inserted,
                    "rows_updated": part.counts.updated,
                    "rows_deleted": part.counts.deleted,
                }
                done: dict[str, Any] = {
                    "is_completed": (not is_progressive or chunk.is_committed) and not num_pending,
                    "position": part.position,
                    "checkpoint_version": chunk.base_version,
                }
                key = {"refresh_id": own.refresh_id, "partition": part.partition}
                found: dict[str, Any] = counts
                if is_sliced:
                    found = {name: getattr(Progress, name) + count for name, count in counts.items()}
                    found["position"] = func.coalesce(part.position, Progress.position)
                if not db.execute(update(Progress).filter_by(**key).values(**(done | found))).rowcount:
                    only_in_main = {"chunk": chunk.number, "sealed_rows": 0, "sealed_digest": 0}
                    db.execute(insert(Progress).values(**key, **only_in_main, **done, **counts))
            is_mine = (Attempt.refresh_id == own.refresh_id, Attempt.epoch == own.epoch)
            db.execute(update(Attempt).where(*is_mine).values(chunks=Attempt.chunks + 1))
            staged = Refresh.bytes_staging + chunk.num_bytes
            db.execute(update(Refresh).where(Refresh.id == own.refresh_id).values(bytes_staging=staged))

    def _slices_left(self, db: Connection, own: Ownership, number: int) -> tuple[bool, int]:
        """Return whether a chunk is a slice of a partition, and how many of its slices are not recorded yet."""
        of_mine = ChunkRow.refresh_id == own.refresh_id
        index, count = db.execute(
            select(ChunkRow.slice_index, ChunkRow.slice_count).where(of_mine, ChunkRow.number == number)
        ).one()
        if index is None or count is None:
            return False, 0
        of_partition = ChunkRow.number.between(number - index, number - index + count - 1)
        is_pending = ChunkRow.base_version.is_(None)
        return True, db.scalars(select(func.count()).where(of_mine, of_partition, is_pending)).one()

    def record_committed(
        self, own: Ownership, numbers: Sequence[int], version: int, counts: Counts, bytes_main: int
    ) -> None:
        """Record that main contains these chunks since `version`, and count their changes exactly once."""
        mine = (ChunkRow.refresh_id == own.refresh_id, ChunkRow.number.in_(numbers))
        done = {"is_completed": True, "checkpoint_version": version}
        with claimed(self.engine, own, claim.hold(own, Phase.MERGING), self._now()) as db:
            is_new = ChunkRow.committed_version.is_(None)
            if db.execute(update(ChunkRow).where(*mine, is_new).values(committed_version=version)).rowcount:
                of_these = (Progress.refresh_id == own.refresh_id, Progress.chunk.in_(numbers))
                db.execute(update(Progress).where(*of_these).values(**done))
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
        blank = dict.fromkeys(
            (
                *("epoch", "merge_round", "base_version", "path", "num_rows", "digest", "num_bytes"),
                "committed_version",
            )
        )
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
        digests: PublishedDigests | None,
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
            outdated, covered = db.execute(select(State.published_digests, State.covered).where(*is_owned(own))).one()
            definition_hash = RefreshableTable.model_validate(refresh.definition).content_hash
            scope = scope_from_json(refresh.scope)
            is_whole = scope.is_everything or (scope.is_whole and is_continued)
            before = covered if is_continued else []
            stored = asdict(digests) if digests else None
            former = PublishedDigests.from_json(outdated) if outdated else None
            layers_before, layers_after = (each.layers if each else () for each in (former, digests))
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
                    published_digests=stored,
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
                    "outdated_digests_of": former.refresh_id if former and former != digests else None,
                    "outdated_layers": list(outdated_layers(layers_before, layers_after)),
                }
                | ({} if reason is None else {"reason": reason})
            )
            partitions = self._partitions(db, own.refresh_id)
            end_phase(db, own, seconds, phase=Phase.CLEANUP, partitions=partitions, **figures)

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

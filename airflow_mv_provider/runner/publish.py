"""Compare-and-append: bring the recorded corrections into main in one commit, and believe only main's log.

    look ──▶ DONE         the commit is there and nobody else's is: or there was nothing to change
         ──▶ START_OVER   somebody changed main since the version that was compared
         ──▶ MERGE        neither: commit, and look again

An exception at the commit says nothing: it may be done with its answer lost. A transaction version is taken from the
log at each try, so of two tries for one commit Delta keeps at most one.
"""

from __future__ import annotations

import logging
from typing import Literal

from pyspark.sql import SparkSession

from airflow_mv_provider.core.fence import Commit, CommitNote, Standing, stand
from airflow_mv_provider.core.progress import RecordedChunk
from airflow_mv_provider.core.state import Ownership, RefreshRecord, TableRecord
from airflow_mv_provider.exceptions import EpochRegressionError, FencedError, TransientError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.lease import Lease
from airflow_mv_provider.spark import merge
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.layout import Layout

log = logging.getLogger(__name__)

_MAX_TRIES = 3


class Publisher:
    """The commits of one round of one attempt."""

    def __init__(
        self,
        spark: SparkSession,
        main: Main,
        table: TableRecord,
        refresh: RefreshRecord,
        own: Ownership,
        lease: Lease,
    ) -> None:
        self.num_tries = 0
        self._spark = spark
        self._main = main
        self._table = table
        self._refresh = refresh
        self._own = own
        self._lease = lease

    def look(self, recorded: tuple[RecordedChunk, ...]) -> tuple[list[Commit], Standing]:
        """Read main's log since the oldest version that a recorded chunk was compared with.

        raises : FencedError, when a later epoch has written
        """
        base = min(chunk.base_version for chunk in recorded)
        commits = self._main.log(base)
        refresh_id, epoch = self._own.refresh_id, self._own.epoch
        standing = stand(commits, base=base, latest=commits[0].version, refresh_id=refresh_id, epoch=epoch)
        if standing.fenced_by is not None:
            raise FencedError(self._table.name, f"epoch {standing.fenced_by} owns main; this is {epoch}.")
        return commits, standing

    def merge(self, layout: Layout, recorded: tuple[RecordedChunk, ...], txn_version: int) -> None:
        """Try the commit once; what came of it is for the next look to say.

        raises : the commit's own error, when a last try left nothing in the log; EpochRegressionError, when Delta
                 dropped every try without a word
        """
        self.num_tries += 1
        if self.num_tries > _MAX_TRIES:
            raise EpochRegressionError(
                self._table.name, f"Delta dropped the commits of epoch {self._own.epoch} as outdated."
            )
        self._lease.check()
        note = note_of(self._table, self._refresh, self._own, "publish", txn_version, num_chunks=len(recorded))
        try:
            with durable(Write.PUBLISH):
                merge.publish(self._spark, self._main, layout, recorded, note)
        except TransientError as error:
            log.warning("%s: the commit met %s", self._table.name, error)
            _, standing = self.look(recorded)
            if self.num_tries == _MAX_TRIES and not standing.published and not standing.foreign:
                raise


def note_of(
    table: TableRecord,
    refresh: RefreshRecord,
    own: Ownership,
    step: Literal["fence", "publish"],
    txn_version: int,
    *,
    num_chunks: int = 0,
) -> CommitNote:
    """Return what a commit of this refresh says of itself."""
    assert refresh.batch is not None
    return CommitNote(
        table_uuid=table.uuid,
        refresh_id=own.refresh_id,
        epoch=own.epoch,
        step=step,
        txn_version=txn_version,
        merge_round=refresh.merge_round,
        chunks=num_chunks,
        upper=refresh.batch.upper,
        definition_hash=refresh.definition.content_hash,
        is_final=step == "publish",
    )

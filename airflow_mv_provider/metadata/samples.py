"""Some of the rows that a refresh changes, one row a refresh: what a person sees of its difference without Spark."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from airflow_mv_provider.core import claim
from airflow_mv_provider.core.approval.sample import Sample, from_json
from airflow_mv_provider.core.state import Ownership
from airflow_mv_provider.metadata.claimed import claimed
from airflow_mv_provider.metadata.database import StorePart, transaction
from airflow_mv_provider.metadata.models import RefreshRow
from airflow_mv_provider.metadata.models import RefreshSampleRow as Row


def sample(db: Connection, refresh_id: str) -> Sample | None:
    """Return what is kept of the rows that a refresh changes; None if nothing is."""
    row = db.execute(select(Row.merge_round, Row.sample).where(Row.refresh_id == refresh_id)).one_or_none()
    return None if row is None else from_json(row.merge_round, row.sample)


def keep(db: Connection, refresh_id: str, found: Sample) -> None:
    """Keep the rows of a refresh, instead of those of an earlier round or try."""
    db.execute(delete(Row).where(Row.refresh_id == refresh_id))
    db.execute(insert(Row).values(refresh_id=refresh_id, merge_round=found.merge_round, sample=found.to_json()))


class Samples(StorePart):
    """Writes of the rows that a refresh changes."""

    def keep(self, own: Ownership, found: Sample) -> None:
        """Keep the rows of a refresh that is owned.

        raises : LeaseLostError
        """
        with claimed(self.engine, own, claim.hold(own), self._now()) as db:
            keep(db, own.refresh_id, found)

    def keep_past(self, refresh_id: str, found: Sample) -> None:
        """Keep the rows of a refresh that has ended; nothing if the history has shed it meanwhile."""
        with transaction(self.engine) as db:
            if db.scalar(select(RefreshRow.id).where(RefreshRow.id == refresh_id).with_for_update()) is not None:
                keep(db, refresh_id, found)

"""The end of a refresh that main's log alone tells of: no file of it is read, nor its source.

That is so when others have followed it, of which the metadata database knows nothing: it was put back to an older
state, in which the refresh is still under way. And when a refresh that main has cannot go on to its end, because its
files are gone. What main is now nobody knows then, so the next refresh compares everything.
"""

from __future__ import annotations

import logging

from airflow_mv_provider.core.progress import total
from airflow_mv_provider.exceptions import OvertakenError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.fencing import FencedMain
from airflow_mv_provider.runner.steps.phase_clock import PhaseClock
from airflow_mv_provider.runner.steps.work import Work

log = logging.getLogger(__name__)


def conclude(work: Work, ground: FencedMain, clock: PhaseClock) -> None:
    """Write that the refresh was published; its digests are not kept.

    raises : OvertakenError, when main's log does not show that main had all of it
    """
    whole = None if work.is_progressive else ground.whole_publish
    by = ground.followed.note.refresh_id if ground.followed and ground.followed.note else None
    if whole is None or whole.note is None or work.refresh.seal is None:
        known = "main's log does not show that all of it was there."
        problem = f"main's log shows refresh {by} after it, which the metadata database does not know." if by else known
        raise OvertakenError(work.table.name, problem)
    why = f"main's log shows it, {_what_follows(work, by)}"
    log.warning("%s: refresh %s was published: %s", work.table.name, work.own.refresh_id, why)
    work.lease.ignore_cancel()
    _, recorded = work.store.chunks(work.own.refresh_id)
    with durable(Write.PUBLISHED):
        work.store.published(
            work.own,
            main_version=whole.version,
            commit=whole.mark,
            counts=total(chunk for chunk in recorded if chunk.merge_round == whole.note.merge_round),
            digests=None,
            bytes_main=0,
            seconds=clock.spent(),
            is_main_known=False,
            reason=f"{work.refresh.choice.reason}; {why}: the next refresh compares everything",
        )


def _what_follows(work: Work, by: str | None) -> str:
    if by:
        return f"and refresh {by} after it"
    is_old = ", and its error table may be older" if work.definition.errors is not None else ""
    return f"but not all its files are left{is_old}"

"""Conclude a refresh from main's log alone, without its files or its source.

This happens in two cases. The metadata database was restored to an older state, in which the refresh is unfinished,
and main's log holds later refreshes. Or main has the refresh's commit, but the refresh cannot be completed because its
files are gone. In both cases main's present rows are unknown, so the next refresh compares everything.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from airflow_mv_provider.core.fence import left_out
from airflow_mv_provider.core.progress.recorded import total
from airflow_mv_provider.exceptions import OvertakenError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.fencing import FencedMain
from airflow_mv_provider.runner.steps.phase_clock import PhaseClock
from airflow_mv_provider.runner.steps.work import Work

log = logging.getLogger(__name__)


def conclude(work: Work, fenced: FencedMain, clock: PhaseClock) -> None:
    """Record the refresh as published; keep nothing of its rows.

    raises : OvertakenError, if main's log does not prove that main had all of the refresh's rows
    """
    whole = None if work.is_progressive else fenced.whole_publish
    by = fenced.followed.note.refresh_id if fenced.followed and fenced.followed.note else None
    if whole is None or whole.note is None or work.refresh.seal is None:
        unproven = "the table's log does not prove that it was published completely."
        later = f"the table's log shows the later refresh {by}, which is not in the metadata database."
        problem = later if by else unproven
        raise OvertakenError(work.table.name, problem)
    why = f"the table's log shows it, {_what_follows(work, by)}"
    log.warning("%s: refresh %s was published: %s", work.table.name, work.own.refresh_id, why)
    work.lease.ignore_cancel()
    _, recorded = work.store.chunks(work.own.refresh_id)
    counts = total(chunk for chunk in recorded if chunk.merge_round == whole.note.merge_round)
    num_kept = left_out(whole, counts)
    with durable(Write.PUBLISHED):
        work.store.merging.published(
            work.own,
            main_version=whole.version,
            commit=whole.mark,
            counts=replace(counts, deleted=counts.deleted - num_kept),
            num_kept=(work.current().num_kept or 0) + num_kept if whole.note.keeps_rows else None,
            totals=None,
            bytes_main=0,
            seconds=clock.spent(),
            is_main_known=False,
            pauses=work.is_rollback,
            reason=f"{work.refresh.choice.reason}; {why}: the next refresh compares everything",
        )


def _what_follows(work: Work, by: str | None) -> str:
    if by:
        return f"and refresh {by} after it"
    old = [what for what, is_there in _beside(work).items() if is_there]
    may_be_older = f", and its {' and '.join(old)} may be older" if old else ""
    return f"but some of its files are gone{may_be_older}"


def _beside(work: Work) -> dict[str, bool]:
    return {"error table": work.definition.errors is not None, "history": work.definition.history is not None}

"""Read some of the rows that recorded corrections change, and keep them with the refresh for people to look at."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.core.approval.sample import ROWS_OF_A_KIND, Sample, masked, sampled
from airflow_mv_provider.core.progress.recorded import RecordedChunk, total
from airflow_mv_provider.exceptions import InterruptedRefreshError, LeaseLostError, MvError
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark.compare import recorded_changes
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.layout import Layout
from airflow_mv_provider.spark.review.samples import column_counts, row_changes

log = logging.getLogger(__name__)

_MAX_COUNTED = 1_000_000  # updates; to count by column of more, all of main would be shuffled


def changed_rows(
    main: Main, layout: Layout, recorded: Sequence[RecordedChunk], limit: int
) -> tuple[list[RowChange], dict[str, int] | None]:
    """Return up to `limit` changed rows of each kind, sensitive values hashed, and the number of updates by column.

    recorded : all chunks of one round
    returns  : no rows if main is overwritten, so that none are recorded; None instead of numbers if there are too many
    cost     : as `samples.row_changes` and `samples.column_counts`
    raises   : SealBrokenError, if the corrections are not what was recorded
    """
    counts = total(recorded)
    if any(chunk.is_overwrite for chunk in recorded) or not counts.changes:
        return [], None
    found = recorded_changes.verified(main.spark, layout, recorded).rows
    base = min(chunk.base_version for chunk in recorded)
    rows = row_changes(main, layout, found, counts, base, limit)
    by_column: dict[str, int] | None = None
    if counts.updated <= _MAX_COUNTED:
        by_column = column_counts(main, layout, found, base) if counts.updated else {}
    return masked(rows, layout.table.sensitive, main.table_uuid), by_column


def sample_of(main: Main, layout: Layout, recorded: Sequence[RecordedChunk], merge_round: int) -> Sample | None:
    """Return some of the rows that recorded corrections change; None if none can be shown.

    Nothing depends on them: an error only leaves them out.

    raises : InterruptedRefreshError, LeaseLostError
    """
    try:
        rows, by_column = changed_rows(main, layout, recorded, ROWS_OF_A_KIND)
    except (InterruptedRefreshError, LeaseLostError):
        raise
    except MvError as error:
        log.warning("%s: no changed rows are kept for later: %s", layout.table.name, error.problem)
        return None
    return sampled(merge_round, rows, by_column) if rows else None


def keep_sample(work: Work, recorded: Sequence[RecordedChunk]) -> bool:
    """Keep some of the rows that a refresh changes with its history; False if none can be shown."""
    merge_round = work.current().merge_round
    found = sample_of(work.main, work.layout, recorded, merge_round)
    if found is not None:
        work.store.samples.keep(work.own, found)
    return found is not None

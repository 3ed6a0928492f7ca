"""The report of one run of an ingestion: the one state of its source, and what became of each of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mv_provider.core.outcome import (
    EXIT_DONE,
    EXIT_PERSON,
    EXIT_RETRY,
    GOOD,
    ErrorReport,
    Outcome,
    RefreshReport,
)


@dataclass(frozen=True, slots=True)
class IngestedTable:
    """What became of one table in a run.

    outcome     : of its refresh; None if none began
    is_in_state : what it has read, or was published with, is of the state of the run
    error       : why it was left behind
    """

    table: str
    output: str
    refresh_id: str | None = None
    outcome: Outcome | None = None
    is_in_state: bool = False
    main_version: int | None = None
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    error: ErrorReport | None = None

    @property
    def is_left_behind(self) -> bool:
        """True if the run ended without this table in its state."""
        return not self.is_in_state or self.outcome not in GOOD


@dataclass(frozen=True, slots=True)
class IngestionReport:
    """One run of an ingestion; times are UTC, ISO 8601.

    state    : of the source, in words; "" if it could not be fixed
    released : what was published upstream, offsets by topic; None if nothing was
    error    : why nothing could be published upstream
    """

    ingestion: str
    run_id: str
    state: str
    tables: tuple[IngestedTable, ...] = ()
    released: dict[str, Any] | None = None
    error: ErrorReport | None = None
    trigger: str | None = None
    user: str | None = None
    started_at: str | None = None
    finished_at: str | None = None

    @property
    def left_behind(self) -> tuple[IngestedTable, ...]:
        """The tables that are not in the run's state."""
        return tuple(each for each in self.tables if each.is_left_behind)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


def ingested(
    output: str, report: RefreshReport, *, is_of_state: bool, error: ErrorReport | None = None
) -> IngestedTable:
    """Return what became of a table whose refresh has ended.

    is_of_state : its refresh has read the state of the run
    error       : what its refresh raised; None if it has ended by itself
    """
    return IngestedTable(
        table=report.table,
        output=output,
        refresh_id=report.refresh_id,
        outcome=report.outcome,
        # Rows that the source has no longer, and that a person has kept, are of no state of it.
        is_in_state=is_of_state and report.outcome in GOOD and not report.rows_kept,
        main_version=report.main_version,
        rows_inserted=report.rows_inserted,
        rows_updated=report.rows_updated,
        rows_deleted=report.rows_deleted,
        error=None if report.outcome in GOOD else error or report.error,
    )


def exit_code(report: IngestionReport) -> int:
    """Return the process exit code: a person must act if that is so for one table, else a retry may succeed."""
    errors: Sequence[ErrorReport | None] = [each.error for each in report.left_behind]
    errors = [*errors, report.error] if report.error is not None else errors
    if not errors:
        return EXIT_DONE
    is_for_retry = all(error is None or error.is_transient for error in errors)
    return EXIT_RETRY if is_for_retry else EXIT_PERSON

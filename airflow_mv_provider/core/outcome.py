"""The outcome of a refresh, and the report that every interface shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.cost import Estimate
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import ArgumentError, MvError, TerminalError, TransientError


class Outcome(StrEnum):
    """How one refresh ended, or that it is still running."""

    RUNNING = "running"
    PUBLISHED = "published"
    NOTHING_TO_DO = "nothing_to_do"
    DIFFERENCES = "differences"  # read-only: computed and reported, not written
    REFUSED = "refused"  # by a guard or a check
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"  # given up by the process that took it over


GOOD = frozenset({Outcome.PUBLISHED, Outcome.NOTHING_TO_DO})
"""How a refresh ended that has brought main to its source's state, or found it there."""
ENDED_WELL = GOOD | {Outcome.DIFFERENCES}
"""How a refresh ended that has done what was asked for, read-only ones included."""
UNWANTED = frozenset({Outcome.FAILED, Outcome.REFUSED, Outcome.ABANDONED})
"""How a refresh ended without publishing, and not because somebody wanted that."""

EXIT_DONE, EXIT_PERSON, EXIT_USAGE, EXIT_RETRY = 0, 1, 2, 75
EXIT_UNTOLD = 74  # done, but the output could not be written; EX_IOERR of sysexits.h
MAX_PARTITIONS_IN_HISTORY = 1000  # of one refresh, those with changes first


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What a refresh did to one partition."""

    partition: str
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    rows_unchanged: int


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """The work of one epoch on a refresh: its first phase, chunks compared, wall time per phase as far as known."""

    epoch: int
    phase: Phase
    process: str
    started_at: str
    chunks: int = 0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    note: str | None = None  # the person who declared this process dead, and why
    owner_key: str | None = None  # the caller that it worked for: `airflow:DAG:GROUP:MAP INDEX:RUN`, or another one


@dataclass(frozen=True, slots=True)
class HoldReport:
    """A refresh's newest hold for a person's decision: why, until when, and what was decided; times as in its report.

    Attributes:
        id: Names what was shown; a decision may name it, so that it is about nothing else.
        decision: "approved", "without deletes", "rejected" or "superseded"; None while it is undecided.
    """

    id: str
    reason: str
    since: str
    until: str
    decision: str | None = None
    decided_at: str | None = None
    decided_by: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An error as shown to people and programs: no stack trace, no secret."""

    code: str
    message: str
    hint: str
    is_transient: bool = False


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """One refresh. Times are UTC, ISO 8601; sizes are bytes; `phase_seconds` is wall time per phase.

    Attributes:
        note, overrides: The requester's reason, and the guards set aside for it.
        estimates: The strategies that were estimated, the chosen one first; `phase_seconds` has the actual times.
        checked_at: When the source was looked at: about when it began, or when a run of an ingestion fixed that
            state.
        source_at: When the source came to that state; None if it has no such time.
        is_whole, is_of_source: It was of the whole table; its rows are those of the table's own source.
        scope: The partitions that it covered; None is all of them.
        frozen: The first partitions that differ and were left unchanged, because they are frozen.
        schema_changes: How columns that differ from main's were handled, in words.
        checks: The results of the definition's checks, in its order; empty if nothing was read.
        hold: The decision that it waits for, or waited for; None if it needed none.
        rows_rejected: Records of the source that are in the error table, not in main.
        rows_kept: Rows that the source has no longer and main has kept, because it was decided so.
    """

    table: str
    refresh_id: str | None = None
    outcome: Outcome = Outcome.RUNNING
    phase: Phase = Phase.NORMAL
    epoch: int = 0
    strategy: str | None = None
    reason: str | None = None
    estimates: tuple[Estimate, ...] = ()
    trigger: str | None = None
    user: str | None = None
    note: str | None = None
    overrides: tuple[str, ...] = ()
    lower: int | None = None
    upper: int | None = None
    source: str | None = None
    checked_at: str | None = None
    source_at: str | None = None
    is_whole: bool = True
    is_of_source: bool = True
    scope: str | None = None
    frozen: tuple[str, ...] = ()
    schema_changes: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_unchanged: int = 0
    rows_rejected: int = 0
    rows_kept: int = 0
    bytes_main: int = 0
    bytes_staging: int = 0
    main_version: int | None = None
    started_at: str | None = None
    finished_at: str | None = None
    phase_seconds: dict[str, float] = field(default_factory=dict)
    attempts: tuple[AttemptReport, ...] = ()
    partitions: tuple[PartitionReport, ...] = ()
    recovered: tuple[str, ...] = ()
    hold: HoldReport | None = None
    error: ErrorReport | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; it has `error` only if there is one."""
        facts = asdict(self)
        if self.error is None:
            del facts["error"]
        return facts


def failed(report: RefreshReport, error: MvError) -> RefreshReport:
    """Return the report of a refresh that ended with `error`."""
    return replace(report, outcome=outcome_of(error), error=error_report(error))


def error_report(error: MvError) -> ErrorReport:
    """Return the parts of an error that may be shown."""
    return ErrorReport(error.code, error.message, error.advice, error.is_transient)


def error_of(report: ErrorReport) -> MvError:
    """Return the error in a report as an instance of its code's class, for another process to raise."""
    where, _, problem = report.message.partition(": ")
    classes = [MvError]
    for known in classes:
        classes += known.__subclasses__()
    fallback: type[MvError] = TransientError if report.is_transient else TerminalError
    found = next((known for known in classes if known.code == report.code), fallback)
    return found(where, problem, hint=report.hint)


def outcome_of(error: MvError) -> Outcome:
    """Return the outcome that the history records for an error."""
    match error.code:
        case "MV-GUARD" | "MV-CHECK":
            return Outcome.REFUSED
        case "MV-HELD":
            return Outcome.RUNNING
        case "MV-CANCELLED":
            return Outcome.CANCELLED
        case "MV-OVERTAKEN" | "MV-HOLD-EXPIRED":
            return Outcome.ABANDONED
        case _:
            return Outcome.FAILED


def exit_code(report: RefreshReport) -> int:
    """Return the process exit code for a report."""
    if report.error is None:
        return EXIT_DONE
    if report.error.code == ArgumentError.code:
        return EXIT_USAGE
    return EXIT_RETRY if report.error.is_transient else EXIT_PERSON

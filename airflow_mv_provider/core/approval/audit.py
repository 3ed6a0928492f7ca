"""An audit: whether main still has the rows that were published, and those of the source as it was published.

    main's log ──▶ audited_version: which version of main is looked at
               ──▶ writes_since, published_obstacle: has anybody else written, and is what was published still there?
    last scope ──▶ part_at_pin: which part of main has the state of the source that was published last

An audit takes no table and never writes main: rows are compared as a read-only refresh compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.fence import Commit, last_of_ours
from airflow_mv_provider.core.outcome import RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.rejections import paused
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.state import RefreshRecord, RefreshState, TableRecord
from airflow_mv_provider.exceptions import ArgumentError, DriftError

_WHOM = {"published": "what was published", "source": "the source", "history": "its history"}
KINDS = ("missing", "extra", "different")
_KIND = {"insert": "missing", "delete": "extra", "update": "different"}  # by what a refresh would do
_MAX_WRITES = 20


class Against(StrEnum):
    """What main is compared with."""

    PUBLISHED = "published"  # main as the last publish left it
    SOURCE = "source"  # the source at the state that the last publish brought
    HISTORY = "history"  # the current versions of the table's history, if it keeps one


class Finding(StrEnum):
    """What one comparison has found."""

    SAME = "same"
    DRIFT = "drift"
    UNKNOWN = "not compared"


@dataclass(frozen=True, slots=True)
class Write:
    """A commit in main's log after the last publish that may have changed rows.

    operation : as any writer has named it, made printable; with the refresh if it is one's that was never published
    """

    version: int
    operation: str


@dataclass(frozen=True, slots=True)
class PartitionDrift:
    """The rows of one partition."""

    partition: str
    rows_missing: int
    rows_extra: int
    rows_different: int
    rows_same: int


@dataclass(frozen=True, slots=True)
class DriftedRow:
    """One row that main lacks, has too much, or has with other values; values as in JSON, sensitive ones as hashes.

    main, expected : None where there is no such row
    """

    kind: str
    key: dict[str, Any]
    main: dict[str, Any] | None
    expected: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of comparing main with one of the two.

    what       : the state that main is compared with, in words
    reason     : how the finding was reached, or why nothing was compared
    scope      : the partitions that were compared, in words; None for all
    refresh_id : the read-only refresh that compared the rows; None if none was needed or possible
    partitions : those with a difference; as many as the history keeps
    rows       : some rows of each kind
    """

    against: Against
    finding: Finding
    what: str
    reason: str
    scope: str | None = None
    refresh_id: str | None = None
    rows_missing: int = 0
    rows_extra: int = 0
    rows_different: int = 0
    rows_same: int = 0
    partitions: tuple[PartitionDrift, ...] = ()
    rows: tuple[DriftedRow, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each kind of difference."""
        return {kind: getattr(self, f"rows_{kind}") for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit's result.

    id           : names this audit
    main_version : main's version that was looked at; None if main is gone
    scope        : the partitions that were asked about, in words; None for all
    writes       : commits since the last publish that may have changed rows, oldest first, 20 at most
    repaired_by  : the refresh that has repaired the drift since; None if none has
    """

    id: str
    table: str
    at: str
    user: str | None
    main_version: int | None
    scope: str | None
    writes: tuple[Write, ...]
    sides: tuple[Compared, ...]
    repaired_by: str | None = None

    @property
    def is_drift(self) -> bool:
        """True if main has other rows than one of the two."""
        return any(side.finding is Finding.DRIFT for side in self.sides)

    @property
    def has_compared(self) -> bool:
        """False if neither of the two could be compared."""
        return any(side.finding is not Finding.UNKNOWN for side in self.sides)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for programs."""
        return asdict(self) | {"drift": self.is_drift}


def stored(audit: Audit) -> dict[str, Any]:
    """Return what is kept of an audit; partitions and rows are kept with the read-only refreshes that found them."""
    facts = asdict(audit)
    for side in facts["sides"]:
        del side["partitions"], side["rows"]
    return {name: facts[name] for name in ("main_version", "scope", "writes", "sides")}


def sides_of(kept: Sequence[dict[str, Any]]) -> tuple[Compared, ...]:
    """Return the comparisons that `stored` has kept."""
    return tuple(
        Compared(**each | {"against": Against(each["against"]), "finding": Finding(each["finding"])}) for each in kept
    )


def drift_text(audit: Audit) -> str:
    """Return what has drifted in one sentence without its full stop."""
    found = [side for side in audit.sides if side.finding is Finding.DRIFT]
    parts = []
    for side in found:
        counts = ", ".join(f"{number:,} {kind}" for kind, number in side.counts.items() if number)
        whom = _WHOM[side.against]
        parts.append(f"against {whom}: {f'rows {counts}' if counts else side.reason}")
    return "; ".join(parts)


def drift_error(audit: Audit) -> DriftError:
    """Return the error that says what has drifted, and where to look for the cause."""
    is_as_published = any(s.against is Against.PUBLISHED and s.finding is Finding.SAME for s in audit.sides)
    if audit.writes and not is_as_published:
        versions = ", ".join(str(write.version) for write in audit.writes)
        cause = f"Find who wrote the table since it was published, in its log: version {versions}."
    else:
        cause = (
            "No commit has changed its rows since it was published: the source has other rows now than it had at that "
            "state. Look for rows that changed without a trace, or for a source that was put back from a backup."
        )
    problem = f"the table has drifted {drift_text(audit)}."
    return DriftError(audit.table, problem, hint=f"{cause} {DriftError.hint}")


def repair_request(audit: Audit, asked: Request) -> Request:
    """Return the request of the refresh that repairs what an audit has found: it compares everything in its scope."""
    note = f"repair after an audit: {drift_text(audit)}"
    return Request(force=True, scope=asked.scope, note=(f"{asked.note}: {note}" if asked.note else note)[:1000])


def check_repairable(table: TableRecord, state: RefreshState, scope: Scope) -> None:
    """Refuse a repair that could not begin, before anything is compared.

    raises : RefreshPausedError; ArgumentError
    """
    if state.paused_since_ms is not None or state.is_dropping:
        raise paused(table, state)
    if table.definition.source_kind.is_log and not scope.is_everything:
        problem = "changes of a log are read once, for all partitions: partitions cannot be repaired."
        raise ArgumentError(table.name, problem, hint="Audit and repair all of the table.")


def audited_version(state: RefreshState, commits: Sequence[Commit]) -> int:
    """Return main's version to look at: the newest, or the one before what a refresh under way has committed.

    Its commits are not recorded as published yet, and are no drift.

    state   : read after the log
    commits : main's log, newest first, at least since the last publish
    """
    if state.phase is Phase.NORMAL:
        return commits[0].version
    since = -1 if state.published_version is None else state.published_version
    own = (
        c.version
        for c in commits
        if c.version > since and c.note and c.note.refresh_id == state.refresh_id and not c.keeps_data
    )
    return min(own, default=commits[0].version + 1) - 1


def writes_since(state: RefreshState, commits: Sequence[Commit], version: int) -> tuple[Write, ...]:
    """Return the commits after the last publish, up to `version`, that may have changed rows; oldest first."""
    since = -1 if state.published_version is None else state.published_version
    found = sorted((c for c in commits if since < c.version <= version and not c.keeps_data), key=lambda c: c.version)
    return tuple(Write(c.version, _operation(c)) for c in found)[:_MAX_WRITES]


def _operation(commit: Commit) -> str:
    refresh = "" if commit.note is None else f" of refresh {commit.note.refresh_id[:32]}, which did not end well"
    return commit.shown_operation + refresh


def published_text(version: int, last: Scope | None) -> str:
    """Return in words what main was when it was last published.

    last : the scope of that publish, if it is known: a refresh of a part leaves the rest as it finds it
    """
    rest = "" if last is None or last.is_whole else f", with the rest as the refresh of {last.describe()} found it"
    return f"the table at version {version}, as it was published{rest}"


def published_obstacle(state: RefreshState, commits: Sequence[Commit]) -> str | None:
    """Return why main's version of the last publish is not what was published; None if it is.

    commits : main's log, newest first, at least since the last publish
    """
    version = state.published_version
    assert version is not None
    known = last_of_ours(commits, version)
    if commits[0].version >= version and known is not None and known.mark == state.published_commit:
        return None
    return "the table's log does not have the last publish: it was made again, or restored from a copy"


def source_obstacle(publish: RefreshRecord | None, *, has_pin: bool) -> str | None:
    """Return why the source cannot be read as it was published; None if nothing is known that prevents it.

    publish : the refresh that published last; None if the history does not have it
    has_pin : the state of the source that it brought is known
    """
    if publish is None or not has_pin:
        return "which state of the source was published last is not known any more"
    if not publish.is_of_source:
        return "the table was last published by a rollback or a load, not from its source"
    if publish.definition.source_kind.is_log and not publish.definition.source.is_complete:
        return "a log that is not `complete` is read once, and not again from its start"
    return None


def of_history(
    what: str, missing: int, extra: int, different: int, same: int, overlapping: int, *, keeps_deleted: bool
) -> Compared:
    """Return how the current versions of a history differ from main's rows.

    extra         : current versions without a row of main; as it should be if those of deleted rows stay current
    overlapping   : versions that begin before the one before them has ended
    """
    extra = 0 if keeps_deleted else extra
    kinds = {"missing": missing, "extra": extra, "different": different}
    wrong = [f"{number:,} rows {kind}" for kind, number in kinds.items() if number]
    wrong += [f"{overlapping:,} versions overlap"] if overlapping else []
    return Compared(
        against=Against.HISTORY,
        finding=Finding.DRIFT if wrong else Finding.SAME,
        what=what,
        reason=", ".join(wrong) if wrong else "every current version was compared, and no two of a row overlap",
        rows_missing=missing,
        rows_extra=extra,
        rows_different=different,
        rows_same=same,
    )


def part_at_pin(last: Scope, asked: Scope, *, has_covered: bool) -> Scope | None:
    """Return the part of main, inside of `asked`, that has the state of the source that was published last.

    last        : the scope of the last publish
    has_covered : parts of main are known to have other states of the source
    returns     : None if that is not known of any part that was asked about
    """
    if last.is_everything or (last.without and not has_covered):
        return asked
    if last.without:
        return None
    if asked.is_everything or asked == last:
        return last
    return asked if asked.partitions and set(asked.partitions) <= set(last.partitions) else None


def compared(
    against: Against, what: str, report: RefreshReport, sample: Sample | None, scope: Scope, *, num_kept: int = 0
) -> Compared:
    """Return what a read-only refresh has found.

    num_kept : rows of main that the source had no longer when it was published, as a person has decided
    """
    missing, extra, different = report.rows_inserted, report.rows_deleted, report.rows_updated
    is_same = not (missing or different) and extra <= num_kept
    reason = "every row was compared"
    if num_kept and extra:
        reason += f"; {num_kept:,} rows that the source no longer had were kept by a decision"
    return Compared(
        against=against,
        finding=Finding.SAME if is_same else Finding.DRIFT,
        what=what,
        reason=reason,
        scope=None if scope.is_everything else scope.describe(),
        refresh_id=report.refresh_id,
        rows_missing=missing,
        rows_extra=extra,
        rows_different=different,
        rows_same=report.rows_unchanged,
        partitions=tuple(
            PartitionDrift(p.partition, p.rows_inserted, p.rows_deleted, p.rows_updated, p.rows_unchanged)
            for p in report.partitions
            if p.rows_inserted or p.rows_deleted or p.rows_updated
        ),
        rows=tuple(_drifted(row) for row in sample.rows) if sample else (),
    )


def _drifted(row: RowChange) -> DriftedRow:
    return DriftedRow(_KIND[row.operation], row.key, row.before, row.after)

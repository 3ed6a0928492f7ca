"""The data of one table's page, read in a few short transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import yaml

from airflow_mv_provider.api import plots, words
from airflow_mv_provider.api.airflow_database import DeclaringDag, TaskTry
from airflow_mv_provider.api.table_list import next_run_ms
from airflow_mv_provider.core.approval.audit import Audit
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.outcome import Outcome, PartitionReport, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata.overview import TableLine
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.metadata.status import PartitionStatus, TableStatus

HISTORY = 40
MAX_PARTITIONS = 500


@dataclass(frozen=True, slots=True)
class OwnersRun:
    """The Airflow run whose tasks work on a refresh.

    state : as Airflow has it; None if the run was deleted
    next  : the task that works, or that Airflow will start by itself; None if there is none
    """

    dag_id: str
    run_id: str
    state: str | None
    next: TaskTry | None = None

    @property
    def is_going_on(self) -> bool:
        """True if Airflow will start another task or try of it by itself."""
        return self.state in ("queued", "running")


TriesOf = Callable[[Iterable[str | None]], tuple[TaskTry, ...]]
"""Returns the tries of the tasks of the runs in owners' keys, as far as the user may see them."""


@dataclass(frozen=True, slots=True)
class Now:
    """A table's present state, which an open page polls.

    running    : the report of the running refresh
    partitions : those of the running refresh; at most MAX_PARTITIONS, partitions still to be compared first
    sample     : some of the rows that a held refresh would change; None if none are kept
    concurrency : what becomes of a second caller during a refresh, as the table's definition says
    revision   : changes when other parts of the page are outdated too
    """

    now_ms: int
    line: TableLine
    status: TableStatus
    running: RefreshReport | None
    timeline: plots.Timeline | None
    partitions: tuple[PartitionStatus, ...]
    concurrency: str
    revision: str
    sample: Sample | None = None

    @property
    def facts(self) -> Now | None:
        """What the page shows, except what is relative to now; None during a refresh, as its drawing grows."""
        return None if self.is_live else replace(self, now_ms=0)

    @property
    def held_rows(self) -> tuple[tuple[str, int], ...]:
        """How many rows of each kind the compared partitions would change, with its verb."""
        kinds = (("insert", "rows_inserted"), ("update", "rows_updated"), ("delete", "rows_deleted"))
        return tuple((verb, sum(getattr(p, name) for p in self.status.partitions)) for verb, name in kinds)

    @property
    def is_live(self) -> bool:
        """True if a refresh is running, so that the state changes."""
        return self.line.is_under_way

    @property
    def can_cancel(self) -> bool:
        """True if the running refresh can still be stopped and no cancel is requested."""
        return self.line.phase in (Phase.REFRESHING, Phase.MERGING) and not self.line.is_cancel_requested


@dataclass(frozen=True, slots=True)
class Detail:
    """The data of a table's page.

    dags    : those that declare the table and that the user may see
    last    : the last refresh that has ended, read-only ones excepted
    may_act : the user may start runs of all DAGs that declare the table
    partition_by : the first partition column, by which a run can be confined; None without natural partitions
    audit   : the table's newest one; None if there was none
    in_history : the refreshes of that audit whose pages are still there
    """

    now: Now
    dags: tuple[DeclaringDag, ...]
    next_run_ms: int | None
    history: tuple[RefreshReport, ...]
    last: RefreshReport | None
    last_timeline: plots.Timeline | None
    plots: tuple[plots.Plot, ...]
    definition: str
    location: str
    may_act: bool
    partition_by: str | None
    audit: Audit | None = None
    in_history: frozenset[str] = frozenset()


def now_of(reader: Reader, table: TableRecord, dags: tuple[DeclaringDag, ...], tries_of: TriesOf) -> Now:
    """Return a table's present state.

    dags   : those that the user may see
    raises : TableNotFoundError, when the table was dropped meanwhile
    """
    found = reader.overview(table.name)
    if not found.lines:
        raise TableNotFoundError(table.name, "it has been dropped.")
    line = found.lines[0]
    status = reader.status(table)
    running = reader.report(status.refresh_id) if status.refresh_id else None
    is_waiting = status.kept_for is not None or line.is_left
    if status.is_held:  # those that a decision is about come first
        by_changes = sorted(status.partitions, key=lambda p: -(p.rows_deleted + p.rows_updated + p.rows_inserted))
        status = replace(status, partitions=tuple(by_changes))
    waiting_first = sorted(status.partitions, key=lambda p: p.is_completed)
    audit = reader.last_audit(table.id)
    revision = (
        *(line.phase is Phase.NORMAL, line.is_paused, line.is_dropping, line.is_left, line.is_held),
        *(() if audit is None else (audit.id, audit.repaired_by)),
        *(len(status.queue), line.is_cancel_requested, status.last.refresh_id if status.last else None),
        *(table.definition.content_hash, *(f"{dag.dag_id}:{dag.is_paused}:{dag.can_run}" for dag in dags)),
    )
    return Now(
        now_ms=found.now_ms,
        line=line,
        status=status,
        running=running,
        timeline=_drawn(running, found.now_ms, tries_of, is_waiting=is_waiting) if running else None,
        partitions=tuple(waiting_first[:MAX_PARTITIONS])
        if len(status.partitions) > MAX_PARTITIONS
        else status.partitions,
        concurrency=table.definition.concurrency,
        revision=" ".join(map(str, revision)),
        sample=reader.sample(status.refresh_id) if status.is_held and status.refresh_id else None,
    )


def _drawn(report: RefreshReport, now_ms: int, tries_of: TriesOf, *, is_waiting: bool = False) -> plots.Timeline | None:
    tries = tries_of(attempt.owner_key for attempt in report.attempts)
    return plots.timeline(report, now_ms, is_waiting=is_waiting, tries=tries)


@dataclass(frozen=True, slots=True)
class OneRefresh:
    """The data of a refresh's page.

    sample     : some of the rows that it changes, or would change; None if none are kept
    partitions : those that it changes
    unchanged  : the number of the others
    """

    table: str
    now_ms: int
    report: RefreshReport
    timeline: plots.Timeline | None
    sample: Sample | None
    partitions: tuple[PartitionReport, ...]
    unchanged: int


def one_refresh(reader: Reader, table: TableRecord, refresh_id: str, tries_of: TriesOf) -> OneRefresh | None:
    """Return the data of a refresh's page; None if the table's history has no such refresh."""
    found = reader.refresh(refresh_id)
    if found is None or found.table_id != table.id:
        return None
    report, now_ms = reader.report(refresh_id), reader.now_ms()
    changed = tuple(p for p in report.partitions if p.rows_inserted or p.rows_updated or p.rows_deleted)
    return OneRefresh(
        table=table.name,
        now_ms=now_ms,
        report=report,
        timeline=_drawn(report, now_ms, tries_of, is_waiting=report.hold is not None and report.finished_at is None),
        sample=reader.sample(refresh_id),
        partitions=changed[:MAX_PARTITIONS],
        unchanged=len(report.partitions) - len(changed),
    )


def detail_of(
    reader: Reader, table: TableRecord, dags: tuple[DeclaringDag, ...], tries_of: TriesOf, *, may_act: bool
) -> Detail:
    """Return the data of a table's page.

    raises : TableNotFoundError, when the table was dropped meanwhile
    """
    now = now_of(reader, table, dags, tries_of)
    history = reader.history(table.id, HISTORY)
    audit = reader.last_audit(table.id)
    named = [] if audit is None else [*(side.refresh_id for side in audit.sides), audit.repaired_by]
    last = next((r for r in history if r.outcome not in (Outcome.RUNNING, Outcome.DIFFERENCES)), None)
    return Detail(
        now=now,
        dags=dags,
        next_run_ms=next_run_ms(dags),
        history=history,
        last=last,
        last_timeline=_drawn(last, now.now_ms, tries_of) if last else None,
        plots=plots.history_plots(history),
        definition=yaml.safe_dump(table.definition.to_json(), sort_keys=False, allow_unicode=True, width=100),
        location=table.location,
        may_act=may_act,
        partition_by=table.definition.partition_by[0] if table.definition.partition_by else None,
        audit=audit,
        in_history=frozenset(each for each in named if each and reader.refresh_ids(table.id, each)),
    )


def took_ms(report: RefreshReport) -> int | None:
    """Return how long a refresh took, in milliseconds; None if it has not ended."""
    began, ended = words.ms_of(report.started_at), words.ms_of(report.finished_at)
    return None if began is None or ended is None else ended - began

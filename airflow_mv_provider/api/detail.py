"""The data of one table's page, read in a few short transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import yaml

from airflow_mv_provider.api import plots, words
from airflow_mv_provider.api.airflow_database import DeclaringDag, TaskTry
from airflow_mv_provider.api.airflow_run import GoOn, TriesOf, go_on_of
from airflow_mv_provider.api.attempts import Logs, dead_owner, logs_of, work_of
from airflow_mv_provider.api.ingestion_view import IngestionView, ingestion_of
from airflow_mv_provider.api.story import Event, story
from airflow_mv_provider.api.table_list import next_run_ms
from airflow_mv_provider.core.approval.audit import Audit
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.freshness.lateness import Forecast
from airflow_mv_provider.core.health.health import Health
from airflow_mv_provider.core.outcome import Outcome, PartitionReport, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata.history.row_answers import RowAnswer
from airflow_mv_provider.metadata.overview import TableLine
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.metadata.status import PartitionStatus, TableStatus
from airflow_mv_provider.report_text.freshness_text import forecast_text

HISTORY = 40
_MAX_CHANGES = 10
MAX_PARTITIONS = 500


@dataclass(frozen=True, slots=True)
class Now:
    """A table's present state, which an open page polls.

    running    : the report of the running refresh
    partitions : those of the running refresh; at most MAX_PARTITIONS, partitions still to be compared first
    sample     : some of the rows that a held refresh would change; None if none are kept
    dead       : the try whose process owns the refresh but has ended, as Airflow knows; None if it runs
    concurrency : what becomes of a second caller during a refresh, by the table's definition
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
    dead: TaskTry | None = None

    @property
    def is_left(self) -> bool:
        """True if a process began it, and none works on it any more."""
        return self.line.is_left or self.dead is not None

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
    ingestion : whose output the table is; None if it is none
    health  : how the table's health changed, the newest first
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
    ingestion: IngestionView | None = None
    health: tuple[Health, ...] = ()


def now_of(reader: Reader, table: TableRecord, dags: tuple[DeclaringDag, ...], tries_of: TriesOf) -> Now:
    """Return a table's present state.

    dags   : those that the user may see
    raises : TableNotFoundError, when the table was dropped meanwhile
    """
    found = reader.overview(table.name)
    if not found.lines:
        raise TableNotFoundError(table.name, "the table has been dropped.")
    line = found.lines[0]
    status = reader.status(table)
    running = reader.report(status.refresh_id) if status.refresh_id else None
    dead = dead_owner(status.owner_key, status.owner, tries_of([status.owner_key])) if status.owner else None
    is_waiting = status.kept_for is not None or line.is_left or dead is not None
    if status.is_held:  # those that a decision is about come first
        by_changes = sorted(status.partitions, key=lambda p: -(p.rows_deleted + p.rows_updated + p.rows_inserted))
        status = replace(status, partitions=tuple(by_changes))
    waiting_first = sorted(status.partitions, key=lambda p: p.is_completed)
    audit = reader.last_audit(table.id)
    revision = (
        *(line.obstacle.since_ms if line.obstacle else None, line.obstacle.num_tries if line.obstacle else None),
        *(line.phase is Phase.NORMAL, line.is_paused, line.is_dropping, line.is_left, dead is None, line.is_held),
        *(() if audit is None else (audit.id, audit.repaired_by)),
        reader.last_answer_id(table.id),
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
        dead=dead,
    )


def _drawn(report: RefreshReport, now_ms: int, tries_of: TriesOf, *, is_waiting: bool = False) -> plots.Timeline | None:
    tries = tries_of(attempt.owner_key for attempt in report.attempts)
    return plots.timeline(report, work_of(report, now_ms, is_waiting=is_waiting, tries=tries), now_ms)


@dataclass(frozen=True, slots=True)
class OneRefresh:
    """The data of a refresh's page.

    events     : what happened, in the order of time
    sample     : some of the rows that it changes, or would change; None if none are kept
    partitions : those that it changes
    unchanged  : the number of the others
    logs       : where its log lines are
    go_on      : what to clear in Airflow after its task has failed; None if nothing has to be
    """

    table: str
    now_ms: int
    report: RefreshReport
    timeline: plots.Timeline | None
    events: tuple[Event, ...]
    logs: Logs
    sample: Sample | None
    partitions: tuple[PartitionReport, ...]
    unchanged: int
    go_on: GoOn | None = None


def one_refresh(reader: Reader, table: TableRecord, refresh_id: str, tries_of: TriesOf) -> OneRefresh | None:
    """Return the data of a refresh's page; None if the table's history has no such refresh."""
    found = reader.refresh(refresh_id)
    if found is None or found.table_id != table.id:
        return None
    report, now_ms, state = reader.report(refresh_id), reader.now_ms(), reader.state(table.id)
    tries = tries_of(attempt.owner_key for attempt in report.attempts)
    has_no_owner = state.owner_process is None or state.is_owner_dead
    is_waiting = state.refresh_id == refresh_id and (
        has_no_owner or dead_owner(state.owner_key, state.owner_process, tries) is not None
    )
    work = work_of(report, now_ms, is_waiting=is_waiting, tries=tries)
    has_ended = report.finished_at is not None
    is_stuck = not (state.is_held or has_ended) or (
        report.outcome is Outcome.FAILED and reader.history(table.id, 1)[0].refresh_id == refresh_id
    )
    owner = report.attempts[-1].owner_key if report.attempts else None
    changed = tuple(p for p in report.partitions if p.rows_inserted or p.rows_updated or p.rows_deleted)
    return OneRefresh(
        table=table.name,
        now_ms=now_ms,
        report=report,
        timeline=plots.timeline(report, work, now_ms),
        events=story(report, work),
        logs=logs_of(report, work, tries, now_ms),
        sample=reader.sample(refresh_id),
        partitions=changed[:MAX_PARTITIONS],
        unchanged=len(report.partitions) - len(changed),
        go_on=go_on_of(owner, tries, has_ended=has_ended) if is_stuck else None,
    )


def detail_of(
    reader: Reader,
    table: TableRecord,
    dags: tuple[DeclaringDag, ...],
    tries_of: TriesOf,
    visible: Callable[[str], bool],
    *,
    may_act: bool,
) -> Detail:
    """Return the data of a table's page.

    visible : whether the user may see a table
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
        ingestion=ingestion_of(reader, table, visible),
        health=reader.health_changes(table.id, HISTORY)[:_MAX_CHANGES],
    )


@dataclass(frozen=True, slots=True)
class Why:
    """The questions that a user who may act on a table can ask about its rows, and the newest answers.

    dags    : those that can answer and whose runs the user can start
    command : of the command line that answers the same
    """

    table: str
    key: tuple[str, ...]
    dags: tuple[DeclaringDag, ...]
    command: str
    answers: tuple[RowAnswer, ...]


def why_of(reader: Reader, table: TableRecord, dags: Iterable[DeclaringDag]) -> Why:
    """Return the answers about a table's rows, and what can be asked."""
    key = table.definition.key
    command = f"amv why {table.name} {' '.join(f'{column}=VALUE' for column in key)}"
    can_tell = tuple(dag for dag in dags if dag.can_run and not dag.is_paused)
    return Why(table.name, key, can_tell, command, reader.answers_about_rows(table.id))


def to_come_text(now: Now, next_run_ms: int | None) -> str:
    """Return when a table is late and when its next run starts, in words; for a table with a freshness target."""
    late_ms = words.ms_of(now.status.late_at)
    return forecast_text(Forecast(now.now_ms, late_ms, next_run_ms, now.status.usual_ms))

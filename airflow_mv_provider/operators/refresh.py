"""Refresh a table from a DAG: one task per phase, or one task for all of them.

    BeginRefreshOperator    mint, acquire              NORMAL     → REFRESHING   pushes the refresh id
    StageRefreshOperator    fence, stage, seal         REFRESHING → MERGING
    MergeRefreshOperator    compare, judge, publish    MERGING    → CLEANUP
    CleanupRefreshOperator  remove what is outdated    CLEANUP    → NORMAL
    RefreshTableOperator    all of it                  NORMAL     → NORMAL       pushes the refresh id

XCom carries the refresh id and nothing else: everything a task has to know is in the metadata database, written by the
task before it, and each task begins with a hand-over there. So a retried, cleared or doubled task works under an epoch
of its own, and the older one can no longer write.

    the table is refreshed by somebody else   the task is rescheduled: no slot and no retry is used, up to queue_timeout
                                              (its place is kept if the table's policy is to queue or to join)
    a retry may succeed (TransientError)      the error, as it is: the task's retries decide
    a person must act (TerminalError)         AirflowFailException with the same message: no retry
    there was nothing to do                   begin succeeds, the phases after it are skipped

What it does not do: stop a refresh when its task is killed. A killed task leaves its lease behind, and whoever comes
next takes over when that has expired; cancel a refresh with `amv cancel`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator, Context, conf
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException

from airflow_mv_provider import definition_file as definitions
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.request import Request, combined, parse_request
from airflow_mv_provider.core.scope import asked_scope
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.core.table import RefreshableTable, Wanted
from airflow_mv_provider.exceptions import DefinitionError, MvError, RefreshInProgressError, TerminalError
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.operators.metrics import count_ended, count_error
from airflow_mv_provider.operators.request import caller, group_of, was_cleared

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher

_DEFAULT_QUEUE_TIMEOUT_S = 3600.0
_LOOKS_MISSED = 2  # a scheduler may bring a task back late; its place in the queue is kept for so many intervals
_KILL_S = 3.0  # SIGKILL follows SIGTERM after about five seconds
_NOTHING_TO_PUBLISH = frozenset({Outcome.NOTHING_TO_DO, Outcome.DIFFERENCES})


class _MvOperator(BaseOperator):
    """What all of them share: where state lives, how long to wait, and which error means what to Airflow.

    mv_conn_id, database_url, warehouse : see `hooks.mv` for what is used without them
    queue_timeout  : seconds to wait for another owner of the table; `[mv] queue_timeout_s` or an hour without it
    queue_interval : seconds between two looks
    """

    _refresher: Refresher | None = None

    def __init__(
        self,
        *,
        mv_conn_id: str | None = None,
        database_url: str | None = None,
        warehouse: str | None = None,
        queue_timeout: timedelta | float | None = None,
        queue_interval: timedelta | float = 30.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mv_conn_id = mv_conn_id
        self.database_url = database_url
        self.warehouse = warehouse
        self.queue_timeout = queue_timeout
        self.queue_interval = queue_interval

    def execute(self, context: Context) -> str | None:
        """Do this task's part; return the refresh id if it is the first task."""
        try:
            hook = MvHook(self.mv_conn_id, database_url=self.database_url, warehouse=self.warehouse)
            self._refresher = hook.refresher()
            return self.work(self._refresher, context)
        except RefreshInProgressError as error:
            self._wait(error, context)
        except MvError as error:
            count_error(error)
            if isinstance(error, TerminalError):
                raise AirflowFailException(str(error)) from error
            raise

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Do this task's part with a runner that is open."""
        raise NotImplementedError

    def tell(self, report: RefreshReport, why: str = "") -> None:
        """Log how a refresh stands, and count it if it has ended."""
        self.log.info("%s%s", why, summary(report))
        count_ended(report)

    def caller(self, context: Context) -> Caller:
        """Return who asks: the same for all tasks of a group, which work on one refresh."""
        return self._caller(context, group_of(self))

    def _caller(self, context: Context, scope: str | None) -> Caller:
        away = _LOOKS_MISSED * _duration(self.queue_interval)
        return caller(context, scope=scope, away_ms=round(away.total_seconds() * 1000))

    def on_kill(self) -> None:
        """Interrupt the Spark work under way; lease and fence do the rest.

        It does not cancel the refresh: SIGTERM may be a worker that is shut down, and the retry goes on where this
        task was. The interrupt gets a thread of its own, because this one may be waiting on its connection to the JVM.
        """
        if self._refresher is not None:
            thread = threading.Thread(target=self._refresher.interrupt, name="mv-on-kill", daemon=True)
            thread.start()
            thread.join(_KILL_S)

    def _wait(self, error: RefreshInProgressError, context: Context) -> NoReturn:
        """Give the slot back and come again, unless this try has waited long enough."""
        now = datetime.now(UTC)
        since = context["ti"].get_first_reschedule_date(context) or now
        limit = self._queue_timeout()
        if now - since >= limit:
            self._leave_the_queue(context)
            waited = f"Waited {(now - since).total_seconds():.0f} s of queue_timeout {limit.total_seconds():.0f} s."
            raise AirflowFailException(f"{error} {waited}") from error
        self.log.info("%s Looking again later.", error)
        again = now + _duration(self.queue_interval)
        raise AirflowRescheduleException(again) from error  # type: ignore[no-untyped-call]

    def _leave_the_queue(self, context: Context) -> None:
        if self._refresher is not None:
            with suppress(MvError):  # a database that is away: the ticket expires
                self._refresher.store.queue.leave(self.caller(context).key)

    def _queue_timeout(self) -> timedelta:
        if self.queue_timeout is not None:
            return _duration(self.queue_timeout)
        return _duration(conf.getfloat("mv", "queue_timeout_s", fallback=_DEFAULT_QUEUE_TIMEOUT_S))


class _FirstTask(_MvOperator):
    """A task that begins a refresh.

    table           : the name of a registered table, or a definition, which is registered each time the task runs
    definition_file : YAML with the definition, relative to the DAG's file; `table` names one if it holds several
    read_only       : compute and report the differences, write nothing to main
    overrides       : guards set aside
    force           : compare even if the source says that nothing is new
    partitions      : refresh only these: each a value, or the list of all partition columns' values
    partition_from, partition_until : refresh only this half-open range of the first partition column, such as
                      "{{ data_interval_start | ds }}" and "{{ data_interval_end | ds }}"
    stale_only      : leave out what refreshes of some partitions have brought to the source's state already
    strategy        : how main is brought up to date, instead of as the definition says

    A run's params `read_only`, `overrides`, `force`, `partitions`, `from`, `until`, `stale` and `strategy` are added to
    the arguments; a scope that was written cannot be changed by a run.
    """

    template_fields: Sequence[str] = ("table", "partitions", "partition_from", "partition_until")

    def __init__(
        self,
        *,
        table: str | RefreshableTable | None = None,
        definition_file: str | None = None,
        read_only: bool = False,
        overrides: Sequence[str] = (),
        force: bool = False,
        partitions: Sequence[object] = (),
        partition_from: str | None = None,
        partition_until: str | None = None,
        stale_only: bool = False,
        strategy: Wanted | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table.name if isinstance(table, RefreshableTable) else table
        self.definition = table if isinstance(table, RefreshableTable) else None
        self.definition_file = definition_file
        # A mistake shows when the DAG is parsed.
        Request(read_only, tuple(overrides), force, is_stale_only=stale_only, strategy=strategy)
        self.strategy = strategy
        self.read_only, self.overrides, self.force, self.stale_only = read_only, overrides, force, stale_only
        self.partitions = partitions
        self.partition_from = partition_from
        self.partition_until = partition_until

    def begin(self, refresher: Refresher, context: Context) -> tuple[str, Request]:
        """Register the definition if this task has one; return the table's name and what is asked for.

        raises : DefinitionError and what `Refresher.apply` raises
        """
        written = Request(
            self.read_only,
            tuple(self.overrides),
            self.force,
            asked_scope(self.partitions, self.partition_from, self.partition_until),
            self.stale_only,
            self.strategy,
        )
        request = combined(written, parse_request(context["params"]))
        definition = self.definition or self._from_file()
        if definition is not None:
            refresher.apply(definition)
            return definition.name, request
        if not self.table:
            raise DefinitionError(self.task_id, "it names no table.", hint="Give `table` or `definition_file`.")
        return str(self.table), request

    def _from_file(self) -> RefreshableTable | None:
        if self.definition_file is None:
            return None
        path = Path(self.dag.fileloc).parent / self.definition_file
        found = [each for each in definitions.load(path) if self.table in (None, each.name)]
        if len(found) != 1:
            wanted = f"table {self.table!r}" if self.table else "one table"
            raise DefinitionError(
                self.definition_file, f"expected {wanted}, found {len(found)}.", hint="Name one of them in `table`."
            )
        return found[0]


class BeginRefreshOperator(_FirstTask):
    """Take the table for a refresh, ending what a dead owner left; push the refresh id.

    Retried or cleared, it adopts its run's unfinished refresh. When there is nothing to do, or in read-only mode, the
    id is that of the history row that says so, and the phases after it are skipped.
    """

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Mint and acquire, then keep the table for the next task of this run."""
        name, request = self.begin(refresher, context)
        who = self.caller(context)
        if request.read_only:
            report = refresher.refresh(name, who, request)
            self.tell(report)
            return report.refresh_id
        begun = refresher.begin(name, who, request)
        for refresh_id in begun.recovered:
            self.tell(refresher.store.report(refresh_id), "Ended for a dead owner: ")
        if isinstance(begun, RefreshReport):
            self.tell(begun)
            return begun.refresh_id
        refresher.park(begun)
        return begun.own.refresh_id


class RefreshTableOperator(_FirstTask):
    """Refresh a table in one task, all phases in its process; push the refresh id. For small tables."""

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Bring the table up to date."""
        name, request = self.begin(refresher, context)
        report = refresher.refresh(name, self.caller(context), request)
        for refresh_id in report.recovered:
            if refresh_id != report.refresh_id:
                self.tell(refresher.store.report(refresh_id), "Ended for a dead owner: ")
        self.tell(report)
        return report.refresh_id

    def caller(self, context: Context) -> Caller:
        """Return who asks: this task alone."""
        return self._caller(context, self.task_id)


class _PhaseTask(_MvOperator):
    """A task that goes on with a refresh that another task of its run has begun.

    refresh_id : `BeginRefreshOperator(...).output`
    """

    template_fields: Sequence[str] = ("refresh_id",)
    until: ClassVar[Phase]

    def __init__(self, *, refresh_id: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.refresh_id = refresh_id

    def work(self, refresher: Refresher, context: Context) -> None:
        """Go on with the refresh up to the phase that this task ends in."""
        refresh = refresher.store.refresh(self.refresh_id)
        if refresh is not None and refresh.is_ended:
            ended = refresher.store.report(refresh.id)
            if ended.outcome in _NOTHING_TO_PUBLISH:
                raise AirflowSkipException(summary(ended))
            if ended.outcome is Outcome.PUBLISHED and not was_cleared(context, self.retries):
                # This task died after its last write, or somebody took its refresh over: it is done either way.
                self.log.info("Done already: %s", summary(ended))
                return
        report = refresher.resume(self.refresh_id, self.caller(context), until=self.until)
        self.tell(report)


class StageRefreshOperator(_PhaseTask):
    """Read the source once, beside the table, and seal what was read."""

    until = Phase.MERGING


class MergeRefreshOperator(_PhaseTask):
    """Work out what differs, let the guards judge it, and publish it in one commit."""

    until = Phase.CLEANUP


class CleanupRefreshOperator(_PhaseTask):
    """Remove staging, corrections and progress of the refresh, and give the table back."""

    until = Phase.NORMAL


def summary(report: RefreshReport) -> str:
    """Return a refresh's figures in one line for the task's log."""
    return (
        f"{report.table} refresh {report.refresh_id}: {report.outcome}, phase {report.phase}, epoch {report.epoch}; "
        f"rows +{report.rows_inserted:,} ~{report.rows_updated:,} -{report.rows_deleted:,} ={report.rows_unchanged:,} "
        f"!{report.rows_rejected:,}; "
        f"{report.bytes_main:,} bytes to main, {report.bytes_staging:,} to staging; {report.reason or 'no reason'}"
    )


def _duration(value: timedelta | float) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(seconds=value)

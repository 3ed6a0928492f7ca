"""The base of all operators: metadata database, waiting, and the mapping of outcomes to Airflow's task states.

a person has to decide first (`approval`) the task waits as a required action: neither slot nor triggerer is used
another owner refreshes the table         the task is rescheduled, or deferred if it is deferrable: no slot and no retry
                                          is used, up to queue_timeout (it keeps its ticket if the table's policy is to
                                          queue or to join)
a retry may succeed (TransientError)      the error is raised unchanged: the task's retries decide
a person must act (TerminalError)         AirflowFailException with the same message: no retry
the refresh published                     an event of the table's asset, with the refresh's facts
it had nothing to publish                 no asset event: DAGs scheduled on the table have nothing to do either
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import Asset, AssetAlias, BaseNotifier, BaseOperator, Context
from airflow.sdk.execution_time.hitl import HITLUser

from airflow_mv_provider.asset import asset_uri, table_of_asset
from airflow_mv_provider.compat import (
    HAS_WAITING_TASKS,
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    conf,
)
from airflow_mv_provider.core.outcome import Outcome, RefreshReport, error_of
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import (
    MetadataUnavailableError,
    MvError,
    RefreshFinishedError,
    RefreshHeldError,
    RefreshInProgressError,
    TerminalError,
)
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.links import HistoryLink, TableLink
from airflow_mv_provider.open_lineage.gathering import Gathered, gathered, is_wanted
from airflow_mv_provider.operators import decision
from airflow_mv_provider.operators.dag_run import caller, group_of, had_ended, is_over, was_cleared
from airflow_mv_provider.operators.metrics import count_ended, count_error, show_stalled
from airflow_mv_provider.report_text.figures import seconds_text, size
from airflow_mv_provider.report_text.refresh_text import outcome_text

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store
    from airflow_mv_provider.runner.refresh import Refresher
    from airflow_mv_provider.triggers.wait import Awaited

_DEFAULT_QUEUE_TIMEOUT_S = 3600.0
_LOOKS_BACK = 10  # refreshes of a table, of which one may be this task's own
_LOOKS_MISSED = 2  # a scheduler may restart a task late: a ticket stays valid for this many intervals
_LOOKS_PER_DECISION = 10  # a person takes longer than a refresh
RECOVERED = AssetAlias("mv_recovered")  # Airflow takes events of any table's asset through it
_KILL_S = 3.0  # SIGKILL follows SIGTERM after about five seconds


class MvOperator(BaseOperator):
    """Base class of this provider's operators.

    Args:
        mv_conn_id: Connection of the metadata database; its default is that of `hooks.mv`.
        queue_timeout: Seconds to wait for another owner of the table. Default `[mv] queue_timeout_s`, or one hour;
            no limit in a backfill run, which waits for the backfill's other runs.
        deferrable: Let the triggerer look while the task waits, instead of a worker from time to time. Default
            `[operators] default_deferrable`. A task that waits for a decision waits as a required action from Airflow
            3.3 on, which needs neither.
        poll_interval: Seconds between two looks while the task waits, on a worker at least twice Airflow's `[workers]
            min_heartbeat_interval`; a worker looks for a decision that was made elsewhere at every tenth.
        notifiers: Called when a refresh of this task is held, as `on_failure_callback` is when it fails.
        approvers: Who may decide about a refresh that is held, as {"id": ..., "name": ...}; None for everybody who
            may answer the DAG's required actions.

    The table's asset (see `asset`) is added to the outlets of tasks that publish, so that Airflow knows these DAGs.
    """

    operator_extra_links = (TableLink(), HistoryLink())

    # Targets of the extra links; the first is set as soon as a task knows its table.
    linked_table: str | None = None
    linked_refresh: str | None = None
    held_difference: Sequence[str] = ()  # of the held refresh that this task asks about, as lines
    reports_lineage: ClassVar[bool] = False  # OpenLineage gets what its refresh has read and written
    ends_for_others: ClassVar[bool] = False  # it may publish any table's refresh, whose owner has died
    shares_refresh: ClassVar[bool] = False  # the tasks of its group work on one refresh, under one key
    _gathered: Gathered | None = None
    _asked: str | None = None  # the hold that this try has asked about
    _waits_since: datetime | None = None  # of a task that was deferred, as the next one
    _watched: str | None = None  # the refresh whose driver it has waited for
    _answer_after: str | None = None  # it has waited for its own driver, which leaves another refresh than this
    _opened_ms = 0  # when this process has opened the database
    _refresher: Refresher | None = None
    _store: Store | None = None

    def __init__(
        self,
        *,
        mv_conn_id: str | None = None,
        queue_timeout: timedelta | float | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float = 30.0,
        notifiers: Sequence[BaseNotifier] = (),
        approvers: Sequence[HITLUser] | None = None,
        **kwargs: Any,
    ) -> None:
        if self.ends_for_others:
            kwargs["outlets"] = [*_listed(kwargs.get("outlets")), RECOVERED]
        super().__init__(**kwargs)
        self.mv_conn_id = mv_conn_id
        self.queue_timeout = queue_timeout
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.notifiers = notifiers
        self.approvers = approvers

    @classmethod
    def get_serialized_fields(cls) -> frozenset[str]:
        """Return what Airflow keeps of this task with the parsed DAG; `mv_written` is for the page."""
        return frozenset(super().get_serialized_fields() | {"mv_written"})  # type: ignore[no-untyped-call]

    @property
    def _decision_interval(self) -> timedelta:
        return timedelta(seconds=_LOOKS_PER_DECISION * self.poll_interval)

    @property
    def mv_written(self) -> str | None:
        """What this task refreshes, as `core.scope.declared_refresh` stores it; None if it begins no refresh."""
        return None

    def execute(self, context: Context) -> str | None:
        """Run this task's work; return the refresh id if it is the first task."""
        return self._mapped(context, lambda: self.open_and_work(self.hook(), context))

    def _mapped(self, context: Context, work: Callable[[], str | None]) -> str | None:
        """Do some work; raise its errors as Airflow's, as this module's header says."""
        try:
            done = work()
            self._show_health()
            self._gather(context)
            return done
        except RefreshInProgressError as error:
            if isinstance(error, RefreshHeldError):
                self._ask_if_own(error, context)
            self.wait(error, context)
        except MvError as error:
            count_error(error)
            self._show_health()
            self._gather(context)
            if isinstance(error, TerminalError):
                raise AirflowFailException(str(error)) from error
            raise

    def decided(self, context: Context, event: dict[str, Any], hold_id: str) -> str | None:
        """Record the answer to a required action, and go on; Airflow calls this when there is one, or none in time."""
        return self._mapped(context, lambda: self._decided(context, event, hold_id))

    def _decided(self, context: Context, event: dict[str, Any], hold_id: str) -> str | None:
        refresh_id, is_unanswered = hold_id.partition(".")[0], "error" in event
        try:
            store = self._store = self.hook().store()
            if store.refresh(refresh_id) is None:
                raise RefreshFinishedError(self.task_id, f"refresh {refresh_id} is not known. Was its table dropped?")
            decision.record(store, store.report(refresh_id).table, hold_id, event)
            if is_unanswered and (hold := decision.undecided(store, hold_id)) is not None:
                decision.wait(hold_id, decision.look_again_after(store, hold, self._decision_interval))
            report = store.report(refresh_id)
        except MetadataUnavailableError as error:
            if is_unanswered:
                self.log.warning("Waiting on: %s", error)
                decision.wait(hold_id, self._decision_interval)
            raise
        if report.finished_at is not None:  # decided elsewhere, where it was also published or ended
            self.log_refresh(report)
            if report.error is not None:
                raise AirflowFailException(str(error_of(report.error)))
            self.announce(report, context)
            return refresh_id
        self._asked = hold_id
        return self.open_and_work(self.hook(), context)

    def _gather(self, context: Context) -> None:
        """Keep what OpenLineage gets of this task's refresh, if it gets anything."""
        store = self._store
        if not self.reports_lineage or store is None or not is_wanted():
            return
        try:
            refresh_id = self.linked_refresh or store.worked_on(self.caller(context).key)
            self._gathered = gathered(store, refresh_id, self.hook().settings().connections)
        except Exception:  # the refresh is done: what is told about it does not decide whether the task succeeds
            self.log.warning("OpenLineage gets nothing about this task's refresh.", exc_info=True)

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> Any:
        """Return what this task's refresh has read and written; Airflow's integration calls it after the task's end."""
        if self._gathered is None:
            return None
        from airflow_mv_provider.open_lineage.facets import lineage_of

        return lineage_of(self._gathered)

    def _ask_if_own(self, error: RefreshHeldError, context: Context) -> None:
        """Ask for a decision, if it is this task's own refresh that waits for it."""
        if self._refresher is None:
            return
        store = self._refresher.store
        table = store.table(error.where)
        state = store.state(table.id)
        hold = store.last_hold(state.refresh_id) if state.refresh_id else None
        if hold is not None and state.is_held and state.owner_key == self.caller(context).key:
            self.linked_table, self.linked_refresh = error.where, hold.refresh_id
            if self._asked not in (None, hold.id):
                # Airflow keeps the text of a try's question: the answer would be about rows that were not shown.
                problem = f"{error} This try has asked about another difference; the next one asks about this."
                raise AirflowException(problem) from error
            is_new = HAS_WAITING_TASKS or hold.since_ms >= self._opened_ms
            if is_new:
                self.held_difference = decision.difference(self._refresher, error.where, hold)
            if HAS_WAITING_TASKS:
                decision.ask(table, hold, self.held_difference, context, self.approvers)
            if is_new:
                self._notify(context)
            timeout = decision.look_again_after(store, hold, self._decision_interval)
            if HAS_WAITING_TASKS:
                decision.wait(hold.id, timeout)
            self.log.info(
                "%s: its changes wait for a decision on the page or by `amv approve`. From Airflow 3.3 on they are a"
                " required action.",
                error.where,
            )
            if self.deferrable:
                self.leave_the_worker(context, error.where, "decision", hold.id)
            self._reschedule(timeout, error)

    def _show_health(self) -> None:
        if self._store is not None and self.linked_table is not None:
            with suppress(MvError):  # only a metric
                show_stalled(self._store.overview(self.linked_table).lines)

    def _notify(self, context: Context) -> None:
        for notifier in self.notifiers:
            try:
                notifier(context)
            except Exception:  # what it posts to may be down: the question is there all the same
                self.log.exception("A notifier failed.")

    @abstractmethod
    def open_and_work(self, hook: MvHook, context: Context) -> str | None:
        """Run this task's work."""

    def hook(self) -> MvHook:
        """Return the hook that opens the database and a runner, with this task's arguments."""
        return MvHook(self.mv_conn_id)

    def log_refresh(self, report: RefreshReport, why: str = "") -> None:
        """Log a refresh's state, and send its metrics if it has ended."""
        self.log.info("%s%s", why, summary(report))
        count_ended(report)
        if not why:
            self.linked_table, self.linked_refresh = report.table, report.refresh_id

    def ended_for_another(self, report: RefreshReport, context: Context) -> None:
        """Log a refresh that this task has ended for a dead owner; add its asset event if it was published.

        Its owner may have announced it already: whoever listens gets each published refresh at least once.
        """
        self.log_refresh(report, "Ended the refresh of a dead owner: ")
        if report.outcome is Outcome.PUBLISHED and RECOVERED in (self.outlets or []):
            context["outlet_events"][RECOVERED].add(Asset(asset_uri(report.table)), extra=asset_facts(report))

    def announce(self, report: RefreshReport, context: Context) -> None:
        """Add the refresh's facts to the table's asset event; suppress the event if nothing was published.

        A refresh that finds nothing to do may come after one that was published when this task could send no event.
        """
        if report.outcome is Outcome.NOTHING_TO_DO:
            report = self.published_before(report.table, context) or report
        outlets = self.outlets or []
        ours = [each for each in outlets if isinstance(each, Asset) and table_of_asset(each.uri) == report.table]
        if report.outcome in (Outcome.PUBLISHED, Outcome.RUNNING):  # RUNNING: published, another task cleans up
            for asset in ours:
                context["outlet_events"][asset].extra = asset_facts(report)
        else:
            # Airflow creates an event for each outlet that is left when the task succeeds.
            self.outlets = [each for each in outlets if each not in ours]

    def published_before(self, table: str, context: Context) -> RefreshReport | None:
        """Return the newest refresh that was published under this task's key, of which Airflow may not have heard.

        An earlier try or an earlier look of this one has begun it, or completed it for a dead owner. What had ended
        when a user cleared the task is not meant.
        """
        if self._store is None:
            return None
        key, is_cleared = self.caller(context).key, was_cleared(context, self.retries)
        for each in self._store.history(self._store.table(table).id, _LOOKS_BACK):
            if each.outcome is Outcome.PUBLISHED and any(one.owner_key == key for one in each.attempts):
                return None if is_cleared and had_ended(context, each.finished_at) else each
        return None

    def caller(self, context: Context) -> Caller:
        """Return the caller, whose key is this task's own, or that of its group if these share a refresh."""
        scope = group_of(self) if self.shares_refresh else self.task_id
        away = _LOOKS_MISSED * max(timedelta(seconds=self.poll_interval), _shortest_interval())
        return caller(context, scope=scope, away_ms=round(away.total_seconds() * 1000))

    def on_kill(self) -> None:
        """Interrupt the running Spark jobs; lease and fence protect the table from work that survives.

        The refresh is not cancelled: SIGTERM may come from a worker's shutdown, and the retry continues where this task
        stopped. The interrupt runs in a thread of its own, because this thread may be blocked on its JVM connection.
        """
        if self._refresher is not None:
            within_seconds(self._refresher.interrupt)

    def wait(self, error: RefreshInProgressError, context: Context) -> NoReturn:
        """Leave the worker until there is something to do, or fail if this try has waited for `queue_timeout`.

        Raises:
            AirflowRescheduleException, TaskDeferred.
            AirflowFailException.
        """
        since = self._since(context)
        now = datetime.now(UTC)
        limit = self._queue_timeout(context)
        if limit is not None and now - since >= limit:
            self._leave_the_queue(context)
            waited = f"Waited {(now - since).total_seconds():.0f} s of queue_timeout {limit.total_seconds():.0f} s."
            raise AirflowFailException(f"{error} {waited}") from error
        self.log.info("%s Trying again later.", error)
        if self.deferrable:
            self.leave_the_worker(context, error.where, "turn", until=None if limit is None else since + limit)
        self._reschedule(timedelta(seconds=self.poll_interval), error)

    def look_again(self, context: Context, event: dict[str, Any]) -> str | None:
        """Go on with a task that was deferred; Airflow calls this when its trigger has fired.

        Args:
            event: What `leave_the_worker` has kept.
        """
        self._waits_since = event["since"] and datetime.fromisoformat(event["since"])
        self._watched, self._answer_after = event["refresh_id"], event["answer_after"]
        return self.execute(context)

    def _since(self, context: Context) -> datetime:
        """Return since when this try waits; now if it begins to."""
        return self._waits_since or context["ti"].get_first_reschedule_date(context) or datetime.now(UTC)

    def leave_the_worker(
        self,
        context: Context,
        table: str,
        awaits: Awaited,
        hold_id: str | None = None,
        until: datetime | None = None,
        refresh_id: str | None = None,
        answer_after: str | None = None,
    ) -> NoReturn:
        """Wait without a worker.

        Args:
            table, awaits, hold_id, until: As of `TableTrigger`.
            refresh_id: Of the refresh whose driver is waited for.
            answer_after: The driver is this try's own, and leaves another refresh than this one; "" for any.

        Raises:
            TaskDeferred.
        """
        from airflow_mv_provider.triggers.wait import TableTrigger

        store, key = self._store, self.caller(context).key
        is_in_queue = False
        if store is not None:
            with suppress(MvError):  # without the database, the trigger waits until it is there again
                is_in_queue = any(waiter.key == key for waiter in store.waiters(store.table(table).id))
        # Waiting for a driver or a person is not waiting in the queue, which `queue_timeout` ends.
        since = self._since(context).isoformat() if awaits == "turn" else None
        trigger = TableTrigger(
            table,
            key,
            awaits,
            hold_id,
            is_in_queue=is_in_queue,
            until=None if until is None else until.isoformat(),
            poll_interval=self.poll_interval,
            kept={"since": since, "refresh_id": refresh_id, "answer_after": answer_after},
            mv_conn_id=self.mv_conn_id,
        )
        self.defer(trigger=trigger, method_name="look_again")

    def _reschedule(self, after: timedelta, error: RefreshInProgressError) -> NoReturn:
        again = datetime.now(UTC) + max(after, _shortest_interval())
        raise AirflowRescheduleException(again) from error  # type: ignore[no-untyped-call]

    def _leave_the_queue(self, context: Context) -> None:
        if self._store is not None:
            with suppress(MvError):  # without the database, the ticket expires by itself
                self._store.queue.leave(self.caller(context).key)

    def _queue_timeout(self, context: Context) -> timedelta | None:
        if self.queue_timeout is not None:
            return _duration(self.queue_timeout)
        if self.caller(context).trigger == "backfill":
            return None
        return _duration(conf.getfloat("mv", "queue_timeout_s", fallback=_DEFAULT_QUEUE_TIMEOUT_S))


class RunnerTask(MvOperator):
    """Base of the operators whose work is done by a runner in the task's own process."""

    def open_and_work(self, hook: MvHook, context: Context) -> str | None:
        """Open a runner in this process, and run this task's work with it."""
        self._refresher = hook.refresher(is_gone=is_over)
        self._store = self._refresher.store
        if not HAS_WAITING_TASKS:
            self._opened_ms = self._store.now_ms()
        return self.work(self._refresher, context)

    @abstractmethod
    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Run this task's work with an open runner."""


def _shortest_interval() -> timedelta:
    """Return the shortest reschedule interval; 10 s with Airflow's defaults.

    A task's supervisor may notice its end one heartbeat late. If the task is queued again by then, the scheduler treats
    it as killed, and the task loses a try.
    """
    return timedelta(seconds=2 * conf.getint("workers", "min_heartbeat_interval"))


def within_seconds(action: Callable[[], None]) -> None:
    """Start an action in a thread, and wait at most three seconds for it, because SIGKILL follows SIGTERM soon."""
    thread = threading.Thread(target=action, name="mv-on-kill", daemon=True)
    thread.start()
    thread.join(_KILL_S)


def with_asset(outlets: object, table: str | None) -> list[Any]:
    """Return a task's outlets, with the asset of the table it publishes if the name is known at parse time."""
    given = _listed(outlets)
    if not isinstance(table, str) or not table or "{" in table:  # another task's result is known later
        return given
    asset = Asset(asset_uri(table))
    return given if asset in given else [*given, asset]


def _listed(outlets: object) -> list[Any]:
    return list(outlets) if isinstance(outlets, Collection) and not isinstance(outlets, str) else []


def asset_facts(report: RefreshReport) -> dict[str, Any]:
    """Return the facts of a table's asset event: the refresh, the table's version, changed rows, checks."""
    names = ("table", "refresh_id", "main_version", "strategy", "scope", "upper", "trigger", "user")
    rows = ("rows_inserted", "rows_updated", "rows_deleted", "rows_unchanged", "rows_rejected")
    facts = {name: getattr(report, name) for name in (*names, *rows)}
    broken = {check.name: check.num_failed for check in report.checks if not check.is_passed}
    return facts | {"checks": len(report.checks), "checks_failed": broken}


_HANDED_ON = {
    Phase.REFRESHING: "begun; the next task reads the source",
    Phase.MERGING: "the source is read and compared; the next task publishes",
    Phase.CLEANUP: "published (the next task removes working files)",
}


def summary(report: RefreshReport) -> str:
    """Return a refresh's outcome, rows and duration as sentences, for the task's log."""
    is_handed_on = report.outcome is Outcome.RUNNING and report.hold is None
    what = _HANDED_ON.get(report.phase, outcome_text(report)) if is_handed_on else outcome_text(report)
    rows = (
        f": {report.rows_inserted:,} rows inserted, {report.rows_updated:,} updated, {report.rows_deleted:,} deleted, "
        f"{report.rows_unchanged:,} unchanged"
        if report.outcome in (Outcome.PUBLISHED, Outcome.DIFFERENCES) or report.phase is Phase.CLEANUP
        else ""
    )
    rejected = f", {report.rows_rejected:,} of the source's records rejected" if report.rows_rejected else ""
    written = f"; {size(report.bytes_main)} written" if report.bytes_main else ""
    took = f". It took {seconds_text(report)}" if report.finished_at else ""
    why = f" Why: {report.reason}." if report.reason else ""
    which = f"Refresh {report.refresh_id}."
    return f"{report.table}: {what}{rows}{rejected}{written}{took}.{why} {which}"


def _duration(value: timedelta | float) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(seconds=value)

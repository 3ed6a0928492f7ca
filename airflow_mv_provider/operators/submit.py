"""Refresh a table on a cluster: one task that submits its Spark driver through the apache-spark provider.

    worker                                     driver (spark_apps/refresh_table.py)
    registers the definition
    submits, with its own key  ────────────▶   acquires the table under that key, renews its lease
    dies                                       continues
    retries: the lease is live     ◀───────    in the metadata database
    watches until the driver ends              ends; its report is in the database
    pushes the refresh id

Therefore no try submits a second driver while one works (`core.submission` decides). If a second driver is submitted
before the first has acquired the table, both have the same key: the later one takes over the refresh under a new epoch,
and the fence stops the other. In YARN's and Kubernetes' cluster mode the provider also reconnects by itself.

The driver reads the database's address from its environment. In client mode, where the driver is a child of this task,
that is the task's environment. Otherwise it is the cluster's, or the file there that `database_url_file` names. The
address is never an argument or a Spark conf.

In client mode the driver is a child of this task, which holds its slot. A `deferrable` task leaves its slot while it
waits for another owner of the table, for the driver of an earlier try, and in YARN's and Kubernetes' cluster mode for
its own driver: the triggerer watches the metadata database, and the task asks the cluster what became of a driver that
does not work on the table.

What it does not do: the operator does not show the driver's log after a reconnect. Spark runs no Python driver in
cluster mode on a standalone cluster; use client mode there. In client mode, a driver that outlives its task keeps
running on its worker's machine. Killing the task that watches it does not end it; `CancelRefreshOperator` does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context

from airflow_mv_provider.compat import AirflowException
from airflow_mv_provider.core.jvm_zone import IN_UTC_AND_ENGLISH
from airflow_mv_provider.core.outcome import ENDED_WELL, RefreshReport, error_of
from airflow_mv_provider.core.rejections import in_progress, paused
from airflow_mv_provider.core.scope.request import Request, to_params
from airflow_mv_provider.core.state import Caller, RefreshState, TableRecord
from airflow_mv_provider.core.submission import Step, is_answer, next_step
from airflow_mv_provider.exceptions import (
    EngineError,
    InterruptedRefreshError,
    RefreshInProgressError,
)
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.operators.dag_run import is_over, was_cleared
from airflow_mv_provider.operators.refresh import FirstTask
from airflow_mv_provider.operators.task import within_seconds
from airflow_mv_provider.triggers.wait import NUM_ABSENT_TO_STOP

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store

_DATABASE, _DATABASE_FILE = "AMV_DATABASE_URL", "AMV_DATABASE_URL_FILE"
_MAX_PAUSE_S = 5.0  # within which a task that watches its driver notices that it was killed
_SUBMITTED_AFTER = "mv_submitted_after"
_KEYS_OF_PROVIDER = ("external_id_key", "_K8S_DRIVER_STATUS_KEY")  # as far as its version has them


@dataclass(frozen=True, slots=True)
class _Job:
    """The table, caller and request that a driver works for."""

    store: Store
    table: TableRecord
    who: Caller
    request: Request

    def newest(self) -> RefreshReport | None:
        """Return the newest refresh under the task's key."""
        refresh_id = self.store.worked_on(self.who.key)
        return None if refresh_id is None else self.store.report(refresh_id)


class SubmitRefreshTableOperator(FirstTask, SparkSubmitOperator):
    """Refresh a table with spark-submit, with all phases in the driver, and push the refresh id.

    Accepts the arguments of `RefreshTableOperator` and of `SparkSubmitOperator`: conn_id, conf, deploy_mode, ...
    Unless `conf` has them, the confs by which driver and executors are in UTC are added.

    Args:
        application: Program to submit; default this package's own.
        packages: Maven coordinates of Delta's jars; by default those of the delta-spark that is installed beside the
            task; "" if the cluster has them.
        database_url_file: File on the driver's machine with the database's address, for cluster mode.
    """

    reports_lineage = True
    template_fields: Sequence[str] = (*FirstTask.template_fields, *SparkSubmitOperator.template_fields)

    def __init__(
        self,
        *,
        application: str | None = None,
        packages: str | None = None,
        name: str = "refreshable-table",
        database_url_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(application=application or program(), packages=packages, name=name, **kwargs)
        self.database_url_file = database_url_file
        self._is_killed = False
        self._submitted_after = ""  # the refresh that was the newest under its key, and over, when it submitted

    def execute(self, context: Context) -> Any:
        """Run `MvOperator.execute`; `SparkSubmitOperator.execute` is used only to submit a driver."""
        return FirstTask.execute(self, context)

    def open_and_work(self, hook: MvHook, context: Context) -> str | None:
        """Submit a driver, or watch the one that works already; then report how the refresh has ended.

        Raises:
            RefreshInProgressError
            RefreshPausedError
            The driver's own error, with its class.
            EngineError
        """
        from airflow_mv_provider.runner.registration import register

        settings = hook.settings()
        store = self._store = hook.store()
        name, request = self.begin(partial(register, store, settings), context)
        job = _Job(store, store.table(name), self.caller(context), request)
        memory: Any = context.get("task_state_store")
        if self._answer_after is None and self._watched is None and was_cleared(context, self.retries):
            self._forget(context)  # what was submitted before the clear is no answer to it
        while True:
            state, mine = store.freed(store.state(job.table.id), is_over), job.newest()
            if mine is not None and mine.finished_at is not None and self._is_answered_by(mine):
                return self._end(mine, context)
            self._wait_if_held(job, state, context)
            submitted_after = None if memory is None else memory.get(_SUBMITTED_AFTER)
            match next_step(state, store.waiters(job.table.id), job.who.key, mine, submitted_after):
                case Step.WATCH:
                    if self.deferrable:
                        self.leave_the_worker(context, name, "driver", refresh_id=state.refresh_id)
                    self._watch(job)
                    after = job.newest()
                    if after is not None and after.finished_at is not None:
                        return self._end(after, context)
                case Step.WAIT:
                    raise _in_progress(job, settings.lease_ms)
                case Step.PAUSED:
                    raise paused(job.table, state)
                case Step.DONE if mine is not None:
                    self.log.info("The driver that an earlier try of this task submitted has finished.")
                    return self._end(mine, context)
                case _:
                    if memory is not None and self._answer_after is None:
                        memory.set(_SUBMITTED_AFTER, "" if mine is None else mine.refresh_id or "")
                    return self._submit(job, mine, hook.environment(), context)

    def _is_answered_by(self, newest: RefreshReport) -> bool:
        """True if the driver that this try has waited for in the triggerer has left this refresh."""
        is_own = self._answer_after is not None and newest.refresh_id != self._answer_after
        return is_own or newest.refresh_id == self._watched

    def submit_job(self, context: Context) -> Any:
        """Submit a driver, unless this try has submitted one already, and has waited for it in the triggerer.

        Another one is the next try's, so that `retries` end.
        """
        if self._answer_after is not None:
            raise RuntimeError("its cluster says that it has ended.")
        return super().submit_job(context)

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Wait for a driver that runs in the cluster; a deferrable task leaves its worker meanwhile.

        It has to find its driver again, so it stays where Airflow keeps nothing for it, before 3.3.
        """
        is_known = getattr(self, "durable", False) and context.get("task_state_store") is not None
        if self.deferrable and is_known and self.is_job_active(self.get_job_status(external_id, context)):
            self.leave_the_worker(context, str(self.linked_table), "driver", answer_after=self._submitted_after)
        super().poll_until_complete(external_id, context)

    def on_kill(self) -> None:
        """Stop the driver within the few seconds before SIGKILL; lease and fence protect the table if it survives."""
        self._is_killed = True
        if self._hook is not None:
            within_seconds(self._hook.on_kill)

    def _submit(
        self, job: _Job, before: RefreshReport | None, variables: Mapping[str, str], context: Context
    ) -> str | None:
        """Submit a driver and wait for its end.

        before : the newest refresh under the task's key
        """
        was_ended = before is not None and before.finished_at is not None
        known = (before.refresh_id or "") if before is not None and was_ended else ""
        self._submitted_after = known if self._answer_after is None else self._answer_after
        caller = {"key": job.who.key, "trigger": job.who.trigger, "user": job.who.user}
        asked = {name: value for name, value in to_params(job.request).items() if value}
        self.application_args = [job.table.name, "--wait", "0", "--request", json.dumps(asked)]
        self.application_args += ["--caller", json.dumps(caller)]
        if self.database_url_file is not None:  # its path is no secret: Spark confs pass it to a remote driver
            public = {name: value for name, value in variables.items() if name not in (_DATABASE, "AMV_SPARK_REMOTE")}
            self.env_vars = public | {_DATABASE_FILE: self.database_url_file} | (self.env_vars or {})
            variables = public
        if self.packages is None:
            from airflow_mv_provider.spark.packages import delta_packages

            self.packages = delta_packages()
        self.conf: dict[Any, Any] = IN_UTC_AND_ENGLISH | (self.conf or {})
        failure: Exception | None = None
        try:
            with _environment(variables):
                SparkSubmitOperator.execute(self, context)
        except (AirflowException, RuntimeError) as error:  # the program's exit code, or the cluster's error
            failure = error
        after, state = job.newest(), job.store.state(job.table.id)
        self._wait_if_held(job, state, context)
        if after is not None and is_answer(before, after):
            if after.finished_at is None:
                raise EngineError(job.table.name, f"the driver has died: {_first_line(failure)}") from failure
            return self._end(after, context)
        if state.is_lease_live and state.owner_key != job.who.key:
            raise _in_progress(job) from failure
        raise EngineError(
            job.table.name,
            f"the driver ended before a refresh began: {_first_line(failure)}",
            hint="See the driver's log, above or on the cluster.",
        ) from failure

    def _wait_if_held(self, job: _Job, state: RefreshState, context: Context) -> None:
        """Wait if this task's own refresh awaits approval: its driver has ended, and another one publishes it then.

        raises : RefreshHeldError, TaskDeferred
        """
        if not state.is_held or state.owner_key != job.who.key:
            return
        self._forget(context)
        hold = job.store.last_hold(state.refresh_id) if state.refresh_id else None
        if self.deferrable and hold is not None:
            self.leave_the_worker(context, job.table.name, "decision", hold.id)
        raise in_progress(job.table, state)

    def _watch(self, job: _Job) -> None:
        """Wait while the driver of an earlier try works.

        raises : InterruptedRefreshError, when this task is killed while it waits
        """
        logged, num_absent, pause_s = "", 0, min(self.poll_interval, _MAX_PAUSE_S)
        while num_absent < NUM_ABSENT_TO_STOP:
            if self._is_killed:
                raise InterruptedRefreshError(job.table.name, "the task was killed.")
            state = job.store.state(job.table.id)
            if state.owner_key != job.who.key or not state.is_lease_live:
                num_absent += 1
                time.sleep(pause_s)
                continue
            num_absent = 0
            now = f"{state.holder} works on refresh {state.refresh_id}: {state.phase}"
            if now != logged:
                self.log.info("Submitted by an earlier try: %s", now)
            logged = now
            time.sleep(pause_s)

    def _end(self, report: RefreshReport, context: Context) -> str | None:
        """Report how the refresh has ended, and raise its driver's error."""
        self.log_refresh(report)
        self._forget(context)  # otherwise this task, when a user clears it, would report that it is done already
        if report.error is not None and report.outcome not in ENDED_WELL:
            raise error_of(report.error)
        self.announce(report, context)
        return report.refresh_id

    def _forget(self, context: Context) -> None:
        """Forget that a driver was submitted."""
        memory: Any = context.get("task_state_store")
        if memory is not None:
            for key in (_SUBMITTED_AFTER, *(getattr(self, name, None) for name in _KEYS_OF_PROVIDER)):
                if key is not None:
                    memory.delete(key)


def program() -> str:
    """Return the path of the program to submit: in the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "spark_apps" / "refresh_table.py"
    return str(installed if installed.exists() else package.parent / "spark_apps" / "refresh_table.py")


def _in_progress(job: _Job, lease_ms: int | None = None) -> RefreshInProgressError:
    """Take a ticket in the table's queue, if it has one; return the error that names the owner or the first waiter.

    lease_ms : None to leave the queue as it is
    """
    if lease_ms is not None and job.table.definition.concurrency != "reject":
        job.store.queue.take_ticket(job.table.id, job.who, patience_ms=lease_ms + job.who.away_ms)
    state, queue = job.store.state(job.table.id), job.store.waiters(job.table.id)
    keys = [waiter.key for waiter in queue]
    place = f"; number {keys.index(job.who.key) + 1} in the queue" if job.who.key in keys else ""
    first = next((waiter.process for waiter in queue if waiter.key != job.who.key), "another caller")
    who = f"{state.holder} is refreshing it" if state.refresh_id else f"{first} is first in its queue"
    return RefreshInProgressError(job.table.name, f"{who}{place}.", owner=state.owner_process, epoch=state.epoch)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block, so that a child process (driver or submitter) finds the database."""
    # The driver needs the interpreter that has this package; executors run no Python.
    added = {"PYSPARK_DRIVER_PYTHON": sys.executable} | dict(variables)
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(
        {name: value for name, value in added.items() if name != "PYSPARK_DRIVER_PYTHON" or not before[name]}
    )
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _first_line(error: Exception | None) -> str:
    """Return the first line of an error, without the command that the provider quotes in it."""
    if error is None:
        return "the driver ended without an error."
    _, found, rest = str(error).partition("Error code is: ")
    return f"exit code {rest.splitlines()[0]}" if found else (str(error).strip().splitlines() or [""])[0][:300]

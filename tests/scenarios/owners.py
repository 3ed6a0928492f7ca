"""Owners of refreshes that are processes of their own, each with a group of its own to be killed or stopped as one.

    Owner([Job(lake, "publish.after"), ...])               a driver: one JVM, a refresh of each lake in a thread
    Owner([Job(lake, "publish.after")], remote="sc://...")  a task: a client of a server, which outlives it

Every refresh stands still at its point until the process is killed, or told to go on. A fork server has imported what
a process needs: a client costs a fork and a second of work, not the start of an interpreter and a JVM.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PATIENCE_S = 600
_INSIDE = "publish.inside"  # the MERGE has written its files and has not committed them
_ROOT = str(Path(__file__).parents[2])
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["__main__", "airflow_mv_provider.cli.main", "airflow_mv_provider.runner.refresh", "pyspark.sql.connect.session"]
)


@dataclass(frozen=True, slots=True)
class Job:
    """A refresh of a lake's `orders`, or a decision about the one that is held, and where it shall stand still."""

    database: str
    warehouse: str
    point: str
    decision: str | None = None


class Owner:
    """One process at work on its jobs; killed at the end of the `with` if it is still there."""

    def __init__(self, jobs: Sequence[Job], *, remote: str | None = None, table: str = "orders") -> None:
        if _ROOT not in sys.path:
            sys.path.append(_ROOT)  # the fork server's processes look there for this module
        self._jobs = jobs
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(jobs, remote, table, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def wait_until_all_stand(self) -> None:
        """Return once every refresh stands at its point."""
        for _ in self._jobs:
            what, point, detail = self._hear()
            assert what == "stands", f"the refresh that was to stand at {point} ended: {detail}"

    def kill(self) -> None:
        """SIGKILL the process and whatever it has started."""
        if self._process.is_alive():
            os.killpg(self._process.pid or 0, signal.SIGKILL)
            self._process.join(_PATIENCE_S)

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def stop(self) -> None:
        """SIGSTOP the process and whatever it has started."""
        os.killpg(self._process.pid or 0, signal.SIGSTOP)

    def go_on(self) -> list[str]:
        """Continue it, and return what each refresh came to: an outcome, or an error's code."""
        self._pipe.send("go on")
        os.killpg(self._process.pid or 0, signal.SIGCONT)
        ended = [self._hear() for _ in self._jobs]
        assert all(what == "ended" for what, _, _ in ended)
        return [detail for _, _, detail in ended]

    def _hear(self) -> tuple[str, str, str]:
        assert self._pipe.poll(_PATIENCE_S), f"nothing heard of {self._process.pid} for {_PATIENCE_S} s"
        found: tuple[str, str, str] = self._pipe.recv()
        return found


def be_amv(arguments: Sequence[str], environment: dict[str, str], said: str, dies_at: str | None = None) -> None:
    """Be the program `amv`, in a process of the fork server.

    said    : the file that gets its stdout and stderr
    dies_at : the durable write at which it kills itself
    """
    os.environ |= environment
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    from airflow_mv_provider.cli.main import main
    from airflow_mv_provider.runner.crash_points import arm, kill_at

    if dies_at is not None:
        arm(kill_at(dies_at))
    main(list(arguments))


def _work(jobs: Sequence[Job], remote: str | None, table: str, pipe: Connection) -> None:
    """Refresh each job's lake in a thread of its own; runs in the process that is to die."""
    os.setsid()
    from airflow_mv_provider.core.approval.hold import Decision
    from airflow_mv_provider.core.state import Caller
    from airflow_mv_provider.exceptions import MvError
    from airflow_mv_provider.metadata.database import open_engine
    from airflow_mv_provider.metadata.store import Store
    from airflow_mv_provider.runner import crash_points
    from airflow_mv_provider.runner.refresh import Refresher
    from airflow_mv_provider.runner.settings import Settings

    session = None if remote else _local_session()
    stand = _Stands(pipe, session)
    crash_points.arm(stand.reach)

    def refresh(job: Job) -> None:
        from airflow_mv_provider.spark.session import connect_session

        stand.expect(job.point)
        settings = Settings(job.database, job.warehouse, lease_ms=3_600_000)
        runner = Refresher(
            Store(open_engine(job.database)), settings, lambda: session if remote is None else connect_session(remote)
        )
        try:
            caller = Caller(f"owner:{os.getpid()}", f"host:{os.getpid()}")
            if job.decision is None:
                ended = str(runner.refresh(table, caller).outcome)
            else:
                ended = str(runner.decide(table, Decision(job.decision), caller).outcome)
        except MvError as error:
            ended = error.code
        except BaseException as error:
            ended = repr(error)
        stand.say("ended", job.point, ended)

    threads = [threading.Thread(target=refresh, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    pipe.recv()
    stand.release()
    for thread in threads:
        thread.join()


class _Stands:
    """Lets each thread stand still at the point that it was told to."""

    def __init__(self, pipe: Connection, session: Any) -> None:
        self._pipe = pipe
        self._session = session
        self._told = threading.Lock()
        self._released = threading.Event()
        self._mine = threading.local()

    def expect(self, point: str) -> None:
        """Let this thread stand at `point`."""
        name, _, nth = ("publish.before" if point == _INSIDE else point).partition(":")
        self._mine.point, self._mine.name, self._mine.left = point, name, int(nth or 1)

    def reach(self, reached: str) -> None:
        if reached != getattr(self._mine, "name", None):
            return
        self._mine.left -= 1
        if self._mine.left:
            return
        if self._mine.point == _INSIDE:
            self._hold_the_merge()
            return
        self.say("stands", self._mine.point, "")
        self._released.wait()

    def say(self, what: str, point: str, detail: str) -> None:
        with self._told:
            self._pipe.send((what, point, detail))

    def release(self) -> None:
        self._released.set()

    def _hold_the_merge(self) -> None:
        from tests.scenarios.held import MergeGate

        gate, point = MergeGate(self._session), self._mine.point
        gate.hold_this_thread()

        def tell() -> None:
            gate.wait_until_prepared(lambda: True)
            self.say("stands", point, "")

        threading.Thread(target=tell, daemon=True).start()


def _local_session() -> Any:
    from airflow_mv_provider.spark.session import local_session
    from tests import small_tables

    os.environ |= {"AMV_SPARK_MASTER": "local[2]", "PYSPARK_PYTHON": sys.executable}
    confs = {name.replace(".", "_"): value for name, value in small_tables.CONFS.items()}
    return local_session("owner", driver_memory="1g", **confs)

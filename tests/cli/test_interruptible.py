"""Ctrl-C: the work is told once and settles by itself; a second one leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.exceptions import EngineError, GuardRefusedError, InterruptedRefreshError
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings

PATIENCE_S = 30


class Stoppable(Refresher):
    """A refresher that says when it was told to stop."""

    was_told: threading.Event

    def interrupt(self) -> None:
        super().interrupt()
        self.was_told.set()

    def press_ctrl_c(self) -> None:
        """From the thread that works: the signal reaches the main thread."""
        os.kill(os.getpid(), signal.SIGINT)
        assert self.was_told.wait(PATIENCE_S)


@pytest.fixture
def refresher(tmp_path: Path) -> Stoppable:
    settings = Settings(f"sqlite:///{tmp_path / 'mv.db'}", str(tmp_path))
    refresher = Stoppable(Store(open_engine(settings.database_url)), settings)
    refresher.was_told = threading.Event()
    return refresher


@pytest.fixture(autouse=True)
def python_handles_sigint() -> Iterator[None]:
    """PySpark replaces the handler in a process whose main thread started Spark."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_the_work_returns_or_raises_comes_through(refresher):
    assert interruptibly(refresher, lambda: threading.current_thread().name) == "mv-work"

    def refused() -> None:
        raise GuardRefusedError("orders", "too many", guard="max_deleted_fraction")

    with pytest.raises(GuardRefusedError):
        interruptibly(refresher, refused)


@pytest.mark.parametrize("said_by_spark", [EngineError("orders", "Spark failed: cancelled."), RuntimeError("gateway")])
def test_what_spark_says_of_an_interrupt_is_an_interrupt(refresher, said_by_spark):
    def work() -> None:
        refresher.press_ctrl_c()
        raise said_by_spark

    with pytest.raises(InterruptedRefreshError) as caught:
        interruptibly(refresher, work)

    assert caught.value.__cause__ is said_by_spark


def test_an_interrupt_does_not_hide_what_was_wrong_before(refresher):
    def work() -> None:
        refresher.press_ctrl_c()
        raise GuardRefusedError("orders", "too many", guard="max_deleted_fraction")

    with pytest.raises(GuardRefusedError):
        interruptibly(refresher, work)


def test_work_that_was_done_already_is_done(refresher):
    def work() -> str:
        refresher.press_ctrl_c()
        return "published"

    assert interruptibly(refresher, work) == "published"


@pytest.mark.in_test_all
def test_second_ctrl_c_leaves_at_once(refresher):
    is_over = threading.Event()

    def work() -> None:
        refresher.press_ctrl_c()
        os.kill(os.getpid(), signal.SIGINT)
        is_over.wait(PATIENCE_S)

    with pytest.raises(KeyboardInterrupt):
        interruptibly(refresher, work)
    is_over.set()

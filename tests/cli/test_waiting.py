"""Waiting in the foreground: whoever is at work, time and Ctrl-C are the test's own, and nothing sleeps."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.cli.waiting import TRY_S, in_turn
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import InterruptedRefreshError, RefreshInProgressError, RefreshPausedError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.runner.watching import Progress
from tests.metadata.rows import acquired, registered

ME = Caller("me", "host:me")


@pytest.fixture
def store(tmp_path: Path, clock) -> Iterator[Store]:
    engine = open_engine(f"sqlite:///{tmp_path / 'mv.db'}")
    migrations.migrate(engine)
    yield Store(engine, clock.now)
    engine.dispose()


class Patience:
    """Time that passes only while somebody waits; `then` happens in each wait."""

    def __init__(self, then: Callable[[], bool | None] = lambda: None) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []
        self._then = then

    def pause(self, seconds: float) -> bool:
        self.now_s += seconds
        self.waits.append(seconds)
        return bool(self._then())

    def clock(self) -> float:
        return self.now_s


@pytest.fixture
def told() -> list[Progress]:
    return []


class LetIn(Exception):
    """Raised in the place of a Spark session."""


@pytest.fixture
def runner(store, tmp_path, told) -> Refresher:
    def no_spark() -> Any:
        raise LetIn

    return Refresher(store, Settings(str(store.engine.url), str(tmp_path)), no_spark, told.append)


@pytest.fixture
def waiting(runner) -> Callable[..., object]:
    """Begin a refresh of `orders` as `ME`, waiting for as long as `patience` has it."""

    def wait(patience: Patience, wait_s: float = 10.0) -> object:
        return in_turn(
            runner, ME, lambda: runner.begin("orders", ME), wait_s=wait_s, pause=patience.pause, clock=patience.clock
        )

    return wait


def queue(store: Store) -> list[str]:
    return [waiter.key for waiter in store.waiters(store.table("orders").id)]


def test_policy_to_reject_does_not_wait(store, waiting):
    acquired(store, registered(store), "owner")
    patience = Patience()

    with pytest.raises(RefreshInProgressError, match=r"host:owner is refreshing it since .* UTC"):
        waiting(patience)

    assert (patience.waits, queue(store)) == ([], [])


def test_waiting_ends_with_the_time_and_the_ticket_is_given_back(store, waiting, told):
    acquired(store, registered(store, concurrency="queue"), "owner")
    seen = []
    patience = Patience(lambda: seen.append(queue(store)))

    with pytest.raises(RefreshInProgressError, match=r"number 1 in the queue\. Waited 3 s\.") as caught:
        waiting(patience, 2.5 + 0.5)

    assert patience.waits == [TRY_S] * 3
    assert seen == [["me"]] * 3
    assert queue(store) == []
    assert caught.value.facts["owner"] == "host:owner"
    assert len(told) == 1, "a line each second would say nothing new"
    assert "host:owner is refreshing it since" in told[0].message


def test_who_waits_is_told_when_its_place_changes(store, waiting, told):
    table = registered(store, concurrency="queue")
    acquired(store, table, "owner")
    store.queue.take_ticket(table.id, Caller("first", "host:first"), patience_ms=60_000)
    patience = Patience(lambda: store.queue.leave("first"))

    with pytest.raises(RefreshInProgressError):
        waiting(patience)

    assert [progress.message.rpartition("; ")[2] for progress in told] == [
        "number 2 in the queue.",
        "number 1 in the queue.",
    ]


def test_who_is_first_is_let_in_when_the_table_is_free(store, waiting):
    """Let in is who gets as far as to start Spark, which this test does not have."""
    own = acquired(store, registered(store, concurrency="queue"), "owner")
    patience = Patience(lambda: store.abandon(own, Outcome.FAILED, None, {}))

    with pytest.raises(LetIn):
        waiting(patience)

    assert patience.waits == [TRY_S]


def test_pause_of_the_table_ends_the_waiting(store, waiting):
    table = registered(store, concurrency="queue")
    acquired(store, table, "owner")

    with pytest.raises(RefreshPausedError, match="paused by ann since"):
        waiting(Patience(lambda: store.pause(table.id, "ann") and None))

    assert queue(store) == []


def test_ctrl_c_gives_the_ticket_back(store, runner):
    acquired(store, registered(store, concurrency="queue"), "owner")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press_ctrl_c(seconds: float) -> bool:
        assert queue(store) == ["me"]
        os.kill(os.getpid(), signal.SIGINT)
        return runner.is_interrupted_within(30)

    try:
        with pytest.raises(InterruptedRefreshError, match="while it waited"):
            interruptibly(
                runner,
                lambda: in_turn(runner, ME, lambda: runner.begin("orders", ME), wait_s=60, pause=press_ctrl_c),
            )
    finally:
        signal.signal(signal.SIGINT, before)

    assert queue(store) == []


def test_ticket_is_kept_for_as_long_as_its_holder_may_be_away(store, runner, clock):
    table = registered(store, concurrency="queue")
    own = acquired(store, table, "owner")
    seldom = Caller("seldom", "host:seldom", away_ms=600_000)
    with pytest.raises(RefreshInProgressError):
        runner.begin("orders", seldom)
    with pytest.raises(RefreshInProgressError):
        runner.begin("orders", ME)

    clock.pass_ms(600_000)
    store.renew(own, lease_ms=600_000)

    assert queue(store) == ["seldom"]

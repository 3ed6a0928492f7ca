"""Races of real processes for one database, for `test_races` and `benchmarks/ownership.py`.

Importable by another process, and free of pytest.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import MvError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from tests.metadata.rows import LEASE_MS, a_caller, a_refresh, registered

ROUNDS = 60
PATIENCE_S = 120
# Its server has imported what a racer needs: a racer costs a fork, not seconds of imports.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["airflow_mv_provider.metadata.migrations", "airflow_mv_provider.metadata.store"])


def race(runner: Callable[..., None], address: str, *keys: str, rounds: int = ROUNDS) -> dict[str, Any]:
    """Run one of the functions below in several processes at once and return each one's answer."""
    barrier, answers = _CONTEXT.Barrier(len(keys), timeout=PATIENCE_S), _CONTEXT.Queue()
    processes = [_CONTEXT.Process(target=runner, args=(address, key, rounds, barrier, answers)) for key in keys]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=PATIENCE_S + rounds) for _ in processes)
    for process in processes:
        process.join(PATIENCE_S)
    assert [process.exitcode for process in processes] == [0] * len(keys)
    return found


def race_to_acquire(address: str, key: str, rounds: int, barrier: Any, answers: Any) -> None:
    """Try to take the table in each round, all at once; say in which epochs it was ours, and how long each try took."""
    engine = open_engine(address)
    store = Store(engine)
    table = store.table("orders")
    won, seconds = [], []
    for _ in range(rounds):
        state = store.state(table.id)
        barrier.wait()
        begun = time.perf_counter()
        own = store.acquire(state, a_refresh(table), a_caller(key), epoch=state.epoch + 1, lease_ms=LEASE_MS)
        seconds.append(time.perf_counter() - begun)
        barrier.wait()
        if own:
            won.append(own.epoch)
            store.abandon(own, Outcome.FAILED, None, {})
        barrier.wait()
    engine.dispose()
    answers.put((key, (won, seconds)))


def race_to_take_over(address: str, key: str, rounds: int, barrier: Any, answers: Any) -> None:
    """Try to take a dead owner's refresh in each round, all at once; the winner dies for the next round."""
    engine = open_engine(address)
    store = Store(engine)
    table = store.table("orders")
    won = []
    for _ in range(rounds):
        state = store.state(table.id)
        barrier.wait()
        own = store.hand_over(state, a_caller(key), epoch=state.epoch + 1, lease_ms=LEASE_MS)
        barrier.wait()
        if own:
            won.append(own.epoch)
            store.park(own, until_ms=0)
        barrier.wait()
    engine.dispose()
    answers.put((key, won))


def race_in_the_queue(address: str, key: str, rounds: int, barrier: Any, answers: Any) -> None:
    """Take a ticket in each round, all at once, and try until admitted; say when, among all, one stood and was served.

    Both are told by the database: a ticket's number, and the epoch under which the table was taken.
    """
    engine = open_engine(address)
    store = Store(engine)
    table = store.table("orders")
    served = []
    for _ in range(rounds):
        caller, own = a_caller(key), None
        barrier.wait()
        store.queue.take_ticket(table.id, caller, patience_ms=LEASE_MS)
        number = next(w.number for w in store.waiters(table.id) if w.key == key)
        while own is None:
            state = store.state(table.id)
            if state.phase is Phase.NORMAL:  # whoever is first: all try at once, and only one is let in
                own = store.acquire(state, a_refresh(table), caller, epoch=state.epoch + 1, lease_ms=LEASE_MS)
        served.append((number, own.epoch))
        store.abandon(own, Outcome.FAILED, None, {})
    engine.dispose()
    answers.put((key, served))


def start_and_write(address: str, key: str, rounds: int, barrier: Any, answers: Any) -> None:
    """Open the database in the same moment as others, bring it up to date, and write as fast as it goes."""
    problems = []
    barrier.wait()
    try:
        engine = open_engine(address)
        migrations.migrate(engine)
        store = Store(engine)
        table = registered(store, f"t{key}")
        for _ in range(rounds):
            state = store.state(table.id)
            own = store.acquire(state, a_refresh(table), a_caller(key), epoch=state.epoch + 1, lease_ms=LEASE_MS)
            if own is None or not store.renew(own, lease_ms=LEASE_MS).is_owner:
                problems.append("lost a table that nobody else wants")
            else:
                store.abandon(own, Outcome.FAILED, None, {})
        engine.dispose()
    except MvError as error:
        problems.append(f"{error}: {error.__cause__}")
    answers.put((key, problems))

"""Tasks that wait in the triggerer: what their trigger waits for, and that they go on from there."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.phase import Phase
from tests.metadata.rows import a_caller, acquired, walk
from tests.provider.dag_texts import one_task_dag
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def trigger(home, airflow):
    """Make triggers for a caller that waits for `orders`; they look without a pause."""
    from airflow_mv_provider.triggers.wait import TableTrigger

    home.apply(concurrency="queue")

    def make(awaits="turn", hold_id=None, **more):
        made = TableTrigger("orders", "me", awaits, hold_id, poll_interval=0, **more)
        _, arguments = made.serialize()
        return TableTrigger(**arguments)  # as a triggerer makes it, also after a restart

    return make


def fires(trigger, after=lambda look: None) -> int:
    """Run a trigger until it fires; return the number of its looks.

    after : called after each look, with its number, so that it can change what the next one sees
    """

    async def looks():
        num_looks, look = 0, trigger._waits_behind

        def watched(store):
            nonlocal num_looks
            found = look(store)
            num_looks += 1
            after(num_looks)
            return found

        trigger._waits_behind = watched
        async with asyncio.timeout(60):
            async for _ in trigger.run():
                return num_looks

    return asyncio.run(looks())


def take(home, key="other"):
    return acquired(home.store, home.store.table("orders"), key)


def test_it_fires_when_the_table_is_free(home, trigger):
    own = take(home)

    assert fires(trigger(), lambda look: look == 3 and walk(home.store, own, Phase.NORMAL)) == 4


def test_it_fires_when_the_owner_has_died(home, trigger):
    take(home)

    def lease_ends(look):
        if look == 2:
            with home.store.engine.begin() as db:
                db.exec_driver_sql("UPDATE refresh_state SET lease_expires_ms = 0")

    assert fires(trigger(), lease_ends) == 3


def test_it_keeps_the_callers_place_and_notices_that_it_is_lost(home, trigger):
    take(home)
    table = home.store.table("orders").id
    home.store.queue.take_ticket(table, a_caller("me"), patience_ms=60_000)
    home.store.queue.take_ticket(table, a_caller("later"), patience_ms=10**9)
    seen = []

    def watch(look):
        seen.append([(waiter.key, waiter.process) for waiter in home.store.waiters(table)])
        if look == 3:
            home.store.queue.leave("me")

    assert fires(trigger(is_in_queue=True), watch) == 4
    assert seen[:3] == [[("me", "Airflow's triggerer"), ("later", "host:later")]] * 3
    assert [waiter.key for waiter in home.store.waiters(table)] == ["later"], "the task takes a new ticket, not this"


def test_it_fires_when_the_task_has_waited_long_enough(home, trigger):
    take(home)

    assert fires(trigger(until=(datetime.now(UTC) - timedelta(seconds=1)).isoformat())) == 1


def test_it_waits_for_a_driver_that_works(home, trigger):
    own = take(home, "me")

    found = fires(trigger("driver"), lambda look: look == 3 and walk(home.store, own, Phase.NORMAL))

    assert found == 5, "seen twice: a driver that has ended a dead owner's refresh begins its own"


def test_it_waits_for_a_decision(home, trigger):
    own = take(home, "me")
    walk(home.store, own, Phase.MERGING)
    hold = home.store.holds.begin(own, 0, "too many", ["max_deleted_fraction"], hold_ms=60_000)

    def decide(look):
        if look == 3:
            home.store.holds.decide(own.table_id, Decision.APPROVED, "ann", "", hold.id)

    assert fires(trigger("decision", hold.id), decide) == 4


def test_it_waits_for_a_database_that_cannot_be_reached_and_fires_for_a_table_that_is_gone(home, trigger, monkeypatch):
    take(home)
    waiting = trigger()
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", "postgresql+psycopg://mv@127.0.0.1:1/mv")
    opened = 0
    real = waiting._open

    async def open_():
        nonlocal opened
        opened += 1
        if opened == 3:
            monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", home.settings.database_url)
        return await real()

    waiting._open = open_
    waiting.table = "dropped"

    assert fires(waiting) == 0
    assert opened == 3


def test_a_deferrable_task_waits_without_a_worker_and_goes_on(home, airflow):
    home.apply(concurrency="queue")
    other = home.caller()
    begun = home.refresher().begin("orders", other)
    dag = airflow.load("single", one_task_dag("table='orders', poll_interval=0.01, deferrable=True"))
    table = home.store.table("orders").id

    def the_other_ends():
        is_renewed = lambda: [w.process for w in home.store.waiters(table)] == ["Airflow's triggerer"]  # noqa: E731
        wait_until(is_renewed, 60, "the trigger looks")
        home.refresher().resume(begun.own.refresh_id, other, until=Phase.NORMAL)

    with ThreadPoolExecutor() as threads:
        ending = threads.submit(the_other_ends)
        run = airflow.run(dag)
        ending.result()

    assert run.states == {"refresh": "success"}
    assert (run.tries, run.reschedules, run.errors) == ({"refresh": 1}, {"refresh": 0}, {})
    assert home.rows("orders") == home.rows("raw/orders")
    assert home.store.waiters(home.store.table("orders").id) == ()

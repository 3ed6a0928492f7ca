"""Tasks of a table that somebody else refreshes: they wait, join, or fail."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import RefreshInProgressError
from tests.provider.dag_texts import ALL_DONE, group_dag, history, one_task_dag

pytestmark = pytest.mark.slow


def test_a_lost_race_waits_without_a_retry_and_goes_on_when_the_other_has_ended(home, airflow):
    home.apply()
    other = home.caller()
    begun = home.refresher().begin("orders", other)
    dag = airflow.load("single", one_task_dag("table='orders', poll_interval=0"))

    def the_other_ends(context):
        if context["task_reschedule_count"] == 2:
            home.refresher().resume(begun.own.refresh_id, other, until=Phase.NORMAL)

    dag.get_task("refresh").on_execute_callback = [the_other_ends]
    run = airflow.run(dag)

    assert run.states == {"refresh": "success"}
    assert (run.tries, run.reschedules, run.errors) == ({"refresh": 1}, {"refresh": 2}, {})
    assert home.rows("orders") == home.rows("raw/orders")
    assert home.store.report(begun.own.refresh_id).outcome is Outcome.PUBLISHED


def test_who_has_waited_too_long_fails_and_says_for_whom(home, airflow):
    home.apply()
    home.refresher().begin("orders", home.caller())

    run = airflow.run(airflow.load("phases", group_dag(retries=2, queue_timeout=0)))

    assert run.states["g.begin"] == "failed"
    assert (run.tries["g.begin"], run.reschedules["g.begin"]) == (1, 0)
    [error] = run.errors["g.begin"]
    assert "[MV-REFRESH-IN-PROGRESS] orders: host:1 is refreshing it" in str(error)
    assert "queue_timeout 0 s" in str(error)


@pytest.mark.in_test_all
def test_a_task_that_waits_keeps_its_place_between_its_looks(home, airflow):
    home.apply(concurrency="queue")
    other = home.caller()
    begun = home.refresher().begin("orders", other)
    dag = airflow.load("single", one_task_dag("table='orders', poll_interval=0"))
    seen = []

    def watch(context):
        [*waiting] = home.store.status(home.store.table("orders")).queue
        seen.append([(w.trigger, w.user, w.waits_for) for w in waiting])
        if context["task_reschedule_count"] == 2:
            home.refresher().resume(begun.own.refresh_id, other, until=Phase.NORMAL)
            with pytest.raises(RefreshInProgressError, match=r"is first in its queue, since .* number 2 in the queue"):
                home.refresher().begin("orders", home.caller("newcomer"))
            home.store.queue.leave("newcomer")

    dag.get_task("refresh").on_execute_callback = [watch]
    home.write("SELECT id, concat('w', id) AS v FROM range(1, 9)")
    run = airflow.run(dag)

    assert run.states == {"refresh": "success"}
    assert (run.tries, run.reschedules) == ({"refresh": 1}, {"refresh": 2})
    assert seen == [[], *[[("manual", "dag_test", "host:1")]] * 2]
    assert home.rows("orders") == home.rows("raw/orders")
    assert home.store.waiters(home.store.table("orders").id) == ()
    assert len(history(home)) == 2, "waiting leaves no history"


def test_a_task_that_has_waited_too_long_leaves_the_queue(home, airflow):
    home.apply(concurrency="queue")
    home.refresher().begin("orders", home.caller())

    run = airflow.run(airflow.load("phases", group_dag(retries=2, queue_timeout=0)))

    assert (run.states["g.begin"], run.tries["g.begin"]) == ("failed", 1)
    assert "number 1 in the queue" in str(run.errors["g.begin"][0])
    assert home.store.waiters(home.store.table("orders").id) == ()


@pytest.mark.in_test_all
def test_tasks_that_join_get_the_report_of_the_refresh_under_way(home, airflow):
    home.apply(concurrency="join")
    other = home.caller()
    begun = home.refresher().begin("orders", other)
    dag = airflow.load("phases", group_dag(poll_interval=0))

    def the_other_ends(context):
        if context["task_reschedule_count"] == 1:
            home.refresher().resume(begun.own.refresh_id, other, until=Phase.NORMAL)

    dag.get_task("g.begin").on_execute_callback = [the_other_ends]
    run = airflow.run(dag)

    assert run.states == ALL_DONE
    assert run.refresh_id == begun.own.refresh_id
    assert [r.refresh_id for r in history(home)] == [begun.own.refresh_id]
    assert home.rows("orders") == home.rows("raw/orders")


def test_a_paused_table_fails_its_task_without_a_retry(home, airflow):
    home.apply()
    home.store.pause(home.store.table("orders").id, "ann")

    run = airflow.run(airflow.load("single", one_task_dag("table='orders', retries=2")))

    assert (run.states, run.tries) == ({"refresh": "failed"}, {"refresh": 1})
    assert "[MV-PAUSED] orders: the table has been paused by ann" in str(run.errors["refresh"][0])
    assert history(home) == ()

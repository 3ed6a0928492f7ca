"""Retries, clears and kills of tasks."""

from __future__ import annotations

import threading

import pytest

from airflow_mv_provider.asset import asset_uri
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import RefreshCancelledError, RefreshFinishedError
from tests.provider.dag_texts import ALL_DONE, NOTHING_DONE, TASKS, group_dag, history, let_leases_expire, one_task_dag

pytestmark = pytest.mark.slow


def published(airflow) -> list[str]:
    """Return the refreshes that the events of the table's asset name."""
    return [event.extra["refresh_id"] for event in airflow.events(asset_uri("orders"))]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("point", "task"),
    [
        ("acquire.after", "g.begin"),
        ("seal.after", "g.stage"),
        ("publish.before", "g.merge"),
        ("publish.after", "g.merge"),
        ("staging_delete.after", "g.cleanup"),
        ("normal.after", "g.cleanup"),  # finished, and only the task does not know
    ],
)
def test_the_retry_of_a_killed_task_goes_on_with_its_runs_refresh(home, airflow, crash_at, point, task):
    home.apply()
    crash_at(point)

    run = airflow.run(airflow.load("phases", group_dag(retries=1)))

    assert run.states == ALL_DONE
    assert run.tries == {each: 2 if each == task else 1 for each in ALL_DONE}
    assert [(r.refresh_id, r.outcome) for r in history(home)] == [(run.refresh_id, Outcome.PUBLISHED)]
    assert home.rows("orders") == home.rows("raw/orders")
    assert home.workspaces() == []


@pytest.mark.parametrize(("point", "task"), [("hand_over.before", "g.stage"), ("publish.before", "g.merge")])
def test_the_next_run_takes_over_what_a_killed_run_left(home, airflow, crash_at, point, task):
    home.apply()
    dag = airflow.load("phases", group_dag())
    crash_at(point)
    killed = airflow.run(dag)
    assert killed.states[task] == "failed"
    let_leases_expire(home)
    before = published(airflow)

    run = airflow.run(dag)

    assert run.state == "success"
    assert published(airflow)[len(before) :] == [killed.refresh_id if task == "g.merge" else run.refresh_id]
    assert home.rows("orders") == home.rows("raw/orders")
    assert (home.phase(), home.workspaces()) == ("NORMAL", [])
    outcome = home.store.report(killed.refresh_id).outcome
    if task == "g.stage":  # nothing was sealed: reset, and the new run did the work
        assert (outcome, run.states) == (Outcome.ABANDONED, ALL_DONE)
    else:  # sealed: the next run's begin finished it and found nothing left to do
        assert (outcome, run.states) == (Outcome.PUBLISHED, NOTHING_DONE)


def test_whoever_listens_hears_of_what_a_killed_task_has_published(home, airflow, crash_at):
    home.apply()
    crash_at("normal.after")  # the refresh is over, and only Airflow does not know
    before = published(airflow)

    run = airflow.run(airflow.load("single", one_task_dag("table='orders', retries=1")))

    assert (run.states, run.tries) == ({"refresh": "success"}, {"refresh": 2})
    nothing, done = history(home)
    assert (nothing.outcome, done.outcome) == (Outcome.NOTHING_TO_DO, Outcome.PUBLISHED)
    assert published(airflow)[len(before) :] == [done.refresh_id]


@pytest.mark.in_test_all
def test_clearing_a_later_task_of_a_finished_refresh_is_refused(home, airflow):
    home.apply()
    dag = airflow.load("phases", group_dag(retries=2))
    run = airflow.run(dag)
    before = home.versions()

    for task in ("g.cleanup", "g.merge", "g.stage"):  # a failed one would keep those after it from running
        cleared = airflow.clear(dag, run, task)

        assert cleared.states[task] == "failed"
        assert cleared.tries[task] == 2  # the first, and the one after the clear
        [error] = cleared.errors[task]
        assert isinstance(error.__cause__, RefreshFinishedError)
        assert "Clear the run from its first task on" in str(error)
    assert home.versions() == before


@pytest.mark.in_test_all
def test_clearing_from_the_first_task_begins_a_new_refresh(home, airflow):
    home.apply()
    dag = airflow.load("phases", group_dag())
    run = airflow.run(dag)
    home.write("SELECT id, concat('w', id) AS v FROM range(1, 9)")

    cleared = airflow.clear(dag, run, *(f"g.{task}" for task in TASKS))

    assert cleared.states == ALL_DONE
    assert cleared.refresh_id != run.refresh_id
    assert home.rows("orders") == home.rows("raw/orders")


@pytest.mark.in_test_all
def test_a_cleared_first_task_adopts_the_unfinished_refresh(home, airflow, crash_at):
    home.apply()
    dag = airflow.load("phases", group_dag())
    crash_at("seal.after")
    run = airflow.run(dag)

    cleared = airflow.clear(dag, run, *(f"g.{task}" for task in TASKS))

    assert cleared.states == ALL_DONE
    assert cleared.refresh_id == run.refresh_id
    assert home.rows("orders") == home.rows("raw/orders")


@pytest.mark.in_test_all
def test_a_killed_task_interrupts_its_spark_work(home):
    from airflow_mv_provider.operators.refresh import RefreshTableOperator

    refresher, ended = home.refresher(), threading.Event()
    session = refresher.spark

    def work():
        try:
            session.sql("SELECT sum(hash(a.id, b.id)) FROM range(1000000) a CROSS JOIN range(1000000) b").collect()
        except Exception:  # whatever Spark makes of it
            ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    tracker = session.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        assert thread.is_alive()

    operator = RefreshTableOperator(task_id="refresh", table="orders")
    operator._refresher = refresher
    operator.on_kill()

    assert ended.wait(60)
    thread.join()


@pytest.mark.in_test_all
def test_a_task_that_never_began_can_be_killed():
    from airflow_mv_provider.operators.refresh import RefreshTableOperator

    RefreshTableOperator(task_id="refresh", table="orders").on_kill()


@pytest.mark.in_test_all
@pytest.mark.parametrize(("last", "waiting", "done"), [("g.begin", "g.stage", "ended"), ("g.stage", "g.merge", "kept")])
def test_a_refresh_that_is_cancelled_between_two_tasks_fails_the_next_one_at_once(home, airflow, last, waiting, done):
    """Cancelled by a task in between, as the page does; no later task retries, or begins another refresh.

    One that is compared is ended by its next task, which sees in the table's log that nothing of it is published.
    """
    home.apply()
    text = group_dag(retries=2).replace("}):", "}) as dag:")
    between = f"""
    from airflow.sdk import task

    @task
    def cancel():
        from airflow_mv_provider.core.state import Caller
        from airflow_mv_provider.hooks.mv import MvHook

        store = MvHook().store()
        assert store.cancel(store.table("orders"), Caller("page", "host:1", "manual", "ann")) == "{done}"

    dag.get_task("{last}") >> cancel() >> dag.get_task("{waiting}")
"""

    run = airflow.run(airflow.load("phases", text + between))

    assert run.states[waiting] == "failed"
    assert run.tries[waiting] == 1
    [error] = run.errors[waiting]
    assert isinstance(error.__cause__, RefreshCancelledError)
    assert home.phase() == "NORMAL"
    assert [report.outcome for report in history(home)] == [Outcome.CANCELLED]

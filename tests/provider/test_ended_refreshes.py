"""Tasks whose refresh has ended before them, and what a run that Airflow has ended leaves behind."""

from __future__ import annotations

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import RefreshFinishedError, RefreshInProgressError, TransientError
from tests.provider.dag_texts import ALL_DONE, NOTHING_DONE, group_dag, history

pytestmark = pytest.mark.slow


def every_kind_of(error: type[Exception]) -> list[type[Exception]]:
    return [each for child in error.__subclasses__() for each in (child, *every_kind_of(child))]


def with_between(last: str, following: str, body: str) -> str:
    """A DAG of the phases with a task between two of them; it runs in this process."""
    between = f"""
    from airflow.sdk import task

    @task
    def between():
        {body}

    dag.get_task("{last}") >> between() >> dag.get_task("{following}")
"""
    return group_dag().replace("}):", "}) as dag:") + between


@pytest.mark.in_test_all
@pytest.mark.sample("g.begin-g.stage")
@pytest.mark.parametrize(
    ("last", "following"), [("g.begin", "g.stage"), ("g.stage", "g.merge"), ("g.merge", "g.cleanup")]
)
def test_source_that_changes_between_two_tasks_is_read_as_it_is_then(home, airflow, last, following):
    """What is sealed has been copied."""
    (home.root / "files").mkdir()
    file = home.root / "files/a.csv"
    file.write_text("id,v\n1,a\n2,b\n")
    home.apply(source=Files("files", format="csv", schema="id BIGINT, v STRING"))
    body = f"import pathlib; pathlib.Path({str(file)!r}).write_text('id,v\\n2,bb\\n3,c\\n')"

    run = airflow.run(airflow.load("phases", with_between(last, following, body)))

    assert {task: run.states[task] for task in ALL_DONE} == ALL_DONE
    assert set(run.tries.values()) == {1}
    is_sealed_before = last != "g.begin"
    assert home.rows("orders") == ([(1, "a"), (2, "b")] if is_sealed_before else [(2, "bb"), (3, "c")])
    found = [(report.outcome, report.error and report.error.code) for report in history(home)]
    published = (Outcome.PUBLISHED, None)
    assert found == ([published] if is_sealed_before else [published, (Outcome.FAILED, "MV-SOURCE-CHANGED")])
    assert (home.phase(), home.workspaces()) == ("NORMAL", [])


TRANSIENT = [each for each in every_kind_of(TransientError) if not issubclass(each, RefreshInProgressError)]
POINTS = ["acquire.before", "staging.before", "seal.before", "publish.before", "publish.after"]
POINTS += ["published.before", "staging_delete.before", "normal.before"]


@pytest.mark.in_test_all
@pytest.mark.sample("seal.before-SealBrokenError")
@pytest.mark.parametrize("error", TRANSIENT)
@pytest.mark.parametrize("point", POINTS)
def test_retry_after_an_error_that_is_called_transient_is_able_to_succeed(home, airflow, at_point, point, error):
    home.apply()

    def fail() -> None:
        raise error("orders", "it is made to fail.")

    at_point(point, fail)

    run = airflow.run(airflow.load("phases", group_dag(retries=1)))

    assert run.states in (ALL_DONE, ALL_DONE | dict.fromkeys(("g.merge", "g.cleanup"), "skipped"))
    assert home.rows("orders") == home.rows("raw/orders")
    home.write("SELECT id, concat('w', id) AS v FROM range(5)")
    home.refresh()
    assert home.rows("orders") == home.rows("raw/orders")
    assert (home.phase(), home.workspaces()) == ("NORMAL", []), "the first try's files go with those of the second"


@pytest.mark.in_test_all
@pytest.mark.parametrize(("last", "following"), [("g.begin", "g.stage"), ("g.stage", "g.merge")])
def test_refresh_that_somebody_has_abandoned_is_begun_again(home, airflow, last, following):
    home.apply()
    body = """
        from airflow_mv_provider.core.state import Caller
        from airflow_mv_provider.hooks.mv import MvHook

        refresher, ann = MvHook().refresher(), Caller("cli", "host:1", user="ann")
        refresher.declare_dead("orders", ann, "it hangs")
        refresher.abandon("orders", ann)
"""

    run = airflow.run(airflow.load("phases", with_between(last, following, body)))

    assert {task: run.states[task] for task in ALL_DONE} == ALL_DONE
    assert home.rows("orders") == home.rows("raw/orders")
    assert [report.outcome for report in history(home)] == [Outcome.PUBLISHED, Outcome.ABANDONED]


@pytest.mark.in_test_all
def test_task_that_finds_nothing_left_to_do_is_skipped(home, airflow):
    home.apply()
    body = """
        from airflow_mv_provider.core.state import Caller
        from airflow_mv_provider.hooks.mv import MvHook

        refresher, ann = MvHook().refresher(), Caller("cli", "host:1", user="ann")
        refresher.declare_dead("orders", ann, "it hangs")
        refresher.abandon("orders", ann)
        refresher.refresh("orders", Caller("cli2", "host:1", user="ann"))
"""

    run = airflow.run(airflow.load("phases", with_between("g.begin", "g.stage", body)))

    assert {task: run.states[task] for task in NOTHING_DONE} == NOTHING_DONE
    assert home.rows("orders") == home.rows("raw/orders")


@pytest.mark.in_test_all
def test_clearing_the_task_that_failed_reads_the_mended_source(home, airflow):
    home.apply()
    home.write("SELECT CAST(NULL AS BIGINT) AS id, 'v' AS v")
    dag = airflow.load("phases", group_dag(retries=1))
    failed = airflow.run(dag)
    assert (failed.states["g.stage"], failed.tries["g.stage"]) == ("failed", 1)
    home.write("SELECT id, concat('w', id) AS v FROM range(3)")

    cleared = airflow.clear(dag, failed, "g.stage", "g.merge", "g.cleanup")

    assert cleared.states == ALL_DONE
    assert home.rows("orders") == home.rows("raw/orders")
    assert [report.outcome for report in history(home)] == [Outcome.PUBLISHED, Outcome.FAILED]


NO_BEGIN = """
from airflow.sdk import DAG, TaskGroup, task
from airflow_mv_provider.operators.refresh import CleanupRefreshOperator, MergeRefreshOperator, StageRefreshOperator

with DAG("phases", schedule=None):
    with TaskGroup("g"):
        @task
        def begin(dag_run=None):
            from airflow_mv_provider.core.state import Caller
            from airflow_mv_provider.hooks.mv import MvHook
            if {has_begun}:
                refresher = MvHook().refresher()
                key = f"airflow:phases:g:-1:{{dag_run.run_id}}"
                refresher.park(refresher.begin("orders", Caller(key, "host:1")))

        begun = begin()
        stage = StageRefreshOperator(task_id="stage", refresh_id=begun)
        merge = MergeRefreshOperator(task_id="merge", refresh_id=begun)
        stage >> merge >> CleanupRefreshOperator(task_id="cleanup", refresh_id=begun)
"""


@pytest.mark.in_test_all
@pytest.mark.sample("True")
@pytest.mark.parametrize("has_begun", [True, False])
def test_first_task_that_was_marked_as_success_before_it_told_its_refresh(home, airflow, has_begun):
    """Its process may have begun one before it was killed for that."""
    home.apply()

    run = airflow.run(airflow.load("phases", NO_BEGIN.format(has_begun=has_begun)))

    if has_begun:
        assert run.states == ALL_DONE
        assert home.rows("orders") == home.rows("raw/orders")
    else:
        assert run.states["g.stage"] == "failed"
        [error] = run.errors["g.stage"]
        assert isinstance(error.__cause__, RefreshFinishedError)
        assert "marked as success" in str(error)


@pytest.mark.parametrize(
    ("point", "is_deleted"),
    [
        ("hand_over.before", False),
        pytest.param("hand_over.before", True, marks=pytest.mark.in_test_all),
    ],
)
def test_what_is_kept_for_a_run_that_has_ended_is_taken_over_at_once(home, airflow, crash_at, point, is_deleted):
    home.apply()
    dag = airflow.load("phases", group_dag())
    crash_at(point)
    ended = airflow.run(dag)
    assert (ended.state, ended.states["g.begin"]) == ("failed", "success")
    state = home.store.state(home.store.table("orders").id)
    assert (state.is_lease_live, state.owner_process) == (True, None)
    if is_deleted:
        airflow.delete(ended)

    run = airflow.run(dag)

    assert run.states == ALL_DONE
    assert set(run.reschedules.values()) == {0}
    assert home.rows("orders") == home.rows("raw/orders")
    [abandoned] = [report for report in history(home) if report.refresh_id == ended.refresh_id]
    assert abandoned.outcome is Outcome.ABANDONED
    assert abandoned.attempts[0].note == "its run has ended without it"


@pytest.mark.in_test_all
def test_run_that_goes_on_is_not_over(home, airflow):
    from airflow_mv_provider.operators.dag_run import is_over

    assert not is_over("cli:ann"), "only Airflow's runs can be asked about"
    home.apply()
    asked = []
    dag = airflow.load("phases", group_dag())
    dag.get_task("g.stage").on_execute_callback = [lambda context: asked.append(is_over(key_in(context)))]

    airflow.run(dag)

    assert asked == [False]


@pytest.mark.parametrize(("status", "is_said"), [(404, True), (503, False)])
def test_run_that_airflow_does_not_know_is_over(monkeypatch, status, is_said):
    """As a task's supervisor says it, which `dag.test` has none of."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from airflow_mv_provider.operators.dag_run import is_over

    def answer(*_: str) -> str:
        detail = {"status_code": status, "message": "Server returned error"}
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))

    monkeypatch.setattr(RuntimeTaskInstance, "get_dagrun_state", staticmethod(answer))

    assert is_over("airflow:phases:g:-1:manual__2026-11-28") is is_said


def key_in(context: object) -> str:
    return f"airflow:phases:g:-1:{context['ti'].run_id}"  # type: ignore[index]

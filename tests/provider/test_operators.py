"""Phase tasks and the one-task operator in real DAG runs."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import MetadataUnavailableError
from tests.conftest import a_table
from tests.provider.dag_texts import ALL_DONE, NOTHING_DONE, group_dag, history, one_task_dag

pytestmark = pytest.mark.slow


@pytest.mark.in_test_all
def test_phase_tasks_make_main_equal_to_the_source(home, airflow):
    home.apply()

    run = airflow.run(airflow.load("phases", group_dag()))

    assert run.states == ALL_DONE
    assert home.rows("orders") == home.rows("raw/orders")
    assert (home.phase(), home.workspaces()) == ("NORMAL", [])
    [report] = history(home)
    assert (report.outcome, report.trigger, report.user) == (Outcome.PUBLISHED, "manual", "dag_test")
    assert report.epoch == 4  # begin, then a hand-over for each task after it
    assert run.xcoms == {"g.begin:return_value": report.refresh_id}  # and nothing else


@pytest.mark.in_test_all
def test_a_run_with_nothing_to_do_skips_the_phases_after_begin(home, airflow):
    home.apply()
    home.refresh()
    before = home.versions()

    run = airflow.run(airflow.load("phases", group_dag()))

    assert run.states == NOTHING_DONE
    assert home.store.report(run.refresh_id).outcome is Outcome.NOTHING_TO_DO
    assert home.versions() == before


def test_one_task_does_all_phases(home, airflow):
    home.apply()

    run = airflow.run(airflow.load("single", one_task_dag()))

    assert run.states == {"refresh": "success"}
    assert home.rows("orders") == home.rows("raw/orders")
    assert run.refresh_id == history(home)[0].refresh_id


def test_a_definition_in_the_dag_is_registered_by_its_run(home, airflow):
    definition = "RefreshableTable(name='gold.orders', source=DeltaSource('raw/orders'), key=['id'])"

    run = airflow.run(airflow.load("phases", group_dag(definition)))

    assert run.states == ALL_DONE
    assert home.rows("gold/orders") == home.rows("raw/orders")


@pytest.mark.in_test_all
def test_a_definition_file_lies_beside_its_dag(home, airflow):
    from tests.airflow_home import DAGS

    tables = [a_table(name=name).to_json() for name in ("orders", "others")]
    (DAGS / "tables.yaml").write_text(json.dumps({"tables": tables}))

    run = airflow.run(airflow.load("single", one_task_dag("definition_file='tables.yaml', table='others'")))

    assert run.states == {"refresh": "success"}
    assert home.rows("others") == home.rows("raw/orders")
    assert [table.name for table in home.store.tables()] == ["others"]


@pytest.mark.in_test_all
def test_mapped_tasks_are_callers_of_their_own(home, airflow):
    home.apply()
    home.apply(name="others")
    text = one_task_dag().replace(
        "RefreshTableOperator(task_id=\"refresh\", table='orders')",
        'RefreshTableOperator.partial(task_id="refresh").expand(table=["orders", "others"])',
    )

    run = airflow.run(airflow.load("single", text))

    assert run.states == {"refresh[0]": "success", "refresh[1]": "success"}
    assert home.rows("orders") == home.rows("others") == home.rows("raw/orders")


def test_an_error_that_a_person_must_mend_uses_no_retry(home, airflow):
    run = airflow.run(airflow.load("single", one_task_dag("table='nowhere', retries=2")))

    assert (run.states, run.tries) == ({"refresh": "failed"}, {"refresh": 1})
    assert "[MV-TABLE-UNKNOWN] nowhere" in str(run.errors["refresh"][0])


def test_an_error_that_a_retry_may_mend_is_raised_as_it_is(home, airflow, monkeypatch):
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", "postgresql://mv:s3cr3t@db.invalid:5432/mv")

    run = airflow.run(airflow.load("single", one_task_dag("table='orders', retries=1")))

    assert (run.states, run.tries) == ({"refresh": "failed"}, {"refresh": 2})
    assert [type(error) for error in run.errors["refresh"]] == [MetadataUnavailableError] * 2
    assert "s3cr3t" not in str(run.errors)


def context(run_type="manual", try_number=1, max_tries=0, **facts):
    ti = {"dag_id": "d", "run_id": "scheduled__2026-01-01T00:00:00+00:00", "map_index": -1} | facts
    ti |= {"try_number": try_number, "max_tries": max_tries}
    return {"ti": SimpleNamespace(**ti), "dag_run": SimpleNamespace(run_type=run_type, triggering_user_name="anna")}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("run_type", "trigger"),
    [("scheduled", "dag"), ("manual", "manual"), ("backfill", "backfill"), ("asset_triggered", "dag")],
)
def test_a_runs_type_is_the_trigger(airflow, run_type, trigger):
    from airflow.sdk.api.datamodels._generated import DagRunType

    from airflow_mv_provider.operators.dag_run import caller

    who = caller(context(DagRunType(run_type)), scope="g")

    assert (who.trigger, who.user) == (trigger, "anna")


def test_a_key_tells_runs_maps_and_groups_apart_but_not_tries(airflow):
    from airflow_mv_provider.operators.dag_run import caller

    one = caller(context(), scope="g").key

    assert caller(context(try_number=2), scope="g").key == one
    others = [context(dag_id="e"), context(run_id="manual__1"), context(map_index=3)]
    assert one not in {caller(other, scope="g").key for other in others} | {caller(context(), scope="h").key}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("try_number", "max_tries", "expected"), [(1, 0, False), (1, 1, True), (2, 1, False)])
def test_will_retry_says_whether_the_same_key_comes_back(airflow, try_number, max_tries, expected):
    from airflow_mv_provider.operators.dag_run import caller

    assert caller(context(try_number=try_number, max_tries=max_tries), scope=None).will_retry is expected

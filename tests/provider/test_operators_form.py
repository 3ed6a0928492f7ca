"""What a run's form asks for, and what it cannot."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import GuardRefusedError
from tests.provider.dag_texts import ALL_DONE, NOTHING_DONE, group_dag, history, one_task_dag

pytestmark = pytest.mark.slow


@pytest.mark.in_test_all
def test_an_override_from_the_form_holds_for_one_run(home, airflow):
    home.apply()
    home.refresh()
    dag = airflow.load("phases", group_dag())
    home.write("SELECT id, 'x' AS v FROM range(2)")

    refused = airflow.run(dag)
    allowed = airflow.run(dag, overrides=["max_deleted_fraction"], note="cleaned up by hand")
    main = home.rows("orders")
    home.write("SELECT id, 'x' AS v FROM range(1)")
    refused_again = airflow.run(dag)

    assert refused.states["g.merge"] == refused_again.states["g.merge"] == "failed"
    assert isinstance(refused.errors["g.merge"][0].__cause__, GuardRefusedError)
    assert allowed.states == ALL_DONE
    assert len(main) == 2
    assert home.rows("orders") == main
    assert home.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_read_only_from_the_form_reports_and_writes_nothing(home, airflow):
    home.apply()
    home.refresh()
    home.write("SELECT id, concat('v', id) AS v FROM range(1, 7)")
    before = home.rows("orders"), home.versions()

    run = airflow.run(airflow.load("phases", group_dag()), read_only=True)

    assert run.states == NOTHING_DONE
    report = home.store.report(run.refresh_id)
    assert (report.outcome, report.rows_inserted, report.rows_deleted) == (Outcome.DIFFERENCES, 2, 1)
    assert (home.rows("orders"), home.versions()) == before


@pytest.mark.in_test_all
def test_force_from_the_form_compares_what_has_not_changed(home, airflow):
    home.apply()
    home.refresh()

    run = airflow.run(airflow.load("single", one_task_dag()), force=True)

    assert run.states == {"refresh": "success"}
    assert home.store.report(run.refresh_id).rows_unchanged == 5


@pytest.mark.in_test_all
def test_a_run_refreshes_the_partitions_of_its_interval(home, airflow):
    home.write("SELECT id, CAST(id AS STRING) AS p FROM range(5)")
    home.apply(partition_by=["p"], key=["id", "p"])
    written = "table='orders', options={'from': '{{ params.first }}', 'until': 3}"
    text = one_task_dag(written).replace("schedule=None", "schedule=None, params={'first': '1'}")

    run = airflow.run(airflow.load("single", text))
    refused = airflow.run(airflow.load("single", text), partitions=["4"])
    form = airflow.run(airflow.load("single", one_task_dag()), partitions=["4"])

    assert home.store.report(run.refresh_id).scope == "partitions from 1 until 3"
    assert refused.states == {"refresh": "failed"}
    assert "the task covers partitions from 1 until 3" in str(refused.errors["refresh"][0])
    assert home.store.report(form.refresh_id).scope == 'partitions ["4"]'
    assert home.rows("orders") == [(1, "1"), (2, "2"), (4, "4")]


def test_hostile_text_is_never_rendered(home, airflow, monkeypatch):
    monkeypatch.setenv("AIRFLOW_VAR_SECRET", "s3cr3t")
    home.apply()
    text = one_task_dag("table='{{ params.table }}', retries=2").replace(
        "schedule=None", "schedule=None, params={'table': 'x'}"
    )

    run = airflow.run(airflow.load("single", text), table="{{ var.value.secret }}")
    other = airflow.run(airflow.load("single", text), table="orders", overrides=["{{ var.value.secret }}"], note="x")

    confs = airflow.run(airflow.load("single", text), **{"table": "orders", "spark.jars": "{{ var.value.secret }}"})

    for refused, why in (
        (run, "[MV-TABLE-UNKNOWN] {{ var"),
        (other, "[MV-ARGUMENT] param overrides: '{{ var"),
        (confs, "[MV-ARGUMENT] params: unknown: 'spark.jars'."),
    ):
        assert (refused.states, refused.tries, refused.xcoms) == ({"refresh": "failed"}, {"refresh": 1}, {})
        assert why in str(refused.errors["refresh"][0])
        assert "s3cr3t" not in str(refused.errors)
    assert history(home) == ()


def test_a_run_cannot_lift_what_the_author_wrote(home, airflow):
    home.apply()

    dag = airflow.load("single", one_task_dag("table='orders', options={'read_only': True}"))
    run = airflow.run(dag, read_only=False)

    assert home.store.report(run.refresh_id).outcome is Outcome.DIFFERENCES
    assert not (home.root / "orders").exists()


def test_an_author_who_names_an_unknown_guard_gets_an_import_error(airflow):
    from airflow.dag_processing.dagbag import DagBag

    from tests.airflow_home import DAGS

    (DAGS / "wrong.py").write_text(group_dag(options={"overrides": ["fence"]}))

    [error] = DagBag(str(DAGS)).import_errors.values()

    assert "MV-ARGUMENT" in error

"""The sensor sees the phase, and needs no Spark for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.sensors.phase import TablePhaseSensor

pytestmark = pytest.mark.slow


def sensor(home, **arguments):
    return TablePhaseSensor(task_id="s", table="orders", **arguments)


def test_a_table_that_nobody_refreshes_is_in_normal(home, airflow):
    home.apply()

    assert sensor(home).poke({})
    assert not sensor(home, phases=["MERGING", "CLEANUP"]).poke({})


@pytest.mark.in_test_all
def test_it_waits_while_a_refresh_is_under_way(home, airflow):
    home.apply()
    caller = home.caller()
    begun = home.refresher().begin("orders", caller)
    seen = [sensor(home).poke({}), sensor(home, phases=["REFRESHING"]).poke({})]
    home.refresher().resume(begun.own.refresh_id, caller, until=Phase.MERGING)
    seen += [sensor(home).poke({}), sensor(home, phases=[Phase.MERGING]).poke({})]
    home.refresher().resume(begun.own.refresh_id, caller, until=Phase.NORMAL)

    assert seen == [False, True, False, True]
    assert sensor(home).poke({})


def test_an_unknown_phase_is_refused_where_the_dag_is_written():
    with pytest.raises(ValueError, match="DONE"):
        TablePhaseSensor(task_id="s", table="orders", phases=["DONE"])


def test_in_a_dag_it_reschedules_until_the_phase_is_there(home, airflow):
    home.apply()
    caller = home.caller()
    begun = home.refresher().begin("orders", caller)
    dag = airflow.load(
        "waits",
        """
from airflow.sdk import DAG
from airflow_mv_provider.sensors.phase import TablePhaseSensor

with DAG("waits", schedule=None):
    TablePhaseSensor(task_id="wait", table="orders", mode="reschedule", poke_interval=0)
""",
    )

    def the_refresh_ends(context):
        if context["task_reschedule_count"] == 1:
            home.refresher().resume(begun.own.refresh_id, caller, until=Phase.NORMAL)

    dag.get_task("wait").on_execute_callback = [the_refresh_ends]
    run = airflow.run(dag)

    assert (run.states, run.tries, run.reschedules) == ({"wait": "success"}, {"wait": 1}, {"wait": 1})


def test_a_table_that_nobody_knows_fails_without_a_retry(home, airflow):
    dag = airflow.load(
        "waits",
        """
from airflow.sdk import DAG
from airflow_mv_provider.sensors.phase import TablePhaseSensor

with DAG("waits", schedule=None):
    TablePhaseSensor(task_id="wait", table="nowhere", retries=3)
""",
    )

    run = airflow.run(dag)

    assert (run.states, run.tries) == ({"wait": "failed"}, {"wait": 1})
    assert "[MV-TABLE-UNKNOWN] nowhere" in str(run.errors["wait"][0])


def test_a_look_needs_no_spark(home, airflow):
    home.apply()
    code = (
        "import sys; from airflow_mv_provider.sensors.phase import TablePhaseSensor;"
        "s = TablePhaseSensor(task_id='s', table='orders');"
        "print(s.poke({}), 'pyspark' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "True False"

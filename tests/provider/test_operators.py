"""Phase tasks and the one-task operator in real DAG runs."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import (
    GuardRefusedError,
    MetadataUnavailableError,
    RefreshFinishedError,
    RefreshInProgressError,
)
from tests.conftest import a_table

pytestmark = pytest.mark.slow

TASKS = ("begin", "stage", "merge", "cleanup")
ALL_DONE = {"g.begin": "success", "g.stage": "success", "g.merge": "success", "g.cleanup": "success"}
NOTHING_DONE = {"g.begin": "success", "g.stage": "skipped", "g.merge": "skipped", "g.cleanup": "skipped"}


def group_dag(table: str = "'orders'", **arguments: object) -> str:
    given = "".join(f", {name}={value!r}" for name, value in arguments.items())
    return f"""
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.operators.groups import refresh_table_group

with DAG("phases", schedule=None, default_args={{"retry_delay": timedelta(0)}}):
    refresh_table_group({table}, group_id="g"{given})
"""


def one_task_dag(arguments: str = "table='orders'") -> str:
    return f"""
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mv_provider.operators.refresh import RefreshTableOperator

with DAG("single", schedule=None, default_args={{"retry_delay": timedelta(0)}}):
    RefreshTableOperator(task_id="refresh", {arguments})
"""


def history(home, name="orders"):
    return home.store.history(home.store.table(name).id)


def let_leases_expire(home):
    """What time does."""
    with home.store.engine.begin() as db:
        db.exec_driver_sql("UPDATE refresh_state SET lease_expires_ms = 0")


# -- what a run does -------------------------------------------------------------------------------------------------


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


# -- a table that somebody else refreshes ------------------------------------------------------------------------------


def test_a_lost_race_waits_without_a_retry_and_goes_on_when_the_other_has_ended(home, airflow):
    home.apply()
    other = home.caller()
    begun = home.refresher().begin("orders", other)
    dag = airflow.load("single", one_task_dag("table='orders', queue_interval=0"))

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


def test_a_task_that_waits_keeps_its_place_between_its_looks(home, airflow):
    home.apply(concurrency="queue")
    other = home.caller()
    begun = home.refresher().begin("orders", other)
    dag = airflow.load("single", one_task_dag("table='orders', queue_interval=0"))
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
    dag = airflow.load("phases", group_dag(queue_interval=0))

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
    assert "[MV-PAUSED] orders: it has been paused by ann" in str(run.errors["refresh"][0])
    assert history(home) == ()


# -- retries, clears and kills -----------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("point", "task"),
    [
        ("acquire.after", "g.begin"),
        ("seal.after", "g.stage"),
        ("progress.after", "g.merge"),
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


@pytest.mark.sample(1)
@pytest.mark.parametrize(("point", "task"), [("hand_over.before", "g.stage"), ("progress.after", "g.merge")])
def test_the_next_run_takes_over_what_a_killed_run_left(home, airflow, crash_at, point, task):
    home.apply()
    dag = airflow.load("phases", group_dag())
    crash_at(point)
    killed = airflow.run(dag)
    assert killed.states[task] == "failed"
    let_leases_expire(home)

    run = airflow.run(dag)

    assert run.state == "success"
    assert home.rows("orders") == home.rows("raw/orders")
    assert (home.phase(), home.workspaces()) == ("NORMAL", [])
    outcome = home.store.report(killed.refresh_id).outcome
    if task == "g.stage":  # nothing was sealed: reset, and the new run did the work
        assert (outcome, run.states) == (Outcome.ABANDONED, ALL_DONE)
    else:  # sealed: the next run's begin finished it and found nothing left to do
        assert (outcome, run.states) == (Outcome.PUBLISHED, NOTHING_DONE)


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


# -- errors ------------------------------------------------------------------------------------------------------------


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


def test_a_dag_keeps_a_database_address_to_itself(airflow):
    from airflow.serialization.serialized_objects import DagSerialization

    dag = airflow.load("phases", group_dag(database_url="postgresql://mv:s3cr3t@db.invalid/mv"))

    assert "s3cr3t" not in json.dumps(DagSerialization.to_dict(dag))


# -- what the form asks for --------------------------------------------------------------------------------------------


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


def test_a_run_refreshes_the_partitions_of_its_interval(home, airflow):
    home.write("SELECT id, CAST(id AS STRING) AS p FROM range(5)")
    home.apply(partition_by=["p"], key=["id", "p"])
    written = "table='orders', partition_from='{{ params.first }}', partition_until=3"
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
        (other, "[MV-DEFINITION] param overrides: '{{ var"),
        (confs, "[MV-DEFINITION] params: unknown: 'spark.jars'."),
    ):
        assert (refused.states, refused.tries, refused.xcoms) == ({"refresh": "failed"}, {"refresh": 1}, {})
        assert why in str(refused.errors["refresh"][0])
        assert "s3cr3t" not in str(refused.errors)
    assert history(home) == ()


def test_a_run_cannot_lift_what_the_author_wrote(home, airflow):
    home.apply()

    run = airflow.run(airflow.load("single", one_task_dag("table='orders', read_only=True")), read_only=False)

    assert home.store.report(run.refresh_id).outcome is Outcome.DIFFERENCES
    assert not (home.root / "orders").exists()


def test_an_author_who_names_an_unknown_guard_gets_an_import_error(airflow):
    from airflow.dag_processing.dagbag import DagBag

    from tests.airflow_home import DAGS

    (DAGS / "wrong.py").write_text(group_dag(overrides=["fence"]))

    [error] = DagBag(str(DAGS)).import_errors.values()

    assert "MV-DEFINITION" in error


# -- who calls ---------------------------------------------------------------------------------------------------------


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

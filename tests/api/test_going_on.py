"""A refresh's own page, how it goes on after a task has failed, and what the dialog is told before a run is started."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from airflow_mv_provider import Kafka
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.metadata.models import RefreshStateRow
from tests.api.conftest import PAGE, text_of
from tests.metadata.rows import ERROR, LEASE_MS, a_refresh, acquired, registered, walk

pytestmark = pytest.mark.slow

URL = f"{PAGE}/tables/orders"
TOPIC = Kafka("orders", conn_id="bus", envelope="upsert", schema="id BIGINT, day DATE")


@pytest.fixture
def table(store):
    return registered(store, "orders")


def failed_run(user: Any, *, state: str = "failed") -> str:
    """Return the id of a run of DAG hourly whose task for `orders` has failed, and no other."""
    from airflow.models.dagrun import DagRun  # noqa: TID251
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251
    from airflow.utils.session import create_session  # noqa: TID251

    run_id = user.post("/api/v2/dags/hourly/dagRuns", json={"logical_date": None}).json()["dag_run_id"]
    with create_session() as session:
        of_run = update(TaskInstance).where(TaskInstance.run_id == run_id)
        session.execute(of_run.values(state="success", try_number=1, pid=1, start_date=datetime.now(UTC)))
        ours = of_run.where(TaskInstance.task_id == "publish_orders")
        session.execute(ours.values(state=state, try_number=2, pid=4711))
        session.execute(update(DagRun).where(DagRun.run_id == run_id).values(state="failed"))
    return str(run_id)


def change_task(run_id: str, **values: Any) -> None:
    """Change the task for `orders` of a run, as Airflow does when it ends."""
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251
    from airflow.utils.session import create_session  # noqa: TID251

    with create_session() as session:
        ours = update(TaskInstance).where(TaskInstance.run_id == run_id, TaskInstance.task_id == "publish_orders")
        session.execute(ours.values(**values))


def begun_in(store, table, run_id: str):
    """Begin a refresh as the task for `orders` of a run does."""
    state = store.state(table.id)
    caller = Caller(f"airflow:hourly:publish_orders:-1:{run_id}", "host:4711")
    lower = state.published_upper
    refresh = a_refresh(table, lower=lower, upper=lower + 1)
    return store.acquire(state, refresh, caller, epoch=state.epoch + 1, lease_ms=LEASE_MS)


def button(page: str) -> tuple[str, str, dict[str, Any]]:
    """Return label, address and body of the one button by which a refresh goes on."""
    [(address, body, label)] = re.findall(r'data-goes-on="([^"]*)" data-body="([^"]*)"[^>]*>([^<]*)</button>', page)
    return label, address, json.loads(html.unescape(body))


def test_a_published_refresh_tells_what_happened(viewer, store, table):
    own = acquired(store, table)
    walk(store, own, Phase.NORMAL)

    shown = text_of(viewer.get(f"{URL}/refreshes/{own.refresh_id}").text)

    assert re.search(r"What happened \d{4}-\d\d-\d\d, times in UTC \d\d:\d\d:\d\d It was started", shown)
    assert "It was decided to compare the source with the table, and merge the rows that differ, because first" in shown
    assert re.search(r"It read the source\. 1\.5 s, (process|host)", shown)
    assert "Published as Delta version 6: rows 32 inserted, 1 updated, 5 deleted, 27 unchanged." in shown


def test_a_refresh_under_way_is_looked_at_until_it_has_ended(viewer, store, table, clock):
    clock.ahead_ms -= 10_000
    own = acquired(store, table)
    under_way = viewer.get(f"{URL}/refreshes/{own.refresh_id}")
    walk(store, own, Phase.NORMAL)
    ended = viewer.get(f"{URL}/refreshes/{own.refresh_id}")

    assert "It reads the source." in text_of(under_way.text)
    assert "data-live" in under_way.text
    assert "data-live" not in ended.text
    assert ("etag" in under_way.headers, "etag" in ended.headers) == (False, True)


def test_a_refresh_between_two_tasks_waits_on_its_own_page_too(viewer, store, table, clock):
    clock.ahead_ms -= 10_000
    own = acquired(store, table, key="airflow:hourly:x:-1:run")
    store.park(own, until_ms=LEASE_MS)

    page = viewer.get(f"{URL}/refreshes/{own.refresh_id}").text

    assert 'class="waiting"' in page
    assert "It reads the source" not in page


def test_a_kept_refresh_goes_on_from_its_failed_task_by_airflows_api(user, viewer, store, table):
    run_id = failed_run(user)
    own = begun_in(store, table, run_id)
    store.park(own, until_ms=LEASE_MS)

    pages = [f"{URL}", f"{URL}/now", f"{URL}/refreshes/{own.refresh_id}"]
    found = [button(user.get(path).text) for path in pages]

    assert [label for label, _, _ in found] == ["Go on from publish_orders, try 2"] * 3
    assert [address for _, address, _ in found] == [
        "../../api/v2/dags/hourly/clearTaskInstances",
        "../../api/v2/dags/hourly/clearTaskInstances",
        "../../../../api/v2/dags/hourly/clearTaskInstances",
    ]
    for path in pages:
        assert "data-goes-on" not in viewer.get(path).text
    body = found[0][2]
    assert viewer.post("/api/v2/dags/hourly/clearTaskInstances", json=body).status_code == 403
    answer = user.post("/api/v2/dags/hourly/clearTaskInstances", json=body)
    assert [(each["task_id"], each["state"]) for each in answer.json()["task_instances"]] == [("publish_orders", None)]
    assert user.get(f"/api/v2/dags/hourly/dagRuns/{run_id}").json()["state"] == "queued"
    assert "data-goes-on" not in user.get(URL).text, "it does go on"


def test_a_refresh_that_failed_begins_again_with_its_tasks(user, store, table):
    run_id = failed_run(user)
    own = begun_in(store, table, run_id)
    store.abandon(own, Outcome.FAILED, ERROR, {})

    label, _, body = button(user.get(f"{URL}/refreshes/{own.refresh_id}").text)

    assert (label, body["task_ids"], body["only_failed"]) == ("Begin again", ["publish_orders"], False)
    answer = user.post("/api/v2/dags/hourly/clearTaskInstances", json=body)
    assert [each["task_id"] for each in answer.json()["task_instances"]] == ["publish_orders"]
    walk(store, acquired(store, table), Phase.NORMAL)
    page = user.get(f"{URL}/refreshes/{own.refresh_id}").text
    assert "data-goes-on" not in page, "a newer one has come"


@pytest.mark.parametrize("state", ["running", "up_for_retry", "success"])
def test_what_goes_on_by_itself_has_no_button(user, store, table, state):
    own = begun_in(store, table, failed_run(user, state=state))
    store.park(own, until_ms=LEASE_MS)

    assert "data-goes-on" not in user.get(URL).text
    assert "data-goes-on" not in user.get(f"{URL}/refreshes/{own.refresh_id}").text


def test_an_owner_whose_task_was_killed_is_named_at_once_and_not_after_its_lease(user, store, table, clock):
    clock.ahead_ms -= 10_000
    run_id = failed_run(user)
    own = begun_in(store, table, run_id)
    assert "process 4711 on host, run" in text_of(user.get(URL).text), "its start is all that Airflow knows"
    now = datetime.now(UTC)
    change_task(run_id, start_date=now - timedelta(seconds=12), end_date=now)

    shown, page = text_of(user.get(URL).text), text_of(user.get(f"{URL}/refreshes/{own.refresh_id}").text)

    assert "Stalled: no process works on it. publish_orders, try 2 was killed, or failed. The next refresh" in shown
    assert "Works on it no process now, run" in shown
    assert "reading and comparing the source" not in shown
    assert button(user.get(URL).text)[0] == "Go on from publish_orders, try 2"
    assert "It reads the source" not in page
    assert "It was killed, or failed: the work of this time was lost." in page


@pytest.mark.parametrize(
    ("state", "number", "said"),
    [
        ("up_for_retry", 2, "Airflow starts its next try, which continues."),
        ("scheduled", 3, "publish_orders, try 3 is scheduled in Airflow and continues when it runs."),
        ("running", 3, "publish_orders, try 3 is running in Airflow and continues as soon as its Spark has started."),
    ],
)
def test_a_retry_is_named_before_it_has_taken_the_refresh_over(user, store, table, clock, state, number, said):
    clock.ahead_ms -= 10_000
    run_id = failed_run(user)
    own = begun_in(store, table, run_id)
    retried(run_id, state, number)

    shown, page = text_of(user.get(f"{URL}/now").text), user.get(f"{URL}/refreshes/{own.refresh_id}").text

    assert f"No process works on it: publish_orders, try 2 was killed, or failed. {said}" in shown
    assert "data-goes-on" not in user.get(URL).text
    [lanes] = re.findall(r'<ol class="lane-names">(.*?)</ol>', page)
    assert text_of(lanes) == "publish_orders, try 2", "not the one that comes after it"
    logs = re.findall(r'data-log="[^"]*/logs/(\d)', page)
    assert logs == ["2", "3"] if state == "running" else ["2"]


def retried(run_id: str, state: str, number: int) -> None:
    """Let the task for `orders` have been killed just now, as Airflow records it; its next try has a state."""
    from airflow.models.dagrun import DagRun  # noqa: TID251
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251
    from airflow.utils.session import create_session  # noqa: TID251

    now = datetime.now(UTC)
    with create_session() as session:
        where = (TaskInstance.run_id == run_id, TaskInstance.task_id == "publish_orders")
        task = session.scalar(select(TaskInstance).where(*where))
        task.start_date, task.end_date, task.state = now - timedelta(seconds=12), now, "up_for_retry"
        task.prepare_db_for_next_try(session)
        task.state, task.try_number = state, number
        if state == "running":
            task.start_date, task.end_date, task.pid = now, None, 4712
        session.execute(update(DagRun).where(DagRun.run_id == run_id).values(state="running"))


def test_a_dag_that_a_user_may_not_read_has_no_button_and_no_name(user, store, table, rights):
    own = begun_in(store, table, failed_run(user))
    store.park(own, until_ms=LEASE_MS)
    rights["GET"] = {"hourly"}

    page = user.get(f"{URL}/refreshes/{own.refresh_id}").text

    assert "data-goes-on" not in page
    assert "publish_orders" not in page


# -- the dialog ------------------------------------------------------------------------------------------------------


@pytest.fixture
def by_day(store):
    found = registered(store, "orders", partition_by=["day"])
    with store.engine.begin() as db:
        db.execute(update(RefreshStateRow).values(partition_type="date"))
    return found


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        ({}, None),
        ({"scope": "range", "from": "2026-01-01"}, None),
        ({"scope": "partitions", "partitions": ["2026-01-01"], "strategy": "corrections", "note": "x"}, None),
        ({"scope": "range"}, "Give from or until"),
        ({"scope": "range", "from": "2026-02-01", "until": "2026-01-01"}, "is empty"),
        ({"hold": True, "read_only": True}, "`hold` and `read_only` exclude"),
        ({"scope": "stale", "force": True}, "`stale` excludes partitions"),
        ({"strategy": "quickly"}, "Strategies: "),
        ({"note": "x" * 1001}, "at most 1000 characters"),
        ({"scope": "partitions", "partitions": [["2026-01-01", "b"]]}, "one value for each"),
        ({"spark_conf": "<script>"}, "unknown"),
    ],
    ids=str,
)
def test_the_dialog_is_told_what_the_task_would_refuse(user, store, by_day, conf, problem):
    before = store.state(by_day.id)

    found = user.post(f"{URL}/check", data={"conf": json.dumps(conf)}).json()["problems"]

    assert len(found) == (problem is not None), found
    assert (problem or "") in "".join(found)
    assert store.state(by_day.id) == before


@pytest.mark.parametrize(
    ("more", "conf", "problem"),
    [
        ({"publish": "progressive"}, {"hold": True}, "so none awaits approval"),
        ({"publish": "progressive"}, {"read_only": True}, None),
        ({}, {"reload": True}, "only a log"),
        ({"source": TOPIC}, {"reload": True}, None),
        ({"source": TOPIC}, {"scope": "range", "from": "2026-01-01"}, "read once, for all partitions"),
        ({"source": TOPIC}, {"scope": "stale"}, "read once, for all partitions"),
    ],
    ids=str,
)
def test_the_dialog_is_told_what_the_definition_of_the_table_refuses(user, store, more, conf, problem):
    registered(store, "orders", **({"partition_by": ["day"], "key": ["id", "day"]} | more))

    found = user.post(f"{URL}/check", data={"conf": json.dumps(conf)}).json()["problems"]

    assert len(found) == (problem is not None), found
    assert (problem or "") in "".join(found)


@pytest.mark.parametrize("conf", ["", "[]", "{", '"x"'])
def test_what_is_no_object_is_not_understood(user, store, table, conf):
    assert "not understood" in user.post(f"{URL}/check", data={"conf": conf}).json()["problems"][0]

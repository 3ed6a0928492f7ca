"""What the buttons of a table's page do, and who works next."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Caller
from tests.api.conftest import PAGE, text_of
from tests.metadata.rows import (
    LEASE_MS,
    RECORDED,
    a_refresh,
    acquired,
    registered,
    walk,
)

pytestmark = pytest.mark.slow

URL = f"{PAGE}/tables/orders"


@pytest.fixture
def table(store):
    return registered(store, "orders")


def act(browser, verb: str, own=None) -> str:
    """Press a button, of the page that shows the refresh of an owner; return what the page says then."""
    answer = browser.post(f"{URL}/{verb}", data={"refresh": own.refresh_id} if own else {})
    page = browser.get(f"{PAGE}/tables/{answer.headers['location'].removeprefix('../')}").text
    return re.search(r'id="message"[^>]*>([^<]*)<', page)[1]


def test_pause_and_resume(user, store, table):
    assert act(user, "pause") == "Paused: no new refresh begins."
    state = store.state(table.id)
    assert (state.paused_since_ms is not None, state.paused_by) == (True, "user")
    assert act(user, "pause") == "It was already paused."
    assert "by user" in text_of(user.get(URL).text)
    assert act(user, "resume") == "Resumed: refreshes can begin again."
    assert store.state(table.id).paused_since_ms is None
    assert act(user, "resume") == "It was not paused."


def test_cancel_asks_the_owner_to_stop(user, store, table):
    assert act(user, "cancel").startswith("Nothing to cancel")
    own = acquired(store, table)
    assert f'name="refresh" value="{own.refresh_id}"' in user.get(URL).text

    assert act(user, "cancel", own).startswith("Cancel requested: the refresh stops")

    assert store.renew(own, lease_ms=LEASE_MS).is_cancel_requested
    page = user.get(URL).text
    assert "cancelling" in text_of(page)
    assert "orders/cancel" not in page, "once is enough"


def test_cancel_is_about_the_refresh_that_was_shown(user, store, table):
    shown = acquired(store, table)
    walk(store, shown, Phase.NORMAL)
    running = acquired(store, table)

    assert act(user, "cancel", shown).startswith("Nothing was cancelled: another refresh is running")
    assert act(user, "cancel").startswith("Nothing was cancelled: another refresh is running")

    assert not store.state(table.id).is_cancel_requested
    act(user, "cancel", running)
    assert store.state(table.id).is_cancel_requested


@pytest.mark.parametrize("phase", [Phase.REFRESHING, Phase.MERGING])
def test_cancel_ends_a_refresh_that_nobody_works_on_and_that_is_not_compared(user, store, table, phase):
    own = acquired(store, table, key="airflow:hourly:refresh:-1:run")
    walk(store, own, phase)
    store.park(own, until_ms=LEASE_MS)

    assert act(user, "cancel", own) == "Cancelled: no process worked on the refresh, and it has ended."

    report = store.report(own.refresh_id)
    assert (report.outcome, report.error.code) == (Outcome.CANCELLED, "MV-CANCELLED")
    assert store.state(table.id).phase is Phase.NORMAL


def compared(store, own):
    walk(store, own, Phase.MERGING)
    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)


def test_cancel_says_who_ends_a_compared_refresh_that_nobody_works_on(user, store, table):
    own = acquired(store, table)
    compared(store, own)
    store.park(own, until_ms=LEASE_MS)
    assert act(user, "cancel", own).startswith(
        "Cancel requested. No process works on the refresh now. All of it was compared"
    )
    store.park(own, until_ms=0)
    assert act(user, "cancel", own).startswith("Cancel requested. No process works on it any more")
    assert store.state(table.id).phase is Phase.MERGING


def test_cancel_says_that_nobody_will_come_for_a_compared_refresh_whose_run_is_gone(user, store, table):
    own = acquired(store, table, key="airflow:hourly:refresh:-1:no_such_run")
    compared(store, own)
    store.park(own, until_ms=LEASE_MS)

    said = act(user, "cancel", own)

    assert "The next refresh, or `amv recover`, reads the log and ends this one" in said
    assert "A cancel is requested, and no process works on it." in text_of(user.get(URL).text)


def test_the_task_that_works_next_is_named_with_its_try_and_its_log(user, store, table):
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251
    from airflow.utils.session import create_session  # noqa: TID251

    run_id = user.post("/api/v2/dags/hourly/dagRuns", json={"logical_date": None}).json()["dag_run_id"]
    state = store.state(table.id)
    caller = Caller(f"airflow:hourly:publish_orders:-1:{run_id}", "host:4711")
    own = store.acquire(state, a_refresh(table), caller, epoch=state.epoch + 1, lease_ms=LEASE_MS)
    store.park(own, until_ms=0)
    with create_session() as session:
        of_run = update(TaskInstance).where(TaskInstance.run_id == run_id)
        session.execute(of_run.values(state="success", try_number=1, pid=1, start_date=datetime.now(UTC)))
        ours = of_run.where(TaskInstance.task_id == "publish_orders")
        session.execute(ours.values(state="running", try_number=2, pid=4711))

    page = user.get(URL).text

    assert "publish_orders, try 2 is running in Airflow and continues as soon as its Spark has started." in text_of(
        page
    )
    assert "tasks/publish_orders?try_number=2" in page
    assert page.count("publish_orders, try 2") == 2, "there, and beside its lane"
    assert "No process works on it any more" not in text_of(page)


def test_what_was_said_is_one_of_a_few_sentences(user, table):
    page = user.get(URL, params={"done": "<b>you won</b>"}).text

    assert "you won" not in page


def test_a_button_is_there_only_when_it_can_do_something(user, viewer, store, table):
    def verbs(browser) -> set[str]:
        return set(re.findall(r'id="act-(\w+)"', browser.get(URL).text))

    assert verbs(viewer) == set()
    assert verbs(user) == {"refresh", "pause"}
    own = acquired(store, table)
    store.pause(table.id, None)
    assert verbs(user) == {"refresh", "cancel", "resume"}
    walk(store, own, Phase.CLEANUP)
    assert verbs(user) == {"refresh", "resume"}, "main has it: there is no way back"


def test_a_run_can_be_started_of_the_dags_that_allow_it(user, table):
    page = user.get(URL).text

    assert re.findall(r'<input type="hidden" name="dag" value="([^"]*)"', page) == ["hourly"]
    assert "hourly also refreshes customers." in text_of(page)


def test_the_run_that_the_page_asks_for_is_one_that_airflow_starts(user, viewer, as_role, table):
    """What page.js sends, sent here: Airflow's own API checks rights and writes its log."""
    body = {"logical_date": None, "conf": {"read_only": True}}
    address = "/api/v2/dags/hourly/dagRuns"

    assert viewer.post(address, json=body).status_code == 403
    started = user.post(address, json=body)

    assert started.status_code == 200
    assert (started.json()["conf"], started.json()["triggering_user_name"]) == ({"read_only": True}, "user")
    log = as_role("admin").get("/api/v2/eventLogs", params={"event": "trigger_dag_run", "dag_id": "hourly"}).json()
    assert {entry["owner"] for entry in log["event_logs"]} == {"user"}


def test_the_address_that_the_script_asks_is_airflows_own(user, table):
    page = user.get(URL).text

    assert 'data-airflow="../../"' in page


def test_next_run_is_airflows(user, store):
    for name in ("orders", "regions", "paused_one", "undeclared"):
        registered(store, name)

    def next_run(name: str) -> str:
        return re.search(r"Next run (.*?) (?:History|Last)", text_of(user.get(f"{PAGE}/tables/{name}").text))[1]

    assert re.fullmatch(r"due|in \d+ \w+", next_run("orders"))
    assert next_run("regions") == "on request"
    assert next_run("paused_one") == "DAG is paused"
    assert next_run("undeclared") == "no DAG"

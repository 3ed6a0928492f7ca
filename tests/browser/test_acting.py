"""What people do on the page, in a real browser and a real Airflow: start runs, pause, decide."""

from __future__ import annotations

import json
import re
import sqlite3

import pytest

from tests.api.filled import hold
from tests.browser.conftest import frame_of

pytestmark = pytest.mark.slow

LIST, ORDERS = "/mv/", "/mv/tables/orders"


def test_an_action_is_confirmed_in_the_page_inside_airflows_frame(open_page, keepers):
    keeper = keepers["web_clicks"]
    page = open_page("/plugin/refreshable-tables")
    frame = frame_of(page)
    frame.get_by_role("link", name="web_clicks", exact=True).click()
    frame.get_by_role("heading", name="web_clicks", exact=True).wait_for()

    frame.get_by_role("button", name="Pause").click()
    frame.get_by_role("button", name="Back").click()
    assert keeper.store.state(keeper.table.id).paused_since_ms is None
    frame.get_by_role("button", name="Pause").click()
    frame.get_by_role("button", name="Yes").click()

    frame.get_by_text("Paused: no new refresh begins.").wait_for()
    assert keeper.store.state(keeper.table.id).paused_by == "admin"


def test_refresh_starts_a_run_by_airflows_own_api(open_page):
    page = open_page("/plugin/refreshable-tables")
    frame = frame_of(page)
    frame.get_by_role("link", name="customers", exact=True).click()
    frame.get_by_role("heading", name="customers", exact=True).wait_for()

    frame.get_by_role("button", name="Refresh").click()
    frame.get_by_label("Only show the differences").check()
    frame.get_by_role("button", name="Start").click()

    said = frame.get_by_text(re.compile(r"Run manual__\S+ was started"))
    said.wait_for()
    run_id = said.inner_text().split()[1]
    run = page.request.get(f"/api/v2/dags/hourly/dagRuns/{run_id}").json()
    assert (run["conf"], run["triggering_user_name"], run["state"]) == ({"read_only": True}, "admin", "queued")


def test_a_run_is_started_for_some_partitions_by_a_strategy_and_with_a_reason(open_page):
    page = open_page("/mv/tables/orders")
    page.get_by_role("button", name="Refresh").or_(page.get_by_role("button", name="Recover")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("More").click()

    dialog.get_by_label("Partitions").select_option("a range")
    dialog.get_by_role("button", name="Start").click()
    assert dialog.is_visible(), "a range needs a bound"
    dialog.get_by_label("From").fill("2026-01-01")
    dialog.get_by_label("Wait for a decision").check()
    dialog.get_by_label("Strategy").select_option("corrections")
    dialog.get_by_label("Why this run").fill("the export was late")
    page.keyboard.press("Enter")
    dialog.get_by_text("customers, which the run refreshes as well: scope: customers has no natural").wait_for()
    dialog.get_by_role("button", name="Start").click()

    said = page.get_by_text(re.compile(r"Run manual__\S+ was started"))
    said.wait_for()
    run = page.request.get(f"/api/v2/dags/hourly/dagRuns/{said.inner_text().split()[1]}").json()
    assert run["conf"] == {
        "scope": "range",
        "from": "2026-01-01",
        "hold": True,
        "strategy": "corrections",
        "note": "the export was late",
    }
    open_again = page.get_by_role("button", name="Refresh").or_(page.get_by_role("button", name="Recover"))
    open_again.click()
    dialog.get_by_label("Partitions").select_option("single ones")
    dialog.get_by_role("button", name="Start").click()
    assert dialog.is_visible(), "no partition is named"
    dialog.get_by_role("button", name="Back").click()
    assert not dialog.is_visible(), "whatever is filled in"


def test_tables_are_picked_by_keyboard_paused_together_and_their_dags_started(open_page, keepers):
    page = open_page("/mv/?tag=gold")
    store = keepers["regions"].store

    page.get_by_label("Pick regions").focus()
    page.keyboard.press("Space")
    page.get_by_text("1 picked").wait_for()
    page.get_by_role("button", name="Pause").press("Enter")
    page.get_by_text("Paused: no new refresh of these tables begins.").wait_for()
    assert store.state(store.table("regions").id).paused_by == "admin"
    page.get_by_label("All on this page").check()
    page.get_by_role("button", name="Refresh").press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("A run of alone is started with these options.").wait_for()
    dialog.get_by_text("1 table is paused").wait_for()
    dialog.get_by_label("Only show the differences").check()
    dialog.get_by_label("Wait for a decision").check()
    dialog.get_by_role("button", name="Start").press("Enter")
    dialog.get_by_text("`hold` and `read_only` exclude").wait_for()
    dialog.get_by_label("Wait for a decision").uncheck()
    dialog.get_by_text("More").press("Enter")
    dialog.get_by_label("Why this run").fill("a look")
    dialog.get_by_role("button", name="Start").press("Enter")
    page.get_by_text("1 of 1 runs were started.").wait_for()

    runs = page.request.get("/api/v2/dags/alone/dagRuns?order_by=-id").json()["dag_runs"]
    assert runs[0]["triggering_user_name"] == "admin"
    assert runs[0]["conf"] == {"read_only": True, "note": "a look"}
    page.get_by_label("Pick regions").check()
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("Resumed: refreshes of these").wait_for()
    page.goto(page.url.partition("?")[0])
    page.get_by_role("button", name="Refresh").click()
    page.get_by_text("Pick at least one table first.").wait_for()
    for name in ("regions", "gold.margins", "customers"):
        page.get_by_label(f"Pick {name}").check()
    page.get_by_role("button", name="Refresh").click()
    dialog.get_by_text("Runs of 2 DAGs are started").wait_for()
    dialog.get_by_text("1 of the picked tables has no DAG whose runs people can start.").wait_for()
    dialog.get_by_text("More").click()
    dialog.get_by_label("Partitions").select_option("single ones")
    dialog.get_by_label("One partition per line").fill("2026-01")
    dialog.get_by_role("button", name="Start").click()
    dialog.get_by_text("customers: scope: customers has no natural partitions.").wait_for()
    dialog.get_by_role("button", name="Back").click()
    assert page.request.get("/api/v2/dags/alone/dagRuns?order_by=-id").json()["dag_runs"][0] == runs[0], "no run began"


def test_a_held_refresh_is_decided_in_two_clicks_from_the_list_and_a_reason(open_page, keepers):
    keeper = keepers["gold.margins"]
    if not keeper.store.state(keeper.table.id).is_held:
        hold(keeper)
    page = open_page(LIST)

    page.get_by_role("link", name=re.compile("Needs attention")).click()
    page.get_by_role("link", name="awaiting approval").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    assert keeper.store.state(keeper.table.id).is_held, "not without a reason"
    page.get_by_label("Why, for the history").fill("a region was closed")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    page.get_by_text("Approved without deletes: the next refresh").wait_for()
    state = keeper.store.state(keeper.table.id)
    decided = keeper.store.last_hold(state.refresh_id)
    assert (decided.decision, decided.decided_by, decided.note) == ("without deletes", "admin", "a region was closed")


def test_a_decision_that_a_task_waits_for_is_airflows_answer(open_page, keepers, server):
    keeper = keepers["regions"]
    page = open_page(LIST)
    started = page.request.post("/api/v2/dags/alone/dagRuns", data={"logical_date": None}).json()
    run = started["dag_run_id"]
    hold(keeper, f"airflow:alone:publish_regions:-1:{run}")
    with sqlite3.connect(server.home / "airflow.db") as airflow:  # as the task does that asks; nothing runs tasks here
        [(task,)] = airflow.execute("SELECT id FROM task_instance WHERE run_id = ? AND task_id LIKE 'publish%'", (run,))
        airflow.execute("UPDATE task_instance SET state = 'awaiting_input', try_number = 1 WHERE id = ?", (task,))
        columns = "ti_id, options, subject, params, params_input, created_at"
        options = json.dumps(["Approve", "Approve without deletes", "Reject"])
        asked = (task, options, "publish?", "{}", "{}", "2026-11-24 00:00:00")
        airflow.execute(f"INSERT INTO hitl_detail ({columns}) VALUES (?, ?, ?, ?, ?, ?)", asked)
    page.goto("/mv/tables/regions")

    page.get_by_label("Why, for the history").fill("the export was cut short")
    page.get_by_role("button", name="Reject").click()

    page.get_by_text("Rejected: the waiting task goes on with it.").wait_for()
    with sqlite3.connect(server.home / "airflow.db") as airflow:
        [answer] = airflow.execute("SELECT chosen_options, params_input FROM hitl_detail WHERE ti_id = ?", (task,))
    assert [json.loads(each) for each in answer] == [["Reject"], {"note": "the export was cut short"}]


def test_the_form_requires_nothing_but_the_table_and_says_what_no_strategy_means(open_page):
    page = open_page("/dags/nothing")
    page.get_by_test_id("trigger-dag-button").click()
    form = page.get_by_role("dialog")
    form.get_by_role("button", name="How").click()

    form.get_by_text("As in its definition").wait_for()
    assert form.get_by_text("null", exact=True).count() == 0
    form.get_by_role("button", name="Which partitions").click()
    form.get_by_text("One value per line").wait_for()
    starred = form.locator("label:has([aria-hidden]:text-is('*'))").all_inner_texts()
    assert [each.strip("*\n ") for each in starred] == ["Table"]


@pytest.mark.in_test_all
def test_a_viewer_sees_everything_and_no_button(open_page):
    page = open_page(ORDERS, role="viewer")

    page.get_by_text("You can view this table, but not act on it").wait_for()
    assert page.get_by_role("button").count() == 0
    assert page.locator("svg").count() > 3


def test_without_script_everything_can_be_read_and_a_table_be_paused(open_page, keepers):
    page = open_page("/mv/tables/sensors", java_script_enabled=False)

    page.get_by_role("button", name="Resume").click()

    page.get_by_text("Resumed: refreshes can begin again.").wait_for()
    assert page.get_by_role("button", name="Refresh").count() == 0
    assert page.locator("svg").count() > 2
    keeper = keepers["sensors"]
    assert keeper.store.state(keeper.table.id).paused_since_ms is None


@pytest.mark.in_test_all
def test_a_question_about_a_row_starts_a_run_and_its_answer_comes_to_the_open_page(open_page, keepers):
    keeper = keepers["customers"]
    page = open_page("/mv/tables/customers")
    form = page.get_by_role("form", name="Ask about a row")
    form.get_by_label(keeper.table.definition.key[0], exact=True).fill("5")
    form.get_by_label("Only what has changed the column").fill("v")

    form.get_by_role("button", name="Ask").click()

    said = page.get_by_text(re.compile(r"Run manual__\S+ looks for it"))
    said.wait_for()
    run = page.request.get(f"/api/v2/dags/answering/dagRuns/{said.inner_text().split()[1]}").json()
    assert run["conf"] == {"table": "customers", "key": {keeper.table.definition.key[0]: "5"}, "column": "v"}
    keeper.store.row_answers.keep(keeper.table.id, "ann", "id=5, column v", "customers: id=5\n  it is as it was")
    page.get_by_text("it is as it was").wait_for()

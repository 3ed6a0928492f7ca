"""The page in a real browser, in a real Airflow: found in the navigation, live, and usable by keyboard.

`server.py` starts the API server alone; what a refresh writes is written by the store's own methods.
"""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import pytest

from airflow_mv_provider.api import words
from tests.api.filled import CORRECTIONS, hold
from tests.browser.conftest import PARTITIONS

pytestmark = pytest.mark.slow

LIST, ORDERS = "/mv/", "/mv/tables/orders"


def frame_of(page: Any) -> Any:
    return page.frame_locator("iframe")


@pytest.mark.in_test_all
def test_the_page_is_in_airflows_navigation_and_opens_a_table_there(open_page):
    page = open_page("/")

    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name="Refreshable tables").click()

    frame_of(page).get_by_role("link", name="orders", exact=True).click()
    frame_of(page).get_by_role("heading", name="orders", exact=True).wait_for()


def test_a_tables_page_has_an_address_of_its_own_within_airflow(open_page):
    page = open_page("/plugin/refreshable-tables/mv/tables/orders")

    frame_of(page).get_by_role("heading", name="orders", exact=True).wait_for()


def test_a_dag_has_a_tab_with_its_tables(open_page):
    page = open_page("/dags/hourly")

    page.get_by_role("link", name="Tables", exact=True).click()

    frame_of(page).get_by_role("link", name="customers", exact=True).wait_for()
    assert frame_of(page).locator("tbody tr").count() == 2


def test_a_dag_is_opened_in_airflows_window_and_not_in_the_frame(open_page, server):
    page = open_page("/plugin/refreshable-tables")
    frame_of(page).get_by_role("link", name="orders", exact=True).click()

    frame_of(page).get_by_role("link", name="hourly", exact=True).click()

    page.wait_for_url(f"{server.url}/dags/hourly**")


def test_progress_moves_without_loading_again(open_page, keepers):
    page = open_page(ORDERS)
    meter = page.locator("#now .under-way > .meter .meter-text")
    before = int(meter.inner_text().split()[0])
    page.evaluate("window.sameDocument = true")

    keeper = keepers["orders"]
    own = keeper.owned()
    keeper.compare(own, before)

    page.get_by_text(f"{before + 1} of {PARTITIONS}", exact=True).wait_for()
    assert page.evaluate("window.sameDocument")


def test_the_history_is_new_as_soon_as_a_refresh_has_ended(open_page, keepers):
    keeper = keepers["flights"]
    own = keeper.begin(CORRECTIONS)
    page = open_page("/mv/tables/flights")
    page.get_by_role("button", name="Cancel").wait_for()
    page.evaluate("window.sameDocument = true")

    keeper.finish(own)

    page.locator(f"[id='{own.refresh_id}']").get_by_text("published").wait_for()
    assert page.get_by_role("button", name="Cancel").count() == 0
    assert page.evaluate("window.sameDocument")


def test_a_hidden_window_asks_for_nothing(open_page, keepers):
    page = open_page(ORDERS)
    asked: list[str] = []
    page.clock.install()
    page.reload()

    hide(page, True)
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(60_000)
    hidden = list(asked)
    with page.expect_request("**/now"):
        hide(page, False)

    assert hidden == []


def hide(page: Any, is_hidden: bool) -> None:
    page.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", {get: () => hidden, configurable: true});
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", ["/mv/?search=never", "/mv/tables/never_refreshed"])
def test_a_page_at_rest_asks_every_ten_seconds_and_is_told_nothing_twice(open_page, path):
    page = open_page(path)
    page.clock.install()
    page.reload()

    answers: list[int] = []
    page.on("response", lambda answer: answers.append(answer.status))
    page.clock.run_for(9_000)
    early = list(answers)
    while len(answers) < 3:
        page.clock.fast_forward(1_000)

    assert (early, answers) == ([], [200, 304, 304])


@pytest.mark.in_test_all
def test_an_open_list_notices_what_others_do(open_page, keepers):
    page = open_page("/mv/?search=never")
    page.clock.install()
    page.reload()
    page.get_by_label("Search by name").fill("half a wo")
    page.evaluate("window.sameDocument = true")

    store = keepers["orders"].store
    store.pause(store.table("never_refreshed").id, "ann")
    page.clock.run_for(10_000)

    page.locator("#tables").get_by_text("paused", exact=True).wait_for()
    assert page.evaluate("window.sameDocument && document.activeElement.value") == "half a wo"


def test_an_open_table_notices_a_refresh_that_others_began(open_page, keepers):
    page = open_page("/mv/tables/customers")
    page.clock.install()
    page.reload()
    page.evaluate("window.sameDocument = true")
    page.get_by_role("button", name="Refresh").focus()

    keeper = keepers["customers"]
    own = keeper.begin(CORRECTIONS)
    page.clock.run_for(10_000)

    page.get_by_role("heading", name="Refresh under way").wait_for()
    assert page.get_by_role("button", name="Cancel").count() == 1
    assert page.evaluate("window.sameDocument && document.activeElement.id") == "act-refresh"
    keeper.finish(own)


def test_an_open_dialog_says_that_a_refresh_has_begun_and_keeps_what_was_chosen(open_page, keepers):
    page = open_page("/mv/tables/customers")
    page.clock.install()
    page.reload()
    page.get_by_role("button", name="Refresh").click()
    page.get_by_label("Only show the differences").check()

    keeper = keepers["customers"]
    own = keeper.begin(CORRECTIONS)
    page.clock.run_for(10_000)

    page.get_by_role("dialog").get_by_text("A refresh is under way").wait_for()
    assert page.get_by_label("Only show the differences").is_checked()
    assert page.evaluate("document.querySelector('#now[data-live]')") is None, "behind it nothing moves"
    page.get_by_role("button", name="Back").click()
    page.get_by_role("heading", name="Refresh under way").wait_for()
    assert page.evaluate("document.activeElement.id") == "act-refresh"
    keeper.finish(own)


@pytest.mark.in_test_all
def test_relative_times_go_on_in_the_servers_words(open_page):
    page = open_page("/mv/tables/never_refreshed")
    page.clock.install()
    page.reload()
    page.route("**/now", lambda route: None)  # an answer would set the page's clock by the server's, as it should
    seconds = [1, 90, 5_400, 130_000, -90, -5_400]
    page.evaluate(
        """seconds => document.body.append(...seconds.map(each => Object.assign(document.createElement("time"),
          {dateTime: new Date(Date.now() - each * 1000).toISOString(), className: "here"})))""",
        seconds,
    )
    page.clock.run_for(1_000)
    first = page.locator(".here").all_inner_texts()
    page.clock.fast_forward(86_400_000)
    page.clock.run_for(1_000)

    assert first == [words.ago(0, each * 1000) for each in seconds]
    assert page.locator(".here").all_inner_texts()[0] == "1 d ago"


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
    store = keepers["lonely"].store

    page.get_by_label("Pick lonely").focus()
    page.keyboard.press("Space")
    page.get_by_text("1 picked").wait_for()
    page.get_by_role("button", name="Pause").press("Enter")
    page.get_by_text("Paused: no new refresh of these tables begins.").wait_for()
    assert store.state(store.table("lonely").id).paused_by == "admin"
    page.get_by_label("All on this page").check()
    page.get_by_role("button", name="Refresh").click()
    page.get_by_role("button", name="Yes").click()
    page.get_by_text("1 of 1 runs were started.").wait_for()

    runs = page.request.get("/api/v2/dags/alone/dagRuns?order_by=-id").json()["dag_runs"]
    assert runs[0]["triggering_user_name"] == "admin"
    page.get_by_label("Pick lonely").check()
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("Resumed: refreshes of these").wait_for()


def test_a_held_refresh_is_decided_in_two_clicks_from_the_list_and_a_reason(open_page, keepers):
    keeper = keepers["gold.margins"]
    if not keeper.store.state(keeper.table.id).is_held:
        hold(keeper)
    page = open_page(LIST)

    page.get_by_role("link", name=re.compile("Needs attention")).click()
    page.get_by_role("link", name="held for a decision").click()
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
    keeper = keepers["lonely"]
    page = open_page(LIST)
    started = page.request.post("/api/v2/dags/alone/dagRuns", data={"logical_date": None}).json()
    run = started["dag_run_id"]
    hold(keeper, f"airflow:alone:publish_lonely:-1:{run}")
    with sqlite3.connect(server.home / "airflow.db") as airflow:  # as the task does that asks; nothing runs tasks here
        [(task,)] = airflow.execute("SELECT id FROM task_instance WHERE run_id = ? AND task_id LIKE 'publish%'", (run,))
        airflow.execute("UPDATE task_instance SET state = 'awaiting_input', try_number = 1 WHERE id = ?", (task,))
        columns = "ti_id, options, subject, params, params_input, created_at"
        options = json.dumps(["Approve", "Approve without deletes", "Reject"])
        asked = (task, options, "publish?", "{}", "{}", "2026-11-24 00:00:00")
        airflow.execute(f"INSERT INTO hitl_detail ({columns}) VALUES (?, ?, ?, ?, ?, ?)", asked)
    page.goto("/mv/tables/lonely")

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

    form.get_by_text("As its definition says").wait_for()
    assert form.get_by_text("null", exact=True).count() == 0
    form.get_by_role("button", name="Which partitions").click()
    form.get_by_text("One value a line").wait_for()
    starred = form.locator("label:has([aria-hidden]:text-is('*'))").all_inner_texts()
    assert [each.strip("*\n ") for each in starred] == ["Table"]


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


# -- keyboard, themes, sizes -----------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", [LIST, ORDERS])
def test_everything_is_reached_by_tab_and_shows_it(open_page, path):
    page = open_page(path)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    wanted = page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
          .filter(each => each.checkVisibility() && each.type !== "hidden").length"""
    )

    reached = set()
    for _ in range(wanted + 3):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => {
              const each = document.activeElement, style = getComputedStyle(each);
              const place = [...document.querySelectorAll("*")].indexOf(each);
              return [place, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, each.outerHTML];
            }"""
        )
        if found[2].startswith("<body"):
            break
        assert found[1], f"nobody sees that the focus is on {found[2][:100]}"
        reached.add(found[0])
    assert len(reached) == wanted


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", [LIST, ORDERS])
def test_what_can_be_pressed_has_a_name_and_is_a_button_or_a_link(open_page, path):
    page = open_page(path)

    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("a, button, input, select, svg, progress, dialog")]
          .filter(each => each.type !== "hidden" && !each.ariaLabel && !each.innerText?.trim()
            && !each.labels?.length && !each.getAttribute("aria-labelledby"))
          .map(each => each.outerHTML.slice(0, 120))"""
    )

    assert unnamed == []
    assert page.locator("div[onclick], span[onclick], [role=button]").count() == 0
    levels = [int(each[1]) for each in page.locator("h1, h2, h3").evaluate_all("found => found.map(e => e.tagName)")]
    assert levels[0] == 1
    assert set(levels[1:]) <= {2}


def background(page: Any) -> float:
    """Return how bright the page is, 0 to 255."""
    page.wait_for_load_state()
    pixel = page.evaluate(
        """() => {
          const context = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d");
          context.fillStyle = getComputedStyle(document.body).backgroundColor;
          context.fillRect(0, 0, 1, 1);
          return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }"""
    )
    return sum(pixel) / 3


def test_the_theme_is_airflows_or_else_the_browsers(open_page):
    page = open_page(LIST, color_scheme="light")
    assert background(page) > 240
    page.emulate_media(color_scheme="dark")
    assert background(page) < 60

    page.evaluate("localStorage.setItem('theme', 'light')")
    page.reload()
    assert background(page) > 240
    page.emulate_media(color_scheme="light")
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()
    assert background(page) < 60


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [320, 400, 768])
@pytest.mark.parametrize("path", [LIST, ORDERS, "/mv/tables/gold.revenue"])
def test_a_narrow_window_needs_no_scrolling_to_the_side(open_page, path, width):
    page = open_page(path, viewport={"width": width, "height": 800})

    assert page.evaluate("document.documentElement.scrollWidth") <= width

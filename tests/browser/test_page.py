"""The page in a real browser, in a real Airflow: found in the navigation, live, and usable by keyboard.

`server.py` starts the API server alone; what a refresh writes is written by the store's own methods.
"""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mv_provider.api import words
from tests.api.filled import CORRECTIONS
from tests.browser.conftest import PARTITIONS, frame_of
from tests.browser.looks import unreached_by_tab

pytestmark = pytest.mark.slow

LIST, ORDERS = "/mv/", "/mv/tables/orders"


@pytest.mark.in_test_all
def test_the_page_is_in_airflows_navigation_and_opens_a_table_there(open_page):
    page = open_page("/")

    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name="Refreshable tables").click()

    frame_of(page).get_by_role("link", name="orders", exact=True).click()
    frame_of(page).get_by_role("heading", name="orders", exact=True).wait_for()


@pytest.mark.in_test_all
def test_a_tables_page_has_an_address_of_its_own_within_airflow(open_page):
    page = open_page("/plugin/refreshable-tables/mv/tables/orders")

    frame_of(page).get_by_role("heading", name="orders", exact=True).wait_for()


@pytest.mark.in_test_all
def test_a_dag_has_a_tab_with_its_tables(open_page):
    page = open_page("/dags/hourly")

    page.get_by_role("link", name="Tables", exact=True).click()

    frame_of(page).get_by_role("link", name="customers", exact=True).wait_for()
    assert frame_of(page).locator("tbody tr").count() == 2


@pytest.mark.in_test_all
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

    page.get_by_text(f"{before + 1} of {PARTITIONS} partitions", exact=True).wait_for()
    assert page.evaluate("window.sameDocument")


@pytest.mark.in_test_all
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


@pytest.mark.in_test_all
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
@pytest.mark.parametrize("path", ["/mv/?search=returns", "/mv/tables/returns"])
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
    page = open_page("/mv/?search=returns")
    page.clock.install()
    page.reload()
    page.get_by_label("Search by name").fill("half a wo")
    page.evaluate("window.sameDocument = true")

    store = keepers["orders"].store
    store.pause(store.table("returns").id, "ann")
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

    page.get_by_role("heading", name="Refresh in progress").wait_for()
    assert page.get_by_role("button", name="Cancel").count() == 1
    assert page.evaluate("window.sameDocument && document.activeElement.id") == "act-refresh"
    keeper.finish(own)


@pytest.mark.in_test_all
def test_an_open_dialog_says_that_a_refresh_has_begun_and_keeps_what_was_chosen(open_page, keepers):
    page = open_page("/mv/tables/customers")
    page.clock.install()
    page.reload()
    page.get_by_role("button", name="Refresh").click()
    page.get_by_label("Only show the differences").check()

    keeper = keepers["customers"]
    own = keeper.begin(CORRECTIONS)
    page.clock.run_for(10_000)

    page.get_by_role("dialog").get_by_text("A refresh is in progress").wait_for()
    assert page.get_by_label("Only show the differences").is_checked()
    assert page.evaluate("document.querySelector('#now[data-live]')") is None, "behind it nothing moves"
    page.get_by_role("button", name="Back").click()
    page.get_by_role("heading", name="Refresh in progress").wait_for()
    assert page.evaluate("document.activeElement.id") == "act-refresh"
    keeper.finish(own)


@pytest.mark.in_test_all
def test_relative_times_go_on_in_the_servers_words(open_page):
    page = open_page("/mv/tables/returns")
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


# -- keyboard, themes, sizes -----------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", [LIST, ORDERS])
def test_everything_is_reached_by_tab_and_shows_it(open_page, path):
    page = open_page(path)

    assert unreached_by_tab(page) == []


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

"""The page of a table over time in a real browser: a range picked by keyboard, figures opened, kept up to date."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from tests.metadata.rows import a_caller, a_refresh

pytestmark = pytest.mark.slow

ORDERS = "/mv/tables/orders/over-time"


@pytest.mark.in_test_all
def test_a_range_is_picked_by_keyboard_and_is_in_the_address(open_page):
    page = open_page("/mv/tables/orders")
    page.get_by_role("link", name="Over time", exact=True).press("Enter")
    page.get_by_role("heading", name="orders over time").wait_for()
    assert page.get_by_role("link", name="7 days").get_attribute("aria-current") == "true"

    page.get_by_role("link", name="7 days").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/over-time?range=24h")

    assert page.get_by_role("link", name="24 hours").get_attribute("aria-current") == "true"
    page.get_by_text("30 min, since").wait_for()
    page.get_by_role("link", name="All", exact=True).click()
    page.wait_for_url("**/over-time?range=all")


@pytest.mark.in_test_all
def test_figures_of_a_chart_are_opened_by_keyboard(open_page):
    page = open_page(f"{ORDERS}?range=24h")
    assert page.get_by_role("img", name="Rows in total").is_visible()
    rows = page.get_by_role("region", name="Figures of Rows in total")
    assert not rows.is_visible()

    page.locator("#figures-rows summary").focus()
    page.keyboard.press("Enter")
    rows.wait_for()
    page.keyboard.press("Tab")

    assert page.evaluate("document.activeElement.id") == "lines-rows"
    assert rows.get_by_role("row").count() > 1


def test_a_bar_leads_to_its_refresh_and_so_does_its_line_by_keyboard(open_page):
    page = open_page("/mv/tables/web_clicks/over-time?range=24h")
    bar = page.locator("#figure-changed .hits a").last
    address = bar.get_attribute("href").removeprefix("../..")
    assert "/tables/web_clicks/refreshes" in address

    bar.click()
    page.wait_for_url(f"**{address}")
    assert page.get_by_role("heading", level=1).inner_text().startswith("Refresh")
    page.go_back()
    page.locator("#figures-changed summary").press("Enter")
    page.keyboard.press("Tab")  # the region, which scrolls
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{address}")


@pytest.mark.in_test_all
def test_an_open_page_notices_what_others_do_and_keeps_what_is_open(open_page, keepers):
    keeper = keepers["regions"]
    page = open_page("/mv/tables/regions/over-time?range=24h")
    page.clock.install()
    page.reload()
    page.locator("#figures-lag summary").click()
    before = page.get_by_text("with nothing to do").count()
    page.evaluate("window.sameDocument = true")

    for _ in range(2):
        keeper.store.record(a_refresh(keeper.table), a_caller(), Outcome.REFUSED)
    page.clock.run_for(10_000)

    page.get_by_text("2 refused, cancelled or abandoned").wait_for()
    assert page.get_by_role("region", name="Figures of Lag, at most").is_visible()
    assert page.get_by_text("with nothing to do").count() == before
    assert page.evaluate("window.sameDocument")
    keeper.store.record(a_refresh(keeper.table), a_caller(), Outcome.NOTHING_TO_DO)


@pytest.mark.in_test_all
def test_without_script_a_range_can_be_picked_and_figures_opened(open_page):
    page = open_page(ORDERS, role="viewer", java_script_enabled=False)

    page.get_by_role("link", name="30 days").click()
    page.wait_for_url("**/over-time?range=30d")
    page.locator("#figures-changed summary").click()

    assert page.get_by_role("region", name="Figures of Rows changed").get_by_role("row").count() > 1

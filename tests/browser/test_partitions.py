"""The page of a table's partitions in a real browser: picked by keyboard, refreshed, and kept up to date."""

from __future__ import annotations

import re

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.scope import Scope
from tests.api.filled import fail_interval
from tests.browser.conftest import PARTITIONS
from tests.metadata.rows import a_caller, a_refresh

pytestmark = pytest.mark.slow

ORDERS = "/mv/tables/orders/partitions"


def conf_of(page, dag: str) -> object:
    """Return what the run that was just started was given."""
    said = page.get_by_text(re.compile(r"Run manual__\S+ was started"))
    said.wait_for()
    return page.request.get(f"/api/v2/dags/{dag}/dagRuns/{said.inner_text().split()[1]}").json()["conf"]


def test_partitions_are_picked_by_keyboard_and_refreshed(open_page, keepers):
    page = open_page("/mv/tables/orders")
    page.get_by_role("link", name="Partitions", exact=True).press("Enter")
    page.get_by_role("heading", name="Partitions of orders").wait_for()
    assert page.locator("table.tables tbody tr").count() == PARTITIONS

    page.get_by_role("button", name="Refresh", exact=True).press("Enter")
    page.get_by_text("Pick at least one partition first.").wait_for()
    for month in ("2018-12-01", "2018-11-01"):
        page.get_by_label(f"Pick {month}").press("Space")
    page.get_by_text("2 picked").wait_for()
    page.get_by_role("button", name="Refresh", exact=True).press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("2018-12-01, 2018-11-01", exact=True).wait_for()
    page.keyboard.press("Enter")
    dialog.get_by_text("customers, which the run refreshes as well").wait_for()
    page.keyboard.press("Enter")

    assert conf_of(page, "hourly") == {"scope": "partitions", "partitions": [["2018-12-01"], ["2018-11-01"]]}


def test_interval_that_failed_is_refreshed_again(open_page, keepers):
    fail_interval(keepers["regions"])
    page = open_page("/mv/tables/regions/partitions")

    page.get_by_role("button", name="Refresh from 2018-02-01 until 2019-01-01").click()
    page.get_by_role("dialog").get_by_text("from 2018-02-01 until 2019-01-01", exact=True).wait_for()
    page.get_by_role("button", name="Start").click()

    assert conf_of(page, "alone") == {"scope": "range", "from": "2018-02-01", "until": "2019-01-01"}


@pytest.mark.in_test_all
def test_an_open_page_notices_what_others_do_and_keeps_what_is_picked(open_page, keepers):
    keeper = keepers["regions"]
    page = open_page("/mv/tables/regions/partitions?show=all")
    page.clock.install()
    page.reload()
    page.get_by_label("Pick 2018-01-01").check()
    page.evaluate("window.sameDocument = true")

    refresh = a_refresh(keeper.table, scope=Scope((keeper.partitions[0],)))
    keeper.store.record(refresh, a_caller(), Outcome.REFUSED)
    page.clock.run_for(10_000)

    page.get_by_role("row", name="2018-01-01").get_by_text("failed", exact=True).wait_for()
    assert page.get_by_label("Pick 2018-01-01").is_checked()
    assert "2018-01-01" in page.evaluate("window.sameDocument && document.activeElement.id")
    keeper.store.record(a_refresh(keeper.table), a_caller(), Outcome.NOTHING_TO_DO)


def test_a_pick_stays_with_its_partition_when_others_appear_above(open_page, keepers):
    keeper = keepers["regions"]
    page = open_page("/mv/tables/regions/partitions?show=all")
    page.clock.install()
    page.reload()
    page.get_by_label("Pick 2018-01-01").check()

    newest = keeper.partitions[0].replace("2018-01-01", "2019-01-01")
    keeper.store.record(a_refresh(keeper.table, scope=Scope((newest,))), a_caller(), Outcome.REFUSED)
    page.clock.run_for(10_000)

    page.get_by_label("Pick 2019-01-01").wait_for()
    assert page.get_by_label("Pick 2018-01-01").is_checked()
    assert page.locator("[data-pick]:checked").count() == 1
    keeper.store.record(a_refresh(keeper.table), a_caller(), Outcome.NOTHING_TO_DO)


@pytest.mark.in_test_all
def test_a_range_is_asked_for_by_keyboard_and_a_viewer_picks_nothing(open_page):
    page = open_page(ORDERS, role="viewer")

    page.get_by_label("From").fill("2018-03-01")
    page.get_by_label("Until").fill("2018-05-01")
    page.keyboard.press("Enter")
    page.wait_for_url("**/partitions?from=2018-03-01&until=2018-05-01")

    rows = page.locator("table.tables tbody th").all_inner_texts()
    assert rows == ["2018-04-01", "2018-03-01"]
    assert page.get_by_role("checkbox").count() == 0


@pytest.mark.in_test_all
def test_without_script_partitions_can_be_read(open_page):
    page = open_page(ORDERS, java_script_enabled=False)

    assert page.locator("table.tables tbody tr").count() == PARTITIONS
    assert page.get_by_role("checkbox").count() == 0
    assert page.get_by_role("button").all_inner_texts() == ["Show"]

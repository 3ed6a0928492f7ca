"""The lineage in a real browser: from the list to all tables, from table to table by keyboard or in the picture."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.in_test_all
def test_from_the_list_by_keyboard_to_a_tables_lineage(open_page):
    page = open_page("/mv/")
    page.get_by_role("link", name="Lineage of all tables").press("Enter")
    page.get_by_role("heading", name="Lineage of all tables").wait_for()

    page.locator("#to-orders").press("Enter")
    page.wait_for_url("**/tables/orders/lineage")

    page.get_by_role("heading", name="Lineage of orders").wait_for()
    assert page.get_by_role("link", name="Lineage", exact=True).get_attribute("aria-current") == "page"


@pytest.mark.in_test_all
def test_a_box_of_the_picture_leads_on_and_the_keyboard_passes_it_by(open_page):
    page = open_page("/mv/lineage")
    picture = page.get_by_role("region", name="Picture; the list below has the same content")

    picture.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id").startswith("to-"), "the list has the same links"
    picture.locator("a", has_text="customers").first.click()

    page.wait_for_url("**/tables/customers/lineage")


@pytest.mark.in_test_all
def test_an_open_page_notices_what_others_do(open_page, keepers):
    keeper = keepers["customers"]
    page = open_page("/mv/tables/customers/lineage")
    page.clock.install()
    page.reload()
    page.evaluate("window.sameDocument = true")
    before = page.locator("#lineage li .badge", has_text="paused").count()

    keeper.store.pause(keeper.table.id, "ann")
    page.clock.run_for(10_000)

    page.locator("#lineage li").get_by_text("paused", exact=True).wait_for()
    keeper.store.resume(keeper.table.id)
    assert before == 0
    assert page.evaluate("window.sameDocument")


@pytest.mark.in_test_all
def test_without_script_the_lineage_can_be_read(open_page):
    page = open_page("/mv/lineage", role="viewer", java_script_enabled=False)

    assert page.locator("ul.lineage > li").count() > 1
    assert page.locator("#picture svg a").count() == page.locator("ul.lineage > li").count()

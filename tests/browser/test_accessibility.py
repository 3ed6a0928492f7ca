"""Axe-core finds nothing on any page, in either theme, wide or narrow, and with each dialog open.

What axe cannot judge, such as the order of focus, is in `test_page`. `open_page` also fails on an error in the console
and on a request to another server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.api.filled import Keeper, fail_interval, hold, under_way
from tests.browser.looks import flaws

pytestmark = pytest.mark.slow


def refresh_of(keepers: Mapping[str, Keeper], name: str) -> str:
    """Return the address of a table's last refresh."""
    [last] = keepers[name].store.history(keepers[name].table.id, 1)
    return f"/mv/tables/{name}/refreshes/{last.refresh_id}"


PAGES: Mapping[str, Callable[[Mapping[str, Keeper]], str]] = {
    "list": lambda keepers: "/mv/",
    "under way": lambda keepers: "/mv/tables/orders",
    "held": lambda keepers: "/mv/tables/gold.margins",
    "never refreshed": lambda keepers: "/mv/tables/returns",
    "a refresh": lambda keepers: refresh_of(keepers, "customers"),
    "a held refresh": lambda keepers: refresh_of(keepers, "gold.margins"),
    "a failed refresh": lambda keepers: refresh_of(keepers, "web_clicks"),
    "refreshes": lambda keepers: "/mv/tables/orders/refreshes?show=published",
    "partitions": lambda keepers: "/mv/tables/regions/partitions?from=2017-01-01",
    "no partitions": lambda keepers: "/mv/tables/customers/partitions",
    "over time": lambda keepers: "/mv/tables/orders/over-time?range=24h",
    "nothing over time": lambda keepers: "/mv/tables/returns/over-time",
    "lineage": lambda keepers: "/mv/lineage",
    "lineage of a table": lambda keepers: "/mv/tables/gold.margins/lineage",
    "message": lambda keepers: "/mv/tables/not_there",
}
DIALOGS = {
    "act-refresh": ("/mv/tables/orders", "start-run"),
    "act-pause": ("/mv/tables/orders", "confirm"),
    "picked-refresh": ("/mv/?tag=gold", "start-run"),
}


@pytest.fixture
def states(keepers):
    """All tables, in the states that other tests may have ended."""
    if not keepers["gold.margins"].store.state(keepers["gold.margins"].table.id).is_held:
        hold(keepers["gold.margins"])
    if keepers["orders"].store.state(keepers["orders"].table.id).refresh_id is None:
        under_way(keepers["orders"])
    fail_interval(keepers["regions"])
    return keepers


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_on_a_page(open_page, states, name):
    page = open_page(PAGES[name](states), expects_404=name == "message")

    assert flaws(page) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("button", DIALOGS)
def test_axe_finds_nothing_in_a_dialog(open_page, states, button):
    address, dialog = DIALOGS[button]
    page = open_page(address)
    if button.startswith("picked"):
        page.get_by_label("All on this page").check()
    page.locator(f"#{button}").click()
    page.evaluate("for (const each of document.querySelectorAll('dialog[open] details')) each.open = true")
    page.locator(f"#{dialog}[open]").wait_for()

    assert flaws(page) == []

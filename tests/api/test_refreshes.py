"""The list of all refreshes that a table's history keeps: its pages, and what of it can be asked for."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest

from airflow_mv_provider.api.refresh_list import PAGE_LINES
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from tests.api.conftest import PAGE, text_of
from tests.metadata.rows import ERROR, a_caller, a_refresh, acquired, registered, walk

pytestmark = pytest.mark.slow

URL = f"{PAGE}/tables/orders/refreshes"


@pytest.fixture
def table(store):
    return registered(store, "orders")


def listed(page: str) -> list[str]:
    """Return the ids of the refreshes on a page, as its links have them."""
    return re.findall(r'<th scope="row"><a href="../../tables/orders/refreshes/(\w+)"', page)


def next_of(page: str) -> str:
    [found] = re.findall(r'rel="next" href="(\?[^"]*)"', page)
    return URL + found.replace("&amp;", "&")


def test_every_refresh_is_on_one_page(viewer, store, table):
    for _ in range(2 * PAGE_LINES):
        store.record(a_refresh(table, batch=None), a_caller(), Outcome.NOTHING_TO_DO)
    walk(store, acquired(store, table), Phase.NORMAL)

    first = viewer.get(URL).text
    second = viewer.get(next_of(first)).text
    third = viewer.get(next_of(second)).text

    every = [each.refresh_id for each in store.history(table.id, 1000)]
    assert [listed(first), listed(second), listed(third)] == [every[:40], every[40:80], every[80:]]
    assert 'rel="first" href="?"' in third
    assert 'rel="next"' not in third
    assert 'href="../tables/orders/refreshes"' in viewer.get(f"{PAGE}/tables/orders").text


def test_those_of_one_outcome_are_asked_for_in_the_address(viewer, store, table):
    walk(store, published := acquired(store, table), Phase.NORMAL)
    store.abandon(failed := acquired(store, table), Outcome.FAILED, ERROR, {})
    store.abandon(stopped := acquired(store, table), Outcome.CANCELLED, ERROR, {})

    def shown(asked: str) -> list[str]:
        return listed(viewer.get(URL, params={"show": asked}).text)

    assert shown("published") == [published.refresh_id]
    assert shown("not published") == [stopped.refresh_id, failed.refresh_id]
    assert shown("<b>") == [stopped.refresh_id, failed.refresh_id, published.refresh_id]
    assert shown("only compared") == []
    assert "No such refresh is kept. Show the newest" in text_of(viewer.get(URL, params={"show": "only compared"}).text)


def test_those_that_ended_in_a_time_are_asked_for_in_the_address(viewer, store, table, clock):
    clock.ahead_ms -= 3_600_000
    walk(store, early := acquired(store, table), Phase.NORMAL)
    clock.pass_ms(3_600_000)
    walk(store, late := acquired(store, table), Phase.NORMAL)
    [end] = [each.finished_at for each in store.history(table.id) if each.refresh_id == late.refresh_id]
    split = datetime.fromisoformat(end) - timedelta(minutes=30)
    first, last = (f"{split + timedelta(hours=each):%Y-%m-%dT%H:%M}" for each in (-5, 5))

    def shown(since: str, until: str) -> list[str]:
        return listed(viewer.get(URL, params={"from": since, "until": until}).text)

    between = f"{split:%Y-%m-%dT%H:%MZ}"
    assert (shown(first, between), shown(between, last)) == ([early.refresh_id], [late.refresh_id])
    assert shown(last, first) == shown("<b>", last) == shown("", "") == [late.refresh_id, early.refresh_id]
    page = viewer.get(URL, params={"from": between, "until": last, "show": "published"}).text
    assert f"Ended from {between} until {last}" in text_of(page)
    assert f"from={between.replace(':', '%3A')}" in page, "kept by the filters"


def test_what_is_not_there_is_said(viewer, store, table, rights):
    assert "No refresh yet." in viewer.get(URL).text
    assert "No such refresh is kept." in viewer.get(URL, params={"before": "<script>alert(1)</script>"}).text
    rights["GET"] = {"hourly", "repair"}
    assert viewer.get(URL).status_code == 404, "whoever may not see the table sees none of its refreshes"


def test_what_a_browser_has_is_not_sent_again_until_a_refresh_ends(viewer, store, table):
    tag = viewer.get(URL).headers["etag"]

    assert viewer.get(URL, headers={"if-none-match": tag}).status_code == 304
    walk(store, acquired(store, table), Phase.NORMAL)
    assert viewer.get(URL, headers={"if-none-match": tag}).status_code == 200


def test_a_published_refresh_without_kept_rows_says_how_to_see_them(viewer, store, table):
    walk(store, own := acquired(store, table), Phase.NORMAL)

    page = viewer.get(f"{URL}/{own.refresh_id}").text

    assert f"amv diff orders --refresh {own.refresh_id[:8]} shows them" in text_of(page)

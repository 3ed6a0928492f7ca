"""The page of a table over time: what each chart shows, its figures as a table, the range in the address."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import pytest
from sqlalchemy import update

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata.models import RefreshableTableRow
from tests.api.conftest import PAGE, assert_harmless, text_of
from tests.api.filled import CORRECTIONS, HOUR_MS, Keeper, months
from tests.metadata.rows import ERROR, acquired, publish, registered, walk

pytestmark = pytest.mark.slow

URL = f"{PAGE}/tables/orders/over-time"
DAY_MS = 24 * HOUR_MS
TOOK_MS = 40 * 60_000
FIGURES = ("rows", "changed", "duration", "bytes", "lag")


@pytest.fixture
def table(store, clock):
    """60 rows, 32 of them new, by a refresh of 40 minutes that began five hours ago; another failed two hours ago."""
    found = registered(store, "orders", freshness={"target": 7200})
    clock.ahead_ms -= 5 * HOUR_MS
    own = acquired(store, found)
    walk(store, own, Phase.MERGING)
    clock.pass_ms(TOOK_MS)  # so long that the time which this test takes is not seen in it
    publish(store, own)
    store.finish(own, {"CLEANUP": 0.25})
    clock.pass_ms(3 * HOUR_MS - TOOK_MS)
    store.abandon(acquired(store, found), Outcome.FAILED, ERROR, {})
    clock.pass_ms(2 * HOUR_MS)
    return found


def figure(page: str, name: str) -> str:
    return page.partition(f'<section class="card" id="figure-{name}"')[2].partition("</section>")[0]


def lines(page: str, name: str) -> list[list[str]]:
    """Return the lines of a figure's table, without the time of each."""
    rows = re.findall(r'<tr class="done">(.*?)</tr>', figure(page, name), re.S)
    return [[text_of(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


def bars(page: str, name: str, kind: str) -> list[str]:
    """Return the titles of a chart's bars of one kind."""
    found = re.findall(rf'<rect class="{kind}"[^>]*><title>(.*?)</title>', figure(page, name))
    return [html.unescape(each) for each in found]


def test_each_chart_has_a_table_of_its_figures(user, table):
    page = user.get(URL, params={"range": "24h"}).text

    assert re.findall(r'id="figure-(\w+)"', page) == list(FIGURES)
    assert lines(page, "rows") == [["60"]]
    assert lines(page, "changed") == [["0", "0", "0"], ["32", "1", "5"]], "the newest first"
    assert lines(page, "duration") == [["1.5 s", "2.0 s", "0.2 s", "39 min", "40 min", "40 min", "1"]]
    assert [line[0] for line in lines(page, "bytes")] == ["0 B", "500 B"]
    over = [line[1] for line in lines(page, "lag")]
    assert sorted(over, reverse=True) == over, "late from some time on, up to now"
    assert over.count("no") in (2, 3), "half hours from its end, until it was two hours old"
    assert over.count("yes") in (7, 8), "half hours since"
    for name in FIGURES:
        assert (
            len(re.findall(r'role="img"\s+aria-label="[^"]+The table below has the figures."', figure(page, name))) == 1
        )
    assert "Refreshes that ended 1 published, 1 failed" in text_of(page)
    assert "Rows changed +32 ~1 −5" in text_of(page)
    assert re.search(
        r"Lag now 5 h late of 2 h at most Each bar 30 min, since \d{4}-\d\d-\d\d \d\d:[03]0 UTC", text_of(page)
    )


def test_bars_say_when_and_what_and_a_gap_has_none(user, table):
    page = user.get(URL, params={"range": "24h"}).text

    [title] = bars(page, "rows", "level")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:[03]0: 60 rows", title)
    assert [len(bars(page, "changed", kind)) for kind in ("inserted", "updated", "deleted")] == [1, 1, 1]
    assert [len(bars(page, "changed", f"tone-{tone}")) for tone in ("good", "bad", "warn")] == [1, 1, 0]
    assert len(bars(page, "lag", "level")) == len(lines(page, "lag"))
    assert '<polyline class="late"' in figure(page, "lag")
    assert '<line class="target"' in figure(page, "lag")
    assert '<line class="target"' not in figure(page, "rows")


def test_a_bar_and_its_line_lead_to_the_refresh_or_to_the_list_of_that_time(user, store, table, clock):
    failed, published = (each.refresh_id for each in store.history(table.id))
    page = user.get(URL, params={"range": "24h"}).text

    def leads(text: str) -> list[str]:
        return re.findall(r'href="../../tables/orders/(refreshes[^"]+)"', text)

    chart, _, rows = figure(page, "changed").partition("<details")
    assert leads(chart) == [f"refreshes/{published}", f"refreshes/{failed}"], "the oldest first"
    assert leads(rows) == [f"refreshes/{failed}", f"refreshes/{published}"], "the newest first"
    assert leads(figure(page, "rows")) == [f"refreshes/{published}", f"refreshes/{failed}", f"refreshes/{published}"]
    assert chart.count("<a ") == chart.count('tabindex="-1"') == 2, "keyboards have the figures"

    clock.ahead_ms -= 2 * HOUR_MS
    store.abandon(again := acquired(store, table), Outcome.CANCELLED, ERROR, {})
    clock.pass_ms(2 * HOUR_MS)
    page = user.get(URL, params={"range": "all"}).text
    together = [each for each in leads(figure(page, "changed")) if "?" in each]
    listed = [user.get(f"{PAGE}/tables/orders/{html.unescape(each)}").text for each in set(together)]
    assert all(again.refresh_id in each and failed in each and published not in each for each in listed)


def test_without_a_target_there_is_no_line_for_it(user, store):
    walk(store, acquired(store, registered(store, "orders")), Phase.NORMAL)

    page = user.get(URL).text

    assert '<line class="target"' not in page
    assert [len(line) for line in lines(page, "lag")] == [1]
    assert "late" not in figure(page, "lag")


@pytest.mark.parametrize(
    ("query", "chosen", "each"),
    [
        *(("", "7d", "3 h"), ("?range=24h", "24h", "30 min"), ("?range=7d", "7d", "3 h")),
        *(("?range=30d", "30d", "12 h"), ("?range=all", "all", "30 min"), ("?range=<script>", "7d", "3 h")),
    ],
)
def test_the_range_is_in_the_address(user, table, query, chosen, each):
    page = user.get(URL + query).text

    assert re.findall(r'id="range-(\w+)" href="\?range=\w+" aria-current="true"', page) == [chosen]
    assert f"Each bar {each}, since" in text_of(page)


def test_what_is_older_than_the_range_is_not_shown(user, store, clock):
    table = registered(store, "orders")
    clock.ahead_ms -= 20 * DAY_MS
    walk(store, acquired(store, table), Phase.NORMAL)

    week, month = (user.get(URL, params={"range": each}).text for each in ("7d", "30d"))

    assert (lines(week, "rows"), lines(month, "rows")) == ([], [["60"]])
    assert lines(week, "lag"), "how old main is, is known all the same"


def test_a_table_without_a_refresh_has_no_figures(user, store):
    registered(store, "orders")

    page = user.get(URL).text

    assert "Nothing is recorded of this time." in page
    assert "<svg" not in page
    assert user.get(f"{PAGE}/tables/nothing/over-time").status_code == 404


def test_an_open_page_is_told_nothing_twice_in_a_minute_and_notices_a_refresh(user, store, table):
    def asked(tag: str) -> int:
        return user.get(URL, headers={"if-none-match": tag}).status_code

    # Between the two requests a minute may begin, but not twice.
    assert 304 in [asked(user.get(URL).headers["etag"]) for _ in range(2)]
    tag = user.get(URL).headers["etag"]
    walk(store, acquired(store, table), Phase.NORMAL)
    assert asked(tag) == 200


def test_the_tables_pages_lead_to_each_other(user, viewer, table):
    assert 'href="../tables/orders/over-time"' in user.get(f"{PAGE}/tables/orders").text
    page = viewer.get(URL).text
    assert '<a href="../../tables/orders/over-time" aria-current="page">Over time</a>' in page


def test_hostile_names_stay_names(user, store, table):
    hostile = "<script>alert(1)<script>\"'><img src=x onerror=alert(1)>{{7*7}}\x1b[31m"
    with store.engine.begin() as db:
        db.execute(update(RefreshableTableRow).values(name=hostile))

    page = user.get(f"{PAGE}/tables/{quote(hostile, safe='')}/over-time", params={"range": hostile}).text

    assert "&lt;img src=x" in page
    assert "{{7*7}}" in page
    assert_harmless(page)


@pytest.mark.parametrize("num_tables", [1, 30])
def test_three_queries_for_any_number_of_tables_and_refreshes(viewer, store, clock, statements, num_tables):
    for number in range(num_tables):
        name = f"t{number:02}" if number else "orders"
        keeper = Keeper(store, clock, registered(store, name), months(1))
        keeper.refreshes(6, HOUR_MS)
    keeper.refresh(CORRECTIONS)
    viewer.get(URL)
    statements.begin()

    page = viewer.get(URL, params={"range": "all"}).text

    assert lines(page, "rows")
    assert len(statements.selects) <= 3, statements.selects

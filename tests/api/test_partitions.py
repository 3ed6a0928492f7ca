"""The page of a table's partitions: states, changes, filters, and who is offered to refresh some."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import update

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.partition import partition_name
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.metadata.models import RefreshStateRow
from tests.api.conftest import PAGE, assert_harmless, text_of
from tests.api.filled import CORRECTIONS, HOUR_MS, Keeper, months
from tests.metadata.rows import P2, a_caller, a_refresh, acquired, registered, walk

pytestmark = pytest.mark.slow

URL = f"{PAGE}/tables/orders/partitions"
PARTED = {"partition_by": ["month"], "key": ["id", "month"]}


@pytest.fixture
def table(store):
    """Partitions 1, 2, 3 and one that is gone, all published; a later refresh of 2 has failed."""
    found = registered(store, "orders", **PARTED, frozen_before="2")
    walk(store, acquired(store, found), Phase.NORMAL)
    with store.engine.begin() as db:  # the seal of `walk` knows no type
        db.execute(update(RefreshStateRow).values(partition_type="integer"))
    store.record(a_refresh(found, id="f" * 32, scope=Scope((P2,))), a_caller(), Outcome.FAILED)
    store.record(a_refresh(found, id="e" * 32, scope=Scope(start="3", end="9")), a_caller(), Outcome.CANCELLED)
    return found


def lines(page: str) -> dict[str, str]:
    """Return what the list says of each partition, by its name."""
    body = page.partition('<table class="tables">')[2]
    rows = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', body, re.S)
    return {text_of(name): text_of(rest) for name, rest in rows}


def test_each_partition_has_its_state_times_changes_and_rows(user, table):
    page = user.get(URL).text

    found = lines(page)
    assert list(found) == ["gone", "3", "2", "1"], "the newest first"
    now = r"(?:just now|\d+ s ago)"
    assert re.fullmatch(rf"done frozen {now} {now} [+]2 ~1 −1 10", found["1"])
    assert re.fullmatch(rf"failed {now} {now} not lately 20", found["2"])
    assert re.fullmatch(rf"failed {now} {now} {now} [+]30 30", found["3"])
    assert re.fullmatch(rf"done {now} {now} −4 0", found["gone"])
    assert f'href="../../tables/orders/refreshes/{"f" * 32}"' in page


def test_intervals_that_are_not_done_can_be_refreshed(user, table):
    page = user.get(URL).text
    asked = user.get(URL, params={"from": "3", "until": "12"}).text

    [row] = re.findall(r'<tr class="done">(.*?)</tr>', page, re.S)
    assert re.match(r"3 9 failed", text_of(row))
    assert 'data-from="3" data-until="9" data-said="from 3 until 9"' in page
    assert list(lines(asked)) == ["3"]


def test_range_that_no_refresh_covered_is_missing(user, store):
    table = registered(store, "orders", **PARTED)
    store.record(a_refresh(table, scope=Scope(start="2026-01", end="2026-02")), a_caller(), Outcome.NOTHING_TO_DO)

    page = user.get(URL, params={"from": "2026-01", "until": "2026-04"}).text
    done = user.get(URL, params={"from": "2026-01", "until": "2026-02"}).text

    assert "2026-02 2026-04 missing" in text_of(page)
    assert "Every interval in this range is done." in done


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        *(("?show=failed", "3 2"), ("?show=frozen", "1"), ("?show=missing", ""), ("?show=nonsense", "gone 3 2 1")),
        *(("?order=asc", "1 2 3 gone"), ("?sort=rows", "3 2 1 gone"), ("?sort=rows&order=asc", "gone 1 2 3")),
        *(("?sort=changed", "gone 3 1 2"), ("?from=2&until=3", "2"), ("?page=99", "gone 3 2 1")),
    ],
)
def test_filters_order_and_range_are_in_the_address(user, table, query, shown):
    assert list(lines(user.get(URL + query).text)) == shown.split()


def test_filters_say_how_many_they_would_show(user, table):
    found = re.search(r'aria-label="Filter">(.*?)</nav>', user.get(URL).text, re.S)[1]

    assert text_of(found) == "All 4 Failed 2 Running 0 Missing 0 Frozen 1"


def test_partitions_are_picked_by_whoever_may_act_and_frozen_ones_by_nobody(user, viewer, table):
    page = user.get(URL).text

    assert re.findall(r'name="partition" value="([^"]*)"', page) == [
        *("[&#34;gone&#34;]", "[&#34;3&#34;]", "[&#34;2&#34;]"),
    ]
    assert 'id="start-run"' in page
    assert "data-confines" not in viewer.get(URL).text
    assert 'type="checkbox"' not in viewer.get(URL).text


def test_two_hundred_partitions_are_a_page(user, store, clock):
    keeper = Keeper(store, clock, registered(store, "orders", **PARTED), months(250))
    keeper.refresh(CORRECTIONS)

    first, second = user.get(URL).text, user.get(f"{URL}?page=2").text

    assert (len(lines(first)), len(lines(second))) == (200, 50)
    assert "Page 1 of 2, 250 partitions" in text_of(first)


def test_table_without_partitions_says_so(user, store):
    walk(store, acquired(store, registered(store, "orders")), Phase.NORMAL)

    page = user.get(URL).text

    assert "This table has no natural partitions" in page
    assert lines(page) == {}


def test_table_that_was_never_refreshed_or_is_not_there(user, store):
    registered(store, "orders", **PARTED)

    assert "No partition is known yet" in user.get(URL).text
    assert user.get(f"{PAGE}/tables/nothing/partitions").status_code == 404


def test_open_page_is_told_nothing_twice_and_notices_a_refresh(user, store, table):
    tag = user.get(URL).headers["etag"]
    assert user.get(URL, headers={"if-none-match": tag}).status_code == 304
    acquired(store, table, scope=Scope((P2,)))

    page = user.get(URL, headers={"if-none-match": tag}).text

    assert lines(page)["2"].startswith("running")
    assert "data-live" in page
    assert "A refresh is in progress" in page


def test_hostile_names_stay_names(user, store):
    hostile = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}\x1b[31m"
    table = registered(store, "orders", **PARTED)
    scopes = (Scope((partition_name([hostile]),)), Scope(start=hostile, end=hostile + "z"))
    for number, scope in enumerate(scopes):
        store.record(a_refresh(table, id=str(number) * 32, scope=scope), a_caller(), Outcome.FAILED)

    page = user.get(URL, params={"from": "", "until": hostile + "zz", "show": hostile, "sort": hostile}).text

    assert "&lt;img src=x" in page
    assert "{{7*7}}" in page
    assert_harmless(page)


@pytest.mark.parametrize("num_tables", [1, 30])
def test_three_queries_for_any_number_of_tables_and_partitions(viewer, store, clock, statements, num_tables):
    for number in range(num_tables):
        name = f"t{number:02}" if number else "orders"
        keeper = Keeper(store, clock, registered(store, name, **PARTED), months(100))
        keeper.refresh(CORRECTIONS)
    clock.pass_ms(HOUR_MS)
    viewer.get(URL)
    statements.begin()

    page = viewer.get(URL).text

    assert len(lines(page)) == 100
    assert len(statements.selects) <= 3, statements.selects

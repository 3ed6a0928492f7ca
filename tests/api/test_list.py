"""The list of tables: what a line says, what is asked of the databases for it, and a thousand tables."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from tests.api.conftest import PAGE, text_of
from tests.api.filled import Keeper, fill, months
from tests.metadata.rows import ERROR, FIRST, a_caller, a_refresh, acquired, publish, registered, walk

pytestmark = pytest.mark.slow


def lines(page: str) -> dict[str, str]:
    """Return what the list says of each table, by its name."""
    found = {}
    for row in re.findall(r"<tr>\s*(?:<td class=\"pick\".*?</td>\s*)?<th scope=\"row\">(.*?)</tr>", page, re.S):
        words = text_of(row).split()
        found[words[0]] = " ".join(words[1:])
    return found


def test_without_a_table_it_says_how_one_comes_to_be(viewer, store):
    page = viewer.get(f"{PAGE}/").text

    assert "No table is registered yet." in page
    assert "RefreshTableOperator" in page


def test_late_table_needs_attention_and_says_so(user, store):
    registered(store, "orders", freshness={"target": 60})
    registered(store, "regions")

    page = user.get(f"{PAGE}/?show=needs+attention").text

    assert list(lines(page)) == ["orders"]
    assert ">late</span>" in page
    assert ">late</span>" in user.get(f"{PAGE}/tables/orders").text
    assert ">late</span>" not in user.get(f"{PAGE}/tables/regions").text


def test_a_line_says_phase_freshness_last_result_and_next_run(viewer, store):
    under_way = registered(store, "orders")
    own = acquired(store, under_way)
    walk(store, own, Phase.MERGING)
    store.merging.record_chunk(own, FIRST)
    walk(store, acquired(store, registered(store, "regions")), Phase.NORMAL)
    store.pause(registered(store, "paused_one").id, "ann")
    store.abandon(acquired(store, registered(store, "spoilt")), Outcome.FAILED, ERROR, {})

    found = lines(viewer.get(f"{PAGE}/").text)

    assert re.fullmatch(r"hourly, repair Merging 2 of 3 partitions never none yet (due|in \d+ \w+)", found["orders"])
    regions = (
        "<b>Alone & bold</b> ann & co #<b>sales #gold Normal (just now|.* ago) published [+]32 ~1 −5 (just now|.* ago)"
        r" \d.*s 60 4.2 kB on request"
    )
    assert re.fullmatch(regions, found["regions"])
    assert found["paused_one"] == "paused_dag Normal paused never none yet DAG is paused"
    assert re.fullmatch(r"Last failed never failed MV-ENGINE (just now|.* ago) 0.0 s no DAG", found["spoilt"])


def test_what_a_browser_has_is_not_sent_again_until_it_changes(viewer, store):
    table = registered(store, "orders")
    url, known = f"{PAGE}/", {}

    def status() -> int:
        answer = viewer.get(url, headers=known)
        known["if-none-match"] = f"W/{answer.headers['etag']}"  # as a proxy that compresses makes it
        assert answer.headers["cache-control"] == "no-store"
        return answer.status_code

    assert [status(), status()] == [200, 304]
    store.pause(table.id, "ann")
    assert [status(), status()] == [200, 304]
    url, known = f"{PAGE}/tables/orders/now", {}
    assert [status(), status()] == [200, 304]
    store.resume(table.id)
    assert [status(), status()] == [200, 304]


def test_table_with_a_refresh_under_way_is_sent_each_time(viewer, store):
    acquired(store, registered(store, "orders"))

    assert "etag" not in viewer.get(f"{PAGE}/tables/orders/now").headers  # its times grow, and its partitions


def test_only_a_list_with_a_refresh_under_way_is_looked_at_often(viewer, store):
    table = registered(store, "orders")
    at_rest = viewer.get(f"{PAGE}/").text
    acquired(store, table)

    assert "data-live" not in at_rest
    assert "data-live" in viewer.get(f"{PAGE}/").text


@pytest.fixture
def several(store):
    acquired(store, registered(store, "busy"))
    store.pause(registered(store, "halted").id, "ann")
    store.abandon(acquired(store, registered(store, "spoilt")), Outcome.FAILED, ERROR, {})
    store.record(a_refresh(registered(store, "fine")), a_caller(), Outcome.NOTHING_TO_DO)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, ["spoilt", "busy", "fine", "halted"]),  # what needs attention, then by name
        ({"show": "in progress"}, ["busy"]),
        ({"show": "needs attention"}, ["spoilt"]),
        ({"show": "paused"}, ["halted"]),
        ({"show": "no such filter"}, ["spoilt", "busy", "fine", "halted"]),
        ({"search": "S"}, ["spoilt", "busy"]),
        ({"search": " fin "}, ["fine"]),
        ({"search": "%"}, []),
        ({"show": "paused", "search": "b"}, []),
        ({"page": "99"}, ["spoilt", "busy", "fine", "halted"]),
        ({"page": "-1"}, ["spoilt", "busy", "fine", "halted"]),
    ],
    ids=str,
)
def test_filters_and_search(viewer, several, query, shown):
    assert list(lines(viewer.get(f"{PAGE}/", params=query).text)) == shown


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({"order": "desc"}, ["busy", "fine", "halted", "regions", "spoilt"]),
        ({"sort": "table"}, ["busy", "fine", "halted", "regions", "spoilt"]),
        ({"sort": "table", "order": "desc"}, ["spoilt", "regions", "halted", "fine", "busy"]),
        ({"sort": "rows"}, ["regions", "busy", "fine", "halted", "spoilt"]),
        ({"sort": "rows", "order": "desc"}, ["regions", "busy", "fine", "halted", "spoilt"]),
        ({"sort": "no such column"}, ["spoilt", "busy", "fine", "halted", "regions"]),
        ({"sort": "owner"}, ["regions", "busy", "fine", "halted", "spoilt"]),
        ({"sort": "tag", "order": "desc"}, ["regions", "busy", "fine", "halted", "spoilt"]),
        ({"tag": "gold"}, ["regions"]),
        ({"owner": "ann & co"}, ["regions"]),
        ({"owner": "ann"}, []),
    ],
    ids=str,
)
def test_sorting_owners_and_tags_are_in_the_address(viewer, store, several, query, shown):
    walk(store, acquired(store, registered(store, "regions")), Phase.NORMAL)

    assert list(lines(viewer.get(f"{PAGE}/", params=query).text)) == shown


@pytest.mark.parametrize("order", ["", "desc"])
@pytest.mark.parametrize("sort", ["table", "state", "fresh", "last", "took", "rows", "size", "next"])
def test_every_column_sorts_and_the_other_way_round_at_the_second_click(viewer, several, sort, order):
    page = viewer.get(f"{PAGE}/", params={"sort": sort, "order": order, "show": "paused", "search": "a"}).text

    [heading] = re.findall(r'<th[^>]*aria-sort="(\w+)"', page)
    [link] = re.findall(rf'id="sort-{sort}" href="([^"]*)"', page)
    assert heading == ("descending" if order else "ascending")
    assert ("order=desc" in link) == (not order)
    assert "show=paused" in link
    assert "search=a" in link


def test_tables_are_sorted_by_the_size_that_is_known(viewer, store):
    for name, size in (("big", 7_000_000), ("asked", None), ("none", 0), ("small", 900)):
        own = acquired(store, registered(store, name))
        walk(store, own, Phase.MERGING)
        publish(store, own, main_bytes=size)
        store.finish(own, {})
    registered(store, "never")

    shown, other_way = (lines(viewer.get(f"{PAGE}/?sort=size{order}").text) for order in ("", "&order=desc"))

    assert list(shown) == ["none", "small", "big", "asked", "never"]
    assert list(other_way) == ["big", "small", "none", "asked", "never"]
    assert [shown[name].endswith(f"60 {size} no DAG") for name, size in (("small", "900 B"), ("big", "7.0 MB"))]
    assert shown["asked"].endswith("60 no DAG")


@pytest.mark.parametrize("sort", ["owner", "tag", "rows"])
def test_what_has_no_column_is_chosen_in_a_form_that_keeps_the_filters(viewer, several, sort):
    page = viewer.get(f"{PAGE}/", params={"sort": sort, "order": "desc", "show": "paused", "owner": "ann"}).text

    [form] = re.findall(r'<form class="sort".*?</form>', page, re.S)
    assert re.findall(r'value="(\w+)" selected', form) == [sort]
    assert 'value="desc" checked' in form
    assert re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form) == [("show", "paused"), ("owner", "ann")]


def pick(browser, verb: str, *tables: str):
    fields = {"verb": verb, "table": list(tables), "show": "paused", "sort": "rows", "page": "2", "done": "x"}
    return browser.post(f"{PAGE}/picked", data=fields)


def test_picked_tables_are_paused_and_resumed_together(user, store, several):
    answer = pick(user, "pause", "fine", "busy", "fine")

    assert answer.headers["location"] == "./?show=paused&sort=rows&page=2&done=bulk-pause"
    page = user.get(f"{PAGE}/{answer.headers['location'][2:]}").text
    assert "Paused: no new refresh of these tables begins." in page
    assert sorted(lines(page)) == ["busy", "fine", "halted"]
    pick(user, "resume", "fine", "busy", "halted")
    assert lines(user.get(f"{PAGE}/?show=paused").text) == {}


def test_the_list_says_of_which_dag_a_run_would_wait_because_it_is_paused(user, store):
    for name in ("orders", "paused_one", "undeclared"):
        registered(store, name)

    picks = dict(re.findall(r'id="pick-(\w+)" aria-label="Pick \w+"([^>]*)>', user.get(f"{PAGE}/").text))

    assert {name: told.strip() for name, told in picks.items()} == {
        "orders": 'data-dag="hourly"',
        "paused_one": 'data-dag="paused_dag" data-paused',
        "undeclared": "",
    }


def test_a_run_is_offered_first_of_a_dag_that_is_not_paused():
    from airflow_mv_provider.api.airflow_database import DeclaringDag
    from airflow_mv_provider.api.table_list import runnable

    paused = DeclaringDag("a", "a", None, None, None, is_paused=True, can_run=True)
    barred, first, second = (replace(paused, dag_id=name, is_paused=False, can_run=name != "b") for name in "bcd")

    assert runnable([paused, barred, first, second]) == (first, second, paused)


def test_one_table_that_may_not_be_changed_or_is_none_bars_all(user, viewer, store, several):
    assert pick(viewer, "pause", "fine").status_code == 403
    assert 'name="table"' not in viewer.get(f"{PAGE}/").text
    assert pick(user, "pause", "fine", "no_such").status_code == 404
    assert pick(user, "drop", "fine").headers["location"].endswith("done=bulk-nothing")
    assert "paused" not in lines(user.get(f"{PAGE}/").text)["fine"]


def test_a_page_number_that_is_none_is_refused(viewer, store):
    assert viewer.get(f"{PAGE}/", params={"page": "two"}).status_code == 422


def test_filters_say_how_many_they_would_show(viewer, several):
    page = viewer.get(f"{PAGE}/", params={"show": "paused"}).text

    counts = re.findall(r">([\w ]+) <span class=\"count\">(\d+)<", page)
    assert counts == [("All", "4"), ("In progress", "1"), ("Needs attention", "1"), ("Paused", "1")]


def test_a_dags_tab_is_its_tables(viewer, store):
    for name in ("orders", "customers", "regions"):
        registered(store, name)

    assert list(lines(viewer.get(f"{PAGE}/dags/hourly").text)) == ["customers", "orders"]
    assert "No task of this DAG publishes" in viewer.get(f"{PAGE}/dags/nothing").text
    assert viewer.get(f"{PAGE}/dags/alone").headers["location"] == "../tables/regions"


def test_a_database_that_nobody_has_migrated_says_what_to_do(viewer, store, postgres, monkeypatch):
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", postgres.new_database())
    forget_the_database(monkeypatch)

    answer = viewer.get(f"{PAGE}/", headers={"accept": "text/html"})

    assert answer.status_code == 503
    assert "amv db migrate" in answer.text


def test_a_database_that_is_away_says_so_without_its_password(viewer, store, monkeypatch):
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", "postgresql://mv:hunter2@127.0.0.1:1/mv")
    forget_the_database(monkeypatch)

    answer = viewer.get(f"{PAGE}/")

    assert answer.status_code == 503
    assert "hunter2" not in answer.text


def forget_the_database(monkeypatch):
    """Let the next request look for the database, as the first one of a process does."""
    from airflow_mv_provider.api.connection import connection

    known = connection()
    monkeypatch.setattr(known, "_until", 0.0)
    monkeypatch.setattr(known, "_opened", None)


# -- a thousand tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_tables", [2, 30])
def test_a_list_of_any_length_takes_three_queries(viewer, store, clock, statements, num_tables):
    for number in range(num_tables):
        keeper = Keeper(store, clock, registered(store, f"t{number:02}"), months(3))
        keeper.seal(keeper.begin(a_refresh(keeper.table).choice), 1.0)
    viewer.get(f"{PAGE}/")
    statements.begin()

    page = viewer.get(f"{PAGE}/").text

    assert len(lines(page)) == num_tables
    assert len(statements.selects) <= 3, statements.selects


def test_a_page_has_a_hundred_lines_and_leads_to_the_next(viewer, store):
    for number in range(101):
        registered(store, f"t{number:03}")

    first = viewer.get(f"{PAGE}/").text
    last = viewer.get(f"{PAGE}/", params={"page": 2}).text

    assert (len(lines(first)), list(lines(last))) == (100, ["t100"])
    assert 'rel="next" href="?page=2"' in first
    assert "Page 2 of 2, 101 tables" in last
    assert 'rel="prev" href="?"' in last


def test_a_search_for_a_word_that_a_filter_has_too_is_kept(viewer, store):
    for number in range(101):
        registered(store, f"all{number:03}")

    assert 'rel="next" href="?search=all&amp;page=2"' in viewer.get(f"{PAGE}/", params={"search": "all"}).text


def test_the_second_page_of_a_dags_tables_is_shown(viewer, store):
    for number in range(101):
        registered(store, f"many.t{number:03}")

    assert list(lines(viewer.get(f"{PAGE}/dags/many", params={"page": 2}).text)) == ["many.t100"]


def test_tables_in_every_state_are_shown(viewer, store, clock):
    keepers = fill(store, clock, partitions=5, refreshes=4)

    page = viewer.get(f"{PAGE}/").text

    assert set(lines(page)) == {*keepers, "returns"}
    for name in keepers:
        assert viewer.get(f"{PAGE}/tables/{name}").status_code == 200


def test_the_dialog_offers_every_scope_of_a_run():
    from airflow_mv_provider.api import words
    from airflow_mv_provider.core.scope.request import SCOPES

    assert tuple(value for value, _ in words.SCOPES) == SCOPES

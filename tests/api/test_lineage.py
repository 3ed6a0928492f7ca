"""The pages of the lineage: what tables are made of, as a list and a picture, as far as somebody may see it."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from sqlalchemy import update

from airflow_mv_provider import DeltaSource, Ingestion, Query
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata.models import RefreshableTableRow
from tests.api.conftest import PAGE, assert_harmless, text_of
from tests.metadata.rows import ERROR, acquired, registered, walk

pytestmark = pytest.mark.slow

ALL = f"{PAGE}/lineage"


def of(table: str) -> str:
    return f"{PAGE}/tables/{table}/lineage"


@pytest.fixture
def tables(store):
    """raw/customers → customers → totals, orders → totals, and the table `apart`."""
    for name in ("customers", "orders", "apart"):
        registered(store, name, source=DeltaSource(f"raw/{name}"))
    inputs = {"c": "customers", "o": "/wh/orders", "x": "raw/rates"}
    registered(store, "totals", source=Query("SELECT * FROM c, o, x", inputs=inputs), freshness={"target": 60})


def listed(page: str) -> dict[str, str]:
    """Return what the list says of each table, by its name."""
    found = {}
    for line in re.split(r"\n    <li>\n", page.partition('<ul class="lineage">')[2])[1:]:
        text = text_of(line.partition("\n    </li>")[0])
        name, _, rest = text.partition(" ")
        found[name] = rest
    return found


def boxes(page: str) -> dict[str, str]:
    """Return what the picture says of each node, by its name."""
    titles = re.findall(r"<title>([^<]*)</title>\s*</(?:a|g)>", page)
    return {name: said for name, _, said in (title.partition(": ") for title in titles)}


def test_tables_are_listed_in_the_order_in_which_rows_come_to_them(user, store, tables):
    walk(store, acquired(store, store.table("customers")), Phase.NORMAL)
    store.abandon(acquired(store, store.table("orders")), Outcome.FAILED, ERROR, {})

    page = user.get(ALL).text

    found = listed(page)
    assert sorted(list(found)[:2]) == ["customers", "orders"]
    assert list(found)[2:] == ["totals", "apart"]
    assert re.fullmatch(
        r"Normal published fresh as of (just now|\d+ s ago) Reads: raw/customers Then: totals", found["customers"]
    )
    assert found["orders"] == "Last failed fresh as of never Reads: raw/orders Then: totals"
    assert found["totals"] == (
        "Normal fresh as of never late Reads: customers , orders , raw/rates Also started by: s3://bucket/<landing>"
        " Then: DAG Report & send"
    )
    assert found["apart"] == "Normal fresh as of never Reads: raw/apart"


def test_the_picture_has_the_same_tables_sources_and_states(user, store, tables):
    walk(store, acquired(store, store.table("customers")), Phase.NORMAL)
    store.abandon(acquired(store, store.table("orders")), Outcome.FAILED, ERROR, {})
    acquired(store, store.table("apart"))

    page = user.get(ALL).text

    found = boxes(page)
    assert re.fullmatch(r"as of (just now|\d+ s ago)", found.pop("customers"))
    assert found == {
        **{"orders": "failed", "totals": "late", "apart": "refreshing"},
        **{f"raw/{name}": "source" for name in ("customers", "orders", "apart", "rates")},
        "s3://bucket/&lt;landing&gt;": "asset",
        "Report &amp; send": "DAG",
    }
    assert len(re.findall(r'<path class="reads"', page)) == 6
    assert len(re.findall(r'<path class="trigger"', page)) == 2
    assert 'href="./tables/totals/lineage"' in page
    assert '<svg aria-hidden="true"' in page


def test_an_ingestion_is_before_its_tables(user, store):
    erp = Ingestion(name="erp", source={"type": "jdbc", "conn_id": "erp"}, outputs={"lines": {"table": "lines"}})
    registered(store, "lines", source=erp.output("lines"))

    page = user.get(of("lines")).text

    assert listed(page)["lines"] == ("Normal fresh as of never Reads: jdbc erp: lines Also started by: ingestion erp")
    assert boxes(page)["erp"] == "ingestion"
    assert_harmless(page)


def test_a_tables_page_has_what_comes_before_and_after_it(user, tables):
    page = user.get(of("customers")).text

    assert list(listed(page)) == ["customers", "totals"]
    assert boxes(page).keys() == {"raw/customers", "customers", "totals", "Report &amp; send"}
    assert '<a href="../../tables/customers/lineage" aria-current="page">Lineage</a>' in page
    assert 'class="box table center"' in page
    assert 'href="../../../dags/report"' in page


def test_the_list_of_tables_leads_to_the_lineage(viewer, tables):
    assert 'href="./lineage"' in viewer.get(f"{PAGE}/").text
    assert viewer.get(ALL).status_code == viewer.get(of("apart")).status_code == 200


def test_a_table_that_is_not_there_has_no_lineage(user, tables):
    assert user.get(of("nothing")).status_code == 404
    assert user.get(of("paused_one")).status_code == 404, "it is declared, and not registered"


def test_without_a_table_there_is_no_picture(user, store):
    page = user.get(ALL).text

    assert "No table is registered yet." in page
    assert "<svg" not in page


def test_a_table_that_a_user_may_not_read_is_neither_named_nor_linked(user, tables, rights):
    rights["GET"] = {"hourly", "repair"}  # which declare customers and orders

    page, near = user.get(ALL).text, user.get(of("totals")).text

    for hidden in ("customers", "orders"):
        assert hidden not in page + near
        assert user.get(of(hidden)).status_code == 404
    assert "Reads: another table, which you may not see , raw/rates" in listed(page)["totals"]
    assert boxes(near)["another table"] == "you may not see it"


def test_a_dag_that_a_user_may_not_read_is_not_named(user, tables, rights):
    rights["GET"] = {"report"}
    page = user.get(ALL).text

    assert "Report" not in page
    assert "Also started by: s3://bucket/<landing>" in listed(page)["totals"]
    rights["GET"] = {"summing"}
    assert "totals" not in user.get(ALL).text


def test_tables_that_read_each_other_are_shown(user, store):
    registered(store, "one", source=DeltaSource("two"))
    registered(store, "two", source=DeltaSource("one"))

    found = listed(user.get(ALL).text)

    assert {name: text.partition("Reads: ")[2] for name, text in found.items()} == {
        **{"one": "two Then: two", "two": "one Then: one"}
    }


def test_an_open_page_is_told_nothing_twice_in_a_minute_and_notices_a_refresh(user, store, tables):
    for url in (ALL, of("totals")):

        def asked(tag: str, url: str = url) -> int:
            return user.get(url, headers={"if-none-match": tag}).status_code

        # Between the two requests a minute may begin, but not twice.
        assert 304 in [asked(user.get(url).headers["etag"]) for _ in range(2)]
        tag = user.get(url).headers["etag"]
        store.abandon(acquired(store, store.table("orders")), Outcome.FAILED, ERROR, {})
        store.pause(store.table("totals").id, url)
        assert asked(tag) == 200
        store.resume(store.table("totals").id)


def test_hostile_names_stay_names(user, store):
    hostile = "<script>alert(1)<script>\"'><img src=x onerror=alert(1)>{{7*7}}\x1b[31m"
    registered(store, "orders", source=DeltaSource(hostile.replace("\x1b", "")))
    with store.engine.begin() as db:
        db.execute(update(RefreshableTableRow).values(name=hostile))

    for url in (ALL, of(quote(hostile, safe=""))):
        page = user.get(url).text

        assert "&lt;img src=x" in page
        assert "{{7*7}}" in page
        assert_harmless(page)


def test_a_thousand_tables_are_three_queries_and_pages_of_a_hundred(viewer, store, statements):
    inputs = [{"x": "raw/x"}, *({"x": f"t{n // 3}"} for n in range(1, 260))]
    for number, each in enumerate(inputs):
        registered(store, f"t{number}", source=Query("SELECT * FROM x", inputs=each))
    for number in range(150):
        registered(store, f"apart{number:03}", source=DeltaSource(f"raw/{number}"))
    viewer.get(ALL)
    statements.begin()

    pages = [viewer.get(ALL, params={"page": number}).text for number in (1, 2, 3, 99)]

    assert len(statements.selects) <= 3 * len(pages), statements.selects[:3]
    assert [len(listed(page)) for page in pages] == [260, 75, 75, 75]
    assert ["<svg" in page for page in pages] == [False, True, True, True]
    assert "too many for a picture" in pages[0]
    assert len(listed(viewer.get(of("t0")).text)) == 149, "the nearest"

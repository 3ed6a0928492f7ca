"""What the dialogs refuse before runs are started: what a DAG's author has fixed, for all that a run refreshes."""

from __future__ import annotations

import json
import re

import pytest
from sqlalchemy import update

from airflow_mv_provider.api.airflow_database import _written_in, written_tasks
from airflow_mv_provider.core.scope.declared_refresh import DeclaredRefresh
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.scope.scope import asked_scope
from airflow_mv_provider.metadata.models import RefreshStateRow
from tests.api.conftest import PAGE, text_of
from tests.metadata.rows import registered

pytestmark = pytest.mark.slow

FEBRUARY = {"scope": "partitions", "partitions": ["2026-02"]}


@pytest.fixture
def tables(store):
    for name in ("monthly", "daily"):
        registered(store, name, partition_by=["day"], key=["id", "day"])
    with store.engine.begin() as db:
        db.execute(update(RefreshStateRow).values(partition_type="string"))
    for name in ("orders", "customers", "flat", "shop.items", "shop.prices", "undeclared"):
        registered(store, name)


def of_one(browser, table: str, dag: str, **conf: object) -> list[str]:
    sent = {"conf": json.dumps(conf), "dag": dag}
    return browser.post(f"{PAGE}/tables/{table}/check", data=sent).json()["problems"]


def of_picked(browser, *tables: str, **conf: object) -> list[str]:
    return browser.post(f"{PAGE}/picked/check", data={"conf": json.dumps(conf), "table": tables}).json()["problems"]


def dialog(page: str) -> str:
    return text_of(re.search(r'<dialog id="start-run".*?</dialog>', page, re.S)[0])


def test_airflow_keeps_what_each_tasks_author_has_written(dag_ids):
    from airflow.utils.session import create_session  # noqa: TID251

    with create_session() as session:
        found = written_tasks(session, ["first_months", "of_the_day", "ingest_shop", "hourly", "not_there"])

    assert found == {
        "first_months": (DeclaredRefresh(("monthly",), Request(scope=asked_scope((), "2026-01", "2026-03"))),),
        "of_the_day": (DeclaredRefresh(("daily",), Request(read_only=True, scope=asked_scope(["{{ ds }}"]))),),
        "ingest_shop": (DeclaredRefresh(("shop.items", "shop.prices"), ingestion="shop"),),
        "hourly": (),
    }


@pytest.mark.parametrize(
    "stored", ['{"request": {"future": true}}', '{"tables": ["orders"], "request": {"future": 1}}']
)
def test_what_another_version_has_written_is_left_out(stored):
    parsed = {"dag": {"tasks": [{"__var": {"mv_written": stored}}]}}

    assert list(_written_in(parsed)) == []


def test_the_dialog_says_what_the_author_has_fixed_and_asks_for_nothing_else(user, tables):
    fixed, by_template, ingested, free = (
        user.get(f"{PAGE}/tables/{name}").text for name in ("monthly", "daily", "shop.items", "orders")
    )

    assert (
        "The author of first_months has fixed for monthly: it refreshes partitions from 2026-01 until 2026-03."
        " A run cannot change that." in dialog(fixed)
    )
    assert "Partitions" not in dialog(fixed)
    assert "Wait for a decision" in dialog(fixed)
    assert 'it refreshes partitions ["{{ ds }}"] and it writes nothing.' in dialog(by_template)
    assert "it refreshes all tables of shop in one state, and its runs take no options." in dialog(ingested)
    assert "Wait for a decision" not in dialog(ingested)
    assert "has fixed" not in dialog(free)


def test_a_run_cannot_leave_what_the_author_has_fixed(user, tables):
    assert of_one(user, "monthly", "first_months", hold=True, note="x") == []
    [problem] = of_one(user, "monthly", "first_months", **FEBRUARY)
    assert "the task covers partitions from 2026-01 until 2026-03; the run requests partitions" in problem
    assert of_one(user, "monthly", "hourly", **FEBRUARY) == [], "no DAG of this table"
    [problem] = of_one(user, "shop.items", "ingest_shop", read_only=True)
    assert problem.startswith("shop.items, shop.prices: shop: all its tables are refreshed in one state; a run takes")


def test_tables_that_the_run_refreshes_as_well_are_looked_at(user, tables):
    sent = {"conf": json.dumps(FEBRUARY), "dag": "of_the_day"}

    found = user.post(f"{PAGE}/tables/daily/check", data=sent).json()

    [own], [other] = found["problems"], found["of_others"]
    assert own.startswith("scope: the task covers")
    assert other.startswith("flat, which the run refreshes as well: scope: flat has no natural partitions.")


def test_tables_that_a_user_may_not_see_are_not_named(user, tables, rights):
    rights["GET"] = {"of_the_day"}

    sent = {"conf": json.dumps(FEBRUARY), "dag": "of_the_day"}

    assert user.post(f"{PAGE}/tables/daily/check", data=sent).json() == {"problems": [], "of_others": []}


def test_what_does_not_fit_is_said_for_each_picked_table(user, store, tables):
    before = {table.name: store.state(table.id) for table in store.tables()}
    sent = {"conf": json.dumps(FEBRUARY), "table": ("monthly", "orders")}

    found = user.post(f"{PAGE}/picked/check", data=sent).json()

    assert [each.partition(":")[0] for each in found["problems"]] == ["monthly", "orders"]
    assert [each.partition(":")[0] for each in found["of_others"]] == ["customers, which the run refreshes as well"]
    [problem] = of_picked(user, "monthly", "orders", strategy="quickly")
    assert "Strategies: " in problem
    assert of_picked(user, "monthly", "orders", hold=True, note="why") == []
    assert of_picked(user, "orders", hold=True, read_only=True) == of_one(
        user, "orders", "hourly", hold=True, read_only=True
    )
    assert "not understood" in user.post(f"{PAGE}/picked/check", data={"table": "orders"}).json()["problems"][0]
    assert {table.name: store.state(table.id) for table in store.tables()} == before


def test_a_table_that_one_may_not_act_on_is_not_looked_at(user, viewer, tables, rights):
    data = {"conf": "{}", "table": ("monthly", "orders")}
    assert viewer.post(f"{PAGE}/picked/check", data=data).status_code == 403
    rights["POST"] = {"repair"}

    assert user.post(f"{PAGE}/picked/check", data=data).status_code == 403
    assert user.post(f"{PAGE}/picked/check", data=data | {"table": ("monthly", "not_there")}).status_code == 404


def test_many_problems_are_counted(user, store):
    names = [f"t{number:02}" for number in range(15)]
    for name in names:
        registered(store, name)

    found = of_picked(user, *names, **FEBRUARY)

    assert len(found) == 11
    assert found[-1] == "And 5 more."


def test_the_list_has_a_dialog_for_those_who_may_act(user, viewer, tables):
    listed, seen = (each.get(f"{PAGE}/").text for each in (user, viewer))

    assert 'data-checks="./picked/check" data-many' in listed
    assert "Partitions" in dialog(listed)
    assert '<dialog id="start-run"' not in seen


def test_four_queries_for_any_number_of_picked_tables(user, store, tables, statements):
    names = [table.name for table in store.tables()]
    statements.begin()

    of_picked(user, *names)

    assert len(statements.selects) <= 4, statements.selects

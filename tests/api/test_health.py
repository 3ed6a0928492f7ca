"""What the page says of tables that do not follow their sources, and of an ingestion's tables."""

from __future__ import annotations

import re

import pytest

from airflow_mv_provider import Ingestion
from airflow_mv_provider.core.outcome import ErrorReport
from tests.api.conftest import PAGE, text_of
from tests.metadata.rows import a_caller, acquired, registered, walk

pytestmark = pytest.mark.slow

AWAY = ErrorReport("MV-SOURCE-UNAVAILABLE", "source: <b>no</b> answer.", "Start it.", True)
ERP = Ingestion(
    name="erp",
    source={"type": "jdbc", "conn_id": "erp"},
    outputs={"orders": {"table": "public.orders"}, "lines": {"table": "public.lines"}},
)


def test_table_that_cannot_begin_is_stalled_in_the_list_and_on_its_page_until_it_begins(user, store):
    table = registered(store, "orders")
    store.obstacles.met(table.id, AWAY)
    store.obstacles.met(table.id, AWAY)

    listed, page = user.get(f"{PAGE}/?show=needs+attention"), user.get(f"{PAGE}/tables/orders")

    assert "stalled" in text_of(listed.text)
    assert "<b>no</b>" not in listed.text + page.text
    shown = text_of(page.text)
    assert "No refresh can begin" in shown
    assert "at 2 tries" in shown
    assert "What to do: Start it." in shown
    walk(store, acquired(store, table), "NORMAL")
    later = text_of(user.get(f"{PAGE}/tables/orders").text)
    assert "No refresh can begin" not in later
    assert "MV-SOURCE-UNAVAILABLE" in later, "the history of its health still has it"


@pytest.mark.in_test_all
def test_tables_of_an_ingestion_lead_to_each_other(user, store):
    for name in ("orders", "lines"):
        registered(store, name, source=ERP.output(name))
    registered(store, "alone")

    shown, alone = (user.get(f"{PAGE}/tables/{name}").text for name in ("orders", "alone"))

    assert "Output of erp , with lines" in text_of(shown)
    assert 'tables/lines"' in shown
    assert "Output of" not in text_of(alone)


def dialog_of(page: str) -> str:
    """Return what the dialog that starts a run says."""
    [found] = re.findall(r'<dialog id="start-run".*?</dialog>', page, re.S)
    return text_of(found)


def test_the_dialog_says_how_the_tables_of_an_ingestion_do(user, viewer, store):
    for name in ("orders", "customers"):
        registered(store, name, source=ERP.output("orders"))
    registered(store, "regions")
    store.obstacles.met(store.table("customers").id, AWAY)
    run_id = store.ingestions.bind("erp", "snapshot 7", a_caller())
    store.ingestions.end(run_id, None, AWAY)

    page = user.get(f"{PAGE}/tables/orders").text

    said = dialog_of(page)
    assert "orders is an output of the ingestion erp :" in said
    assert re.search(
        r"customers stalled since .*: MV-SOURCE-UNAVAILABLE source: <b>no</b> answer[.] orders created", said
    )
    assert "Its last run could not commit what is published to its source: source: <b>no</b> answer. Start it." in said
    assert "<b>no" not in page
    assert "ingestion" not in dialog_of(user.get(f"{PAGE}/tables/regions").text)


def test_the_dialog_names_no_table_that_the_user_may_not_see(user, store, rights):
    for name in ("orders", "regions"):
        registered(store, name, source=ERP.output("orders"))
    rights["GET"] = {"alone"}

    page = user.get(f"{PAGE}/tables/orders").text

    assert "orders is an output of the ingestion erp :" in dialog_of(page)
    assert "regions" not in page

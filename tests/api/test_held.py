"""A refresh that waits for a decision: where the page shows it, why, and where to decide."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.phase import Phase
from tests.api.conftest import PAGE
from tests.metadata.rows import RECORDED, acquired, registered, walk

pytestmark = pytest.mark.slow

URL = f"{PAGE}/tables/orders"
REASON = "max_deleted_fraction: 5 of the table's 33 rows would be deleted <b>."


@pytest.fixture
def table(store):
    return registered(store, "orders")


def held(store, table, key="one"):
    own = acquired(store, table, key=key)
    walk(store, own, Phase.MERGING)
    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)
    return store.holds.begin(own, 0, REASON, ["max_deleted_fraction"], hold_ms=3_600_000)


def test_it_needs_attention_and_is_neither_publishing_nor_left(user, store, table):
    held(store, table)

    listed = user.get(f"{PAGE}/?show=needs+attention").text
    assert "held for a decision" in listed
    assert "publishing" not in listed
    assert "lease expired" not in listed


def test_the_tables_page_says_why_and_how_to_decide(user, store, table):
    held(store, table)

    page = user.get(URL).text

    assert "Held for a decision" in page
    assert "5 of the table&#39;s 33 rows would be deleted &lt;b&gt;." in page
    assert "amv approve orders" in page
    assert "owner is dead" not in page
    assert "waiting for the next task" not in page


def test_one_of_a_dag_run_is_decided_in_airflow(user, store, table):
    held(store, table, key="airflow:hourly:g:-1:manual__2026")

    page = user.get(URL).text

    assert 'href="../../dags/hourly/runs/manual__2026/required_actions"' in page
    assert "amv approve" not in page


def test_after_the_decision_it_is_no_longer_held(user, store, table):
    hold = held(store, table)
    before = user.get(f"{URL}/now").text
    store.holds.decide(table.id, Decision.APPROVED, "ann", "looked", hold.id)

    after = user.get(f"{URL}/now").text

    assert "Held for a decision" in before
    assert "Held for a decision" not in after
    assert before.split("data-revision=")[1].split(" data")[0] != after.split("data-revision=")[1].split(" data")[0]

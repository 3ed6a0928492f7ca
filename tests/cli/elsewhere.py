"""A definition, another process that has taken its table, and the wait for a dead one's lease."""

from __future__ import annotations

from airflow_mv_provider.core.frontier import BatchDescription
from airflow_mv_provider.core.state import Caller, RefreshRecord
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.waiting import wait_until

ORDERS = "tables: [{name: orders, source: {type: delta, path: raw/orders}, key: [id]}]"


def begin_elsewhere(amv, refresh_id="a" * 32, **changes):
    """Another process takes the table."""
    table = amv.store.table("orders")
    state = amv.store.state(table.id)
    refresh = RefreshRecord(
        id=refresh_id,
        table_id=table.id,
        definition=table.definition,
        overrides=(),
        batch=BatchDescription(0, 1),
        frontier=DeltaFrontier("id", 0),
        choice=Choice("corrections", "first refresh"),
        **changes,
    )
    own = amv.store.acquire(state, refresh, Caller("other", "elsewhere:1"), epoch=state.epoch + 1, lease_ms=60_000)
    assert own is not None
    return own


def wait_for_the_lease(amv):
    """Wait until the lease of the killed owner of `orders` has ended, by the database's clock."""
    wait_until(lambda: not amv("status", "orders", "--json").document["is_lease_live"], 30, "the lease has ended")

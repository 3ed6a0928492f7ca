"""A snapshot of Debezium that begins again shows no deletes; one that a refresh ends within goes on."""

from __future__ import annotations

import json

import pytest

from airflow_mv_provider.exceptions import StreamRestartedError
from tests.engine.streaming import counts, shop
from tests.kafka import Record

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process, pytest.mark.in_test_all]


def event(op: str, lsn: int, number: int, value: str, snapshot: str = "false") -> Record:
    after = {"id": number, "v": value}
    return json.dumps({"id": number}), {"op": op, "after": after, "source": {"lsn": lsn, "snapshot": snapshot}}


def test_new_snapshot_of_one_row_is_noticed(shop):
    """Its only row is marked as a last one. Row 2 was deleted while no connector looked."""
    shop.send(event("r", 10, 1, "a", "last"), event("c", 20, 2, "b"), partition=0)
    shop.apply("debezium", source={"complete": True})
    shop.refresh()
    shop.send(event("r", 50, 1, "a2", "last"), event("u", 60, 1, "a3"), partition=0)

    for _ in range(2):
        with pytest.raises(StreamRestartedError, match="new snapshot"):
            shop.refresh()
    before = shop.rows
    shop.broker.forget(shop.topic, 2)
    shop.refresh(reload=True)

    assert before == [(1, "a"), (2, "b")]
    assert shop.rows == [(1, "a3")]
    assert shop.lake.workspaces() == []


def test_snapshot_goes_on_in_the_next_refresh(shop):
    shop.send(event("r", 10, 1, "a", "first_in_data_collection"), partition=0)
    shop.apply("debezium")
    shop.refresh()
    shop.send(event("r", 10, 2, "b", "true"), event("c", 11, 4, "d"), partition=1)
    shop.send(event("r", 10, 3, "c", "last"), partition=0)

    report = shop.refresh()

    assert counts(report) == ("incremental", 3, 0, 0)
    assert shop.rows == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert counts(shop.refresh(force=True))[1:] == (0, 0, 0)


def test_reload_after_a_new_snapshot_has_what_it_and_later_events_give(shop):
    """Rows 2 and 4 were deleted while no connector looked; a record of 4 is still there at the first reload."""
    shop.send(event("r", 10, 1, "a", "first"), event("r", 10, 3, "c", "last"), partition=0)
    shop.send(event("r", 10, 2, "b", "true"), event("c", 20, 4, "d"), partition=1)
    shop.apply("debezium", source={"complete": True})
    shop.refresh()
    shop.send(event("r", 50, 1, "a2", "first"), partition=0)
    shop.send(event("r", 50, 3, "c2", "last"), event("u", 60, 3, "c3"), partition=1)
    with pytest.raises(StreamRestartedError, match="a snapshot begins here"):
        shop.refresh()
    before = shop.rows

    shop.broker.forget(shop.topic, 2, partition=0)
    shop.broker.forget(shop.topic, 1, partition=1)
    shop.refresh(reload=True)
    first = shop.rows
    shop.broker.forget(shop.topic, 2, partition=1)
    reloaded = shop.refresh(reload=True)
    shop.send(event("d", 70, 1, ""), event("c", 80, 5, "e"), partition=0)
    goes_on = shop.refresh()

    assert before == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert first == [(1, "a2"), (3, "c3"), (4, "d")], "docs/kafka.md, limits"
    assert counts(reloaded)[1:] == (0, 0, 1)
    assert counts(goes_on) == ("incremental", 1, 0, 1)
    assert shop.rows == [(3, "c3"), (5, "e")]
    assert shop.lake.workspaces() == []

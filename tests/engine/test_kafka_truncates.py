"""A TRUNCATE among Debezium's events lies in one partition: the others may have been read further, or not as far."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from airflow_mv_provider.exceptions import EventError
from tests.engine.streaming import counts, shop
from tests.kafka import Record

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]


def event(op: str, lsn: int, number: int | None = None, value: str | None = None) -> Record:
    after = None if value is None else {"id": number, "v": value}
    source = {"lsn": lsn, "snapshot": "false", "ts_ms": round(time.time() * 1000)}
    return None if number is None else json.dumps({"id": number}), {"op": op, "after": after, "source": source}


@pytest.mark.parametrize("is_foreign", [False, True], ids=["incremental", "main has moved"])
@pytest.mark.in_test_all
def test_truncate_that_is_read_late_leaves_newer_rows(shop, at_point, is_foreign):
    """Rows 2 and 3 came after it, and were read before it: 3 has changed since, of 4 only the change is new."""
    shop.send(event("c", 100, 1, "old"), event("c", 101, 9, "old"), partition=0)
    shop.send(event("c", 120, 2, "newer"), event("c", 121, 3, "newer"), event("c", 99, 4, "old"), partition=1)
    shop.apply("debezium")
    shop.refresh()
    before = shop.rows
    shop.send(event("t", 110), event("c", 130, 9, "again"), partition=0)
    shop.send(event("u", 122, 3, "changed"), event("u", 109, 4, "gone"), partition=1)
    if is_foreign:
        at_point("staging.after", lambda: shop.lake.sql("UPDATE {t} SET v = 'foreign' WHERE id = 2"))

    report = shop.refresh()

    assert before == [(1, "old"), (2, "newer"), (3, "newer"), (4, "old"), (9, "old")]
    assert shop.rows == [(2, "newer"), (3, "changed"), (9, "again")]
    assert is_foreign or counts(report) == ("incremental", 0, 2, 2)
    assert counts(shop.refresh(force=True))[1:] == (0, 0, 0)
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
def test_truncate_that_comes_again_leaves_what_came_after_it(shop):
    """A connector that was killed sends it again: the first refresh reads another partition further than this one."""
    first: dict[int, Any] = {0: [event("t", 110), event("c", 111, 1, "a")], 1: [event("c", 120, 2, "b")]}
    for partition, events in first.items():
        shop.send(*events, partition=partition)
    shop.apply("debezium")
    shop.refresh()
    shop.send(*first[1], partition=1)
    shop.refresh()
    shop.send(*first[0], partition=0)

    shop.refresh()

    assert shop.rows == [(1, "a"), (2, "b")]


@pytest.mark.in_test_all
def test_events_are_not_read_to_know_their_columns(shop, at_point):
    """Reading them is most of a refresh: whether one truncates is found in the copy that staging makes of them."""
    shop.send(event("c", 1, 1, "a"), partition=0)
    shop.apply("debezium")
    shop.refresh()
    shop.send((json.dumps({"id": 2}), "no event"), partition=0)
    reached: list[str] = []
    at_point("staging.before", lambda: reached.append("staging"))

    with pytest.raises(EventError):
        shop.refresh()

    assert reached == ["staging"]


@pytest.mark.in_test_all
def test_truncate_of_another_table_of_the_topic_leaves_the_table_as_it_is(shop):
    """Tables that are routed to one topic, such as partitions; the event of the other one was read before."""

    def of(table: str, one: Record) -> Record:
        key, value = one
        names = {"db": "shop", "schema": "public", "table": table}
        return key, value | {"source": value["source"] | names}

    shop.send(of("part_1", event("c", 100, 1, "a")), of("part_2", event("c", 101, 2, "b")), partition=0)
    shop.apply("debezium")
    shop.refresh()
    shop.send(of("part_2", event("t", 110)), partition=1)

    with pytest.raises(EventError, match=r"a TRUNCATE of shop\.public\.part_2 .* shop\.public\.part_1 is in the topic"):
        shop.refresh()

    assert shop.rows == [(1, "a"), (2, "b")]
    assert shop.lake.workspaces() == []

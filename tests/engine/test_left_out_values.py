"""Large values that Debezium leaves out, below a projection: main has them, unless `select` computes with one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_mv_provider.exceptions import EventIncompleteError
from tests.engine.streaming import shop
from tests.kafka import Record

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]

LEFT_OUT = "__debezium_unavailable_value"
SCHEMA = {"schema": "id INT, v STRING, w STRING, x STRING"}


def event(op: str, lsn: int, **row: Any) -> Record:
    source = {"lsn": lsn, "snapshot": "false"}
    return json.dumps({"id": row["id"]}), {"op": op, "after": row, "source": source}


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (["*"], (1, "a", "new", "c")),
        (["id", " v ", "`x`", "upper(w) AS w"], (1, "a", "NEW", "c")),
        (["id", "v", "_offset >= 0 AS w"], (1, "a", True)),
    ],
    ids=["all", "an expression of another", "one is not selected"],
)
@pytest.mark.sample("an expression of another")
def test_value_that_passes_as_it_is_is_mains(shop, select, expected):
    shop.send(event("c", 1, id=1, v="a", w="b", x="c"), partition=0)
    shop.apply("debezium", source=SCHEMA | {"select": select})
    shop.refresh()
    shop.send(event("u", 2, id=1, v=LEFT_OUT, w="new", x=LEFT_OUT), partition=0)

    shop.refresh()

    assert shop.rows == [expected]


@pytest.mark.in_test_all
@pytest.mark.parametrize("text", ["upper(v) AS u", "to_json(struct(*)) AS u"])
def test_value_that_an_expression_computes_with_is_named(shop, text):
    shop.send(event("c", 1, id=1, v="a", w="b", x="c"), partition=0)
    shop.apply("debezium", source=SCHEMA | {"select": ["id", "v", text]})
    shop.refresh()
    before = shop.rows
    shop.send(event("u", 2, id=1, v=LEFT_OUT, w="new", x="c"), partition=0)

    with pytest.raises(EventIncompleteError, match="v is not in the event, and `select` computes with it"):
        shop.refresh()

    assert shop.rows == before

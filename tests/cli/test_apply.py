"""`amv apply`: what it registers and refuses, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

ORDERS = "tables: [{name: orders, source: {type: delta, path: raw/orders}, key: [id]}]"
ITEMS = "tables: [{name: items, source: {type: delta, path: raw/items}, key: [id]}]"


def test_apply_registers_every_table_of_every_file(amv):
    said = amv("apply", amv.file(ORDERS), amv.file(ITEMS, "items.yaml"), "--json")

    assert said.code == 0
    assert [t["table"] for t in said.document["tables"]] == ["orders", "items"]
    assert [t["table"] for t in amv("status", "--json").document["tables"]] == ["items", "orders"]


def test_apply_with_a_mistake_in_the_last_file_registers_nothing(amv):
    said = amv("apply", amv.file(ORDERS), amv.file("tables: [{name: t, colour: red}]", "bad.yaml"), "--json")

    assert said.code == 1
    assert "colour" in said.document["error"]["message"]
    assert "bad.yaml" in said.document["error"]["message"]
    assert amv("status", "--json").document == {"tables": []}


def test_apply_refuses_one_name_in_two_files(amv):
    said = amv("apply", amv.file(ORDERS), amv.file(ORDERS, "again.yaml"))

    assert said.code == 1
    assert "'orders' is also defined in" in said.err


def test_apply_without_a_warehouse_says_how_to_name_one(amv, run_amv):
    said = run_amv("apply", amv.file(ORDERS), "--database", amv.url)

    assert said.code == 1
    assert "--warehouse DIR" in said.err


def test_apply_tells_what_was_registered_before_a_refusal(amv):
    inside = "tables: [{name: raw, source: {type: delta, path: raw/x}, key: [id]}]"

    said = amv("apply", amv.file(ORDERS), amv.file(inside, "inside.yaml"), "--json")

    assert said.code == 1
    assert [t["table"] for t in said.document["tables"]] == ["orders"]
    assert said.document["error"]["code"] == "MV-LOCATION"


@pytest.mark.parametrize(("content", "code"), [(b"\xff\xfe\x00", 1), (None, 2)])
def test_apply_names_a_file_that_cannot_be_read(amv, content, code):
    path = Path(amv.root / "odd.yaml")
    if content is not None:
        path.write_bytes(content)

    said = amv("apply", str(path))

    assert said.code == code
    assert "odd.yaml" in said.err

"""The rows of a difference that are kept: bounded, and sensitive values only as hashes."""

from __future__ import annotations

import json

from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.core.approval.sample import MAX_BYTES, from_json, masked, sampled


def update(key: int, before: object, after: object) -> RowChange:
    return RowChange("update", {"id": key}, {"id": key, "v": before}, {"id": key, "v": after})


def test_what_is_stored_is_read_again():
    rows = [update(1, None, {"a": [1, "x"]}), RowChange("insert", {"id": 2}, None, {"id": 2, "v": "\x00"})]
    found = sampled(3, rows, {"v": 1})

    assert from_json(3, json.loads(json.dumps(found.to_json()))) == found
    assert found.rows == tuple(rows)


def test_sensitive_values_are_hashed_equal_ones_stay_equal_and_null_stays_null():
    rows = [update(1, "ann", "ann"), update(2, "ann", "bob"), update(3, None, "ann")]

    hidden = masked(rows, {"v"}, "salt")

    assert [row.changed for row in hidden] == [row.changed for row in rows]
    assert hidden[2].before == {"id": 3, "v": None}
    assert hidden[0].before["v"] == hidden[1].before["v"] == hidden[2].after["v"]
    assert "ann" not in json.dumps([row.after for row in hidden])
    assert hidden[0].before["v"] != masked(rows, {"v"}, "another table")[0].before["v"]


def test_sensitive_key_is_hashed_wherever_it_stands():
    [hidden] = masked([update(77, "a", "b")], {"id"}, "salt")

    assert hidden.key == {"id": hidden.before["id"]} == {"id": hidden.after["id"]}
    assert hidden.key["id"].startswith("sha256:")


def test_long_values_are_cut_and_stay_different_where_they_differ():
    long = "x" * 100_000

    [row] = sampled(0, [update(1, long + "a", long + "b")], None).rows

    assert row.changed == ("v",)
    assert len(row.before["v"]) < 600
    assert "100,001 characters" in row.before["v"]


def test_large_samples_lose_rows_of_the_most_frequent_kind():
    wide = {f"column_{i}": "x" * 400 for i in range(20)}
    rows = [RowChange("delete", {"id": i}, wide, None) for i in range(3)]
    rows += [RowChange("insert", {"id": i}, None, wide) for i in range(20)]

    found = sampled(0, rows, None)

    assert len(json.dumps(found.to_json())) <= MAX_BYTES * 1.05
    kinds = [row.operation for row in found.rows]
    assert kinds.count("delete") == 3
    assert 0 < kinds.count("insert") < 20
    assert found.rows == tuple(rows[: len(found.rows)]), "the first ones are kept"

"""The order of a partition column's values is that of its type; tests/engine/test_scope.py holds it against Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.scope.column_order import order_of


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("string", ["", "10", "11", "9", "a", "b"]),
        ("integer", ["-1", "9", "+10", " 11"]),
        ("decimal(5,2)", ["-1", "9.001", "9.01", "10"]),
        ("boolean", ["False", "true"]),
        ("date", ["2024", "2024-1-5", "2024-01-10", "2024-02"]),
        ("timestamp", ["2024-01-01", "2024-01-01 00:30:00Z", "2024-01-01 00:00:00-01:00", "2024-01-01T10:00:00.5"]),
        (None, ["10", "9", "b"]),
        ("integer", ["9", "10", "1.5", "a"]),  # no values of the type come last, as texts
        ("timestamp", ["2024-01-01", "2023-01-01 10:00 Europe/Berlin", "x"]),
    ],
    ids=str,
)
def test_order_is_that_of_the_type(kind, expected):
    mixed = expected[::-1]

    assert sorted(mixed, key=order_of(kind)) == expected


KINDS = st.sampled_from(["string", "integer", "decimal(9,3)", "boolean", "date", "timestamp", None])


@given(KINDS, st.lists(st.text()))
def test_order_never_fails(kind, texts):
    found = sorted(texts, key=order_of(kind))

    assert sorted(found) == sorted(texts)


@given(st.integers(), st.integers())
def test_whole_numbers_are_ordered_as_numbers(left, right):
    order = order_of("long")

    assert (order(str(left)) < order(str(right))) is (left < right) or max(len(str(left)), len(str(right))) > 38

"""Scopes: named as partitions are, ranges of the first column, and everything but what is fresh."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.scope.scope import (
    EVERYTHING,
    Covered,
    Scope,
    asked_scope,
    check_scope,
    covered_from_json,
    from_json,
    stale_scope,
)
from airflow_mv_provider.exceptions import ArgumentError, FrozenPartitionError, MvError


def a_table(**changes):
    values = {"name": "orders", "source": DeltaSource("raw/orders"), "key": ["id"], "partition_by": ["day"]}
    return RefreshableTable(**(values | changes))


@pytest.mark.parametrize(
    ("asked", "expected", "said"),
    [
        ((), EVERYTHING, "everything"),
        (([], "", ""), EVERYTHING, "everything"),
        ((["2013-01-01", "2013-01-01"],), Scope(('["2013-01-01"]',)), 'partitions ["2013-01-01"]'),
        (([["EU", 7], [None, "x"]],), Scope(('["EU","7"]', '[null,"x"]')), 'partitions ["EU","7"], [null,"x"]'),
        (([None],), Scope(("[null]",)), "partitions [null]"),
        (([], "2013-01-01", "2013-02-01"), Scope((), "2013-01-01", "2013-02-01"), None),
        (([], 9, 10), Scope((), "9", "10"), "partitions from 9 until 10"),
        (([], None, "2013-02-01"), Scope((), None, "2013-02-01"), "partitions until 2013-02-01"),
        ((list("abcdefg"),), None, 'partitions ["a"], ["b"], ["c"], ["d"], ["e"] and 2 more'),
    ],
    ids=str,
)
def test_asked_scope(asked, expected, said):
    found = asked_scope(*asked)

    assert expected in (None, found)
    assert said in (None, found.describe())


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ((["a"], "b"), "partitions and a range"),
        (([], "b", "b"), "is empty"),
        (([True],), "True is not a text"),
        (([1.5],), "1.5 is not a text"),
        (([{"a": 1}],), "is not a text"),
        (([[]],), "without values"),
        ((["x" * 1001],), "is not a text"),
        (([], {"a": 1}), "is not a text"),
        (([str(n) for n in range(1001)],), "1,001 partitions"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_scope_is_refused(asked, problem):
    with pytest.raises(ArgumentError, match=problem):
        asked_scope(*asked)


@pytest.mark.parametrize(
    ("scope", "table", "error"),
    [
        (EVERYTHING, a_table(partition_by=[]), None),
        (asked_scope(["a"]), a_table(), None),
        (asked_scope(["a"]), a_table(partition_by=[]), ArgumentError),
        (asked_scope([], "a"), a_table(partition_by=[]), ArgumentError),
        (asked_scope([["a", "b"]]), a_table(), ArgumentError),
        (asked_scope(["a"]), a_table(partition_by=["day", "hour"]), ArgumentError),
        (asked_scope(["2013-01-01"]), a_table(frozen_before="2013-01-01"), None),
        (asked_scope(["2012-12-31"]), a_table(frozen_before="2013-01-01"), FrozenPartitionError),
        (asked_scope([None]), a_table(frozen_before="2013-01-01"), None),
        (asked_scope([], "2012-01-01", "2013-01-01"), a_table(frozen_before="2013-01-01"), FrozenPartitionError),
        (asked_scope([], "2012-01-01", "2013-01-02"), a_table(frozen_before="2013-01-01"), None),
        (asked_scope([], "b", "a"), a_table(), ArgumentError),
    ],
    ids=lambda value: value.describe() if isinstance(value, Scope) else "",
)
def test_check_scope(scope, table, error):
    if error is None:
        check_scope(scope, table, "string")
        return
    with pytest.raises(MvError) as caught:
        check_scope(scope, table, "string")
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("kind", "is_empty", "is_frozen"), [("string", False, False), ("integer", True, True), (None, False, False)]
)
def test_range_is_empty_and_a_partition_frozen_by_the_order_of_the_columns_type(kind, is_empty, is_frozen):
    def refused(scope, **changes):
        try:
            check_scope(scope, a_table(**changes), kind)
        except (ArgumentError, FrozenPartitionError) as error:
            return error.message
        return None

    assert refused(asked_scope([], "11", "9")) == (
        "scope: the range from '11' until '9' is empty: 'day' is of type integer." if is_empty else None
    )
    assert bool(refused(asked_scope([], "9", "11"))) == (kind == "string")
    assert bool(refused(asked_scope(["9"]), frozen_before="10")) == is_frozen
    assert bool(refused(asked_scope([], None, "9"), frozen_before="10")) == is_frozen


@pytest.mark.parametrize("bound", ["2024-01-02 00:00:00 Europe/Berlin", "2024-01-02 00:00:00.0000001"])
def test_range_of_a_value_that_only_spark_understands_is_left_to_it(bound):
    check_scope(asked_scope([], bound, "2024-01-04"), a_table(frozen_before="2024-01-01"), "timestamp")
    check_scope(asked_scope([], "2024-01-01", "2024-01-04"), a_table(frozen_before=bound), "timestamp")


def test_stale_is_all_but_what_was_covered_at_the_same_state():
    a, b, c = asked_scope(["a"]), asked_scope(["b"]), asked_scope([], "c", "d")
    covered = [Covered(a, "now", "h"), Covered(b, "then", "h"), Covered(c, "now", "h"), Covered(b, "now", "other")]

    found = stale_scope([*covered, covered[0]], "now", "h")

    assert found == Scope(without=(a, c))
    assert found.describe() == 'everything except partitions ["a"] and partitions from c until d'
    assert stale_scope(covered, "later", "h") == EVERYTHING


values = st.none() | st.text(max_size=5)
scopes = st.builds(Scope, st.lists(st.text(max_size=5), max_size=3).map(tuple), values, values)


@given(scopes, st.lists(scopes, max_size=2), st.text(max_size=5))
def test_stored_scope_comes_back(scope, others, frontier):
    whole = Scope(scope.partitions, scope.start, scope.end, tuple(others))
    covered = Covered(whole, frontier, "h")

    assert from_json(whole.to_json()) == whole
    assert covered_from_json(covered.to_json()) == covered
    assert from_json(None) == EVERYTHING

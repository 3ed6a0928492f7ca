"""Which row is meant, which commits are looked at, and what a commit did to a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.approval.row_history import (
    MAX_LINES,
    Beginning,
    Cause,
    RowHistory,
    SourcePlace,
    SourcePlaces,
    beginning,
    came_from,
    cause_of,
    changes_between,
    commits_to_search,
    event,
    hidden,
    is_far_enough,
    parse_key,
    place_of,
    undone,
)
from airflow_mv_provider.core.approval.target import parse_since
from airflow_mv_provider.core.fence import Commit, CommitNote
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.exceptions import ArgumentError

KEY = ("order_id", "day")


@pytest.mark.parametrize(
    ("given_", "key", "found"),
    [
        (["order_id=5", "day=2026-01-01"], KEY, {"order_id": "5", "day": "2026-01-01"}),
        (["DAY=2026-01-01", "Order_Id=5"], KEY, {"order_id": "5", "day": "2026-01-01"}),
        (["id=a=b"], ("id",), {"id": "a=b"}),
        (["id="], ("id",), {"id": ""}),
        (["a=b=c", "a=x"], ("a", "a=b"), {"a": "x", "a=b": "c"}),
    ],
)
def test_key_is_read_by_the_definitions_columns(given_, key, found):
    assert list(parse_key("orders", given_, key).items()) == list(found.items())


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ([], "the key is incomplete: order_id, day is missing"),
        (["order_id=5"], "the key is incomplete: day is missing"),
        (["order_id=5", "order_id=5", "day=x"], "'order_id' is given twice"),
        (["ordr_id=5", "day=x"], "'ordr_id' is not a column of its key (did you mean order_id?)"),
        (["amount=5"], "'amount' is not a column of its key."),
        (["5"], "'5' is not COLUMN=VALUE"),
        (["order_id"], "'order_id' is not COLUMN=VALUE"),
        (["x\x1b[2J" * 100 + "=1"], "is not a column of its key"),
    ],
)
def test_key_that_is_none_is_refused_by_name(given_, said):
    with pytest.raises(ArgumentError) as caught:
        parse_key("orders", given_, KEY)

    assert said in caught.value.message
    assert caught.value.advice == "amv why orders order_id=VALUE day=VALUE"
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 300


def test_time_bound():
    assert parse_since("orders", None) is None
    assert parse_since("orders", "1970-01-01T00:00:01") == 1000
    assert parse_since("orders", " 1970-01-01T02:00:01+02:00") == 1000
    with pytest.raises(ArgumentError, match="'yesterday' is not a time"):
        parse_since("orders", "yesterday")


def commit(version, operation="MERGE", note=None):
    return Commit(version, operation, version - 1, note, at_ms=version * 10)


LOG = [commit(5), commit(4, "OPTIMIZE"), commit(3, "DELETE"), commit(2), commit(1, "WRITE"), commit(0, "CREATE TABLE")]


@pytest.mark.parametrize(
    ("last", "since_ms", "versions", "why", "begins"),
    [
        (20, None, [5, 3, 2, 1], None, (0, True)),
        (4, None, [5, 3, 2, 1], None, (0, True)),
        (2, None, [5, 3], "only the newest 2 commits", (2, False)),
        (20, 20, [5, 3, 2], "(--since)", (1, False)),
        (1, 20, [5], "(--last)", (4, False)),
        (20, 51, [], "(--since)", (5, False)),
        (20, 0, [5, 3, 2, 1], None, (0, True)),
    ],
)
def test_bounds(last, since_ms, versions, why, begins):
    searched = commits_to_search(LOG, last, since_ms)

    assert [each.version for each in searched.changing] == versions
    assert (searched.newest, searched.first) == (5, 0)
    assert searched.why is None if why is None else why in searched.why
    found = beginning(searched, [{"id": 1}])
    assert (found.version, found.is_complete) == begins
    assert found.rows == ({"id": 1},)


@pytest.mark.parametrize(
    ("num_known", "last", "since_ms", "is_enough"),
    [
        *((2, 1, None, False), (3, 1, None, True), (4, 2, None, True)),
        *((2, 20, 51, True), (3, 20, 25, False), (4, 9, 25, True)),
    ],
)
def test_as_much_of_the_log_is_read_as_the_bounds_need(num_known, last, since_ms, is_enough):
    """What is left out shows that there is more."""
    assert is_far_enough(LOG[:num_known], last, since_ms) == is_enough


@pytest.mark.parametrize(
    ("log", "version"), [(LOG[:4], 1), (LOG[:3], 2), ([commit(9, "OPTIMIZE"), commit(8, "OPTIMIZE")], 8)]
)
def test_log_that_was_cleaned_up_is_no_beginning_of_main(log, version):
    searched = commits_to_search(log, 20, None)

    assert beginning(searched, []) == Beginning(version, "the table's log does not go back further")


A, B = {"id": 1, "v": "a"}, {"id": 1, "v": "b"}


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ([], [], ()),
        ([], [A], ((None, A),)),
        ([A], [], ((A, None),)),
        ([A], [B], ((A, B),)),
        ([A], [{"v": "a", "id": 1}], ()),
        ([A], [A | {"w": None}], ()),
        ([A], [A | {"w": 0}], ((A, A | {"w": 0}),)),
        ([A], [A, A], ((None, A),)),
        ([A, B], [B], ((A, None),)),
        ([A, A], [A, B], ((A, B),)),
        ([{"id": 1, "v": None}], [{"id": 1}], ()),
    ],
    ids=str,
)
def test_what_a_commit_did(before, after, changes):
    assert changes_between(before, after) == changes


ROWS = st.lists(st.fixed_dictionaries({"v": st.sampled_from(["a", "b", None])}), max_size=4)


@given(ROWS, ROWS)
def test_undoing_a_commit_leads_back(before, after):
    def in_order(rows):
        return sorted(rows, key=str)

    assert in_order(undone(after, changes_between(before, after))) == in_order(before)


def test_event_says_which_columns_differ():
    found = event(commit(3, "MERGE\x1b"), A, B | {"w": None, "x": 1}, "then", None)

    assert (found.operation, found.changed, found.commit) == ("update", ("v", "x"), "'MERGE\\x1b'")
    assert [event(commit(3), *each, None, None).operation for each in ((None, A), (A, None))] == ["insert", "delete"]
    assert event(commit(3), None, A, None, None).changed == ()


def test_cause_is_the_refresh_that_the_commit_names():
    note = CommitNote("uuid", "r1", 1, "publish", 1)
    report = RefreshReport("orders", "r1", Outcome.PUBLISHED, user="ann", trigger="dag", source="version 3", note="why")

    assert cause_of(commit(3), [report]) is None
    assert cause_of(commit(3, note=note), [report]) == Cause(
        "r1", Outcome.PUBLISHED, trigger="dag", user="ann", note="why", source="version 3"
    )
    assert cause_of(commit(3, note=note), []) == Cause("r1")


def test_sensitive_values_are_hashed_everywhere_and_stay_distinct():
    events = (event(commit(3), A, B, None, None), event(commit(4), B, None, None, None))
    found = RowHistory("orders", {"id": "1"}, None, 4, 2, False, (A,), events, Beginning(2, "why", (A,)))

    masked = hidden(found, ["v", "id"], "salt")

    text = str(masked.to_json())
    assert "'a'" not in text
    assert "'b'" not in text
    assert masked.events[0].before == masked.rows[0] == masked.begins.rows[0] != masked.events[0].after
    assert masked.events[0].after == masked.events[1].before
    assert masked.key["id"].startswith("sha256:")
    assert masked.events[0].changed == ("v",)
    assert hidden(found, [], "salt") == found


@pytest.mark.parametrize(
    ("num_rows", "num_lines", "obstacle", "expected"),
    [
        (1, 1, None, SourcePlace("a", (10,))),
        (2, 2, None, SourcePlace("a", (10, 11))),
        (MAX_LINES, MAX_LINES, None, SourcePlace("a", tuple(range(10, 10 + MAX_LINES)))),
        (500, MAX_LINES + 1, None, SourcePlace("a", tuple(range(10, 10 + MAX_LINES)), is_cut=True)),
        (1, 0, "it has changed", SourcePlace("a", no_line="it has changed")),
        (1, 1, "it has changed", SourcePlace("a", no_line="it has changed")),
        (1, 0, None, SourcePlace("a", no_line="its lines are not its records one by one")),
        (1, 2, None, SourcePlace("a", no_line="its lines are not its records one by one")),
    ],
)
def test_lines_are_known_only_if_they_are_as_many_as_the_rows(num_rows, num_lines, obstacle, expected):
    found = [(10 + number, {"id": 5}) for number in range(num_lines)]

    assert place_of("a", num_rows, found, obstacle) == expected


@pytest.mark.parametrize(
    ("found", "is_there"),
    [
        ([(SourcePlace("a", (2,)), [{"id": 5, "v": "x"}])], True),
        ([(SourcePlace("a", (2,)), [{"id": 5, "v": "y"}])], False),
        ([(SourcePlace("a", (2,)), [{"id": 5, "v": "y"}]), (SourcePlace("b", (3,)), [{"id": 5, "v": "x"}])], True),
        ([(SourcePlace("a", no_line="it has changed"), [])], True),
        ([(SourcePlace("a", (2,), is_cut=True), [{"id": 5, "v": "y"}])], True),
    ],
)
def test_row_came_from_where_one_of_the_lines_is_it_unless_not_all_are_known(found, is_there):
    nowhere = SourcePlaces(no_file="no record of the source is the row as it is now")

    assert came_from([{"id": 5, "v": "x"}], found) == (
        SourcePlaces(tuple(place for place, _ in found)) if is_there else nowhere
    )

"""What is known of each partition: when it was refreshed and changed, how many rows it has."""

from __future__ import annotations

from airflow_mv_provider.core.outcome import Outcome, PartitionReport
from airflow_mv_provider.core.scope.ledger import Covering, IntervalState
from airflow_mv_provider.core.scope.partition_line import Published, partition_lines, to_look_at
from airflow_mv_provider.core.scope.scope import EVERYTHING, Scope

DONE, FAILED, RUNNING, MISSING = IntervalState


def name(value: str) -> str:
    return f'["{value}"]'


def part(value: str, inserted: int = 0, updated: int = 0, deleted: int = 0, unchanged: int = 0) -> PartitionReport:
    return PartitionReport(name(value), inserted, updated, deleted, unchanged)


NEWER = Published("b", "t2", (part("1", unchanged=10), part("2", 3, 1, 2, 5), part("3", deleted=4)))
OLDER = Published("a", "t1", (part("1", 10), part("2", 8), part("3", 4), part("9", 1)))
HISTORY = (
    Covering("c", Scope((name("2"),)), Outcome.FAILED, "t3"),
    Covering("b", EVERYTHING, Outcome.PUBLISHED, "t2"),
    Covering("a", EVERYTHING, Outcome.PUBLISHED, "t1"),
)


def test_partition_has_the_rows_of_its_newest_report_and_the_newest_change():
    lines = partition_lines(HISTORY, [NEWER, OLDER], "integer")

    assert [(line.name, line.num_rows, line.changed and line.changed.refresh_id) for line in lines] == [
        *((name("1"), 10, "a"), (name("2"), 9, "b"), (name("3"), 0, "b"), (name("9"), 1, "a")),
    ]
    assert (lines[1].changed.at, lines[1].changed.inserted, lines[1].changed.updated, lines[1].changed.deleted) == (
        *("t2", 3, 1, 2),
    )
    assert [(line.state, line.at, line.done_at) for line in lines[:2]] == [(DONE, "t2", "t2"), (FAILED, "t3", "t2")]


def test_change_before_the_reports_that_are_read_is_not_known():
    [line] = partition_lines(HISTORY, [Published("b", "t2", (part("1", unchanged=10),))], "integer")[:1]

    assert (line.num_rows, line.changed) == (10, None)


def test_named_partition_without_a_report_is_listed_without_rows():
    [line] = partition_lines(HISTORY[:1], [], "integer")

    assert (line.name, line.state, line.num_rows) == (name("2"), FAILED, None)


def test_partitions_before_the_bound_are_frozen_by_the_order_of_their_type():
    null = Published("b", "t2", (part("9"), part("11"), PartitionReport("[null]", 1, 0, 0, 0)))

    lines = partition_lines(HISTORY[1:], [null], "integer", frozen_before="10")

    assert [(line.name, line.is_frozen) for line in lines] == [
        (name("9"), True),
        (name("11"), False),
        ("[null]", False),
    ]


def test_partitions_outside_of_what_is_asked_for_are_left_out():
    lines = partition_lines(HISTORY, [NEWER, OLDER], "integer", start="2", end="9")

    assert [line.name for line in lines] == [name("2"), name("3")]


def test_intervals_to_look_at_are_those_that_are_not_done():
    history = [
        Covering("c", Scope(start="4", end="5"), Outcome.RUNNING, "t"),
        Covering("b", Scope(start="3", end="4"), Outcome.FAILED, "t"),
        Covering("a", Scope(start="1", end="2"), Outcome.PUBLISHED, "t"),
        Covering("z", Scope(('["7"]',)), Outcome.FAILED, "t"),
    ]

    found = to_look_at(history, "integer", start="1", end="6")

    assert [(each.start, each.end, each.state) for each in found] == [
        *(("2", "3", MISSING), ("3", "4", FAILED), ("4", "5", RUNNING), ("5", "6", MISSING)),
    ]

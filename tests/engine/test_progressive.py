"""Progressive: each commit brings whole partitions, a resumed refresh goes on, an abandoned one is made good."""

from __future__ import annotations

from collections import Counter

import pytest
from sqlalchemy import event

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import GuardRefusedError, KeyMovedError, RefreshCancelledError
from tests.scenarios.conftest import check_invariants, check_snapshots

pytestmark = pytest.mark.slow

FIRST = "SELECT id, CAST(id % 2 AS INT) AS p, concat('v', id) AS v FROM range(20)"
# Partition 0 changes, 1 goes with the rest, 9 is new.
LATER = """
    SELECT id, CAST(CASE WHEN id >= 20 THEN 9 ELSE 0 END AS INT) AS p,
           CASE WHEN id = 10 THEN 'late' ELSE concat('v', id) END AS v
    FROM range(24) WHERE (id % 2 = 0 OR id >= 20) AND id <> 8
"""
NUM_COMMITS = 2 + 3
ALLOWED = ["max_deleted_fraction"]


@pytest.fixture
def table(prepared):
    """Published once, in two partitions, one to a chunk."""

    def build(lake):
        lake.write(FIRST)
        lake.apply(partition_by=["p"], key=["id", "p"], publish="progressive", chunk_rows=10)
        lake.refresh()

    return prepared("progressive", build)


def commits(lake):
    return [row for row in lake.sql("DESCRIBE HISTORY {t}") if row.operation == "MERGE"]


@pytest.mark.in_test_all
def test_each_commit_brings_whole_partitions(table):
    before = table.rows()
    table.write(LATER)

    report = table.refresh(overrides=ALLOWED)

    assert (report.outcome, report.rows_inserted, report.rows_updated, report.rows_deleted) == ("published", 4, 1, 11)
    assert report.rows_unchanged == 8
    check_invariants(table)
    check_snapshots(table, "progressive", before, table.rows("raw/orders"))
    assert len(commits(table)) == NUM_COMMITS
    assert report.bytes_main > 0
    assert {p.partition: p.rows_inserted for p in report.partitions if p.rows_inserted} == {'["9"]': 4}
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_a_cancel_between_two_commits_abandons_the_rest_and_the_next_refresh_makes_it_good(table, at_point):
    before = table.rows()
    table.write(LATER)
    at_point("committed.after", lambda: table.store.request_cancel(table.store.table("orders").id, "somebody"))

    with pytest.raises(RefreshCancelledError):
        table.refresh(overrides=ALLOWED)

    assert (table.phase(), table.workspaces()) == ("NORMAL", [])
    (ended, *_) = table.store.history(table.store.table("orders").id)
    assert (ended.outcome, ended.rows_updated, ended.rows_deleted) == (Outcome.CANCELLED, 1, 1)
    assert table.rows() not in (before, table.rows("raw/orders"))
    report = table.refresh(overrides=ALLOWED)
    assert report.reason == "another writer may have changed the table"
    check_invariants(table)
    check_snapshots(table, "progressive", before, table.rows("raw/orders"))


@pytest.mark.in_test_all
def test_a_foreign_write_between_two_commits_is_corrected_for(table, at_point):
    table.write(LATER)

    def meddle():
        table.sql("INSERT INTO {t} VALUES (1000, CAST(0 AS INT), 'foreign')")
        table.sql("DELETE FROM {t} WHERE id = 12")

    at_point("committed.after", meddle)

    report = table.refresh(overrides=ALLOWED)

    assert report.outcome is Outcome.PUBLISHED
    check_invariants(table)


def test_guards_judge_before_the_first_commit(table):
    before = table.rows()
    table.write("SELECT id, CAST(id % 2 AS INT) AS p, concat('w', id) AS v FROM range(10)")

    with pytest.raises(GuardRefusedError, match=r"10 of the table's 20 rows would be deleted"):
        table.refresh()

    assert (table.phase(), table.rows(), table.workspaces()) == ("NORMAL", before, [])
    assert len(commits(table)) == 2


@pytest.mark.in_test_all
def test_guards_judge_the_whole_difference_in_a_later_round_too(table, at_point):
    """The other writer's commit makes all chunks be compared again, before any is in main; the first deletes little."""
    before = table.rows()
    table.write(f"SELECT id, p, if(id = 0, 'w', v) AS v FROM ({FIRST}) WHERE p = 0 OR id = 1")
    at_point("seal.after", lambda: table.sql("INSERT INTO {t} VALUES (1000, CAST(0 AS INT), 'foreign')"))

    with pytest.raises(GuardRefusedError, match=r"10 of the table's 21 rows would be deleted"):
        table.refresh()

    assert (table.phase(), table.workspaces()) == ("NORMAL", [])
    assert Counter(table.rows()) == Counter([*before, (1000, 0, "foreign")])


@pytest.mark.in_test_all
def test_moved_key_is_refused_before_the_seal(lake):
    lake.write(FIRST)
    lake.apply(partition_by=["p"], publish="progressive", chunk_rows=10)
    lake.refresh()
    before = lake.rows()
    lake.write(FIRST.replace("CAST(id % 2 AS INT)", "CAST(CASE WHEN id = 7 THEN 0 ELSE id % 2 END AS INT)"))

    with pytest.raises(KeyMovedError, match=r'key \{"id":7\}') as caught:
        lake.refresh()

    assert caught.value.facts["samples"] == ['{"id":7}']
    assert (lake.phase(), lake.rows(), lake.workspaces()) == ("NORMAL", before, [])
    lake.apply(partition_by=["p"], publish="atomic", chunk_rows=10)
    lake.refresh()
    check_invariants(lake)


@pytest.mark.in_test_all
def test_partitions_are_not_all_read_again_for_each_step(table):
    def reads(desired, chunk_rows):
        statements = []
        listener = lambda *found: statements.append(found[2])  # noqa: E731
        table.write(desired)
        table.apply(partition_by=["p"], key=["id", "p"], publish="progressive", chunk_rows=chunk_rows)
        event.listen(table.store.engine, "before_cursor_execute", listener)
        report = table.refresh(overrides=ALLOWED)
        event.remove(table.store.engine, "before_cursor_execute", listener)
        assert report.rows_inserted
        of_all = [s for s in statements if s.startswith("SELECT") and "refresh_progress" in s and "chunk IN" not in s]
        return sum(attempt.chunks for attempt in report.attempts), len(of_all)

    few_chunks, in_few = reads(LATER, 10)
    many_chunks, in_many = reads(FIRST.replace("id % 2", "id % 8"), 2)

    assert many_chunks >= 2 * few_chunks
    assert in_many == in_few
    check_invariants(table)


@pytest.mark.in_test_all
@pytest.mark.parametrize("way", [{"publish": "progressive"}, {}, {"strategy": "replace"}], ids=str)
def test_rows_that_change_are_counted_before_the_first_commit(table, way):
    """Ten of twenty may change and eleven may not, whichever way main is brought up to date."""
    before, guards = table.rows(), {"max_updated_fraction": 0.5}
    table.apply(partition_by=["p"], key=["id", "p"], chunk_rows=10, guards=guards, **way)
    changed = "SELECT id, CAST(id % 2 AS INT) AS p, concat(if(id < {}, 'w', 'v'), id) AS v FROM range(20)"
    table.write(changed.format(11))

    with pytest.raises(
        GuardRefusedError, match=r"max_updated_fraction: 11 of the table's 20 rows would be changed \(55.0%"
    ):
        table.refresh()

    assert table.rows() == before
    table.write(changed.format(10).replace("range(20)", "range(21)"))
    report = table.refresh()
    assert (report.rows_updated, report.rows_inserted, report.strategy) == (10, 1, "corrections")
    table.write(FIRST.replace("'v'", "'shifted'"))
    assert table.refresh(overrides=["max_updated_fraction"]).rows_updated == 20
    check_invariants(table)

"""A small main is overwritten instead of merging corrections into it: the same rows, counts and guards, one commit."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import GuardRefusedError
from tests.conftest import Crash
from tests.engine.holding import decide, held

pytestmark = pytest.mark.slow


@pytest.fixture
def small(lake):
    """A published table of 60 rows."""
    lake.write("SELECT id, id % 3 AS p, concat('v', id) AS v FROM range(60)")
    lake.apply(guards={"max_updated_fraction": 0.5})
    lake.refresh()
    return lake


def operations(lake):
    """The operations of main's commits, fences left out, newest first."""
    rows = lake.sql("DESCRIBE HISTORY {t}")
    return [row.operation for row in rows if '"step":"fence"' not in (row.userMetadata or "").replace(" ", "")]


def change(lake):
    """An update, a delete and an insert: three of 61 rows."""
    lake.sql("UPDATE {t} SET v = 'new' WHERE id = 7", path="raw/orders")
    lake.sql("DELETE FROM {t} WHERE id = 8", path="raw/orders")
    lake.sql("INSERT INTO {t} VALUES (100, 1, 'more')", path="raw/orders")


def is_the_source(lake):
    assert lake.rows("orders") == lake.rows("raw/orders")


def test_corrections_of_a_small_table_are_an_overwrite_with_exact_counts(small):
    change(small)

    report = small.refresh()

    assert (report.strategy, report.outcome) == ("corrections", Outcome.PUBLISHED)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 1, 1)
    assert operations(small)[0] == "WRITE"
    is_the_source(small)
    kept = small.store.state(small.store.table("orders").id).published_totals
    assert (kept.refresh_id, kept.num_rows) == (report.refresh_id, 60)  # the totals of what was written
    again = small.refresh(force=True)
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0
    assert small.workspaces() == []


@pytest.mark.in_test_all
def test_guards_judge_what_would_be_overwritten(small):
    before = small.rows("orders")
    small.sql("UPDATE {t} SET v = 'new' WHERE id < 40", path="raw/orders")

    with pytest.raises(GuardRefusedError, match="max_updated_fraction"):
        small.refresh()

    assert small.rows("orders") == before


@pytest.mark.in_test_all
@pytest.mark.parametrize("kept", ["delta.enableChangeDataFeed", "delta.enableRowTracking"])
def test_corrections_are_merged_where_main_shows_which_rows_changed(small, kept):
    small.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({kept} = true)")
    change(small)

    small.refresh()

    assert operations(small)[0] == "MERGE"
    is_the_source(small)


@pytest.mark.in_test_all
def test_rows_that_only_come_are_added(small):
    small.sql("INSERT INTO {t} VALUES (100, 1, 'more')", path="raw/orders")

    small.refresh()

    assert operations(small)[0] == "MERGE"
    is_the_source(small)


@pytest.mark.in_test_all
def test_column_of_others_survives(small):
    small.sql("ALTER TABLE {t} ADD COLUMN note STRING")
    small.apply(schema_policy="add", on_lost_column="keep")
    small.sql("UPDATE {t} SET note = 'mine'")
    small.refresh()
    change(small)

    small.refresh()

    assert operations(small)[0] == "MERGE"
    assert {row[0] for row in small.sql("SELECT note FROM {t} WHERE id < 100")} == {"mine"}


@pytest.mark.in_test_all
def test_what_was_approved_is_merged(small):
    small.apply(approval="always")
    change(small)
    held(small)
    decide(small, Decision.APPROVED)

    small.refresh()

    assert operations(small)[0] == "MERGE"
    is_the_source(small)


_OTHERS = ("seal.after", "publish.before", "published.before", "published.after", "staging_delete.after")


@pytest.mark.parametrize(
    "point",
    ["publish.after", *_OTHERS],
)
@pytest.mark.victim("refresh crashed")
@pytest.mark.in_test_all
def test_killed_anywhere_it_comes_out_right(small, crash_at, point):
    change(small)
    crash_at(point)
    with pytest.raises(Crash):
        small.refresh()
    small.clock.pass_ms(small.settings.lease_ms + 1)
    small.sql("UPDATE {t} SET v = 'later' WHERE id = 20", path="raw/orders")

    small.refresh()

    is_the_source(small)
    again = small.refresh(force=True)
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0
    assert small.workspaces() == []


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["seal.after", "publish.before", "publish.after"])
def test_foreign_write_meanwhile_is_corrected(small, at_point, point):
    change(small)
    at_point(point, lambda: small.sql("INSERT INTO {t} VALUES (777, 7, 'foreign')"))

    report = small.refresh()

    assert report.outcome is Outcome.PUBLISHED
    is_the_source(small)
    again = small.refresh(force=True)
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0


@pytest.mark.large_tables
@pytest.mark.in_test_all
def test_foreign_write_that_changes_no_value_needs_no_second_commit(small, at_point):
    """The round after it finds nothing to correct; the publish before it is the fence of its epoch."""
    change(small)
    at_point("publish.before", lambda: small.sql("UPDATE {t} SET v = v WHERE id = 3"))

    report = small.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert operations(small)[:2] == ["MERGE", "UPDATE"]
    is_the_source(small)

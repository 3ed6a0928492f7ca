"""An approval without the deletes: no key of main goes, and every interface says so until a refresh agrees again."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_mv_provider.core import cost
from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.fence import CommitNote, fence_version
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import EngineError, RefreshHeldError
from airflow_mv_provider.report_text.refresh_text import refresh_text
from airflow_mv_provider.report_text.status_text import status_text
from airflow_mv_provider.spark.delta import Main
from tests.engine.holding import GUARDED, decide, held, lose_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(prepared):
    """The source has lost four of main's ten rows, has changed one and gained one."""
    return with_a_new_row(prepared("lost-rows", lose_rows))


def prepare(lake, **changes):
    lose_rows(lake, **changes)
    return with_a_new_row(lake)


def with_a_new_row(lake):
    lake.sql("INSERT INTO {t} VALUES (10, 0, 'new')", path="raw/orders")
    lake.gone = [row for row in lake.rows() if row[0] < 4]
    lake.wanted = sorted(lake.gone + lake.rows("raw/orders"))
    return lake


def assert_kept(lake, report):
    counts = (report.rows_inserted, report.rows_updated, report.rows_deleted, report.rows_unchanged, report.rows_kept)
    assert (report.outcome, counts) == (Outcome.PUBLISHED, (1, 1, 0, 9, 4))
    assert sorted(lake.rows()) == lake.wanted
    assert (lake.phase(), lake.workspaces()) == ("NORMAL", [])


def assert_agrees(lake):
    """Once the source has the rows again, a refresh has nothing to correct, and its digests are the kept ones."""
    kept = lake.published()
    lake.sql("INSERT INTO {t} SELECT id, id % 2, 'a' FROM range(4)", path="raw/orders")
    report = lake.refresh()
    assert (report.outcome, report.rows_kept) == (Outcome.PUBLISHED, 0)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)
    assert kept in (None, lake.published())
    assert sorted(lake.rows()) == lake.wanted
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    return kept


def test_no_row_goes_and_status_and_history_say_so_until_a_refresh_agrees(table):
    held(table)

    report = decide(table, Decision.WITHOUT_DELETES)

    assert_kept(table, report)
    registered = table.store.table("orders")
    said = "4 rows that the source no longer has: an approval left out the deletes"
    assert said in refresh_text(report)
    assert said in status_text(table.store.status(registered))
    assert "approved without deletes by ann" in refresh_text(table.store.history(registered.id, 1)[0])

    assert "max_deleted_fraction" in held(table).problem, "an unchanged source is compared again, and asked about again"
    decide(table, Decision.REJECTED)
    assert table.store.status(registered).rows_kept == 4

    assert assert_agrees(table) is not None
    assert table.store.status(registered).rows_kept == 0


@pytest.mark.in_test_all
@pytest.mark.parametrize("changes", [{"partition_by": ["p"], "chunk_rows": 2}, {"errors": {}}])
def test_every_kind_of_table(lake, changes):
    prepare(lake, **changes)
    held(lake)

    assert_kept(lake, decide(lake, Decision.WITHOUT_DELETES))
    assert sum(p.rows_deleted for p in lake.store.history(1, 1)[0].partitions) == 0
    assert_agrees(lake)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "point", ["keep.before", "keep.after", "publish.before", "publish.after", "published.before", "published.after"]
)
def test_killed_anywhere_nothing_is_deleted(table, at_point, point):
    held(table)

    def die() -> None:
        raise KeyboardInterrupt

    at_point(point, die)
    with pytest.raises(KeyboardInterrupt):
        decide(table, Decision.WITHOUT_DELETES)
    table.clock.pass_ms(table.settings.lease_ms + 1)
    [report] = table.refresher().recover(table.caller())

    assert_kept(table, report)
    assert_agrees(table)


@pytest.mark.in_test_all
def test_a_round_that_completes_it_deletes_nothing_either(table, at_point):
    """Another writer commits right after ours, so main is compared once more; what was decided holds for that too."""
    held(table)
    at_point("publish.after", lambda: table.sql("INSERT INTO {t} VALUES (100, 0, 'foreign')"))

    report = decide(table, Decision.WITHOUT_DELETES)

    assert (report.outcome, report.rows_deleted, report.rows_kept) == (Outcome.PUBLISHED, 0, 5)
    assert sorted(table.rows()) == sorted([*table.wanted, (100, 0, "foreign")])
    held(table)


@pytest.mark.in_test_all
def test_a_commit_whose_answer_was_lost_and_that_comes_late_is_completed_without_deletes_too(table, at_point):
    """The round was given up before main had it: only main's log knows what was committed, and how."""
    hold_id = held(table).facts["hold"]

    def lose_the_answer() -> None:
        at_point("discard.after", die)
        table.sql("INSERT INTO {t} VALUES (100, 0, 'foreign')")
        raise EngineError("orders", "the connection was reset.")

    def die() -> None:
        raise KeyboardInterrupt

    at_point("publish.before", lose_the_answer)
    with pytest.raises(KeyboardInterrupt):
        decide(table, Decision.WITHOUT_DELETES, hold_id=hold_id)
    commit_late(table, hold_id.partition(".")[0])
    table.clock.pass_ms(table.settings.lease_ms + 1)

    [report] = table.refresher().recover(table.caller())

    assert (report.outcome, report.rows_deleted, report.rows_kept) == (Outcome.PUBLISHED, 0, 5)
    assert sorted(table.rows()) == sorted([*table.wanted, (100, 0, "foreign")])
    held(table)


def commit_late(lake, refresh_id):
    """Commit what was decided, as the MERGE does of which nobody knows what became of it."""
    registered, epoch = lake.store.table("orders"), lake.store.state(1).epoch
    facts = {"is_final": True, "keeps_rows": True}
    note = CommitNote(registered.uuid, refresh_id, epoch, "publish", fence_version(epoch) + 1, **facts)
    main = Main(lake.spark, registered.main, registered.uuid)
    with main.transaction(note):
        lake.sql(
            "MERGE INTO {t} t USING (SELECT 5 AS id, 1 AS p, 'b' AS v UNION ALL SELECT 10, 0, 'new') s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


@pytest.mark.in_test_all
def test_another_writer_s_change_before_the_commit_is_asked_about_again(table):
    held(table)
    table.sql("INSERT INTO {t} VALUES (100, 0, 'foreign')")

    with pytest.raises(RefreshHeldError):
        decide(table, Decision.WITHOUT_DELETES)
    report = decide(table, Decision.APPROVED)

    assert (report.rows_deleted, report.rows_kept) == (5, 0), "an approval of the new round is one of everything"
    assert table.rows() == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_rows_that_another_writer_has_doubled(table):
    table.sql("INSERT INTO {t} VALUES (0, 0, 'twice'), (6, 0, 'twice')")
    held(table)

    report = decide(table, Decision.WITHOUT_DELETES)

    assert (report.rows_deleted, report.rows_kept) == (2, 5), "a doubled key that the source has is one row again"
    assert sorted(table.rows()) == sorted([*table.wanted, (0, 0, "twice")])
    held(table)


@pytest.mark.in_test_all
def test_copy_of_a_row_in_another_partition_goes_and_one_of_a_row_that_the_source_has_lost_stays(lake):
    prepare(lake, partition_by=["p"])
    lake.sql("INSERT INTO {t} VALUES (0, 1, 'copy'), (6, 1, 'copy')")
    held(lake)

    report = decide(lake, Decision.WITHOUT_DELETES)

    assert (report.rows_deleted, report.rows_kept) == (1, 5), "the source has 6, so it is one row again"
    assert sorted(lake.rows()) == sorted([*lake.wanted, (0, 1, "copy")])
    held(lake)


@pytest.mark.in_test_all
def test_an_empty_source_leaves_main_as_it_is(lake):
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.apply(**GUARDED)
    lake.refresh()
    before, version = lake.rows(), lake.versions()
    lake.sql("DELETE FROM {t}", path="raw/orders")
    held(lake)

    report = decide(lake, Decision.WITHOUT_DELETES)

    assert (report.outcome, report.rows_kept, report.rows_deleted) == (Outcome.PUBLISHED, 10, 0)
    assert lake.rows() == before
    assert lake.published() is not None
    assert lake.versions() > version, "fences"
    held(lake)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("request_", [{"partitions": [["1"]]}, {"strategy": "replace"}], ids=["part", "replace"])
def test_every_kind_of_refresh(lake, request_):
    prepare(lake, partition_by=["p"])
    is_part = "partitions" in request_
    held(lake, hold=True, **request_)

    report = decide(lake, Decision.WITHOUT_DELETES)

    assert (report.rows_deleted, report.rows_kept) == (0, 2 if is_part else 4)
    assert sorted(lake.rows()) == [row for row in lake.wanted if not is_part or row != (10, 0, "new")]
    assert lake.store.status(lake.store.table("orders")).rows_kept == report.rows_kept
    held(lake)


@pytest.mark.in_test_all
def test_deletes_are_left_out_also_where_most_rows_differ(lake, monkeypatch):
    """Overwriting main would be cheaper, and would delete."""
    monkeypatch.setattr(cost, "_WORTH", -1e9)
    monkeypatch.setattr(cost, "_MOSTLY", 0.0)
    lose_rows(lake)
    before = Counter(row[0] for row in lake.rows())
    held(lake)

    report = decide(lake, Decision.WITHOUT_DELETES)

    assert report.rows_deleted == 0
    assert Counter(row[0] for row in lake.rows()) == before

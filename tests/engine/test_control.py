"""Control first: cancel, status, read-only, definitions that change, identities that are found again."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from airflow_mv_provider import DeltaSource, Function
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DefinitionError, LeaseLostError, RefreshCancelledError, TableConflictError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import crash_points
from tests.engines import A_SLOW_NUMBER

pytestmark = pytest.mark.slow


MEANWHILE = []


def rows_of_a_function(spark):
    while MEANWHILE:
        MEANWHILE.pop()()
    return spark.sql("SELECT id, 'a' AS v FROM range(3)")


@pytest.fixture
def table(prepared):
    def build(lake):
        lake.write("SELECT id, id % 3 AS p, 'a' AS v FROM range(30)")
        lake.apply(partition_by=["p"], chunk_rows=10)
        lake.refresh()
        lake.sql("UPDATE {t} SET v = 'b' WHERE id % 5 = 0", path="raw/orders")

    return prepared("three-partitions", build)


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["staging.before", "staging.after", "seal.after", "publish.before"])
def test_cancel_is_answered_within_a_chunk(table, at_point, point):
    before = table.rows("orders")
    registered = table.store.table("orders")
    seen = []

    def cancel() -> None:
        assert table.store.request_cancel(registered.id, "somebody")
        seen.append(table.store.status(registered))

    at_point(point, cancel)
    is_committing = point == "publish.before"

    if is_committing:
        report = table.refresh()  # from the commit on there is no cancelling
        assert report.outcome is Outcome.PUBLISHED
    else:
        with pytest.raises(RefreshCancelledError):
            table.refresh()
        assert table.rows("orders") == before
        assert table.store.history(registered.id, 1)[0].outcome is Outcome.CANCELLED
    assert seen[0].is_cancel_requested
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_cancel_is_heard_while_the_source_is_summed_up(lake, at_point, caplog):
    """What a cancel interrupts is not taken for digests that cannot be read."""
    lake.settings = replace(lake.settings, lease_ms=8_000)  # a heartbeat every two seconds
    lake.write("SELECT id, 'a' AS v FROM range(80)")
    lake.apply(
        source=DeltaSource("raw/orders", select=["id", f"if(v = 'slow', CAST({A_SLOW_NUMBER} AS STRING), v) AS v"])
    )
    lake.refresh()
    registered = lake.store.table("orders")
    lake.write(lake.spark.sql("SELECT id, 'slow' AS v FROM range(80)").repartition(80))
    before = len(lake.store.history(registered.id, 10))
    points = []

    def cancel() -> None:
        crash_points.arm(points.append)
        assert lake.store.request_cancel(registered.id, "somebody")

    at_point("staging.before", cancel)
    with pytest.raises(RefreshCancelledError):
        lake.refresh(strategy="corrections")

    assert "staging.after" not in points  # it was in the middle
    assert lake.store.history(registered.id, 10)[0].outcome is Outcome.CANCELLED
    assert len(lake.store.history(registered.id, 10)) == before + 1
    assert "cannot be used" not in caplog.text
    assert (lake.phase(), lake.workspaces()) == ("NORMAL", [])
    assert sorted(lake.rows()) == [(number, "a") for number in range(80)]


@pytest.mark.in_test_all
def test_cancel_of_nothing_says_so(table):
    assert not table.store.request_cancel(table.store.table("orders").id, "somebody")


@pytest.mark.in_test_all
def test_status_shows_progress_per_partition(table, at_point):
    table.apply(partition_by=["p"], chunk_rows=10, publish="progressive")
    registered = table.store.table("orders")
    seen = []
    at_point("committed.after", lambda: seen.append(table.store.status(registered)))

    table.refresh()

    status = seen[0]
    done = [p for p in status.partitions if p.is_completed]
    assert (status.phase, status.partitions_completed, status.partitions_total) == ("MERGING", 1, 3)
    assert [(p.partition, p.sealed_rows, p.rows_updated) for p in done] == [('["0"]', 10, 2)]


@pytest.mark.in_test_all
def test_read_only_reports_and_writes_nothing(table):
    before = (table.versions(), table.rows("orders"), table.store.state(table.store.table("orders").id))

    report = table.refresh(read_only=True)

    assert report.outcome is Outcome.DIFFERENCES
    assert report.rows_updated == 6
    assert [(p.partition, p.rows_updated, p.rows_unchanged) for p in report.partitions] == [
        ('["0"]', 2, 8),
        ('["1"]', 2, 8),
        ('["2"]', 2, 8),
    ]
    assert (table.versions(), table.rows("orders"), table.store.state(table.store.table("orders").id)) == before
    assert table.workspaces() == []


@pytest.mark.in_test_all
def test_read_only_works_beside_a_refresh(table, at_point):
    reports = []
    at_point("publish.before", lambda: reports.append(table.refresh(read_only=True)))

    table.refresh()

    assert reports[0].rows_updated == 6
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_definition_changed_during_a_refresh_waits_for_the_next(table, at_point):
    at_point("staging.before", lambda: table.apply(partition_by=["p"], guards={"max_deleted_fraction": 0.0}))

    table.refresh()

    record = table.store.refresh(table.store.history(table.store.table("orders").id, 1)[0].refresh_id)
    assert record.definition.guards.max_deleted_fraction == 0.3
    assert table.store.table("orders").definition.guards.max_deleted_fraction == 0.0


@pytest.mark.in_test_all
def test_changed_select_compares_everything(lake):
    lake.write("SELECT id, 'a' AS v FROM range(5)")
    lake.apply()
    lake.refresh()
    lake.apply(source={"type": "delta", "path": "raw/orders", "select": ["id", "upper(v) AS v"]})

    report = lake.refresh()

    assert (report.rows_updated, report.reason) == (5, "the definition changed")


@pytest.mark.in_test_all
def test_non_deterministic_select_is_staged_whole_and_never_skipped(lake):
    lake.write("SELECT id FROM range(5)")
    lake.apply(source={"type": "delta", "path": "raw/orders", "select": ["id", "rand() AS v"]})
    lake.refresh()

    report = lake.refresh()

    assert (report.outcome, report.rows_updated) == (Outcome.PUBLISHED, 5)


@pytest.mark.in_test_all
def test_select_that_spark_does_not_understand_is_a_definition_error(lake):
    lake.write("SELECT id FROM range(5)")
    lake.apply(source={"type": "delta", "path": "raw/orders", "select": ["id", "nothing + 1 AS v"]})

    with pytest.raises(DefinitionError, match="nothing"):
        lake.refresh()

    assert lake.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_lost_database_finds_the_tables_identity_and_epoch_again(table, tmp_path, caplog):
    table.refresh()
    old = table.store.table("orders")
    epoch = table.store.state(old.id).epoch
    engine = open_engine(f"sqlite:///{tmp_path / 'new.db'}")
    migrations.migrate(engine)
    table.store = Store(engine, table.clock.now)
    table.apply(partition_by=["p"], chunk_rows=10)
    table.sql("DELETE FROM {t} WHERE id = 7", path="raw/orders")

    report = table.refresh()

    assert table.store.table("orders").uuid == old.uuid
    assert (report.epoch, report.rows_deleted) == (epoch + 1, 1)
    # Nobody can tell a lost database from a copied warehouse, so a person is asked to look.
    (warning,) = (each.getMessage() for each in caplog.records if each.name == "airflow_mv_provider.runner.identity")
    assert f"has the identity {old.uuid} from another metadata database" in warning
    assert table.rows("orders") == table.rows("raw/orders")


def test_copied_main_is_not_taken_for_the_original(table, caplog):
    shutil.copytree(table.root / "orders", table.root / "copy")
    table.apply(name="copy", partition_by=["p"])

    with pytest.raises(TableConflictError, match="identity"):
        table.refresh("copy")

    assert "and keeps it" not in caplog.text


@pytest.mark.in_test_all
def test_files_without_a_changed_row_are_not_rewritten(table):
    table.refresh()
    table.sql("UPDATE {t} SET v = 'c' WHERE id IN (0, 3)", path="raw/orders")

    table.refresh()

    commit = table.sql("DESCRIBE HISTORY {t} LIMIT 1")[0]
    assert commit.operation == "MERGE"
    assert commit.operationMetrics["numTargetRowsUpdated"] == "2"
    assert commit.operationMetrics["numTargetFilesRemoved"] == "1", "of three"


@pytest.mark.in_test_all
def test_maintenance_forgets_refreshes_that_ended_long_ago(lake, clock):
    lake.write("SELECT id, 'v' AS v FROM range(3)")
    lake.apply()
    lake.refresh()
    last = lake.refresh(force=True)
    clock.pass_ms(91 * 86_400_000)
    told = []

    lake.refresher().recover(lake.caller(), told.append)

    assert [report.refresh_id for report in lake.store.history(lake.store.table("orders").id)] == [last.refresh_id]
    assert told == ["orders: removed 1 old refreshes from the history."]
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
@pytest.mark.parametrize("is_abandoned", [False, True])
@pytest.mark.parametrize("point", ["staging.before", "seal.after", "publish.after"])
def test_owner_that_a_person_says_is_dead_is_followed_at_once(table, at_point, point, is_abandoned):
    """It is alive, and its lease too: what it still writes the fence stops, and the sweep removes."""
    ended = []

    def believe() -> None:
        ann, other = table.caller(user="ann"), table.refresher()
        other.declare_dead("orders", ann, "its host burnt down")
        ended.extend([other.abandon("orders", ann)] if is_abandoned else other.recover(ann, name="orders"))

    at_point(point, believe)
    with pytest.raises(LeaseLostError):
        table.refresh()

    [report] = ended
    assert report.attempts[0].note == "declared dead by ann: its host burnt down"
    table.refresher().recover(table.caller())
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])
    table.refresh()
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_sweep_leaves_a_live_preview_alone_however_long_it_runs(table, clock):
    """Its heartbeat is a thread's; here the clock stands still for it, and the preview is looked at from its side."""
    registered = table.store.table("orders")
    refresh = replace(table.store.refresh(table.refresh(read_only=True).refresh_id), id="f" * 32)
    own = table.store.begin_preview(refresh, table.caller(), lease_ms=60_000)
    workspace = table.root / "_mv" / registered.uuid / own.refresh_id / "staging-0"
    table.spark.range(3).write.parquet(str(workspace))

    for _ in range(3):
        clock.pass_ms(59_000)
        table.store.renew_preview(own, lease_ms=60_000)
        table.refresher().recover(table.caller())
        assert workspace.exists()
    clock.pass_ms(60_001)
    table.refresher().recover(table.caller())

    assert not workspace.exists()
    assert table.store.report(own.refresh_id).outcome is Outcome.ABANDONED


@pytest.mark.in_test_all
def test_preview_that_was_taken_for_dead_says_so_and_leaves_nothing(lake):
    """What it compared may have been removed under it."""
    lake.apply(source=Function(f"{__name__}:rows_of_a_function"))

    def take_for_dead() -> None:
        lake.clock.pass_ms(lake.settings.lease_ms + 1)
        lake.refresher().recover(lake.caller())

    MEANWHILE.append(take_for_dead)

    with pytest.raises(LeaseLostError):
        lake.refresh(read_only=True)

    [report] = lake.store.history(lake.store.table("orders").id)
    assert (report.outcome, MEANWHILE, lake.workspaces()) == (Outcome.ABANDONED, [], [])

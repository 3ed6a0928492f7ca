"""Why a row is as it is: what each commit of main did to it and who made that, by versions and by the change feed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import ArgumentError, NotPublishedError, TableNotFoundError, VersionGoneError
from airflow_mv_provider.metadata.models import Base
from tests.engine.looking import remove_files

pytestmark = pytest.mark.slow

FEED = "ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
NO_FEED = "ALTER TABLE {t} UNSET TBLPROPERTIES (delta.enableChangeDataFeed)"
A, B, C, X = ({"id": 5, "day": "2026-01-05", "v": v} for v in ("a", "b", "c", "x"))
KEY = ["id=5", "day=2026-01-05"]


@pytest.fixture
def told(prepared):
    """The row 5 was inserted, updated, changed by another writer, deleted, inserted again and rolled back."""

    def build(lake):
        lake.write("SELECT id, DATE'2025-12-31' + CAST(id AS INT) AS day, 'a' AS v FROM range(10)")
        lake.apply(key=["id", "day"], guards={"max_deleted_fraction": 1.0}, checks=[{"not_null": ["v"]}])
        lake.refresh()
        lake.sql(FEED)
        lake.sql("UPDATE {t} SET v = 'b' WHERE id > 4", path="raw/orders")
        lake.refresh(caller=lake.caller(trigger="dag", user="ann"), note="a correction")
        version = lake.versions()
        lake.sql("UPDATE {t} SET v = 'x' WHERE id = 5")
        lake.sql("OPTIMIZE {t}")
        lake.sql("DELETE FROM {t} WHERE id = 5", path="raw/orders")
        lake.refresh()
        lake.sql("INSERT INTO {t} VALUES (5, DATE'2026-01-05', 'c'), (77, DATE'2026-03-18', 'c')", path="raw/orders")
        lake.refresh()
        lake.refresher().roll_back("orders", str(version), lake.caller(user="bob"), "was right")

    return prepared("row-history", build)


def why(lake, *key, **bounds):
    return lake.refresher().row_history("orders", key or KEY, **bounds)


def steps(found):
    return [(each.operation, each.before, each.after) for each in found.events]


def everything(lake):
    """All that a command which only looks must leave as it is: files of every kind, and every row of the database."""
    with lake.store.engine.begin() as db:
        rows = {table.name: db.execute(select(table)).all() for table in Base.metadata.sorted_tables}
    return sorted(str(path) for path in lake.root.rglob("*") if path.is_file()), lake.rows(), rows


STORY = [
    *(("insert", None, A), ("update", A, B), ("update", B, X), ("delete", X, None), ("insert", None, C)),
    ("update", C, B),
]


@pytest.mark.in_test_all
@pytest.mark.parametrize("is_by_feed", [True, False], ids=["feed", "versions"])
def test_a_row_is_followed_from_its_insert_to_now(told, is_by_feed):
    if not is_by_feed:
        told.sql(NO_FEED)
    before, shown = everything(told), []

    found = told.refresher(watch=shown.append).row_history("orders", KEY)

    assert steps(found) == STORY
    assert (found.is_from_feed, found.rows, found.begins.is_complete) == (is_by_feed, (B,), True)
    assert (found.key, found.main_version) == ({"id": "5", "day": "2026-01-05"}, told.versions())
    assert [each.changed for each in found.events] == [(), ("v",), ("v",), (), (), ("v",)]
    first, second, foreign, deleted, again, back = found.events
    assert foreign.cause is None
    assert foreign.commit == "UPDATE"
    history = {report.refresh_id: report for report in told.store.history(1)}
    for event in (first, second, deleted, again, back):
        report = history[event.cause.refresh_id]
        assert (event.version, event.cause.outcome) == (report.main_version, Outcome.PUBLISHED)
        assert (event.cause.source, event.cause.checks) == (report.source, report.checks)
    assert (second.cause.trigger, second.cause.user, second.cause.note) == ("dag", "ann", "a correction")
    assert [check.name for check in second.cause.checks] == ["not_null v"]
    assert (back.cause.user, "was right" in back.cause.note, back.cause.checks) == ("bob", True, ())
    times = [datetime.fromisoformat(event.at) for event in found.events]
    assert times == sorted(times)
    assert abs((datetime.now(UTC) - times[-1]).total_seconds()) < 3600
    assert shown, "progress"
    assert everything(told) == before


def test_a_commit_without_its_info_is_a_change_by_nobody_known(lake):
    """Delta's protocol has the info of a commit as optional."""
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply()
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'x' WHERE id = 1")
    log = lake.root / f"orders/_delta_log/{lake.versions():020}.json"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if not line.startswith('{"commitInfo"')))
    for checksum in log.parent.glob(f"*{log.stem}.*crc"):
        checksum.unlink()
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)

    [inserted, updated] = why(lake, "id=1").events

    assert (inserted.cause.refresh_id, inserted.after) == (lake.store.history(1)[0].refresh_id, {"id": 1, "v": "a"})
    assert (updated.cause, updated.commit, updated.after) == (None, "unknown", {"id": 1, "v": "x"})
    assert lake.refresh().rows_updated == 1
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_bounds_and_one_column_leave_out_the_rest(told):
    told.sql(NO_FEED)

    two = why(told, last=2)
    since = why(told, since=two.events[1].at)
    column = why(told, column="V")
    other = why(told, column="day")

    assert steps(two) == STORY[-2:]
    assert (two.begins.rows, two.begins.is_complete, two.num_commits) == ((), False, 2)
    assert "--last" in two.begins.why
    assert (steps(since), since.begins.rows) == (STORY[-1:], (C,))
    assert "--since" in since.begins.why
    assert (column.column, [each.operation for each in column.events]) == ("v", [each[0] for each in STORY])
    assert [each.operation for each in other.events] == ["insert", "delete", "insert"]


@pytest.mark.in_test_all
def test_versions_that_vacuum_has_removed_are_where_the_history_begins(told):
    conf = "spark.databricks.delta.retentionDurationCheck.enabled"
    told.spark.conf.set(conf, "false")
    try:
        told.sql("VACUUM {t} RETAIN 0 HOURS")
    finally:
        told.spark.conf.unset(conf)

    for by_feed in (True, False):
        found = why(told)

        assert (steps(found), found.rows, found.is_from_feed) == ([], (B,), False), by_feed
        last = max(report.main_version for report in told.store.history(1) if report.main_version)
        assert (found.begins.version, found.begins.rows, found.begins.is_complete) == (last, (B,), False)
        assert f"version {last - 1} cannot be read any more" in found.begins.why
        told.sql(NO_FEED)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("key", "more", "said"),
    [
        (["id=5"], {}, "the key is incomplete: day is missing"),
        (["id=5", "dai=2026-01-05"], {}, "'dai' is not a column of its key (did you mean day?)"),
        (["id=5.5", "day=2026-01-05"], {}, "'5.5' is not a value of 'id', which is a long"),
        (["id=five", "day=2026-01-05"], {}, "'five' is not a value of 'id'"),
        (["id=99999999999999999999", "day=2026-01-05"], {}, "is not a value of 'id'"),
        (["id=5", "day=2026-02-30"], {}, "'2026-02-30' is not a value of 'day', which is a date"),
        (["id=5", "day=today"], {}, "'today' is not a value of 'day'"),
        (KEY, {"column": "w"}, "the table has no column 'w'"),
        (KEY, {"since": "then"}, "'then' is not a time"),
    ],
)
def test_key_column_or_time_that_is_none_is_refused_by_name(told, key, more, said):
    with pytest.raises(ArgumentError) as caught:
        why(told, *key, **more)

    assert said in caught.value.message
    assert caught.value.advice


@pytest.mark.in_test_all
def test_a_row_that_never_was_has_no_history(told):
    found = why(told, "id=1234", "day=2026-01-05")

    assert (found.rows, found.events, found.begins.is_complete) == ((), (), True)
    with pytest.raises(TableNotFoundError):
        told.refresher().row_history("nowhere", KEY)


@pytest.mark.in_test_all
def test_a_table_that_was_never_refreshed_or_cannot_be_read_is_named(lake):
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply()
    with pytest.raises(NotPublishedError, match="there is no table"):
        why(lake, "id=1")
    lake.refresh()
    for file in (lake.root / "orders").glob("*.parquet"):
        file.unlink()

    with pytest.raises(VersionGoneError, match="its newest"):
        why(lake, "id=1")


@pytest.mark.in_test_all
@pytest.mark.parametrize("is_by_feed", [True, False])
def test_an_overwrite_changes_only_rows_that_differ(lake, is_by_feed):
    lake.write("SELECT id, CAST(1.10 AS DECIMAL(5,2)) AS k, 'a' AS v FROM range(10)")
    lake.apply(key=["id", "k"], strategy="replace")
    lake.refresh()
    lake.sql(FEED if is_by_feed else "OPTIMIZE {t}")
    lake.write("SELECT id, CAST(1.10 AS DECIMAL(5,2)) AS k, if(id = 0, 'a', 'b') AS v FROM range(10)")
    assert lake.refresh().strategy == "replace"

    same, other = why(lake, "id=0", "k=1.1"), why(lake, "id=1", "K=1.10")

    assert [each.operation for each in same.events] == ["insert"]
    assert [(each.operation, each.changed) for each in other.events] == [("insert", ()), ("update", ("v",))]
    assert (same.is_from_feed, other.is_from_feed) == (is_by_feed, is_by_feed)
    with pytest.raises(ArgumentError, match=r"'1\.104' is not a value of 'k'"):
        why(lake, "id=0", "k=1.104")


@pytest.mark.in_test_all
@pytest.mark.parametrize("is_by_feed", [True, False])
def test_others_columns_and_copies_are_told_as_they_are(lake, is_by_feed):
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply(sensitive=["v"])
    lake.refresh()
    if is_by_feed:
        lake.sql(FEED)
    lake.sql("ALTER TABLE {t} ADD COLUMNS (w INT)")
    lake.sql("INSERT INTO {t} VALUES (1, 'b', 7)")
    lake.sql("DELETE FROM {t} WHERE v = 'a'")

    found = why(lake, "id=1")

    assert [each.operation for each in found.events] == ["insert", "insert", "delete"]
    assert [row["w"] for row in found.rows] == [7]
    values = {row["v"] for each in found.events for row in (each.before, each.after) if row}
    assert len(values) == 2
    assert all(value.startswith("sha256:") for value in values)


@pytest.mark.in_test_all
def test_files_that_cannot_have_the_row_may_be_gone(lake):
    """The statistics of a file show that it has no such key, so the version is read without it."""
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply(partition_by=["id"])
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'x' WHERE id = 0")
    remove_files(lake.root / "orders", lake.versions() - 1)

    found = why(lake, "id=1")

    assert [each.operation for each in found.events] == ["insert"]
    assert found.begins.is_complete
    assert "cannot be read any more" in why(lake, "id=0").begins.why


# -- track_changes: main's own feed ---------------------------------------------------------------------------------


@pytest.mark.in_test_all
def test_a_table_that_tracks_changes_is_followed_by_its_feed_from_the_first_load_on(lake):
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply(track_changes=True)
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'b' WHERE id = 1", path="raw/orders")
    lake.refresh()

    found = why(lake, "id=1")

    assert (found.is_from_feed, found.begins.is_complete) == (True, True)
    assert steps(found) == [
        ("insert", None, {"id": 1, "v": "a"}),
        ("update", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}),
    ]
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_a_main_that_exists_tracks_changes_from_its_next_publish_on(lake):
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply()
    lake.refresh()
    lake.apply(track_changes=True)
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO, "it does not change main's rows"
    lake.sql("UPDATE {t} SET v = 'b' WHERE id = 1", path="raw/orders")
    lake.refresh()
    lake.apply()
    lake.sql("UPDATE {t} SET v = 'c' WHERE id = 1", path="raw/orders")
    lake.refresh()  # what was switched on stays so

    found = why(lake, "id=1")

    assert found.is_from_feed
    assert [each.operation for each in found.events] == ["insert", "update", "update"]
    assert lake.rows() == lake.rows("raw/orders")

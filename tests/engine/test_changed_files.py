"""A Delta source without a change data feed: the files that came and went, and their deletion vectors, are its feed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mv_provider import Query
from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DuplicateKeyError, StrategyError
from airflow_mv_provider.sources.delta import changed_files
from airflow_mv_provider.sources.delta.changed_files import actions, rows_between
from tests.conftest import Crash
from tests.engine.feeding import ROWS, change, feed_off, followed, with_feed

pytestmark = pytest.mark.slow

LOOSE = {"max_deleted_fraction": 1.0, "allow_empty": True}
VECTORS = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = '%s')"


@pytest.fixture(autouse=True)
def small_too(monkeypatch):
    """Take this way for the few rows of a test, too."""
    monkeypatch.setattr(strategy, "MIN_ROWS_FOR_NEW_FILES", 0)


def publish(lake: Any, has_vectors: bool = True, **more: Any) -> None:
    lake.sql(VECTORS % str(has_vectors).lower(), path="raw/orders")
    lake.apply(guards=LOOSE, **more)
    lake.refresh()


def holds(lake: Any, report: Any) -> None:
    """Main has the source's rows by an incremental refresh, and one that compares everything finds nothing to do."""
    assert (report.strategy, report.outcome) == ("incremental", Outcome.PUBLISHED), report.reason
    assert Counter(lake.rows("orders")) == Counter(lake.rows("raw/orders"))
    kept = lake.published()
    again = lake.refresh(force=True, strategy="corrections")
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0
    assert (lake.published(), lake.workspaces()) == (kept, [])


@pytest.fixture
def table(lake):
    """Published once, from a Delta table without a change feed, with deletion vectors, of several files."""
    with_feed(lake)
    feed_off(lake)
    publish(lake)
    return lake


@pytest.mark.in_test_all
def test_source_is_not_read_as_a_whole(table, monkeypatch):
    read = []
    opened = changed_files._Reading._opened
    monkeypatch.setattr(changed_files._Reading, "_opened", lambda *of: read.append(of[1]) or opened(*of))

    followed(table)

    (whole, some) = read
    assert {part.sign for part in whole} == {1}  # the file of each UPDATE and INSERT
    assert {part.sign for part in some} == {-1}  # rows that deletion vectors name


PARTITIONED = "CREATE TABLE {t} USING delta PARTITIONED BY (p) AS "
HISTORY = (
    ["UPDATE {t} SET v = 'late' WHERE id IN (3, 4)", "UPDATE {t} SET v = 'later' WHERE id IN (4, 5)"],
    ["DELETE FROM {t} WHERE p = 1", "INSERT INTO {t} VALUES (100, NULL, 'x'), (101, 7, 'y')"],
    ["OPTIMIZE {t}", "UPDATE {t} SET v = 'last' WHERE id = 8"],
    ["MERGE INTO {t} t USING (SELECT id, 2 AS p, 'm' AS v FROM range(55, 65)) s ON s.id = t.id "
     "WHEN MATCHED AND s.id = 55 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"],
    ["INSERT INTO {t} REPLACE WHERE p = 2 SELECT id, 2, 'whole' FROM range(900, 903)"],
    ["TRUNCATE TABLE {t}", "INSERT INTO {t} VALUES (1, 1, 'alone')"],
)  # fmt: skip


@pytest.mark.in_test_all
@pytest.mark.parametrize("has_vectors", [True, False])
def test_commits_of_all_sorts_are_followed(lake, has_vectors):
    lake.sql(PARTITIONED + ROWS, path="raw/orders")
    publish(lake, has_vectors)
    for statements in HISTORY:
        change(lake, *statements)

        holds(lake, lake.refresh(strategy="incremental"))


def differs_as_read(lake: Any, since: int, until: int) -> None:
    """What the files between two versions have is what one version has more of than the other."""
    place = str(lake.root / "raw/orders")
    before, after = (lake.spark.read.format("delta").option("versionAsOf", at).load(place) for at in (since, until))
    counted = Counter()
    for *values, sign in rows_between(lake.spark, TableRef(place), since, until, after.schema).collect():
        counted[repr(tuple(values))] += sign
    expected = Counter(repr(tuple(row)) for row in after.collect())  # a list in a row has no hash
    expected.subtract(repr(tuple(row)) for row in before.collect())
    assert +counted == +expected
    assert -counted == -expected


@pytest.mark.in_test_all
def test_any_two_versions_differ_as_their_files_do(lake):
    """Also those over which a file came and went."""
    lake.sql(PARTITIONED + ROWS, path="raw/orders")
    lake.sql(VECTORS % "true", path="raw/orders")
    for statements in HISTORY:
        change(lake, *statements)
    newest = lake.versions("raw/orders")

    for until in range(2, newest + 1):
        differs_as_read(lake, 1, until)
        differs_as_read(lake, until - 1, until)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "where",
    [
        pytest.param("id % 1000 = 7", id="few"),
        pytest.param("id % 3 <> 0", id="many", marks=pytest.mark.in_test_all),
        pytest.param("id BETWEEN 50 AND 150000", id="a range", marks=pytest.mark.in_test_all),
        pytest.param("id = 199999", id="the last one", marks=pytest.mark.in_test_all),
    ],
)
def test_vectors_that_delta_writes_are_decoded(lake, where):
    """In several blocks of 65,536 rows, each stored as whatever is the smallest."""
    lake.write(lake.spark.range(0, 200_000, 1, 1).selectExpr("id", "id * 2 AS v"))
    lake.sql(VECTORS % "true", path="raw/orders")
    change(lake, "DELETE FROM {t} WHERE id IN (5, 70000)")
    change(lake, f"DELETE FROM {{t}} WHERE {where}")

    place = TableRef(str(lake.root / "raw/orders"))
    assert any(each.file.vector for each in actions(lake.spark, place, 2, 3))
    differs_as_read(lake, 1, 3)
    differs_as_read(lake, 2, 3)


@pytest.mark.in_test_all
def test_values_of_partitions_are_those_that_delta_reads(lake):
    values = "(1, 'a b/%2B=c'), (2, 'ü+{{*}}'), (3, ''), (4, NULL), (5, 'x')"
    columns = "id, p, CAST(p = 'x' AS BOOLEAN) AS b, timestamp_seconds(id * 1.5) AS t, date_from_unix_date(id) AS d"
    select = f"SELECT {columns}, CAST(id AS DECIMAL(10, 2)) AS n FROM VALUES {values} AS t(id, p)"
    lake.sql(f"CREATE TABLE {{t}} USING delta PARTITIONED BY (p, b, t, d, n) AS {select}", path="raw/orders")
    lake.sql(VECTORS % "true", path="raw/orders")
    change(lake, f"INSERT INTO {{t}} {select}", "DELETE FROM {t} WHERE id = 2")

    differs_as_read(lake, 1, 2)
    differs_as_read(lake, 1, 3)


@pytest.mark.in_test_all
@pytest.mark.parametrize("has_vectors", [True, False])
def test_values_of_all_sorts_are_those_that_delta_reads(lake, has_vectors):
    """Also times that were written, and are read, in other time zones."""
    columns = (
        "id BIGINT NOT NULL, c CHAR(5), w VARCHAR(9), n TIMESTAMP_NTZ, t TIMESTAMP, b BINARY, d DECIMAL(20, 3), "
        "s STRUCT<a: INT, l: ARRAY<STRUCT<x: STRING>>>, m DOUBLE, p TIMESTAMP, g BIGINT GENERATED ALWAYS AS (id * 2)"
    )
    lake.sql(f"CREATE TABLE {{t}} ({columns}) USING delta PARTITIONED BY (p)", path="raw/orders")
    lake.sql(VECTORS % str(has_vectors).lower(), path="raw/orders")
    values = (
        "id, 'ab', 'x', TIMESTAMP_NTZ'1900-01-01 00:00:00.123456', TIMESTAMP'1850-02-03 04:05:06', X'00ff', 1.5, "
        "named_struct('a', 1, 'l', array(named_struct('x', 'y'))), 0.1 * id, TIMESTAMP'2024-01-01 12:00:00'"
    )
    insert = f"INSERT INTO {{t}} (id, c, w, n, t, b, d, s, m, p) SELECT {values} FROM range(%d, %d)"
    zone = lake.spark.conf.get("spark.sql.session.timeZone")
    try:
        lake.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        change(lake, insert % (0, 10))
        lake.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        change(lake, insert % (10, 20), "UPDATE {t} SET c = 'q', m = NULL WHERE id IN (3, 12)")
        change(lake, "DELETE FROM {t} WHERE id = 5")
        newest = lake.versions("raw/orders")

        for since in range(1, newest):
            differs_as_read(lake, since, newest)
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.in_test_all
@pytest.mark.parametrize("folder", ["a b%20{c} ü", "p=1/q=2"])
def test_place_of_the_table_is_no_pattern_and_no_partition(lake, folder):
    path = f"raw/{folder}"
    lake.write(ROWS, path)
    lake.sql(VECTORS % "true", path=path)
    lake.apply(source={"type": "delta", "path": path}, guards=LOOSE)
    lake.refresh()
    for statement in ("UPDATE {t} SET v = 'new' WHERE id = 3", "DELETE FROM {t} WHERE id = 4"):
        lake.sql(statement, path=path)

    report = lake.refresh(strategy="incremental")

    assert (report.strategy, report.rows_updated, report.rows_deleted) == ("incremental", 1, 1), report.reason
    source = lake.spark.read.format("delta").load(str(lake.root / path))
    assert Counter(lake.rows("orders")) == Counter(map(tuple, source.collect()))


@pytest.mark.in_test_all
def test_clone_is_read_where_its_files_are(lake):
    """Its log names files, and their deletion vectors, by absolute paths."""
    lake.write(ROWS, "raw/original")
    lake.sql(VECTORS % "true", path="raw/original")
    lake.sql("DELETE FROM {t} WHERE id = 1", path="raw/original")
    original = f"delta.`{lake.root}/raw/original`"
    lake.sql(f"CREATE TABLE {{t}} SHALLOW CLONE {original}", path="raw/orders")
    lake.apply(guards=LOOSE)
    lake.refresh()
    change(lake, "UPDATE {t} SET v = 'new' WHERE id = 3", "DELETE FROM {t} WHERE id = 4")

    holds(lake, lake.refresh(strategy="incremental"))


@pytest.mark.in_test_all
@pytest.mark.parametrize("partition_by", [None, ["p"]])
def test_what_another_writer_wrote_is_read(lake, partition_by):
    """delta-rs, whose log has the same actions; it writes no deletion vectors."""
    place = str(lake.root / "raw/orders")

    def rows(first: int, last: int) -> pa.Table:
        numbers = range(first, last)
        parts = [None if n % 5 == 0 else f"a b/{n % 3}%" for n in numbers]
        return pa.table({"id": list(numbers), "p": pa.array(parts, pa.string()), "v": [f"v{n}" for n in numbers]})

    write_deltalake(place, rows(0, 20), partition_by=partition_by)
    write_deltalake(place, rows(20, 40), mode="append")
    DeltaTable(place).delete("id = 3")
    DeltaTable(place).update(updates={"v": "'new'"}, predicate="id > 25 AND id < 30")
    DeltaTable(place).optimize.compact()
    newest = lake.versions("raw/orders")

    for since in range(newest):
        differs_as_read(lake, since, newest)


@pytest.mark.in_test_all
@pytest.mark.parametrize("kind", ["STRUCT<file_name: STRING>", "INT"])
def test_column_of_the_name_of_sparks_own_is_none_of_it(lake, kind):
    value = "named_struct('file_name', concat('f', id))" if kind != "INT" else "CAST(id AS INT)"
    lake.write(f"SELECT id, concat('v', id) AS v, {value} AS _metadata FROM range(20)")
    # Delta itself cannot write deletion vectors for such a table.
    publish(lake, has_vectors=False, source={"type": "delta", "path": "raw/orders", "select": ["id", "v"]})
    lake.sql("UPDATE {t} SET v = 'new' WHERE id = 3", path="raw/orders")

    report = lake.refresh()

    assert report.strategy == "incremental"
    assert Counter(lake.rows()) == Counter((n, "new" if n == 3 else f"v{n}") for n in range(20))


@pytest.mark.in_test_all
def test_files_from_before_a_type_was_widened_are_read(lake):
    lake.write("SELECT id, CAST(id AS INT) AS v FROM range(20)")
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", path="raw/orders")
    change(lake, "ALTER TABLE {t} ALTER COLUMN v TYPE BIGINT")
    publish(lake)
    change(lake, "UPDATE {t} SET v = 5000000000 WHERE id = 3", "DELETE FROM {t} WHERE id = 4")

    report = lake.refresh(strategy="incremental")

    assert (report.strategy, report.rows_updated, report.rows_deleted) == ("incremental", 1, 1), report.reason
    expected = ((n, 5_000_000_000 if n == 3 else n) for n in range(20) if n != 4)
    assert Counter(lake.rows("orders")) == Counter(expected)


@pytest.mark.in_test_all
def test_query_follows_the_files_of_its_input(lake):
    lake.write(ROWS)
    publish(lake, source=Query("SELECT id, upper(v) AS v FROM o WHERE p <> 2", inputs={"o": "raw/orders"}))
    change(lake, "UPDATE {t} SET v = 'new', p = 2 WHERE id IN (0, 1)", "UPDATE {t} SET p = 1 WHERE id IN (2, 5)")

    report = lake.refresh()

    assert (report.strategy, report.rows_inserted, report.rows_deleted) == ("incremental", 2, 2), report.reason
    expected = ((n, v.upper()) for n, p, v in lake.rows("raw/orders") if p != 2)
    assert Counter(lake.rows()) == Counter(expected)


def vacuumed(table: Any) -> None:
    table.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    table.sql("VACUUM {t} RETAIN 0 HOURS", path="raw/orders")
    table.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


def restored(table: Any) -> None:
    """What columns and partitions a version had that is restored is not known without reading its log."""
    table.sql("RESTORE TABLE {t} TO VERSION AS OF 2", path="raw/orders")
    change(table, "UPDATE {t} SET v = 'new' WHERE id < 50")


def replaced(table: Any) -> None:
    """The same columns, of which one is no longer in the files."""
    frame = table.spark.read.format("delta").load(str(table.root / "raw/orders"))
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("p")
    writer.save(str(table.root / "raw/orders"))


def mapped(table: Any) -> None:
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", path="raw/orders")


OBSTACLES = {"vacuumed": vacuumed, "mapped": mapped, "restored": restored, "replaced": replaced}


@pytest.mark.in_test_all
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_everything_is_compared_where_files_do_not_show_the_changes(table, obstacle):
    change(table, "UPDATE {t} SET v = 'new' WHERE id < 50", "OPTIMIZE {t}")
    OBSTACLES[obstacle](table)

    report = table.refresh()

    assert (report.strategy, report.rows_updated) == ("corrections", 50)
    assert Counter(table.rows("orders")) == Counter(table.rows("raw/orders"))


@pytest.mark.in_test_all
@pytest.mark.parametrize("limit", ["MAX_COMMITS", "MAX_FILES", "MAX_POSITIONS"])
def test_everything_is_compared_where_too_much_is_named(table, limit, monkeypatch):
    monkeypatch.setattr(changed_files, limit, 1)
    change(table, "UPDATE {t} SET v = 'new' WHERE id IN (3, 40)", "UPDATE {t} SET v = 'new' WHERE id = 50")

    report = table.refresh()

    assert (report.strategy, report.rows_updated) == ("corrections", 3)
    assert "MV-SOURCE-CHANGED" in report.reason


@pytest.mark.in_test_all
def test_strict_table_fails_where_its_files_are_gone(table):
    table.apply(guards=LOOSE, strict=True, strategy="incremental")
    change(table, "UPDATE {t} SET v = 'new' WHERE id < 50", "OPTIMIZE {t}")
    vacuumed(table)

    with pytest.raises(StrategyError):
        table.refresh()


def test_key_that_an_unchanged_file_has_too_is_found(table):
    before = table.rows()
    change(table, "INSERT INTO {t} VALUES (7, 1, 'again')")

    with pytest.raises(DuplicateKeyError):
        table.refresh()

    assert (table.rows(), table.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["staging.after", "staging.before", "seal.after", "publish.after"])
def test_killed_anywhere_it_goes_on(table, crash_at, point):
    change(table)
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()

    assert Counter(table.rows("orders")) == Counter(table.rows("raw/orders"))
    assert table.workspaces() == []


_ID, _PART, _TEXT = st.integers(0, 70), st.integers(0, 3), st.sampled_from("abc")
_STATEMENTS = st.one_of(
    st.builds("UPDATE {{t}} SET v = '{}', p = {} WHERE id % 7 = {}".format, _TEXT, _PART, st.integers(0, 6)),
    st.builds("DELETE FROM {{t}} WHERE id % 11 = {}".format, st.integers(0, 10)),
    st.builds(
        "MERGE INTO {{t}} t USING (SELECT id, {} AS p, '{}' AS v FROM range({}, {})) s ON s.id = t.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *".format,
        *(_PART, _TEXT, st.integers(55, 60), st.integers(61, 66)),
    ),
    st.just("OPTIMIZE {t}"),
)


@pytest.mark.in_test_all
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    history=st.lists(st.lists(_STATEMENTS, min_size=1, max_size=3), min_size=2, max_size=3),
    is_partitioned=st.booleans(),
    has_vectors=st.booleans(),
)
def test_any_history_leaves_what_comparing_would(
    lake_factory: Any, history: Any, is_partitioned: bool, has_vectors: bool
) -> None:
    lake = lake_factory()
    lake.sql((PARTITIONED if is_partitioned else "CREATE TABLE {t} USING delta AS ") + ROWS, path="raw/orders")
    change(lake, "UPDATE {t} SET v = 'first' WHERE id = 1", "DELETE FROM {t} WHERE id = 2")
    publish(lake, has_vectors, strategy="incremental")
    for statements in history:
        change(lake, *statements)

        report = lake.refresh()

        assert report.outcome is Outcome.NOTHING_TO_DO or report.strategy == "incremental", report.reason
        assert Counter(lake.rows("orders")) == Counter(lake.rows("raw/orders"))
    kept = lake.published()
    full = lake.refresh(force=True, strategy="corrections")
    assert full.rows_inserted + full.rows_updated + full.rows_deleted == 0
    assert lake.published() == kept

"""Sources that tell what is new without a change data feed: by files that were added, by a column that grows."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mv_provider.exceptions import DuplicateKeyError, StrategyError

pytestmark = pytest.mark.slow

FILES = {"type": "files", "path": "raw/in/*.csv", "format": "csv", "schema": "id INT, p INT, v STRING"}
LATE = {"type": "delta", "path": "raw/orders", "watermark": "t"}
ROWS = "SELECT id, CAST(id % 3 AS INT) AS p, concat('v', id) AS v, id AS t FROM range(60)"


def put(lake: Any, name: str, *rows: str) -> None:
    path = lake.root / "raw/in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["id,p,v", *rows]) + "\n")


def is_finished(lake: Any) -> None:
    """A refresh of everything finds nothing to do: what came before was as good as one."""
    again = lake.refresh(force=True)
    assert (again.strategy, again.rows_inserted + again.rows_updated + again.rows_deleted) == ("corrections", 0)
    assert lake.workspaces() == []


@pytest.fixture
def folder(lake):
    """Published once, from two files; not copied from a prepared one, whose files are others."""
    put(lake, "a.csv", *(f"{n},{n % 3},v{n}" for n in range(40)))
    put(lake, "b.csv", "100,0,x", "101,1,y")
    lake.apply(source=FILES, guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    return lake


@pytest.fixture
def late(prepared):
    """Published once, from a table that says when its rows changed."""

    def build(lake):
        lake.write(ROWS)
        lake.apply(source=LATE, guards={"max_deleted_fraction": 1.0})
        lake.refresh()

    return prepared("late rows", build)


@pytest.mark.in_test_all
def test_files_that_were_added_are_read_alone(folder):
    put(folder, "c.csv", "200,2,new", "201,0,newer")

    report = folder.refresh()

    assert (report.strategy, report.rows_inserted, report.rows_unchanged) == ("incremental", 2, 42)
    assert {(200, 2, "new"), (201, 0, "newer")} <= set(folder.rows())
    is_finished(folder)


@pytest.mark.in_test_all
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_everything_is_read_where_a_file_was(folder, how):
    if how == "changed":
        put(folder, "b.csv", "100,0,other", "101,1,y", "102,2,z")
    else:
        (folder.root / "raw/in/b.csv").unlink()
    put(folder, "c.csv", "200,2,new")

    report = folder.refresh()

    (judged,) = (each for each in report.estimates if each.strategy == "incremental")
    assert (report.strategy, judged.seconds) == ("corrections", None)
    assert "so few rows" in judged.why
    assert len(folder.rows()) == (44 if how == "changed" else 41)
    is_finished(folder)


@pytest.mark.in_test_all
@pytest.mark.parametrize("rows", [("7,1,again",), ("200,0,a", "200,0,b")], ids=["another file's", "its own"])
def test_key_that_new_files_bring_twice_is_found(folder, rows):
    before = folder.rows()
    put(folder, "c.csv", *rows)

    with pytest.raises(DuplicateKeyError):
        folder.refresh()

    assert (folder.rows(), folder.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("select", "strategy"),
    [(["id + 1 AS id", "upper(v) AS v"], "incremental"), (["max(id) AS id", "count(*) AS n"], "corrections")],
    ids=["row by row", "all rows"],
)
def test_a_projection_of_new_files_alone_takes_single_rows(lake, select, strategy):
    put(lake, "a.csv", *(f"{n},{n % 3},v{n}" for n in range(9)))
    lake.apply(source=FILES | {"select": select}, guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    put(lake, "b.csv", "50,0,new")

    assert lake.refresh().strategy == strategy

    is_finished(lake)


@pytest.mark.in_test_all
def test_files_that_change_while_a_refresh_goes_on_are_no_harm(folder, at_point):
    put(folder, "c.csv", "200,2,new")
    at_point("seal.after", lambda: put(folder, "b.csv", "100,0,overwritten meanwhile", "101,1,y"))

    assert folder.refresh().strategy == "incremental"

    assert (100, 0, "x") in folder.rows()
    assert folder.refresh().rows_updated == 1
    is_finished(folder)


@pytest.mark.in_test_all
def test_late_rows_are_read_alone(late):
    late.sql("UPDATE {t} SET v = 'late', t = 60 WHERE id IN (3, 4)", path="raw/orders")
    late.sql("INSERT INTO {t} VALUES (1000, 7, 'new', 61), (1001, 7, 'never', NULL)", path="raw/orders")

    report = late.refresh()

    assert (report.strategy, report.rows_inserted, report.rows_updated) == ("incremental", 2, 2)
    assert late.rows() == late.rows("raw/orders")
    is_finished(late)


@pytest.mark.in_test_all
def test_rows_of_the_last_moment_and_of_none_are_late(late):
    """The last publish may have read the source before they were written."""
    late.sql("UPDATE {t} SET v = 'same moment' WHERE id = 59", path="raw/orders")
    late.sql("UPDATE {t} SET v = 'no moment', t = NULL WHERE id = 4", path="raw/orders")

    report = late.refresh()

    assert (report.strategy, report.rows_updated) == ("incremental", 2)
    assert late.rows() == late.rows("raw/orders")
    is_finished(late)


@pytest.mark.in_test_all
def test_every_row_is_late_while_main_has_no_watermark(lake):
    lake.write("SELECT id, 'a' AS v, CAST(NULL AS BIGINT) AS t FROM range(30)")
    lake.apply(source=LATE)
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'first', t = 1 WHERE id = 3", path="raw/orders")

    report = lake.refresh()

    assert (report.strategy, report.rows_updated) == ("incremental", 1)
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_row_that_is_gone_is_noticed_though_no_watermark_tells(late):
    late.sql("UPDATE {t} SET v = 'late', t = 60 WHERE id = 3", path="raw/orders")
    late.sql("DELETE FROM {t} WHERE id = 9", path="raw/orders")

    report = late.refresh()

    assert (report.strategy, report.rows_updated, report.rows_deleted) == ("corrections", 1, 1)
    assert "MV-SEAL-BROKEN" in report.reason
    assert late.rows() == late.rows("raw/orders")
    is_finished(late)


@pytest.mark.in_test_all
def test_second_row_of_a_key_is_noticed_though_it_is_late(late):
    before = late.rows()
    late.sql("INSERT INTO {t} VALUES (3, 0, 'twice', 99)", path="raw/orders")

    with pytest.raises(DuplicateKeyError):
        late.refresh()

    assert (late.rows(), late.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("sql", "watermark"),
    [
        ("timestamp'2026-03-29 02:30:00.123456' + make_interval(0, 0, 0, id)", "t"),
        ("date'1500-01-01' + CAST(id AS INT)", "t"),
        ("CAST(id / 7 AS DECIMAL(20, 9))", "t"),
        ("concat('k', lpad(id, 9, '0'))", "t"),
    ],
)
def test_a_watermark_may_be_whatever_has_an_order(lake, sql, watermark):
    rows = f"SELECT id, {sql} AS t FROM range(30)"
    lake.write(rows)
    lake.apply(source=LATE | {"watermark": watermark})
    lake.refresh()
    lake.write(f"SELECT id + 30 AS id, {sql.replace('id', '(id + 30)')} AS t FROM range(5)", mode="append")

    report = lake.refresh()

    assert (report.strategy, report.rows_inserted, report.rows_unchanged) == ("incremental", 5, 30)
    is_finished(lake)


@pytest.mark.in_test_all
def test_a_query_may_have_a_watermark(lake):
    lake.write(ROWS)
    query = {"type": "query", "sql": "SELECT id, v, t FROM o", "inputs": {"o": "raw/orders"}, "watermark": "t"}
    lake.apply(source=query)
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'late', t = 99 WHERE id = 3", path="raw/orders")

    report = lake.refresh()

    assert (report.strategy, report.rows_updated) == ("incremental", 1)
    is_finished(lake)


@pytest.mark.in_test_all
@pytest.mark.parametrize("watermark", ["nowhere", "x"])
def test_column_that_is_no_watermark_is_said_to_be_none(lake, watermark):
    lake.write("SELECT id, CAST(id AS DOUBLE) AS x FROM range(9)")
    lake.apply(source=LATE | {"watermark": watermark}, strategy="incremental", strict=True)
    lake.refresh()
    lake.write("SELECT id + 9 AS id, CAST(id AS DOUBLE) AS x FROM range(9)", mode="append")

    with pytest.raises(StrategyError, match=watermark):
        lake.refresh()

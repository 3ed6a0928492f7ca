"""An audit finds exactly what others have changed in main, writes nothing, and its repair is an ordinary refresh."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_mv_provider.core.approval.audit import Against, DriftedRow, Finding
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.request import parse_request
from airflow_mv_provider.exceptions import (
    ArgumentError,
    GuardRefusedError,
    NotPublishedError,
    RefreshPausedError,
    TableNotFoundError,
    VersionGoneError,
)
from tests.engine.looking import remove_files, state_of

pytestmark = pytest.mark.slow


@pytest.fixture
def table(prepared):
    """Ten rows in two partitions."""

    def build(lake):
        lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(10)")
        lake.apply(partition_by=["p"], guards={"max_deleted_fraction": 0.5})
        lake.refresh()

    return prepared("audited", build)


def disturb(lake):
    """One row less, one more, one changed; two of them in partition 1."""
    lake.sql("DELETE FROM {t} WHERE id = 2")
    lake.sql("UPDATE {t} SET v = 'x' WHERE id = 7")
    lake.sql("INSERT INTO {t} VALUES (11, 1, 'new')")


def audit(lake, **asked):
    return lake.refresher().audit("orders", lake.caller(user="ann"), parse_request(asked))


def findings(found):
    return {side.against: side.finding for side in found.sides}


@pytest.mark.in_test_all
def test_a_table_that_nobody_has_touched_is_as_published_and_as_the_source(table):
    before = state_of(table)

    found = audit(table)

    assert findings(found) == {Against.PUBLISHED: Finding.SAME, Against.SOURCE: Finding.SAME}
    assert (found.is_drift, found.writes) == (False, ())
    assert [side.rows_same for side in found.sides] == [0, 10], "the log alone answers the first"
    assert state_of(table) == before


@pytest.mark.in_test_all
def test_rows_that_others_have_changed_are_found_by_partition_with_samples(table):
    disturb(table)
    table.write("SELECT id, id % 2 AS p, 'later' AS v FROM range(20)")
    before = state_of(table)

    found = audit(table)

    published, source = found.sides
    assert [write.operation for write in found.writes] == ["DELETE", "UPDATE", "WRITE"]
    for side in (published, source):
        assert side.finding is Finding.DRIFT
        assert side.counts == {"missing": 1, "extra": 1, "different": 1}, "not what the source has changed since"
        parts = [(p.partition, p.rows_missing, p.rows_extra, p.rows_different) for p in side.partitions]
        assert parts == [('["0"]', 1, 0, 0), ('["1"]', 0, 1, 1)]
        assert sorted(side.rows, key=lambda row: row.kind) == [
            DriftedRow("different", {"id": 7}, {"id": 7, "p": 1, "v": "x"}, {"id": 7, "p": 1, "v": "a"}),
            DriftedRow("extra", {"id": 11}, {"id": 11, "p": 1, "v": "new"}, None),
            DriftedRow("missing", {"id": 2}, None, {"id": 2, "p": 0, "v": "a"}),
        ]
    assert state_of(table) == before
    kept = table.store.last_audit(1)
    assert kept.is_drift
    assert (kept.user, kept.sides[0].counts, kept.writes) == ("ann", published.counts, found.writes)


@pytest.mark.in_test_all
def test_a_repair_is_an_ordinary_refresh(table):
    disturb(table)
    found = audit(table)

    report = table.refresher().repair(found, table.caller())

    assert (report.outcome, report.rows_inserted, report.rows_updated, report.rows_deleted) == (
        Outcome.PUBLISHED, 1, 1, 1,
    )  # fmt: skip
    assert table.rows() == table.rows("raw/orders")
    assert "repair after an audit: against what was published: rows 1 missing" in report.note
    assert table.store.last_audit(1).repaired_by == report.refresh_id
    assert not audit(table).is_drift


@pytest.mark.in_test_all
def test_a_repair_is_judged_by_the_guards(table):
    table.sql("INSERT INTO {t} SELECT id, 1, 'b' FROM range(20, 50)")
    found = audit(table)
    before = table.rows()

    with pytest.raises(GuardRefusedError):
        table.refresher().repair(found, table.caller())

    assert found.sides[0].counts == {"missing": 0, "extra": 30, "different": 0}
    assert (table.rows(), table.phase()) == (before, "NORMAL")
    assert table.store.last_audit(1).repaired_by is None


@pytest.mark.in_test_all
def test_only_the_partitions_that_are_asked_about_are_compared_and_repaired(table):
    disturb(table)

    found = audit(table, partitions=[["0"]])
    table.refresher().repair(found, table.caller(), parse_request({"partitions": [["0"]]}))

    assert [side.counts for side in found.sides] == [{"missing": 1, "extra": 0, "different": 0}] * 2
    assert found.scope == 'partitions ["0"]'
    assert [row[0] for row in table.rows() if row[1] == 0] == [0, 2, 4, 6, 8]
    assert (7, 1, "x") in table.rows()
    again = audit(table)
    assert again.sides[0].finding is Finding.SAME
    assert again.sides[1].scope == 'partitions ["0"]', "the rest has another state of the source"


@pytest.mark.in_test_all
def test_a_commit_that_moves_rows_only_is_no_drift(table):
    table.sql("OPTIMIZE {t}")

    found = audit(table)

    assert (found.is_drift, found.writes) == (False, ())


@pytest.mark.in_test_all
def test_rows_that_were_changed_and_changed_back_are_the_same(table):
    table.sql("UPDATE {t} SET v = 'x' WHERE id = 7")
    table.sql("UPDATE {t} SET v = 'a' WHERE id = 7")

    found = audit(table)

    assert (findings(found)[Against.PUBLISHED], found.sides[0].rows_same) == (Finding.SAME, 10)
    assert len(found.writes) == 2


@pytest.mark.in_test_all
def test_a_column_that_another_program_has_added_is_drift(table):
    table.sql("ALTER TABLE {t} ADD COLUMNS (w INT)")

    found = audit(table)

    assert set(findings(found).values()) == {Finding.DRIFT}
    assert "w" in found.sides[0].reason
    assert table.store.history(1)[0].outcome is Outcome.DIFFERENCES, "it is no failed refresh"


@pytest.mark.in_test_all
def test_the_source_is_not_compared_where_its_files_are_gone(table):
    disturb(table)
    table.write("SELECT id, id % 2 AS p, 'later' AS v FROM range(20)")
    remove_files(table.root / "raw/orders", 0)

    found = audit(table)

    assert findings(found) == {Against.PUBLISHED: Finding.DRIFT, Against.SOURCE: Finding.UNKNOWN}
    assert found.sides[1].reason


@pytest.mark.in_test_all
def test_what_was_published_is_not_compared_where_its_files_are_gone(table):
    version = table.store.state(1).published_version
    table.sql("UPDATE {t} SET v = 'x'")
    remove_files(table.root / "orders", version)

    found = audit(table)

    assert findings(found) == {Against.PUBLISHED: Finding.UNKNOWN, Against.SOURCE: Finding.DRIFT}
    table.write("SELECT id, id % 2 AS p, 'later' AS v FROM range(20)")
    remove_files(table.root / "raw/orders", 0)
    with pytest.raises(VersionGoneError, match="nothing to compare"):
        audit(table)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("is_of_both", [False, True])
def test_main_whose_own_files_are_gone_is_named(table, is_of_both):
    """One that only its newest version has, or one that the last publish had, too."""
    then = set(DeltaTable(str(table.root / "orders")).file_uris())
    table.sql("UPDATE {t} SET v = 'x' WHERE id = 7")
    now = set(DeltaTable(str(table.root / "orders")).file_uris())
    gone = min(now & then if is_of_both else now - then)
    Path(gone.removeprefix("file://")).unlink()

    with pytest.raises(VersionGoneError, match="cannot be read"):
        audit(table)


@pytest.mark.in_test_all
def test_main_that_is_gone_has_drifted_and_is_made_again(table):
    shutil.rmtree(table.root / "orders")

    found = audit(table)

    assert found.is_drift
    assert "the table is gone" in found.sides[0].reason
    table.refresher().repair(found, table.caller())
    assert table.rows() == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_main_that_was_made_again_is_compared_with_the_source_alone(table):
    rows = table.spark.sql(f"SELECT * FROM delta.`{table.root}/orders` WHERE id > 0").collect()
    frame = table.spark.createDataFrame(rows, "id BIGINT, p BIGINT, v STRING")
    shutil.rmtree(table.root / "orders")
    table.write(frame, "orders")

    found = audit(table)

    assert findings(found) == {Against.PUBLISHED: Finding.UNKNOWN, Against.SOURCE: Finding.DRIFT}
    assert found.sides[1].counts["missing"] == 1


@pytest.mark.in_test_all
def test_after_a_rollback_the_source_is_not_compared_and_no_repair_begins(table):
    version = table.store.state(1).published_version
    table.write("SELECT id, id % 2 AS p, 'b' AS v FROM range(10)")
    table.refresh()
    table.refresher().roll_back("orders", str(version), table.caller(), "was right")

    found = audit(table)

    assert findings(found) == {Against.PUBLISHED: Finding.SAME, Against.SOURCE: Finding.UNKNOWN}
    assert "rollback" in found.sides[1].reason
    with pytest.raises(RefreshPausedError):
        table.refresher().audit("orders", table.caller(), is_repair=True)


@pytest.mark.in_test_all
def test_a_source_that_cannot_be_read_again_is_not_compared(lake):
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply(source={"type": "query", "sql": "SELECT id, rand() AS v FROM o", "inputs": {"o": "raw/orders"}})
    lake.refresh()

    found = audit(lake)

    assert findings(found) == {Against.PUBLISHED: Finding.SAME, Against.SOURCE: Finding.UNKNOWN}
    assert "cannot be read again as it was" in found.sides[1].reason


@pytest.mark.in_test_all
def test_a_table_that_was_never_published_is_refused(lake):
    lake.apply()
    with pytest.raises(NotPublishedError, match="never published"):
        audit(lake)
    with pytest.raises(TableNotFoundError):
        lake.refresher().audit("nowhere", lake.caller())


def test_a_wrong_scope_is_refused(table):
    before = state_of(table), len(table.store.history(1))
    for asked in ({"partitions": [["0", "1"]]}, {"from": "2", "until": "1"}, {"from": "abc"}):
        with pytest.raises(ArgumentError):
            audit(table, **asked)
    assert (state_of(table), len(table.store.history(1))) == before


@pytest.mark.in_test_all
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_database_is_compared_while_it_has_not_changed(lake, monkeypatch, is_changed):
    file = lake.root / "raw" / "orders.db"
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, v TEXT)")
        db.executemany("INSERT INTO orders VALUES (?, ?)", [(1, "a"), (2, "b")])
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", f"sqlite:///{file}")
    lake.apply(source={"type": "jdbc", "conn_id": "shop", "table": "orders"})
    lake.refresh()
    lake.sql("DELETE FROM {t} WHERE id = 2")
    if is_changed:
        with closing(sqlite3.connect(file)) as db, db:
            db.execute("DELETE FROM orders")

    found = audit(lake)

    assert findings(found)[Against.PUBLISHED] is Finding.DRIFT
    source = found.sides[1]
    if is_changed:
        assert (source.finding, source.reason) == (
            Finding.UNKNOWN, "the source has changed since, and cannot be read as it was",
        )  # fmt: skip
    else:
        assert (source.finding, source.counts["missing"]) == (Finding.DRIFT, 1)


@pytest.mark.in_test_all
def test_rejected_records_are_no_drift(good_csv):
    [file] = (good_csv.root / "raw").rglob("*.csv")
    definition = good_csv.store.table("orders").definition.to_json()
    good_csv.apply(**{name: definition[name] for name in ("source", "key")}, errors={})
    file.write_text("id,v\n1,a\nx,bad\n2,b\n")
    good_csv.refresh()

    same = audit(good_csv)
    good_csv.sql("DELETE FROM {t} WHERE id = 2")
    drifted = audit(good_csv)

    assert set(findings(same).values()) == {Finding.SAME}
    assert [side.counts["missing"] for side in drifted.sides] == [1, 1]
    assert len(good_csv.rows("orders__errors")) == 1


@pytest.mark.in_test_all
def test_another_definition_is_no_drift(table):
    select = ["id", "p", "'z' AS v"]
    table.apply(partition_by=["p"], source={"type": "delta", "path": "raw/orders", "select": select})

    assert not audit(table).is_drift, "it is not the one that was published"


@pytest.mark.in_test_all
def test_frozen_partitions_are_compared_with_what_was_published(lake):
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(4)")
    lake.apply(partition_by=["p"], frozen_before="1")
    lake.refresh()
    lake.apply(partition_by=["p"])
    lake.refresh()
    lake.apply(partition_by=["p"], frozen_before="1")
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'x' WHERE id = 2")

    found = audit(lake)
    named = audit(lake, partitions=[["0"]])

    assert findings(found) == {Against.PUBLISHED: Finding.DRIFT, Against.SOURCE: Finding.SAME}
    assert findings(named) == {Against.PUBLISHED: Finding.DRIFT, Against.SOURCE: Finding.UNKNOWN}


@pytest.mark.in_test_all
def test_changed_files_are_named_and_unchanged_ones_are_compared(good_csv):
    assert findings(audit(good_csv)) == {Against.PUBLISHED: Finding.SAME, Against.SOURCE: Finding.SAME}
    [file] = (good_csv.root / "raw").rglob("*.csv")
    file.write_text("id,v\n1,a\n2,b\n")

    found = audit(good_csv)

    assert findings(found) == {Against.PUBLISHED: Finding.SAME, Against.SOURCE: Finding.UNKNOWN}
    assert file.name in found.sides[1].reason


@pytest.mark.in_test_all
def test_a_publish_that_is_under_way_is_no_drift(table, at_point):
    found = []
    table.write("SELECT id, id % 2 AS p, 'b' AS v FROM range(10)")
    at_point("publish.after", lambda: found.append(audit(table)))

    table.refresh()

    assert [each.is_drift for each in found] == [False]
    assert not audit(table).is_drift


@pytest.mark.in_test_all
def test_sensitive_values_are_hashed(table):
    table.apply(partition_by=["p"], guards={"max_deleted_fraction": 0.5}, sensitive=["v"])
    disturb(table)

    found = audit(table)

    values = {each["v"] for side in found.sides for row in side.rows for each in (row.main, row.expected) if each}
    assert all(value.startswith("sha256:") for value in values)

"""Records that cannot be rows of main: where they go, what they say, and that both tables have one refresh's."""

from __future__ import annotations

import gzip
import shutil
from typing import Any

import pytest
from pyspark.sql import functions as F

from airflow_mv_provider import Files
from airflow_mv_provider.core.definition.history import History
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    GuardRefusedError,
    LeaseLostError,
    MainNotOursError,
    NullKeyError,
    TooManyErrorsError,
)
from airflow_mv_provider.sources.table_source import open_source
from airflow_mv_provider.spark import rejected
from airflow_mv_provider.spark.delta import UUID_PROPERTY, no_rows
from airflow_mv_provider.spark.layout import struct_type
from tests.conftest import Crash, a_table
from tests.engine.versioned import of_main, versions

pytestmark = pytest.mark.slow

JSON = Files("raw/orders", format="json", schema="id INT, v STRING")
CSV = Files("raw/orders", format="csv", schema="id INT, n INT, v STRING")
FIELDS = ("source_file", "source_position", "rule", "reason", "record")


def write(lake: Any, name: str, content: bytes, *, place: str = "raw/orders") -> None:
    path = lake.root / place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def errors(lake: Any, location: str = "orders__errors") -> list[tuple[Any, ...]]:
    """What the error table holds, as an independent reader sees it: (file, position, rule, reason, record)."""
    names = sorted(("refresh_id", "batch", *FIELDS))
    found = [dict(zip(names, row, strict=True)) for row in lake.rows(location)]
    for row in found:
        row["source_file"] = row["source_file"] and row["source_file"].rpartition("/")[2]
    return sorted((tuple(row[name] for name in FIELDS) for row in found), key=repr)


@pytest.fixture
def table(lake: Any) -> Any:
    """A table published once from one file, with one record that is no JSON."""
    write(lake, "1.json", b'{"id": 1, "v": "a"}\n{"id": 2\n')
    lake.apply(source=JSON, errors={})
    lake.refresh()
    return lake


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("is_claimed", [False, True])
@pytest.mark.parametrize("name", ["orders", "orders__errors", "orders__history"])
def test_killed_inside_the_creation_of_a_table(lake, name, is_claimed):
    """What SIGKILL inside CREATE TABLE leaves: a log without a commit, a table to SQL and none to a write.

    is_claimed : whoever came next died as well, between its write and our identity among the table's properties
    """
    write(lake, "1.json", b'{"id": 1, "v": "a"}\n{"id": 2\n')
    lake.apply(source=JSON, errors={}, history=True)
    log = lake.root / name / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / ".00000000000000000000.json.139eb7a6-b54e-4718-933e-5c0649f5a1e0.tmp").write_text('{"commitInfo":{"timest')
    if is_claimed:
        definition, main = lake.store.table("orders").definition, (Column("id", "integer"), Column("v", "string"))
        columns = {
            "orders": main,
            "orders__errors": rejected.columns_of(definition),
            "orders__history": (*main, *History().own_columns),
        }[name]
        claim = f"{UUID_PROPERTY}={lake.store.table('orders').uuid}"
        rows = no_rows(lake.spark, struct_type(columns))
        rows.write.format("delta").mode("ignore").option("userMetadata", claim).save(str(log.parent))

    lake.refresh()

    assert lake.rows() == [(1, "a")]
    assert len(errors(lake)) == 1
    assert versions(lake) == of_main(lake)
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_json_records_that_cannot_be_decoded_are_kept_with_their_place(lake):
    first = b'\n{"id": 1, "v": "a"}\n\n{"id": 2, "v": \n{"id": 3, "v": "c"} {"id": 4}\n{"id": "x", "v": "e"}\n'
    write(lake, "a b+1.json", first)
    write(lake, "2.json.gz", gzip.compress(b'{"id": 7, "colour": "red"}\n{"id": 8, "id": 9}\n{"v": "f"}\n{"id": 5}\n'))
    write(lake, "3.json", b'{"id": 6, "v": "\xff"}\n')
    lake.apply(source=JSON, errors={"max_rows": 7})

    report = lake.refresh()

    assert (report.outcome, report.rows_inserted, report.rows_rejected) == (Outcome.PUBLISHED, 2, 7)
    assert lake.rows() == [(1, "a"), (5, None)]
    unfit = "does not fit the schema"
    assert errors(lake) == sorted(
        [
            ("a b+1.json", 4, "corrupt_record", unfit, '{"id": 2, "v": '),
            ("a b+1.json", 5, "corrupt_record", unfit, '{"id": 3, "v": "c"} {"id": 4}'),
            ("a b+1.json", 6, "corrupt_record", "id: expected INT, found x", '{"id": "x", "v": "e"}'),
            ("2.json.gz", 1, "unknown_field", "the schema has no field colour", '{"id": 7, "colour": "red"}'),
            ("2.json.gz", 2, "corrupt_record", unfit, '{"id": 8, "id": 9}'),
            ("2.json.gz", 3, "key_null", "id is NULL", '{"id":null,"v":"f"}'),
            ("3.json", 1, "encoding", "bytes that are not in the declared encoding", '{"id": 6, "v": "\ufffd"}'),
        ],
        key=repr,
    )
    (refresh_id,) = {row.refresh_id for row in lake.sql("SELECT * FROM {t}", path="orders__errors")}
    assert refresh_id == report.refresh_id
    assert lake.workspaces() == []


@pytest.mark.in_test_all
def test_csv_records_that_cannot_be_decoded_are_kept_with_their_place(lake):
    write(lake, "1.csv", b"id,n,v\n1,10,a\n2,ten,b\n3,30\n4,40,d,e\n,50,f\n6,60,g\n")
    write(lake, "2.csv", b"id,n,v\n7,70,h\n8,80,\xff\n")
    lake.apply(source=CSV.model_copy(update={"select": ("id", "n * 2 AS n", "v")}), errors={})

    report = lake.refresh()

    assert report.rows_rejected == 5
    assert lake.rows() == [(1, 20, "a"), (6, 120, "g"), (7, 140, "h")]
    unfit = "does not fit the schema"
    garbled = "bytes that are not in the declared encoding"
    assert errors(lake) == sorted(
        [
            ("1.csv", 2, "corrupt_record", unfit, "2,ten,b"),
            ("1.csv", 3, "corrupt_record", unfit, "3,30"),
            ("1.csv", 4, "corrupt_record", unfit, "4,40,d,e"),
            ("1.csv", 5, "key_null", "id is NULL", '{"id":null,"n":100,"v":"f"}'),
            ("2.csv", 2, "encoding", garbled, '{"id":8,"n":80,"v":"\ufffd"}'),
        ],
        key=repr,
    )


@pytest.mark.in_test_all
def test_rows_without_a_key_are_kept_for_any_source(lake):
    lake.write("SELECT * FROM VALUES (1, 1, 'a'), (2, NULL, 'b'), (NULL, NULL, 'c') AS t (id, k, v)")
    lake.apply(key=["id", "k"], errors={})

    report = lake.refresh()

    assert (report.rows_inserted, report.rows_rejected) == (1, 2)
    assert lake.rows() == [(1, 1, "a")]
    assert errors(lake) == [
        (None, None, "key_null", "id, k is NULL", '{"id":null,"k":null,"v":"c"}'),
        (None, None, "key_null", "k is NULL", '{"id":2,"k":null,"v":"b"}'),
    ]


@pytest.mark.in_test_all
def test_position_counts_through_a_file_that_several_tasks_read(lake):
    lines = [b"broken %d" % n if n % 7 == 0 else b" " if n % 5 == 0 else b'{"id": %d}' % n for n in range(1, 61)]
    write(lake, "1.json", b"\n".join(lines))
    source = open_source(lake.spark, a_table(source=JSON, errors={}), str(lake.root))
    lake.spark.conf.set("spark.sql.files.maxPartitionBytes", "150")
    lake.spark.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        frontier, path = source.probe(), str(lake.root / "_mv" / "found")
        num_tasks = source.read(frontier).select(F.spark_partition_id()).distinct().count()
        found = rejected.collect(source.rejected(frontier), source.table, path)
        places = sorted((row.source_position, row.record) for row in lake.spark.read.parquet(path).collect())
    finally:
        lake.spark.conf.unset("spark.sql.files.maxPartitionBytes")
        lake.spark.conf.unset("spark.sql.files.openCostInBytes")

    assert num_tasks > 2
    assert found.num_rows == len(places)
    assert places == [(n, f"broken {n}") for n in range(7, 61, 7)]


@pytest.mark.in_test_all
def test_table_that_does_not_ask_fails(lake):
    lake.write("SELECT CAST(NULL AS INT) AS id")
    lake.apply()

    with pytest.raises(NullKeyError):
        lake.refresh()

    assert not (lake.root / "orders__errors").exists()


@pytest.mark.in_test_all
def test_each_publish_replaces_the_errors_and_older_versions_keep_them(table):
    assert errors(table) == [("1.json", 2, "corrupt_record", "does not fit the schema", '{"id": 2')]
    first = table.versions("orders__errors")
    write(table, "1.json", b'{"id": 1, "v": "a"}\n{"id": 2}\n')

    report = table.refresh()

    assert (report.rows_inserted, report.rows_rejected) == (1, 0)
    assert errors(table) == []
    assert len(table.sql(f"SELECT * FROM {{t}} VERSION AS OF {first}", path="orders__errors")) == 1
    write(table, "2.json", b'{"id": 3}\n')
    empty = table.versions("orders__errors")
    table.refresh()
    assert table.versions("orders__errors") == empty, "no commit where nothing was and nothing is"


@pytest.mark.in_test_all
def test_errors_are_published_where_main_needs_no_change(table):
    write(table, "1.json", b'{"id": 1, "v": "a"}\n{"id": 2\n{"id": 3\n')

    report = table.refresh()

    assert (report.outcome, report.rows_unchanged, report.rows_rejected) == (Outcome.PUBLISHED, 1, 2)
    assert [row[4] for row in errors(table)] == ['{"id": 2', '{"id": 3']


@pytest.mark.in_test_all
def test_too_many_errors_are_refused_before_merging(table):
    before = (table.rows(), table.rows("orders__errors"))
    table.apply(source=JSON, errors={"max_rows": 1})
    write(table, "2.json", b'{"id": 3}\n{"id": 4\n')

    with pytest.raises(TooManyErrorsError) as caught:
        table.refresh()

    assert "more than 1 records" in caught.value.message
    assert "1.json (does not fit the schema)" in caught.value.message
    assert (table.rows(), table.rows("orders__errors")) == before
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_refused_refresh_publishes_neither(table):
    before = (table.rows(), table.rows("orders__errors"))
    write(table, "1.json", b'{"id": 5}\n{"id": 4\n')

    with pytest.raises(GuardRefusedError):
        table.refresh()

    assert (table.rows(), table.rows("orders__errors")) == before


@pytest.mark.in_test_all
def test_read_only_counts_them_and_writes_nothing(table):
    before = (table.versions(), table.versions("orders__errors"))
    write(table, "2.json", b'{"id": 3}\n{"id": 4\n')

    report = table.refresh(read_only=True)

    assert (report.outcome, report.rows_inserted, report.rows_rejected) == (Outcome.DIFFERENCES, 1, 2)
    assert (table.versions(), table.versions("orders__errors")) == before


@pytest.mark.in_test_all
@pytest.mark.victim("refresh crashed")
@pytest.mark.parametrize("publish", ["atomic", "progressive"])
@pytest.mark.parametrize(
    "point",
    [
        *("create_errors.before", "create_errors.after", "collected.before", "collected.after", "publish.before"),
        *("publish.after", "errors.before", "errors.after", "published.after"),
    ],
)
def test_killed_anywhere_both_tables_have_one_refresh(lake, crash_at, point, publish):
    write(lake, "1.json", b'{"id": 1, "p": 1}\n{"id": 2, "p": 2}\n{"id": 3\n')
    source = Files("raw/orders", format="json", schema="id INT, p INT")
    lake.apply(source=source, key=["id", "p"], partition_by=["p"], publish=publish, chunk_rows=1, errors={})
    crash_at(point)
    with pytest.raises(Crash):
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)

    lake.refresh()

    assert lake.rows() == [(1, 1), (2, 2)]
    assert [row[4] for row in errors(lake)] == ['{"id": 3']
    history = lake.sql("DESCRIBE HISTORY {t}", path="orders__errors")
    assert [row.operation for row in history if row.operation != "CREATE TABLE"] == ["WRITE"]
    assert (lake.phase(), lake.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_records_that_are_gone_after_mains_commit_come_with_the_next_refresh(table, crash_at):
    """Main has the rows, so the refresh is published; the error table is the next one's to bring up to date."""
    write(table, "1.json", b'{"id": 1, "v": "b"}\n{"id": 3\n')
    crash_at("errors.before")
    with pytest.raises(Crash):
        table.refresh()
    for place in table.root.glob("_mv/*/*/errors-*"):
        shutil.rmtree(place)
    table.clock.pass_ms(table.settings.lease_ms + 1)

    (report,) = table.refresher().recover(table.caller())

    assert (report.outcome, report.error, table.phase()) == (Outcome.PUBLISHED, None, "NORMAL")
    assert "its error table may be older" in report.reason
    assert [row[4] for row in errors(table)] == ['{"id": 2']
    assert table.refresh().outcome is Outcome.PUBLISHED
    assert (table.rows(), [row[4] for row in errors(table)]) == ([(1, "b")], ['{"id": 3'])
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_owner_that_was_stopped_before_the_errors_cannot_bring_old_ones_back(table, at_point):
    write(table, "1.json", b'{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n{"id": 3\n')

    def successors() -> None:
        table.clock.pass_ms(table.settings.lease_ms + 1)
        table.refresh()
        write(table, "1.json", b'{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n{"id": 4\n{"id": 5\n')
        table.refresh()

    at_point("errors.before", successors)

    with pytest.raises(LeaseLostError):
        table.refresh()

    assert [row[4] for row in errors(table)] == ['{"id": 4', '{"id": 5']
    assert table.rows() == [(1, "a"), (2, "b")]


@pytest.mark.in_test_all
def test_what_lies_in_its_place_is_not_touched(lake):
    write(lake, "1.json", b'{"id": 1}\n')
    lake.write("SELECT 1 AS x", "orders__errors")
    lake.apply(source=JSON, errors={})

    with pytest.raises(MainNotOursError) as caught:
        lake.refresh()

    assert "orders__errors is not its error table" in caught.value.message
    assert lake.rows("orders__errors") == [(1,)]
    assert lake.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_error_table_that_was_removed_is_made_again(table):
    shutil.rmtree(table.root / "orders__errors")
    table.refresh(force=True)

    assert [row[4] for row in errors(table)] == ['{"id": 2']


@pytest.mark.in_test_all
def test_scoped_refresh_keeps_the_errors_of_all_of_the_source(lake):
    write(lake, "1.json", b'{"id": 1, "p": "a"}\n{"id": 2, "p": "b"}\n{"id": 3\n{"p": "b"}\n')
    source = Files("raw/orders", format="json", schema="id INT, p STRING")
    lake.apply(source=source, key=["id"], partition_by=["p"], errors={})

    lake.refresh(partitions=["a"])

    assert lake.rows() == [(1, "a")]
    assert [row[1] for row in errors(lake)] == [3, 4]


@pytest.mark.in_test_all
def test_drop_takes_the_error_table_with_main(table):
    table.refresher().drop("orders", table.caller(), delete_main=True)

    assert not (table.root / "orders").exists()
    assert not (table.root / "orders__errors").exists()

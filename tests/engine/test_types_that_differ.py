"""Source and main of different types and columns: reading the changes alone comes to what comparing everything does."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations
from typing import Any

import pytest

from airflow_mv_provider.core.definition.evolution import evolved
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.exceptions import SchemaMismatchError

pytestmark = pytest.mark.slow

# Every type that may be read as a wider one; a column for each pair.
FAMILIES = (
    ("TINYINT", "SMALLINT", "INT", "BIGINT"),
    ("FLOAT", "DOUBLE"),
    ("DECIMAL(5,2)", "DECIMAL(7,2)", "DECIMAL(9,4)"),
)
PAIRS = {f"v{number}": pair for number, pair in enumerate(pair for f in FAMILIES for pair in combinations(f, 2))}
JSON_NAMES = {"TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long"}
FEED = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"


def wide(rows: str) -> str:
    """The rows as main will have them."""
    values = [f"CAST({name} AS {pair[1]}) AS {name}" for name, pair in PAIRS.items()]
    fixed = "CAST(id AS BIGINT) AS id, CAST(p AS INT) AS p, CAST(seq AS BIGINT) AS seq"
    return f"SELECT {fixed}, {', '.join(values)}, 'kept' AS lost FROM ({rows})"


def narrow(rows: str) -> str:
    """The same rows of narrower types, in another order, without one column and with another."""
    values = [f"CAST({name} AS {pair[0]}) AS {name}" for name, pair in PAIRS.items()]
    fixed = "CAST(seq AS INT) AS seq, CAST(p AS TINYINT) AS p, CAST(id AS INT) AS id"
    return f"SELECT 'more' AS extra, {', '.join(values[::-1])}, {fixed} FROM ({rows})"


def numbered(first: int, last: int, value: str = "id % 100", seq: str = "0") -> str:
    """Rows by id, whose every value is `value`, or NULL in one of seven."""
    values = ", ".join(f"IF(id % 7 = 6, NULL, {value}) AS {name}" for name in PAIRS)
    return f"SELECT id, id % 3 AS p, {seq} AS seq, {values} FROM range({first}, {last})"


def is_main(lake: Any) -> Counter[tuple[Any, ...]]:
    """Main's rows, without what the source does not have."""
    frame = lake.spark.read.format("delta").load(str(lake.root / "orders")).drop("lost")
    return Counter(tuple(row) for row in frame.select(*sorted(frame.columns)).collect())


def test_the_pairs_are_those_that_are_accepted():
    for narrower, wider in PAIRS.values():
        kinds = [JSON_NAMES.get(kind, kind.lower()) for kind in (wider, narrower)]
        main, source = ((Column("id", "long"), Column("v", kind)) for kind in kinds)
        assert evolved("orders", source, main, "ignore", ("id",)).columns == main


@pytest.mark.in_test_all
def test_the_pairs_are_all_that_are_accepted():
    others = ("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
    kinds = [*(JSON_NAMES.get(kind, kind.lower()) for family in FAMILIES for kind in family), *others]

    def is_accepted(narrower, wider):
        try:
            evolved("orders", [Column("v", narrower)], [Column("v", wider)], "ignore", ())
        except SchemaMismatchError:
            return False
        return True

    accepted = {pair for pair in permutations(kinds, 2) if is_accepted(*pair)}
    assert accepted == {tuple(JSON_NAMES.get(kind, kind.lower()) for kind in pair) for pair in PAIRS.values()}


@pytest.fixture
def source_of(lake):
    """Prepare a feed: give what the definition says of it, how to write all rows, and how to change some."""

    def write_files(sql, mode):
        lake.spark.sql(sql).coalesce(1).write.mode(mode).parquet(str(lake.root / "raw/files"))

    def write_delta(sql):
        lake.write(sql)
        lake.sql(FEED, path="raw/orders")

    def change(*, is_appended):
        if is_appended:
            return
        lake.sql("UPDATE {t} SET v0 = 1, v5 = NULL, v6 = 0.5 WHERE id IN (3, 4)", path="raw/orders")
        lake.sql("UPDATE {t} SET p = 2 WHERE id = 6", path="raw/orders")
        lake.sql("DELETE FROM {t} WHERE id = 9", path="raw/orders")

    def of(feed):
        delta = {"type": "delta", "path": "raw/orders"}
        files = {"type": "files", "format": "parquet", "path": "raw/files"}
        match feed:
            case "change feed":
                return delta, write_delta, lambda sql: (lake.write(sql, mode="append"), change(is_appended=False))
            case "watermark":
                return delta | {"watermark": "seq"}, lake.write, lambda sql: lake.write(sql, mode="append")
            case _:
                return files, lambda sql: write_files(sql, "overwrite"), lambda sql: write_files(sql, "append")

    return of


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("feed", ["change feed", "added files", "watermark"])
def test_changes_alone_come_to_what_everything_does(lake, source_of, feed):
    source, write, change = source_of(feed)
    write(wide(numbered(0, 40)))
    lake.apply(source=source, schema_policy="ignore", partition_by=["p"], guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    write(narrow(numbered(0, 40)))
    assert lake.refresh().rows_unchanged == 40

    change(narrow(numbered(40, 50, "99", "1")))
    report = lake.refresh()

    assert (report.strategy, report.rows_inserted) == ("incremental", 11 if feed == "change feed" else 10)
    expected = lake.spark.read.format(source.get("format", "delta")).load(str(lake.root / source["path"]))
    main = lake.spark.read.format("delta").load(str(lake.root / "orders"))
    shaped = expected.selectExpr(*(f"CAST({f.name} AS {f.dataType.simpleString()})" for f in main.drop("lost").schema))
    assert is_main(lake) == Counter(tuple(row) for row in shaped.select(*sorted(shaped.columns)).collect())
    assert main.where("lost = 'kept'").count() == (38 if feed == "change feed" else 40)  # one is gone, one has moved
    kept = lake.digests()
    again = lake.refresh(force=True)
    assert (again.rows_inserted, again.rows_updated, again.rows_deleted) == (0, 0, 0)
    assert lake.digests() == kept

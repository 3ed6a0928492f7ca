"""Source and main of different types and columns: reading the changes alone comes to what comparing everything does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_mv_provider.core import strategy
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


@dataclass(frozen=True)
class Feed:
    """One way in which a source's changes are read alone: what the definition says, and how the source is written.

    change      : what happens besides to rows that were there
    counts      : rows inserted, updated and deleted by ten new rows and the change
    """

    source: dict[str, str]
    write: Callable[[Any, str], None]
    append: Callable[[Any, str], None]
    change: Callable[[Any], None] = lambda lake: None
    counts: tuple[int, int, int] = (10, 0, 0)


def _write_delta(lake: Any, sql: str) -> None:
    lake.write(sql)


def _write_delta_with_feed(lake: Any, sql: str) -> None:
    lake.write(sql)
    lake.sql(FEED, path="raw/orders")


def _append_delta(lake: Any, sql: str) -> None:
    lake.write(sql, mode="append")


def _change_delta(lake: Any) -> None:
    lake.sql("UPDATE {t} SET v0 = 1, v5 = NULL, v6 = 0.5 WHERE id IN (3, 4)", path="raw/orders")
    lake.sql("UPDATE {t} SET p = 2 WHERE id = 6", path="raw/orders")
    lake.sql("DELETE FROM {t} WHERE id = 9", path="raw/orders")


def _write_file(lake: Any, name: str, sql: str) -> None:
    """Write one file; Spark would name it anew each time."""
    frame = lake.spark.sql(sql)
    (lake.root / "raw/files").mkdir(parents=True, exist_ok=True)
    pq.write_table(frame.toArrow(), lake.root / "raw/files" / name)


def _write_files(lake: Any, sql: str) -> None:
    _write_file(lake, "a.parquet", f"SELECT * FROM ({sql}) WHERE id < 20")
    _write_file(lake, "b.parquet", f"SELECT * FROM ({sql}) WHERE id >= 20")


def _add_file(lake: Any, sql: str) -> None:
    _write_file(lake, "c.parquet", sql)


def _correct_file(lake: Any) -> None:
    """Two rows of a file have other values, one moves to another partition, one is gone."""
    values = "IF(id IN (23, 24), 1, id % 100)"
    moved = ", ".join(["id", "IF(id = 26, 0, p) AS p", "seq", *PAIRS])
    _write_file(lake, "b.parquet", narrow(f"SELECT {moved} FROM ({numbered(20, 40, values)}) WHERE id <> 29"))


_DELTA = {"type": "delta", "path": "raw/orders"}
_FILES = {"type": "files", "format": "parquet", "path": "raw/files"}
FEEDS = {
    "change feed": Feed(_DELTA, _write_delta_with_feed, _append_delta, _change_delta, (11, 2, 2)),
    "files of a Delta log": Feed(_DELTA, _write_delta, _append_delta, _change_delta, (11, 2, 2)),
    "watermark": Feed(_DELTA | {"watermark": "seq"}, _write_delta, _append_delta),
    "added files": Feed(_FILES, _write_files, _add_file),
    "a corrected file": Feed(_FILES, _write_files, _add_file, _correct_file, (11, 2, 2)),
}


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("feed", FEEDS)
def test_changes_alone_come_to_what_everything_does(lake, monkeypatch, feed):
    monkeypatch.setattr(strategy, "MIN_ROWS_FOR_NEW_FILES", 0)
    way = FEEDS[feed]
    way.write(lake, wide(numbered(0, 40)))
    lake.apply(source=way.source, schema_policy="ignore", partition_by=["p"], guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    way.write(lake, narrow(numbered(0, 40)))
    assert lake.refresh().rows_unchanged == 40

    way.append(lake, narrow(numbered(40, 50, "99", "1")))
    way.change(lake)
    report = lake.refresh()

    counts = (report.rows_inserted, report.rows_updated, report.rows_deleted)
    assert (report.strategy, counts) == ("incremental", way.counts), report.reason
    expected = lake.spark.read.format(way.source.get("format", "delta")).load(str(lake.root / way.source["path"]))
    main = lake.spark.read.format("delta").load(str(lake.root / "orders"))
    shaped = expected.selectExpr(*(f"CAST({f.name} AS {f.dataType.simpleString()})" for f in main.drop("lost").schema))
    assert is_main(lake) == Counter(tuple(row) for row in shaped.select(*sorted(shaped.columns)).collect())
    assert main.where("lost = 'kept'").count() == 40 - way.counts[2]  # one is gone, one has moved
    kept = lake.published()
    again = lake.refresh(force=True)
    assert (again.rows_inserted, again.rows_updated, again.rows_deleted) == (0, 0, 0)
    assert lake.published() == kept

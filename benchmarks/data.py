"""The tables that are measured, and what happens to their sources.

lineitem and orders are TPC-H's (PyPI `tpchgen-cli`), 6 and 1.5 million rows at scale 1. `RF1 and RF2` are the
specification's refresh functions: a thousandth of the orders comes and a thousandth goes, with their lines.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_NUM_BATCHES = 1000  # RF2 deletes one of them each time


@dataclass(frozen=True)
class Table:
    """A table to measure.

    month   : SQL of its natural partition
    updated : SQL of what an update sets
    recent  : condition of the newest rows
    """

    name: str
    key: tuple[str, ...]
    month: str
    updated: str
    recent: str


TABLES = {
    table.name: table
    for table in (
        Table("lineitem", ("l_orderkey", "l_linenumber"), "trunc(l_shipdate, 'MM')",
              "l_quantity = l_quantity + 1, l_comment = reverse(l_comment)", "l_shipdate >= date'1998-11-01'"),
        Table("orders", ("o_orderkey",), "trunc(o_orderdate, 'MM')",
              "o_totalprice = o_totalprice + 1", "o_orderdate >= date'1998-08-01'"),
        Table("small", ("id",), "CAST(id % 4 AS INT)", "v = concat(v, 'x')", "id >= 990"),
        Table("wide", ("id",), "CAST(id % 16 AS INT)", "c0 = c0 + 1", "id % 1000 < 4"),
        Table("skewed", ("id",), "IF(id % 10 = 0, CAST(id % 640 AS INT), 0)", "v = concat(v, 'x')", "id % 1000 < 4"),
    )
}  # fmt: skip
FILE_CASES = {"one file": "true", "one file, 1 %": "pmod(xxhash64({key}), 100) = 7"}  # which rows of it are corrected
SCATTERED = {"1 % scattered": 1, "6 % scattered": 6}  # of a hundred rows
CASES = ("nothing new", "nothing changed", *SCATTERED, "recent rows", "RF1 and RF2", "every row", *FILE_CASES)
NUM_FILES = 16


def rows(spark: SparkSession, table: Table, scale: float, place: Path) -> DataFrame:
    """Return a table's rows before anything happened to them."""
    match table.name:
        case "small":
            return spark.sql("SELECT id, concat('value ', id) AS v, id % 7 AS n FROM range(1000)")
        case "wide":
            columns = (f"(id * {n + 3}) % {1009 + n} AS c{n}" for n in range(199))
            return spark.sql(f"SELECT id, {', '.join(columns)} FROM range({int(1e6 * scale)})")
        case "skewed":  # 90 % of it in one partition
            return spark.sql(f"SELECT id, concat('value ', id) AS v, id % 7 AS n FROM range({int(6e6 * scale)})")
    generator = Path(sys.executable).parent / "tpchgen-cli"
    command = [str(generator), "parquet", "--scale-factor", str(scale), "--output-dir", str(place), "--tables"]
    subprocess.run([*command, table.name], check=True, capture_output=True)
    return spark.read.parquet(str(place / f"{table.name}.parquet")).repartition(8)


def statements(table: Table, case: str, number: int) -> Sequence[str]:
    """Return the SQL that brings a case about in its source, `{t}`.

    number : of the run: every run changes other rows, or the same ones again
    """
    key = ", ".join(table.key)
    match case:
        case "nothing new" | "nothing changed":
            return ()
        case scattered if scattered in SCATTERED:
            first = 7 + number * SCATTERED[scattered]
            some = f"BETWEEN {first} AND {first + SCATTERED[scattered] - 1}"
            return (f"UPDATE {{t}} SET {table.updated} WHERE pmod(xxhash64({key}), 100) {some}",)
        case "recent rows":
            return (f"UPDATE {{t}} SET {table.updated} WHERE {table.recent}",)
        case "RF1 and RF2":
            first, batch = table.key[0], f"pmod(xxhash64({table.key[0]}, 'rf'), {_NUM_BATCHES}) ="
            new = f"SELECT {first} + {(number + 1) * 10**10} AS {first}, * EXCEPT ({first}) FROM {{t}}"
            return (
                f"INSERT INTO {{t}} BY NAME {new} WHERE {batch} {2 * number}",
                f"DELETE FROM {{t}} WHERE {batch} {2 * number + 1}",
            )
        case "every row":
            return (f"UPDATE {{t}} SET {table.updated}",)
        case other:
            raise ValueError(other)


def correct_a_file(rows: DataFrame, table: Table, case: str, file: Path) -> None:
    """Bring about a case of `FILE_CASES`: write one file anew, of which some rows or all are others.

    rows : those of the file
    """
    condition = FILE_CASES[case].format(key=", ".join(table.key))
    changed = dict(each.split(" = ", 1) for each in table.updated.split(", "))
    values = (
        f"CAST(IF({condition}, {changed.get(name, name)}, {name}) AS {kind}) AS {name}" for name, kind in rows.dtypes
    )
    beside = file.parent.parent / "corrected"
    rows.selectExpr(*values).coalesce(1).write.format(file.suffix[1:]).mode("overwrite").save(str(beside))
    (written,) = beside.glob(f"*{file.suffix}")
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the former content
    written.replace(file)

"""Two ways of one refresh in turns, in one process: the second as a part of the first one's time.

    python benchmarks/turns.py fence               with a fence; without, right after the last publish
    python benchmarks/turns.py vectors             MERGE with deletion vectors; with rewritten files
    python benchmarks/turns.py checks --rows N     without checks; with ten checks of rows
    python benchmarks/turns.py checked --rows N    the same, with one row in a hundred changed
    python benchmarks/turns.py feed --rows N       without a change data feed of main; with one
    python benchmarks/turns.py ranges --rows N     MERGE without the range of the changed keys; with it
    python benchmarks/turns.py layers --rows N     fingerprints written anew; a layer of what the changes add to them
    python benchmarks/turns.py joined --rows N     a comparison by fingerprints; by one join, without any

Each turn changes ten rows, and one in a hundred for the join; a tenth of all for the feed; nothing for `checks`, whose
refreshes compare everything; and for the ranges one row in a hundred of the newest file of sixteen, each of N
rows. Of each way the first turns are left out, while the JVM still compiles. Printed are medians of seconds, and their
ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress import published
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.spark import merge, session
from airflow_mv_provider.spark.key_ranges import within_sql

NUM_WARM_UP = 5
NUM_FILES = 16
CHECKS = [
    *({"not_null": [name]} for name in ("id", "v", "name", "amount")),
    {"accepted_values": {"column": "v", "values": list(range(100))}},
    {"matches": {"column": "name", "pattern": "n[0-9]+"}},
    *({"name": f"e{n}", "expression": f"amount >= -{n}"} for n in range(4)),
]


class Table:
    """A table of which a Delta table is the source, in a warehouse of its own."""

    def __init__(self, home: Path, num_rows: int, fingerprint_rows: int = Settings.fingerprint_rows) -> None:
        self.home, self.spark = home, session.local_session()
        settings = Settings(f"sqlite:///{home}/mv.db", str(home), fingerprint_rows=fingerprint_rows)
        self.refresher = Refresher(open_store(settings), settings, lambda: self.spark)
        self.num_rows = num_rows
        self.append(0)
        self.apply()
        self.refresh()

    def append(self, number: int) -> None:
        """Write the rows of one more file of the source; the keys of files follow each other."""
        columns = "id, id % 100 AS v, concat('n', id) AS name, CAST(id AS DECIMAL(12,2)) AS amount"
        rows = self.spark.sql(f"SELECT {columns} FROM range({number * self.num_rows}, {(number + 1) * self.num_rows})")
        rows.write.format("delta").mode("append").save(f"{self.home}/raw")

    def apply(self, **more: Any) -> None:
        """Register the table, or change its definition."""
        values: dict[str, Any] = {"name": "main", "source": DeltaSource("raw"), "key": ["id"]}
        self.refresher.apply(RefreshableTable(**values, **more))

    def sql(self, table: str, text: str) -> None:
        """Run SQL about the source (`raw`) or `main`."""
        self.spark.sql(text.format(t=f"delta.`{self.home}/{table}`"))

    def change(self, turn: int, which: str = "id < 10") -> None:
        """Change ten rows of the source, or others."""
        self.sql("raw", f"UPDATE {{t}} SET v = {turn % 100} WHERE {which}")

    def refresh(self, **asked: Any) -> float:
        """Refresh; return its seconds."""
        began = time.perf_counter()
        self.refresher.refresh("main", command_line_caller(), Request(**asked))
        return time.perf_counter() - began


def fence(table: Table, turn: int) -> float:
    """Refresh after a commit that changes no row, which needs a fence, or right after the last publish."""
    table.change(turn)
    if turn % 2 == 0:
        table.sql("main", f"ALTER TABLE {{t}} SET TBLPROPERTIES ('turn' = '{turn}')")
    return table.refresh()


def vectors(table: Table, turn: int) -> float:
    """Refresh with deletion vectors, or with rewritten files as small tables are."""
    table.change(turn)
    name = "spark.databricks.delta.merge.deletionVectors.persistent"
    session._FOR_SMALL[name] = str(turn % 2 == 0).lower()
    return table.refresh()


def checks(table: Table, turn: int) -> float:
    """Compare everything, although nothing has changed: without checks, or with ten."""
    table.apply(checks=CHECKS if turn % 2 else [])
    return table.refresh(force=True)


def checked(table: Table, turn: int) -> float:
    """Refresh one row in a hundred: without checks, or with ten."""
    table.apply(checks=CHECKS if turn % 2 else [])
    table.change(turn, f"pmod(xxhash64(id), 100) = {turn % 100}")
    return table.refresh()


def feed(table: Table, turn: int) -> float:
    """Refresh a tenth of the rows, without a change data feed of main, or with one."""
    table.change(turn, "id % 10 = 0")
    table.sql("main", f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{bool(turn % 2)}')")
    return table.refresh()


def ranges(table: Table, turn: int) -> float:
    """Refresh some rows of the newest of sixteen files, without the range of their keys in the MERGE, or with it."""
    if turn == 0:
        for number in range(1, NUM_FILES):
            table.append(number)
            table.refresh()
    table.change(turn, f"id >= {(NUM_FILES - 1) * table.num_rows} AND id % 100 = 7")
    vars(merge)["within_sql"] = within_sql if turn % 2 else lambda *_: []
    return table.refresh()


def layers(table: Table, turn: int) -> float:
    """Refresh ten rows, one of them new: main's fingerprints are written anew, or get a layer of what changes."""
    table.change(turn)
    table.sql("raw", f"INSERT INTO {{t}} SELECT {-turn - 1} AS id, v, name, amount FROM {{t}} WHERE id = 5")
    vars(published)["_MAX_LAYERS"] = 6 if turn % 2 else 0
    return table.refresh()


def joined(table: Table, turn: int) -> float:
    """Refresh one row in a hundred of one of two tables: it is compared by fingerprints, or by one join."""
    if turn == 0:
        for fewest in FEWEST_ROWS:
            (home := table.home / str(fewest)).mkdir()
            TWINS[fewest] = Table(home, table.num_rows, fewest)
    mine = TWINS[FEWEST_ROWS[turn % 2]]
    mine.change(turn, f"pmod(xxhash64(id), 100) = {turn % 100}")
    return mine.refresh()


FEWEST_ROWS = (0, sys.maxsize)
TWINS: dict[int, Table] = {}
WAYS: dict[str, Callable[[Table, int], float]] = {
    "fence": fence,
    "vectors": vectors,
    "checks": checks,
    "checked": checked,
    "feed": feed,
    "ranges": ranges,
    "layers": layers,
    "joined": joined,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("way", choices=WAYS)
    arguments.add_argument("--rows", type=int, default=1000)
    arguments.add_argument("--turns", type=int, default=15, help="of each way")
    asked = arguments.parse_args()
    os.environ |= {"AMV_SPARK_MASTER": "local[2]"}
    with tempfile.TemporaryDirectory(prefix="amv-turns-") as home:
        table = Table(Path(home), asked.rows)
        seconds = [WAYS[asked.way](table, turn) for turn in range(2 * (NUM_WARM_UP + asked.turns))][2 * NUM_WARM_UP :]
        first, second = statistics.median(seconds[::2]), statistics.median(seconds[1::2])
        print(json.dumps({"way": asked.way, "rows": asked.rows, "seconds": [first, second], "ratio": second / first}))


if __name__ == "__main__":
    main()

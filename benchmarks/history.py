"""Measure what a history costs a refresh, and whether its length matters.

    python benchmarks/history.py [--rows 6000000] [--ended 10000000] [--rounds 3]

Three tables with the same source are refreshed in turns, after each change of one row in a hundred: one without a
history, one with it, and one whose history has many versions that ended long ago. Printed are medians of seconds and
their ratios to the first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.spark.session import local_session

WAYS = {"without": None, "with": True, "with a long one": True}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=6_000_000)
    arguments.add_argument("--ended", type=int, default=10_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="amv-history-") as home:
        settings = Settings(f"sqlite:///{home}/mv.db", home)
        spark = local_session()
        refresher = Refresher(open_store(settings), settings, lambda: spark)
        print(json.dumps(measure(Path(home), spark, refresher, asked), indent=2))


def measure(home: Path, spark: Any, refresher: Refresher, asked: argparse.Namespace) -> dict[str, Any]:
    source = f"delta.`{home}/raw/lines`"
    columns = "id, id % 50000 AS part, id % 7 AS quantity, CAST(id % 1000 AS DOUBLE) / 3 AS price, uuid() AS comment"
    spark.sql(f"CREATE TABLE {source} USING delta AS SELECT {columns} FROM range({asked.rows})")
    for name, history in WAYS.items():
        table = name.replace(" ", "_")
        definition = RefreshableTable(
            name=table, source=DeltaSource("raw/lines"), key=["id"], history=history, strategy="corrections"
        )
        refresher.apply(definition)
        refresher.refresh(table, command_line_caller())
    long = f"delta.`{home}/with_a_long_one__history`"
    own = "TIMESTAMP'2020-01-01', TIMESTAMP'2020-02-01', FALSE, 'update', 'x'"
    spark.sql(f"INSERT INTO {long} SELECT id % {asked.rows}, 1, 1, 0.5, uuid(), {own} FROM range({asked.ended})")
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(asked.rounds + 1):
        spark.sql(f"UPDATE {source} SET price = {number} WHERE pmod(xxhash64(id, {number}), 100) = 0")
        for name in WAYS:
            begun = time.monotonic()
            refresher.refresh(name.replace(" ", "_"), command_line_caller())
            if number:  # the first warms up, and compares the long history, which another program has written
                seconds[name].append(round(time.monotonic() - begun, 2))
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    ratios = {name: round(found / medians["without"], 2) for name, found in medians.items()}
    return {"rows": asked.rows, "ended": asked.ended, "seconds": seconds, "ratios": ratios}


if __name__ == "__main__":
    main()

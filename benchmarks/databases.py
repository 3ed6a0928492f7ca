"""Measure what a PostgreSQL table as source costs: beside Spark's plain parallel read, and the same rows in Delta.

    python benchmarks/databases.py                      1,000,000 rows in 8 parts, 3 rounds
    python benchmarks/databases.py --rows 20000 --rounds 1

One process with an embedded Spark on two cores, and a PostgreSQL server of its own on loopback. Each round has tables
of its own, and the first is not counted:

    plain      Spark's own JDBC reader, the same parts, every column; the rows are thrown away
    from Delta the rows that PostgreSQL has, from a Delta table: the first refresh, then one with 0.1 % of them changed
    jdbc       the same two refreshes, all rows read from PostgreSQL
    xmin       the second of them with `changes: xmin`

After each refresh main and PostgreSQL are compared by their number of rows and the sum of the rows' hashes. Printed are
medians of seconds, and of the rounds' ratios: a refresh by JDBC to plain + from Delta (goal 1.3), xmin to the refresh
that reads all (goal 0.25).
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import psycopg
from pyspark.sql import DataFrame
from sqlalchemy.engine import make_url

from airflow_mv_provider import DeltaSource, Jdbc
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.sources.jdbc.dialect import parts
from airflow_mv_provider.spark.session import local_session
from tests.postgres import running_server

COLUMNS = "id, customer, day, amount, note, at"
ROWS = """
CREATE TABLE orders AS
SELECT i AS id, (i::bigint * 7919 % 100000)::int AS customer, DATE '2020-01-01' + (i % 2000)::int AS day,
       (i % 1000000)::numeric(12, 2) / 100 AS amount, 'note ' || md5(i::text) AS note,
       TIMESTAMPTZ '2026-01-01' + i * INTERVAL '1 second' AS at
FROM generate_series(1, {}) AS i;
ALTER TABLE orders ALTER amount TYPE numeric(12, 2), ADD PRIMARY KEY (id);
ANALYZE orders;
"""
CHANGE = "UPDATE orders SET note = 'changed', at = now() WHERE id % 1000 = {}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--parts", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--out", type=Path)
    asked = arguments.parse_args()
    os.environ |= {"AMV_SPARK_MASTER": "local[2]", "AMV_SOURCE_DATABASES": "postgresql"}
    with tempfile.TemporaryDirectory(prefix="amv-databases-") as home, running_server() as server:
        trial = Trial(Path(home), local_session(), server.new_database(), asked.rows, asked.parts)
        trial.run(ROWS.format(asked.rows))
        trial.round(0)
        trial.seconds.clear()  # of the first round, in which Java compiles
        for number in range(1, asked.rounds + 1):
            trial.round(number)
        found = {"rows": asked.rows, "parts": asked.parts, "rounds": asked.rounds} | trial.summary()
    print(json.dumps(found, indent=2))
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=2) + "\n")


@dataclass
class Trial:
    """A database, and a warehouse whose tables have it as source.

    seconds : by round, of each step
    """

    home: Path
    spark: Any
    address: str
    num_rows: int
    num_parts: int
    seconds: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        os.environ["AIRFLOW_CONN_SHOP"] = self.address
        settings = Settings(f"sqlite:///{self.home / 'mv.db'}", str(self.home))
        self.runner = Refresher(open_store(settings), settings, lambda: self.spark)

    def round(self, number: int) -> None:
        """Refresh three tables twice, and read plainly, each round in another order."""
        took = self.seconds
        took.append({})
        self.timed("plain", lambda: self.plain().write.format("noop").mode("overwrite").save())
        self.plain().write.format("delta").mode("overwrite").save(str(self.home / f"raw{number}"))
        split = {"column": "id", "parts": self.num_parts}
        sources = {
            "from Delta": DeltaSource(f"raw{number}"),
            "jdbc": Jdbc("shop", table="public.orders", split=split, unchanged="compare"),
            "xmin": Jdbc("shop", table="public.orders", split=split, changes="xmin"),
        }
        names = list(sources)[number % 3 :] + list(sources)[: number % 3]
        for name in names:
            self.runner.apply(RefreshableTable(name=self.table(name, number), source=sources[name], key=["id"]))
            self.refresh(name, number, "first")
        self.run(CHANGE.format(number))
        self.plain().write.format("delta").mode("overwrite").save(str(self.home / f"raw{number}"))
        for name in names:
            report = self.refresh(name, number, "changed")
            assert report.rows_updated == len(range(number or 1000, self.num_rows + 1, 1000)), report.rows_updated
            assert (report.strategy == "incremental") is (name == "xmin"), report.reason

    def refresh(self, name: str, number: int, step: str) -> RefreshReport:
        """Refresh one table, and compare it with PostgreSQL."""
        table = self.table(name, number)
        report: RefreshReport = self.timed(f"{name}, {step}", lambda: self.runner.refresh(table, command_line_caller()))
        assert report.outcome is Outcome.PUBLISHED, report
        rows = self.spark.read.format("delta").load(str(self.home / table)).selectExpr(*COLUMNS.split(", "))
        main, theirs = (
            each.selectExpr("count(*)", "sum(CAST(xxhash64(*) AS DECIMAL(38,0)))") for each in (rows, self.plain())
        )
        assert main.collect() == theirs.collect(), f"{table} is not what PostgreSQL has"
        return report

    def timed(self, what: str, action: Callable[[], Any]) -> Any:
        """Return what an action returns, and remember its seconds."""
        began = time.perf_counter()
        found = action()
        self.seconds[-1][what] = time.perf_counter() - began
        print(f"{what}: {self.seconds[-1][what]:.1f} s", file=sys.stderr, flush=True)
        return found

    def plain(self) -> DataFrame:
        """Return the rows as Spark's own reader takes them, in as many parts."""
        at = make_url(self.address)
        predicates = [each.replace("mv_split", "id") for each in parts(1, self.num_rows, self.num_parts, "{}")]
        properties = {"user": str(at.username), "fetchsize": "10000", "driver": "org.postgresql.Driver"}
        url = f"jdbc:postgresql://{at.host}:{at.port}/{at.database}"
        rows: DataFrame = self.spark.read.jdbc(
            url, f"(SELECT {COLUMNS} FROM orders) AS t", predicates=predicates or ["true"], properties=properties
        )
        return rows

    def table(self, name: str, number: int) -> str:
        """Return the name of a table of a round."""
        return f"{name.replace(' ', '_').lower()}_{number}"

    def run(self, statements: str) -> None:
        """Run statements as the database's owner."""
        with psycopg.connect(self.address, autocommit=True) as db:
            db.execute(statements.encode())

    def summary(self) -> dict[str, Any]:
        """Return medians of seconds, and of the rounds' ratios."""
        ratios = {
            f"jdbc to plain + from Delta, {step} (goal 1.3)": [
                each[f"jdbc, {step}"] / (each["plain"] + each[f"from Delta, {step}"]) for each in self.seconds
            ]
            for step in ("first", "changed")
        }
        ratios["xmin to jdbc, changed (goal 0.25)"] = [
            each["xmin, changed"] / each["jdbc, changed"] for each in self.seconds
        ]
        return {
            "seconds": {
                name: round(statistics.median(each[name] for each in self.seconds), 2) for name in self.seconds[0]
            },
            "ratios": {name: round(statistics.median(found), 2) for name, found in ratios.items()},
        }


if __name__ == "__main__":
    main()

"""A refresh beside Spark's declarative pipelines: a table each, of one Delta source, on one Connect server.

    python benchmarks/pipelines.py [--rows 1000000] [--rounds 3] [--out FILE.json]

One row in a hundred of the source changes before each round. Then `amv refresh` and `spark-pipelines run`, whose
materialized view is Spark's way to keep a table equal to a query, run by turns, each as a command of its own. Meanwhile
this process counts the rows of both tables again and again: what a reader sees. Medians, in seconds, of all rounds but
the first. The view is Parquet: as a Delta table its second run fails, with DELTA_CANNOT_CHANGE_PROVIDER.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import SparkSession

from scripts.native_compose import BIN
from tests.connect import ConnectServer

VIEW = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.materialized_view
def viewed():
    return SparkSession.active().read.format("delta").load("{source}")
"""
SPEC = """
name: beside
libraries:
  - glob:
      include: transformations/**
storage: file://{home}/checkpoints
catalog: spark_catalog
database: beside
"""
TABLES = """
tables:
  - name: refreshed
    source: {type: delta, path: raw/source}
    key: [id]
"""


class Beside:
    """One warehouse with a source, a refreshable table and a pipeline, on a server."""

    def __init__(self, home: Path, server: ConnectServer, num_rows: int) -> None:
        self.home, self.num_rows = home, num_rows
        self.environ = os.environ | {
            "AMV_WAREHOUSE": str(home),
            "AMV_DATABASE_URL": f"sqlite:///{home}/mv.db",
            "AMV_SPARK_REMOTE": server.url,
            "SPARK_REMOTE": server.url,
        }
        self.spark = SparkSession.builder.remote(server.url).getOrCreate()
        columns = "id, id % 100 AS v, concat('n', id) AS name, CAST(id AS DECIMAL(12,2)) AS amount"
        rows = self.spark.sql(f"SELECT {columns} FROM range({num_rows})")
        rows.write.format("delta").save(f"{home}/raw/source")
        self.spark.sql(f"CREATE DATABASE IF NOT EXISTS beside LOCATION '{home}/beside'")
        (home / "transformations").mkdir()
        (home / "transformations/viewed.py").write_text(VIEW.format(source=f"{home}/raw/source"))
        (home / "spark-pipeline.yml").write_text(SPEC.format(home=home))
        (home / "tables.yaml").write_text(TABLES)
        self.run("refresh", str(BIN / "amv"), "apply", "tables.yaml")

    def change(self, number: int) -> None:
        """Change one row in a hundred of the source."""
        changed = f"SET v = v + 1 WHERE pmod(xxhash64(id), 100) = {number % 100}"
        self.spark.sql(f"UPDATE delta.`{self.home}/raw/source` {changed}")

    def run(self, way: str, *command: str) -> tuple[float, list[int]]:
        """Run a command; return its seconds, and the numbers of rows that a reader saw while it ran."""
        began, seen = time.perf_counter(), set[int]()
        with (self.home / f"{way}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.home, env=self.environ, stdout=log, stderr=log)
            while process.poll() is None:
                if (count := self._counted(way)) is not None:
                    seen.add(count)
        if process.returncode:
            raise SystemExit(f"{way} failed:\n{(self.home / f'{way}.log').read_text()[-3000:]}")
        return time.perf_counter() - began, sorted(seen)

    def refresh(self) -> tuple[float, list[int]]:
        return self.run("refresh", str(BIN / "amv"), "refresh", "refreshed")

    def pipeline(self) -> tuple[float, list[int]]:
        return self.run(
            "pipeline", sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", "spark-pipeline.yml"
        )

    def _counted(self, way: str) -> int | None:
        table = {"refresh": f"delta.`{self.home}/refreshed`", "pipeline": "beside.viewed"}[way]
        try:
            if way == "pipeline":
                self.spark.catalog.refreshTable(table)  # Spark keeps the list of a Parquet table's files
            return int(self.spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0])
        except Exception:  # not there yet, or being replaced: a reader waits, and so do we
            time.sleep(0.05)
            return None


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write all figures there, as JSON")
    asked = parser.parse_args()
    seconds, seen = defaultdict[str, list[float]](list), defaultdict[str, set[int]](set)
    with tempfile.TemporaryDirectory(prefix="amv-pipelines-") as place:
        home = Path(place)
        as_users_have = {"spark.sql.codegen.factoryMode": "FALLBACK", "spark.sql.shuffle.partitions": "8"}
        as_users_have |= dict.fromkeys(("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled"), "true")
        server = ConnectServer(home, **as_users_have)
        try:
            server.wait()
            beside = Beside(home, server, asked.rows)
            for number in range(asked.rounds + 1):
                beside.change(number)
                for way in ("refresh", "pipeline"):
                    took, rows = getattr(beside, way)()
                    if number:
                        seconds[way].append(took)
                        seen[way] |= set(rows)
                    print(f"{way}: {took:.1f} s, readers saw {rows} rows", flush=True)
        finally:
            server.kill()
    medians = {way: round(statistics.median(each), 2) for way, each in seconds.items()}
    figures = {"rows": asked.rows, "rounds": asked.rounds, "seconds": medians}
    figures |= {"ratio": round(medians["refresh"] / medians["pipeline"], 2)}
    figures |= {"rows seen": {way: sorted(each) for way, each in seen.items()}}
    print(json.dumps(figures))
    if asked.out:
        asked.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""Views that follow their inputs, beside the whole query and a comparison of all of its result; TPC-H's tables.

    python benchmarks/views.py [--scale 1] [--runs 3] [--view revenue ...] [--pipelines] [--out FILE.json]

Of each view there are two tables: one is refreshed incrementally, the other computes everything and compares it. Both
are refreshed by turns after each change, and both have to be equal to the query at the end. Printed are medians of
seconds, the part that following took, what `strategy: auto` chooses, and what it expects. The first run of each case is
left out, while the JVM still compiles. With --pipelines each view is also a materialized view of Spark's declarative
pipelines, which empty it and fill it again: seconds from the start of a run to its end, without Spark's own start.
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
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.report_text.figures import table, total_seconds
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.sources.query.spark_plan import pinned_sql
from airflow_mv_provider.spark import session
from tests import tpch
from tests.connect import ConnectServer

INPUTS = ("customer", "orders", "lineitem")
LINES = (
    "UPDATE {lineitem} SET l_quantity = l_quantity + 1 WHERE pmod(xxhash64(l_orderkey, l_linenumber, {run}), 1000) = 3"
)
ORDERS = "UPDATE {orders} SET o_orderdate = date_add(o_orderdate, 1) WHERE pmod(xxhash64(o_orderkey, {run}), 1000) = 3"
RF = (
    "INSERT INTO {orders} BY NAME SELECT o_orderkey + {new} AS o_orderkey, * EXCEPT (o_orderkey) FROM {orders}"
    " WHERE pmod(xxhash64(o_orderkey, 'rf'), 1000) = {run} * 2 + 1",
    "INSERT INTO {lineitem} BY NAME SELECT l_orderkey + {new} AS l_orderkey, * EXCEPT (l_orderkey) FROM {lineitem}"
    " WHERE pmod(xxhash64(l_orderkey, 'rf'), 1000) = {run} * 2 + 1",
    "DELETE FROM {orders} WHERE pmod(xxhash64(o_orderkey, 'rf'), 1000) = {run} * 2",
    "DELETE FROM {lineitem} WHERE pmod(xxhash64(l_orderkey, 'rf'), 1000) = {run} * 2",
)
RENAMED = (
    "UPDATE {customer} SET c_name = concat(c_name, '!') WHERE c_custkey BETWEEN {run} * 100 + 1 AND {run} * 100 + 100"
)
TENTH = "UPDATE {lineitem} SET l_quantity = l_quantity + 1 WHERE pmod(xxhash64(l_orderkey, {run}), 10) = 3"


_INPUT = """
@dp.temporary_view(name="{name}")
def {name}():
    return spark.read.format("delta").load("{path}")
"""


@dataclass(frozen=True)
class View:
    """A view, and what happens to its inputs."""

    sql: str
    key: tuple[str, ...]
    cases: dict[str, tuple[str, ...]]


VIEWS = {
    "revenue": View(
        """
        SELECT c_custkey, trunc(o_orderdate, 'MM') AS month, max(c_name) AS name, count(*) AS num_lines,
            sum(l_extendedprice * (1 - l_discount)) AS revenue, sum(l_quantity) AS quantity
        FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
        GROUP BY c_custkey, trunc(o_orderdate, 'MM')
        """,
        ("c_custkey", "month"),
        {"0.1 % of the lines": (LINES,), "100 customers renamed": (RENAMED,), "10 % of the lines": (TENTH,)},
    ),
    "TPC-H 1": View(tpch.VIEWS[1].sql, tpch.VIEWS[1].key, {"0.1 % of the lines": (LINES,)}),
    "TPC-H 18": View(tpch.VIEWS[18].sql, tpch.VIEWS[18].key, {"0.1 % of the lines": (LINES,)}),
    "orders with their lines": View(
        """
        SELECT o_orderkey, o_custkey, o_orderdate, count(l_linenumber) AS num_lines,
            sum(CASE WHEN l_shipmode = 'AIR' THEN l_extendedprice END) AS by_air,
            sum(CASE WHEN l_shipmode = 'MAIL' THEN l_extendedprice END) AS by_mail,
            sum(CASE WHEN l_shipmode = 'SHIP' THEN l_extendedprice END) AS by_ship
        FROM orders LEFT JOIN lineitem ON l_orderkey = o_orderkey
        GROUP BY o_orderkey, o_custkey, o_orderdate
        """,
        ("o_orderkey",),
        {"RF1 and RF2": RF, "0.1 % of the lines": (LINES,)},
    ),
    "last order of each customer": View(
        """
        SELECT o_custkey, o_orderkey, o_orderdate, o_totalprice FROM orders
        QUALIFY row_number() OVER (PARTITION BY o_custkey ORDER BY o_orderdate DESC, o_orderkey) = 1
        """,
        ("o_custkey",),
        {"0.1 % of the orders": (ORDERS,)},
    ),
}  # fmt: skip


class Warehouse:
    """TPC-H's tables with a change data feed, and two tables for each view."""

    def __init__(self, home: Path, scale: float) -> None:
        self.home, self.spark = home, session.local_session()
        settings = Settings(f"sqlite:///{home}/mv.db", str(home))
        self.refresher = Refresher(open_store(settings), settings, lambda: self.spark)
        self.num_changes = self.num_runs = 0
        generator = Path(sys.executable).parent / "tpchgen-cli"
        command = [str(generator), "parquet", "--scale-factor", str(scale), "--output-dir", str(home), "--tables"]
        subprocess.run([*command, ",".join(INPUTS)], check=True, capture_output=True)
        for name in INPUTS:
            rows = self.spark.read.parquet(str(home / f"{name}.parquet")).repartition(8)
            rows.write.format("delta").option("delta.enableChangeDataFeed", True).save(str(home / "raw" / name))

    def at(self, name: str) -> str:
        """An input in SQL."""
        return f"delta.`{self.home}/raw/{name}`"

    def add(self, name: str, view: View) -> tuple[str, str]:
        """Fill the two tables of a view, and return their names."""
        inputs = {each: f"raw/{each}" for each in INPUTS if each in view.sql}
        source = {"type": "query", "sql": view.sql, "inputs": inputs}
        names = []
        for strategy in ("incremental", "corrections"):
            names.append(f"{''.join(c if c.isalnum() else '_' for c in name.lower())}.{strategy}")
            values = {"name": names[-1], "source": source, "key": view.key, "strategy": strategy}
            self.refresher.apply(RefreshableTable(**values, guards={"max_deleted_fraction": 1.0}))
            self.refresh(names[-1])
        return names[0], names[1]

    def change(self, statements: tuple[str, ...]) -> None:
        """Run them; each time other rows are changed."""
        self.num_changes += 1
        places = {name: self.at(name) for name in INPUTS}
        for each in statements:
            self.spark.sql(each.format(**places, run=self.num_changes, new=self.num_changes * 10**9))

    def pipeline(self, view: View) -> float:
        """Return the seconds that a run of Spark's declarative pipeline takes that fills a view of this query.

        It is a new view each time: over a Delta table that is there already the run fails.
        """
        self.num_runs += 1
        home = self.home / f"pipeline-{self.num_runs}"
        (home / "transformations").mkdir(parents=True)
        spec = {"name": "views", "storage": (home / "storage").as_uri()}
        (home / "spark-pipeline.yml").write_text(
            json.dumps(spec | {"libraries": [{"glob": {"include": "transformations/**"}}]})
        )
        inputs = (_INPUT.format(name=each, path=self.home / "raw" / each) for each in INPUTS if each in view.sql)
        (home / "transformations" / "inputs.py").write_text("from pyspark import pipelines as dp\n" + "".join(inputs))
        sql = f"CREATE MATERIALIZED VIEW filled_{self.num_runs} USING delta AS {view.sql}"
        (home / "transformations" / "filled.sql").write_text(sql)
        command = [Path(sys.executable).parent / "spark-pipelines", "--remote", self.server.url, "run"]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        began, said = 0.0, []
        with subprocess.Popen(
            [*command, "--spec", home / "spark-pipeline.yml"],
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if "Starting run" in line:
                    began = time.monotonic()
                if "Run is COMPLETED" in line:
                    return time.monotonic() - began
        raise SystemExit("".join(said[-40:]))

    @cached_property
    def server(self) -> ConnectServer:
        """What the pipelines run on, with Spark's own defaults for what the tests' servers do without."""
        defaults = {"spark.sql.adaptive.enabled": "true", "spark.sql.codegen.wholeStage": "true"}
        defaults |= {"spark.sql.codegen.factoryMode": "FALLBACK", "spark.buffer.pageSize": "16m"}
        found = ConnectServer(self.home, **(defaults | {"spark.sql.shuffle.partitions": "8"}))
        found.wait()
        return found

    def close(self) -> None:
        if "server" in vars(self):
            self.server.kill()

    def refresh(self, name: str) -> RefreshReport:
        report = self.refresher.refresh(name, command_line_caller())
        assert report.outcome is Outcome.PUBLISHED, report
        return report

    def check(self, name: str, view: View) -> None:
        """Compare a table with its query as multisets."""
        inputs = {each: f"SELECT * FROM {self.at(each)}" for each in INPUTS if each in view.sql}
        now, main = self.spark.sql(pinned_sql(view.sql, inputs)), self.spark.read.format("delta")
        rows = main.load(self.refresher.store.table(name).location).select(*now.columns)
        assert rows.exceptAll(now).isEmpty(), name
        assert now.exceptAll(rows).isEmpty(), name


def measured(warehouse: Warehouse, names: tuple[str, str], statements: tuple[str, ...], runs: int) -> dict[str, Any]:
    """Change and refresh both tables by turns; return medians of seconds, and what was expected."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    plans, reports = [], []
    for run in range(runs):
        warehouse.change(statements)
        plans.append(warehouse.refresher.plan(names[0], Request(strategy="auto")))
        for name in names if run % 2 else names[::-1]:
            report = warehouse.refresh(name)
            seconds[name].append(total_seconds(report) or 0.0)
            reports += [report] if name == names[0] else []
    incremental, whole = (statistics.median(seconds[name][1:] or seconds[name]) for name in names)
    expected = {each.strategy: each.seconds for each in plans[-1].estimates}
    last = reports[-1]
    return {
        "strategy": last.strategy,
        "seconds": {"incremental": incremental, "whole": whole},
        "ratio": incremental / whole,
        "units": (last.reason or "").rpartition("; ")[2],
        "rows_changed": last.rows_inserted + last.rows_updated + last.rows_deleted,
        "chosen": plans[-1].strategy,
        "expected": expected,
        "estimates": [asdict(each) for each in plans[-1].estimates],
    }


def cases(warehouse: Warehouse, wanted: list[str], runs: int, *, with_pipelines: bool) -> Iterator[dict[str, Any]]:
    for name in wanted:
        view = VIEWS[name]
        names = warehouse.add(name, view)
        for case, statements in view.cases.items():
            found = measured(warehouse, names, statements, runs)
            fills = [warehouse.pipeline(view) for _ in range(runs)] if with_pipelines else []
            pipeline = statistics.median(fills[1:] or fills) if fills else None
            yield {"view": name, "case": case, "pipeline": pipeline} | found
        for each in names:
            warehouse.check(each, view)


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--view", action="append", choices=VIEWS)
    parser.add_argument("--pipelines", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as home, closing(Warehouse(Path(home), given.scale)) as warehouse:
        for case in cases(warehouse, given.view or list(VIEWS), given.runs, with_pipelines=given.pipelines):
            found.append(case)
            print(f"{case['view']}, {case['case']}: {case['ratio']:.2f} ({case['units']})", flush=True)
    rows = [
        (
            f"{each['view']}, {each['case']}",
            *(f"{each['seconds'][way]:.1f}" for way in ("incremental", "whole")),
            f"{each['ratio']:.2f}",
            each["chosen"],
            *(_shown(each["expected"].get(way)) for way in ("incremental", "corrections")),
            _shown(each["pipeline"]),
        )
        for each in found
    ]
    columns = ("view", "followed", "whole", "ratio", "chosen", "expected", "whole, expected", "pipeline")
    print("\n".join(table(columns, rows)))
    if given.out:
        given.out.write_text(json.dumps({"scale": given.scale, "cases": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

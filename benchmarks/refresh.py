"""What a refresh costs beside the other ways to keep a table equal to its source; all in one run, as ratios.

    make bench                     scale 0.1, a few minutes
    make bench SCALE=1 RUNS=3      for the record: scale 1, medians of three

Data: TPC-H lineitem (PyPI `tpchgen-cli`), 6 million rows at scale 1, key (l_orderkey, l_linenumber), no partitions, the
source a Delta table and so pinned by its version. Ways: read the source once (the floor), overwrite the table, MERGE
everything (update all, insert, delete not matched by source), and a refresh. Cases: nothing changed but the source has
to be read, 1 % of the rows scattered over the table, the most recent dates only, every row.

Each way starts from the same main: a copy of the state before the case. A refresh is timed whole: minting, both state
writes and the fence, staging, comparison, publish and cleaning; "protocol" is what of that is not Spark's work on rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_mv_provider import __version__
from airflow_mv_provider.core.source import DeltaSource
from airflow_mv_provider.core.table import Guards, RefreshableTable
from airflow_mv_provider.runner import crash_points
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.spark.session import local_session

KEY = ("l_orderkey", "l_linenumber")
CASES = {
    "nothing changed": None,
    "1 % scattered": "pmod(xxhash64(l_orderkey, l_linenumber), 100) = 7",
    "recent dates": "l_shipdate >= date'1998-11-01'",
    "every row": "true",
}
PROTOCOL = {"acquire", "create_main", "fence", "seal", "progress", "published", "staging_delete", "normal"}


class Bench:
    """One warehouse with a source, and a main for each way."""

    def __init__(self, root: Path, scale: float) -> None:
        self.root = root
        self.spark = local_session("bench")
        self.source = root / "raw/lineitem"
        self.protocol_seconds = 0.0
        raw = root / "tpch"
        generator = Path(sys.executable).parent / "tpchgen-cli"
        command = [str(generator), "parquet", "--scale-factor", str(scale), "--output-dir", str(raw), "--tables"]
        subprocess.run([*command, "lineitem"], check=True, capture_output=True)
        rows = self.spark.read.parquet(str(raw / "lineitem.parquet")).repartition(8)
        rows.write.format("delta").save(str(self.source))
        settings = Settings(f"sqlite:///{root / 'mv.db'}", str(root))
        self.refresher = Refresher(open_store(settings), settings, lambda: self.spark)
        self.refresher.apply(
            RefreshableTable(
                name="refreshed",
                source=DeltaSource("raw/lineitem"),
                key=KEY,
                guards=Guards(max_deleted_fraction=1.0),
            )
        )
        self.refresher.refresh("refreshed", command_line_caller())
        properties = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        for way in ("overwritten", "merged"):
            self.spark.sql(
                f"CREATE TABLE {self.at(way)} USING delta {properties} AS SELECT * FROM {self.at('raw/lineitem')}"
            )

    def at(self, place: str) -> str:
        return f"delta.`{self.root / place}`"

    def change(self, condition: str | None) -> None:
        """Commit a change to the source; without a condition, one that touches no row, so that it has to be read."""
        table = self.at("raw/lineitem")
        if condition is None:
            self.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('bench.run' = '{time.time()}')")
        else:
            self.spark.sql(
                f"UPDATE {table} SET l_quantity = l_quantity + 1, l_comment = reverse(l_comment) WHERE {condition}"
            )

    def read(self) -> None:
        self.spark.read.format("delta").load(str(self.source)).write.format("noop").mode("overwrite").save()

    def overwrite(self) -> None:
        rows = self.spark.read.format("delta").load(str(self.source))
        rows.write.format("delta").mode("overwrite").save(str(self.root / "overwritten"))

    def merge(self) -> None:
        match = " AND ".join(f"t.{column} = s.{column}" for column in KEY)
        self.spark.sql(
            f"MERGE INTO {self.at('merged')} t USING {self.at('raw/lineitem')} s ON {match} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"
        ).collect()

    def refresh(self) -> dict[str, Any]:
        with self._protocol_timed():
            report = self.refresher.refresh("refreshed", command_line_caller())
        return report.to_json()

    def bytes_added(self, place: str, since: int) -> int:
        """Sum up the sizes of the data files and deletion vectors that commits after `since` added."""
        log = self.root / place / "_delta_log"
        names = (log / f"{version:020}.json" for version in range(since + 1, self.version(place) + 1))
        total = 0
        for line in (line for name in names for line in name.read_text().splitlines()):
            add = json.loads(line).get("add")
            if add and add.get("deletionVector"):
                total += add["deletionVector"]["sizeInBytes"]
            elif add:
                total += add["size"]
        return total

    def version(self, place: str) -> int:
        return int(self.spark.sql(f"DESCRIBE HISTORY {self.at(place)} LIMIT 1").collect()[0].version)

    @contextmanager
    def _protocol_timed(self) -> Iterator[None]:
        """Add up the time spent inside the durable writes that carry no rows: state writes and the fence."""
        began: dict[str, float] = {}
        self.protocol_seconds = 0.0

        def reach(point: str) -> None:
            write, when = point.split(".")
            if when == "before":
                began[write] = time.monotonic()
            elif write in PROTOCOL:
                self.protocol_seconds += time.monotonic() - began[write]

        crash_points.arm(reach)
        try:
            yield
        finally:
            crash_points.arm(None)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    result = work()
    return time.monotonic() - began, result


def run_case(bench: Bench, condition: str | None, runs: int) -> dict[str, Any]:
    """Run one case `runs` times; every time the source changes, and every way brings its own main up to it."""
    seconds: dict[str, list[float]] = {way: [] for way in ("read", "overwrite", "merge", "refresh", "protocol")}
    figures: dict[str, Any] = {}
    for _ in range(runs):
        bench.change(condition)
        before = {place: bench.version(place) for place in ("overwritten", "merged", "refreshed")}
        for way, work in (("read", bench.read), ("overwrite", bench.overwrite), ("merge", bench.merge)):
            seconds[way].append(timed(work)[0])
        spent, report = timed(bench.refresh)
        seconds["refresh"].append(spent)
        seconds["protocol"].append(bench.protocol_seconds)
        figures = {
            "rows_changed": report["rows_inserted"] + report["rows_updated"] + report["rows_deleted"],
            "phase_seconds": report["phase_seconds"],
            "bytes_overwrite": bench.bytes_added("overwritten", before["overwritten"]),
            "bytes_merge": bench.bytes_added("merged", before["merged"]),
            "bytes_refresh": bench.bytes_added("refreshed", before["refreshed"]),
            "bytes_staging": report["bytes_staging"],
        }
        check_equal(bench)
    return figures | {
        "seconds": {way: statistics.median(each) for way, each in seconds.items()},
        "all_seconds": seconds,
    }


def check_equal(bench: Bench) -> None:
    """A fast way that is wrong is not measured: all three mains must hold the source's rows."""
    hashed = "count(*) AS n, bit_xor(xxhash64(*)) AS x"
    wanted = bench.spark.sql(f"SELECT {hashed} FROM {bench.at('raw/lineitem')}").collect()
    for place in ("overwritten", "merged", "refreshed"):
        assert bench.spark.sql(f"SELECT {hashed} FROM {bench.at(place)}").collect() == wanted, place


def shown(case: str, found: dict[str, Any]) -> str:
    s = found["seconds"]
    ratio = {way: s["refresh"] / s[way] for way in ("read", "overwrite", "merge")}
    part = found["bytes_refresh"] / found["bytes_overwrite"]
    return (
        f"{case:16} {s['read']:7.1f} {s['overwrite']:9.1f} {s['merge']:7.1f} {s['refresh']:8.1f} {s['protocol']:8.2f}"
        f"   {ratio['read']:5.1f} × {ratio['overwrite']:7.2f} × {ratio['merge']:5.2f} × {part:10.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--case", action="append", choices=CASES, help="measure only this case; may be repeated")
    parser.add_argument("--out", type=Path, help="write all figures there, as JSON")
    options = parser.parse_args()
    os.environ.setdefault("AMV_SPARK_MASTER", "local[2]")
    os.environ.setdefault("AMV_DRIVER_MEMORY", "8g")
    root = Path(tempfile.mkdtemp(prefix="amv-bench-"))
    try:
        print(f"TPC-H lineitem at scale {options.scale:g}, medians of {options.runs}, {os.environ['AMV_SPARK_MASTER']}")
        bench = Bench(root, options.scale)
        for work in (bench.read, bench.overwrite, bench.merge):
            work()  # every way warm before the first is timed
        print(f"{'':16} {'seconds':>7}{'':38}   refresh compared with{'':12} bytes to main,")
        head = ("read", "overwrite", "merge", "refresh", "protocol", "read", "overwrite", "merge", "of overwrite")
        print("{:16} {:>7} {:>9} {:>7} {:>8} {:>8}   {:>7} {:>9} {:>7} {:>10}".format("", *head))
        found = {}
        for case in options.case or CASES:
            found[case] = run_case(bench, CASES[case], options.runs)
            print(shown(case, found[case]), flush=True)
        if options.out:
            about = {
                "scale": options.scale,
                "runs": options.runs,
                "version": __version__,
                "python": platform.python_version(),
            }
            options.out.write_text(json.dumps(about | {"cases": found}, indent=1) + "\n")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()

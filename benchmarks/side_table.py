"""What a stored (key, row hash) of every row would cost, beside the digests of buckets that are kept instead.

    python benchmarks/side_table.py --scale 1 --runs 5

Both find the rows that differ, of 1 % scattered updates, and write them whole. With the side table one full join of the
source's (key, hash) with the stored ones identifies every changed key, and main is not read; with digests few bytes are
kept, and both sides are read again to find the rows of the buckets that differ. What follows, the MERGE, is the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.compare import changes, digests, hashing
from airflow_mv_provider.spark.layout import Layout, columns
from airflow_mv_provider.spark.session import local_session
from benchmarks.data import statements
from benchmarks.ways import Bench, Setting, timed

_OLD = "_mv_old"
_DIFFERS = f"NOT {hashing.HASH} <=> {_OLD}"


class SideTable:
    """The (key, hash) of every row, written anew by each comparison."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._number = 0
        rows = bench._source()
        definition = bench.refresher.store.table("refreshed").definition
        self._layout = Layout(definition, schema.columns_of(rows.schema.jsonValue()))
        self._key = list(definition.key)
        storage.write(self._hashed(rows).select(*self._key, hashing.HASH), self._place("stored"))

    def find(self) -> int:
        """Find and write the rows that are not as they were; return how many these are."""
        rows = self._bench._source()
        before = self._bench.spark.read.parquet(self._place("stored"))
        if _OLD in before.columns:
            before = before.where(F.col(hashing.HASH).isNotNull()).drop(_OLD)
        self._number += 1
        beside = self._hashed(rows).select(*self._key, hashing.HASH)
        beside = beside.join(before.withColumnRenamed(hashing.HASH, _OLD), self._key, "full_outer")
        storage.write(beside, self._place("stored"))
        written = self._bench.spark.read.parquet(self._place("stored"))
        sums = (F.count(hashing.HASH), F.bit_xor(hashing.HASH), F.count_if(F.expr(_DIFFERS)))
        num_changes = int(written.agg(*sums).collect()[0][2])
        changed = F.broadcast(written.where(_DIFFERS).select(*self._key, _OLD))
        storage.write(self._hashed(rows.join(changed, self._key)), self._place("changes"))
        return num_changes

    def num_bytes(self) -> int:
        return sum(file.stat().st_size for file in Path(self._place("stored")).glob("*.parquet"))

    def _hashed(self, rows: DataFrame) -> DataFrame:
        return rows.select(
            *columns(self._layout.names), F.expr(hashing.row_hash(self._layout.columns)).alias(hashing.HASH)
        )

    def _place(self, name: str) -> str:
        return str(self._bench.root / f"{name}-{self._number}")


@contextmanager
def seconds_of(*functions: tuple[Any, str]) -> Iterator[list[float]]:
    """Collect the seconds that calls of these functions take."""
    found: list[float] = []
    originals = [(place, name, getattr(place, name)) for place, name in functions]

    def stopped(work: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            began = time.monotonic()
            try:
                return work(*args, **more)
            finally:
                found.append(time.monotonic() - began)

        return call

    for place, name, work in originals:
        setattr(place, name, stopped(work))
    try:
        yield found
    finally:
        for place, name, work in originals:
            setattr(place, name, work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("AMV_SPARK_MASTER", "local[2]")
    os.environ.setdefault("AMV_DRIVER_MEMORY", "8g")
    root = Path(tempfile.mkdtemp(prefix="amv-bench-"))
    try:
        bench = Bench(root, Setting("lineitem"), options.scale, local_session("bench"), ways=("refresh",))
        side = SideTable(bench)
        measured: list[tuple[float, float, float]] = []
        report: dict[str, Any] = {}
        for number in range(options.runs + 1):  # the first is not counted: the JVM compiles
            for statement in statements(bench.table, "1 % scattered", number):
                bench.sql(statement, "raw/source")
            by_side, num_changes = timed(side.find)
            with seconds_of((digests, "write_beside"), (changes, "compare")) as by_digests:
                whole, report = timed(lambda: bench.refresh(Request(strategy="corrections")))
            assert report["rows_updated"] == num_changes
            measured.append((by_side, sum(by_digests), whole))
        found = [statistics.median(each) for each in zip(*measured[1:], strict=True)]
        print(f"TPC-H lineitem at scale {options.scale:g}, 1 % scattered, medians of {options.runs}")
        print(f"side table {found[0]:6.2f} s  {side.num_bytes() / 2**20:6.1f} MiB written for every row")
        print(f"digests    {found[1]:6.2f} s  {report['bytes_staging'] / 2**20:6.1f} MiB, changes included")
        print(f"of a refresh of {found[2]:.2f} s; the side table takes {found[0] / found[1]:.2f} times as long")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()

"""What a refresh costs beside the other ways to keep a table equal to its source; all in one run, as ratios.

    make bench                     the grid at scale 0.1: about 20 minutes
    make bench SCALE=1 RUNS=3      for the record: scale 1, medians of three

Ways: read the source once (the floor), overwrite the table, MERGE everything (dbt's way), MERGE with a change
condition, and a refresh. Each brings a main of its own up to the source; all have to be equal to it afterwards. The
sources are Delta tables, so pinned by their version, with a change data feed where a setting says so; or sixteen files.
Beside the seconds of a refresh stands what was expected of it before it read anything.

A refresh is timed whole: minting, state writes, the fence, staging, comparison, publish and cleaning. "protocol" is
what of that is not Spark's work on rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from airflow_mv_provider import __version__
from airflow_mv_provider.core import cost
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.spark.session import is_remote, local_session, open_session
from benchmarks.data import CASES, FILE_CASES, SCATTERED, TABLES
from benchmarks.ways import STRATEGIES, Bench, Setting, timed

LAYOUTS = ("none", "months")


GRID: tuple[tuple[Setting, tuple[str, ...]], ...] = (
    (Setting("lineitem"), CASES),
    (Setting("lineitem", has_feed=True), ("1 % scattered", "RF1 and RF2")),
    (Setting("lineitem", has_vectors=True), tuple(SCATTERED)),
    (Setting("lineitem", source="parquet"), ("nothing new", "nothing changed", *FILE_CASES)),
    (Setting("lineitem", source="csv"), ("nothing changed", *FILE_CASES)),
    (Setting("lineitem", "months"), ("nothing changed", "1 % scattered", "recent rows")),
    (Setting("lineitem", "months", "progressive"), ("1 % scattered", "recent rows")),
    (Setting("orders"), ("nothing changed", "1 % scattered", "RF1 and RF2")),
    (Setting("small"), ("nothing new", "nothing changed", "1 % scattered")),
    (Setting("wide"), ("nothing changed", "1 % scattered")),
    (Setting("skewed", "months"), ("nothing changed", "1 % scattered")),
)


@dataclass
class Measured:
    """One case of one setting. `seconds` are medians; `bytes` are of data files and deletion vectors added.

    expected_seconds : what the last of the runs was estimated to take, before it read anything
    first_seconds    : of the first refresh, which creates main
    jobs             : Spark jobs of each way, Delta's own included; empty on a server
    transactions     : of the metadata database, reading or writing
    """

    setting: str
    case: str
    seconds: dict[str, float]
    all_seconds: dict[str, list[float]]
    bytes: dict[str, int]
    bytes_staging: int
    files: dict[str, int]
    peak_mb: dict[str, int]
    rows_changed: int
    strategy: str | None
    phase_seconds: dict[str, float]
    expected_seconds: float | None
    first_seconds: float
    jobs: dict[str, int]
    transactions: int


class Memory:
    """The most memory that this process's JVM has held since `reset`, heap and all else; 0 of a server's."""

    def __init__(self, spark: Any) -> None:
        pid = 0 if is_remote(spark) else spark._jvm.java.lang.ProcessHandle.current().pid()
        self._proc = Path(f"/proc/{pid}")

    def reset(self) -> None:
        with suppress(OSError):
            (self._proc / "clear_refs").write_text("5")

    def peak_mb(self) -> int:
        with suppress(OSError):
            for line in (self._proc / "status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) // 1024
        return 0


def run_case(bench: Bench, memory: Memory, case: str, runs: int, ways: Sequence[str]) -> Measured:
    """Run one case; every time the source changes, and every way brings its own main up to it."""
    seconds: dict[str, list[float]] = {way: [] for way in (*STRATEGIES, "protocol")}
    peaks: dict[str, int] = {}
    jobs: dict[str, list[int]] = {way: [] for way in ways}
    transactions: list[int] = []
    # Forced where nothing changed but the source has to be read all the same.
    request = Request(force=case == "nothing changed")
    report: dict[str, Any] = {}
    before: dict[str, int] = {}
    for number in range(runs):
        bench.change(case, number)
        before = {way: bench.version(way) for way in STRATEGIES[1:] if way in ways}
        for way in ways:
            work: Callable[[], Any] = (lambda: bench.refresh(request)) if way == "refresh" else getattr(bench, way)
            memory.reset()
            first_job, first_transaction = bench.next_job(), bench.num_transactions
            spent, report = timed(work)
            jobs[way].append(bench.next_job() - first_job)
            seconds[way].append(spent)
            peaks[way] = max(peaks.get(way, 0), memory.peak_mb())
            if way == "refresh":
                transactions.append(bench.num_transactions - first_transaction)
        seconds["protocol"].append(bench.protocol_seconds)
        bench.check_equal(ways)
    added = {way: bench.added(way, before[way]) for way in STRATEGIES[1:] if way in ways}
    estimates = {each["strategy"]: each["seconds"] for each in report["estimates"]}
    return Measured(
        bench.setting.describe(),
        case,
        {way: statistics.median(each) for way, each in seconds.items() if each},
        {way: each for way, each in seconds.items() if each},
        {way: size for way, (size, _) in added.items()},
        report["bytes_staging"],
        {way: files for way, (_, files) in added.items()},
        peaks,
        report["rows_inserted"] + report["rows_updated"] + report["rows_deleted"],
        report["strategy"],
        report["phase_seconds"],
        estimates.get(report["strategy"]),
        bench.first,
        {way: round(statistics.median(each)) for way, each in jobs.items() if any(each)},
        round(statistics.median(transactions)),
    )


_HEAD = ("read", "overwrite", "merge", "merge if", "refresh", "protocol", "read", "overwrite", "merge")


def head() -> str:
    names = " ".join(f"{name:>9}" for name in _HEAD[:6]) + "   " + " ".join(f"{name:>11}" for name in _HEAD[6:])
    left = f"{'':16} seconds{'':52}   refresh, times as long as"
    return f"{left}\n{'':16} {names}   {'bytes':>7} {'files':>6} jobs {'expected':>9}  strategy"


def shown(found: Measured) -> str:
    s = found.seconds
    times = " ".join(f"{s[way]:9.2f}" if way in s else f"{'-':>9}" for way in (*STRATEGIES, "protocol"))
    ratios = " ".join(
        f"{s['refresh'] / s[way]:9.2f} ×" if way in s else f"{'-':>11}" for way in ("read", "overwrite", "merge")
    )
    jobs = f"{found.jobs['refresh']:4}" if found.jobs else "   -"
    part = f"{found.bytes['refresh'] / found.bytes['overwrite']:7.1%}" if found.bytes.get("overwrite") else f"{'-':>7}"
    expected = f"{'-':>9}" if found.expected_seconds is None else f"{found.expected_seconds:9.2f}"
    return f"{found.case:16} {times}   {ratios}   {part} {found.files['refresh']:6} {jobs} {expected}  {found.strategy}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--table", action="append", choices=TABLES, help="measure only this table; may be repeated")
    parser.add_argument("--layout", choices=LAYOUTS)
    parser.add_argument("--publish", choices=("atomic", "progressive"))
    parser.add_argument("--feed", action=argparse.BooleanOptionalAction, help="only sources with, or without, a feed")
    parser.add_argument("--vectors", action=argparse.BooleanOptionalAction, help="only sources with deletion vectors")
    parser.add_argument("--source", choices=("delta", "parquet", "csv"))
    parser.add_argument("--case", action="append", choices=CASES, help="measure only this case; may be repeated")
    parser.add_argument("--way", action="append", choices=STRATEGIES, help="measure only this way beside the refresh")
    parser.add_argument("--remote", metavar="sc://HOST:PORT", help="on a Spark Connect server of this machine")
    parser.add_argument("--compiled", action="store_true", help="compile the plans of small tables, too")
    parser.add_argument("--out", type=Path, help="write all figures there, as JSON, and a plot beside it")
    options = parser.parse_args()
    os.environ.setdefault("AMV_SPARK_MASTER", "local[2]")
    os.environ.setdefault("AMV_DRIVER_MEMORY", "8g")
    if options.compiled:
        cost._SMALL_ROWS = -1
    where = options.remote or os.environ["AMV_SPARK_MASTER"]
    print(f"TPC-H at scale {options.scale:g}, medians of {options.runs}, {where}")
    spark = open_session(options.remote) if options.remote else local_session("bench")
    memory, found = Memory(spark), list[Measured]()
    ways = [way for way in STRATEGIES if way == "refresh" or options.way is None or way in options.way]
    for setting, cases in GRID:
        chosen = [case for case in cases if options.case is None or case in options.case]
        is_wanted = (
            (options.table is None or setting.table in options.table)
            and options.layout in (None, setting.layout)
            and options.publish in (None, setting.publish)
            and options.feed in (None, setting.has_feed)
            and options.vectors in (None, setting.has_vectors)
            and options.source in (None, setting.source)
        )
        if not is_wanted or not chosen:
            continue
        root = Path(tempfile.mkdtemp(prefix="amv-bench-"))
        try:
            bench = Bench(root, setting, options.scale, spark, ways)
            for way in ("read", "overwrite", "merge", "merge_if"):
                if way in ways:
                    getattr(bench, way)()  # every way warm before the first is timed
            print(f"\n{setting.describe()}; first refresh {bench.first:.1f} s\n{head()}")
            for case in chosen:
                found.append(run_case(bench, memory, case, options.runs, ways))
                print(shown(found[-1]), flush=True)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    if options.out:
        about = {
            "date": datetime.now(UTC).date().isoformat(),
            "scale": options.scale,
            "runs": options.runs,
            "version": __version__,
            "python": platform.python_version(),
        }
        options.out.write_text(json.dumps(about | {"cases": [asdict(each) for each in found]}, indent=1) + "\n")
        from benchmarks.plot import plot

        plot(options.out)


if __name__ == "__main__":
    main()

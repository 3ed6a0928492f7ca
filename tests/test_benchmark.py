"""Benchmarks at a small scale. `make bench`: all ways end equal, and a refresh writes to main only what differs.

Times are printed and never asserted; bytes are the same on every machine. At this scale a refresh takes the ways of
large tables: rows chosen by their bucket, and a bitmap in the MERGE.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_tables import SHORT_LIVED

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
NUM_ROWS = 300_000  # of lineitem at scale 0.05, about
CASES = ("1 % scattered",)


@pytest.mark.in_test_all
@pytest.mark.slow
def test_benchmark_of_a_refresh(tmp_path):
    out = tmp_path / "bench.json"
    environment = {"AMV_SPARK_MASTER": "local[2]", "AMV_DRIVER_MEMORY": "3g", "TMPDIR": str(tmp_path)}

    chosen = [
        "--table",
        "lineitem",
        "--layout",
        "none",
        "--publish",
        "atomic",
        "--no-feed",
        "--no-vectors",
        "--way",
        "overwrite",
        *(word for case in CASES for word in ("--case", case)),
    ]

    done = subprocess.run(
        [sys.executable, BENCHMARKS / "refresh.py", "--scale", "0.05", "--out", out, *chosen],
        env={name: value for name, value in os.environ.items() if name not in SHORT_LIVED} | environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    (compared,) = json.loads(out.read_text())["cases"]
    assert compared["strategy"] == "corrections"
    assert 0.005 * NUM_ROWS < compared["rows_changed"] < 0.015 * NUM_ROWS
    assert compared["bytes"]["refresh"] <= 0.03 * compared["bytes"]["overwrite"]
    assert out.with_suffix(".svg").stat().st_size > 1000


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_benchmark_of_commands_on_a_long_history(database):
    few = ["--files", "20", "--refreshes", "200", "--rounds", "1", *(["--postgres"] if database != "sqlite" else [])]

    done = subprocess.run(
        [sys.executable, BENCHMARKS / "commands.py", *few],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["database"].partition("+")[0], found["refreshes"]) == (database, 200)
    assert len(found["commands"]) == 10

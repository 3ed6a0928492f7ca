"""`make bench` at a small scale: it runs, all ways end equal, and a refresh writes to main only what differs.

Times are printed and never asserted; bytes are the same on every machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "refresh.py"
NUM_ROWS = 60_175  # of lineitem at scale 0.01


@pytest.mark.slow
@pytest.mark.sample(0)  # two minutes, and nothing that other tests would not find
def test_benchmark_of_a_refresh(tmp_path):
    out = tmp_path / "bench.json"
    environment = {"AMV_SPARK_MASTER": "local[2]", "AMV_DRIVER_MEMORY": "3g", "TMPDIR": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, BENCHMARK, "--scale", "0.01", "--out", out],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    cases = json.loads(out.read_text())["cases"]
    assert list(cases) == ["nothing changed", "1 % scattered", "recent dates", "every row"]
    assert cases["nothing changed"]["bytes_refresh"] == cases["nothing changed"]["rows_changed"] == 0
    scattered = cases["1 % scattered"]
    assert 0.005 * NUM_ROWS < scattered["rows_changed"] < 0.015 * NUM_ROWS
    assert scattered["bytes_refresh"] <= 0.03 * scattered["bytes_overwrite"]
    assert cases["every row"]["rows_changed"] == NUM_ROWS

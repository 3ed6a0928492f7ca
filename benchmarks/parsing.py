"""How long Airflow takes to read a file that makes many DAGs: `python benchmarks/parsing.py [--dags 200]`.

Runs in an interpreter of its own, as Airflow's processor does, and reads the file several times: the first time pays
for imports, the others are what each parse costs. PySpark must not be loaded. On a busy machine look at the CPU time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import runpy, sys, time

wall, cpu = [], []
for _ in range(3):
    begun, spent = time.perf_counter(), time.process_time()
    found = runpy.run_path("many.py")
    wall.append(time.perf_counter() - begun)
    cpu.append(time.process_time() - spent)
assert not {"pyspark", "py4j"} & set(sys.modules), "parsing has loaded PySpark"
num_dags = sum(name.startswith("refresh_t") for name in found)
print(f"{num_dags} DAGs: {wall[0]:.2f} s with all imports, then {min(wall[1:]):.2f} s, {min(cpu[1:]):.2f} s of it CPU")
"""
DAG_FILE = """
from airflow_mv_provider.operators.factory import refresh_dags

globals().update(refresh_dags("tables.yaml"))
"""


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dags", type=int, default=200)
    num_dags = parser.parse_args().dags
    tables = [
        {"name": f"t{i}", "source": {"type": "delta", "path": f"raw/t{i}"}, "key": ["id", "d"], "partition_by": ["d"]}
        for i in range(num_dags)
    ]
    dags = {"defaults": {"schedule": "@daily", "interval": "day"}}
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "tables.yaml").write_text(json.dumps({"tables": tables, "dags": dags}))
        (Path(place) / "many.py").write_text(DAG_FILE)
        subprocess.run([sys.executable, "-c", PROGRAM], cwd=place, check=True)


if __name__ == "__main__":
    main()

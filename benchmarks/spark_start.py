"""Measure what Spark's start costs a refresh: a table of ten rows, refreshed in each of the ways that there are.

    python benchmarks/spark_start.py [--rounds 3] [--out FILE.json]

Starts what docker-compose.yaml describes on this machine, first with Spark in the tasks, then with its Spark Connect
server for them, and ends it again. One row of the csv file is changed before each run. Each way runs once to warm up
what Airflow and the server keep, then `rounds` times in turns with the others. Medians, in seconds: `wall` is a DAG run
from its start to its end as Airflow records them, or the command; `refresh` is what the refresh reports. 15 minutes.
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
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from airflow_mv_provider.core.outcome import Outcome
from scripts.native_compose import BIN
from tests.e2e.stack import Stack, running_stack, wait_until

DAGS = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_mv_provider.operators.groups import refresh_table_group
from airflow_mv_provider.operators.refresh import RefreshTableOperator
from airflow_mv_provider.operators.submit import SubmitRefreshTableOperator

START = datetime(2026, 1, 1)
WHERE = {"definition_file": "tables.yaml"}

with DAG("one_task", schedule=None, start_date=START):
    RefreshTableOperator(task_id="refresh", table="one_task", **WHERE)
with DAG("four_tasks", schedule=None, start_date=START):
    refresh_table_group("four_tasks", **WHERE)
with DAG("submitted", schedule=None, start_date=START):
    SubmitRefreshTableOperator(task_id="refresh", table="submitted", conn_id="spark_default", **WHERE)
"""
TABLE = """
  - name: {name}
    source: {{type: files, path: raw/ten/*.csv, format: csv, schema: "id BIGINT, v STRING"}}
    key: [id]
"""
DAG_IDS = ("one_task", "four_tasks", "submitted")
Seconds = dict[str, float]


def main() -> None:
    """Read the command line, measure, print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--out", type=Path)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="amv-start-") as folder:
        home = Path(folder)
        (home / "dags.py").write_text(DAGS, encoding="utf-8")
        definitions = "".join(TABLE.format(name=name) for name in (*DAG_IDS, "command"))
        (home / "tables.yaml").write_text(f"tables:{definitions}", encoding="utf-8")
        found = {
            "Spark in the task": measured(home / "own", asked.rounds, {"AIRFLOW__MV__SPARK_REMOTE": ""}),
            "Spark Connect": measured(home / "connect", asked.rounds, {}),
        }
    text = json.dumps(found, indent=2)
    print(text)
    if asked.out:
        asked.out.write_text(f"{text}\n", encoding="utf-8")


def measured(home: Path, rounds: int, more: dict[str, str]) -> dict[str, Seconds]:
    """Return the medians of each way on a stack of its own."""
    home.mkdir()
    files = [home.parent / name for name in ("dags.py", "tables.yaml")]
    with running_stack(home, files, more) as stack:
        wait_until(lambda: len(stack.ask("GET", "dags")["dags"]) == len(DAG_IDS), "the DAGs are found")
        command(stack, "apply", str(home / "dags" / "tables.yaml"))
        ways: dict[str, Callable[[], Seconds]] = {"amv refresh": lambda: of_command(stack)}
        # A driver that is submitted has its own Spark: a Connect server changes nothing for it.
        ways |= {id: lambda id=id: of_run(stack, id) for id in DAG_IDS if more or id != "submitted"}
        found: dict[str, list[Seconds]] = defaultdict(list)
        for number in range(rounds + 1):
            for name, way in ways.items():
                change(stack, f"{name} {number}")
                seconds = way()
                print(f"{home.name:8} {name:12} {number} {seconds}", file=sys.stderr, flush=True)
                if number:  # the first one has no table yet
                    found[name].append(seconds)
    return {
        name: {key: round(statistics.median(each[key] for each in all_of), 1) for key in ("wall", "refresh")}
        for name, all_of in found.items()
    }


def change(stack: Stack, value: str) -> None:
    """Write the source: ten rows, of which the first is new each time."""
    folder = stack.topology.place.warehouse / "raw" / "ten"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(0, value), *((id, "as ever") for id in range(1, 10))]
    partial = folder / "ten.partial"
    partial.write_text("id,v\n" + "".join(f"{id},{v}\n" for id, v in rows), encoding="utf-8")
    partial.replace(folder / "ten.csv")


def of_run(stack: Stack, dag_id: str) -> Seconds:
    """Return the seconds of one run of a DAG."""
    run_id = stack.trigger(dag_id)
    stack.succeeds(dag_id, run_id)
    run = stack.ask("GET", f"dags/{dag_id}/dagRuns/{run_id}")
    started, ended = (datetime.fromisoformat(run[key]) for key in ("start_date", "end_date"))
    return {"wall": (ended - started).total_seconds(), "refresh": refreshed(stack, dag_id)}


def of_command(stack: Stack) -> Seconds:
    """Return the seconds of one `amv refresh`."""
    begun = time.monotonic()
    command(stack, "refresh", "command")
    return {"wall": time.monotonic() - begun, "refresh": refreshed(stack, "command")}


def refreshed(stack: Stack, table: str) -> float:
    """Return the seconds of a table's newest refresh."""
    newest = stack.history(table)[0]
    assert newest.outcome is Outcome.PUBLISHED, newest
    started, finished = (datetime.fromisoformat(at or "") for at in (newest.started_at, newest.finished_at))
    return (finished - started).total_seconds()


def command(stack: Stack, *words: str) -> None:
    """Run `amv` as a shell that has sourced the installation's environment file does."""
    script = f'source {stack.topology.place.environment} && exec {BIN / "amv"} "$@"'
    subprocess.run(["bash", "-c", script, "amv", *words], check=True, stdout=subprocess.DEVNULL, env=os.environ)


if __name__ == "__main__":
    main()

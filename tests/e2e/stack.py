"""What `make up` starts, in a folder of its own with DAGs and secrets of its own, and what is asked of it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from airflow_mv_provider.core.outcome import RefreshReport
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.metadata.status import TableStatus
from scripts.native_compose import Place, read_env
from scripts.topology import Topology
from tests import waiting

PATIENCE_S = 240
Rows = Counter[tuple[str, ...]]


OTHER = "ann"
"""Another user than admin, who may do everything but what is assigned to others."""


@dataclass(frozen=True)
class Stack:
    """A whole Airflow that runs, and how a test asks and looks."""

    topology: Topology
    client: httpx.Client
    reader: Reader

    # -- Airflow -------------------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Ask Airflow's REST API; return its answer."""
        answer = self.client.request(method, f"/api/v2/{path}", json=body or None)
        assert answer.is_success, answer.text
        return answer.json()

    @contextmanager
    def other_user(self) -> Iterator[httpx.Client]:
        """A client that has signed in as OTHER, by the password that Airflow has made; answers are not checked."""
        file = self.topology.environment("airflow-api-server")["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]
        password = json.loads(Path(file).read_text(encoding="utf-8"))[OTHER]
        with signed_in(str(self.client.base_url), OTHER, password) as client:
            yield client

    def trigger(self, dag_id: str, **conf: Any) -> str:
        """Start a run as a script would; return its id."""
        return str(self.ask("POST", f"dags/{dag_id}/dagRuns", logical_date=None, conf=conf)["dag_run_id"])

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return list(self.ask("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The runs of a DAG, oldest first."""
        return list(self.ask("GET", f"dags/{dag_id}/dagRuns?order_by=id")["dag_runs"])

    def succeeds(self, dag_id: str, run_id: str) -> None:
        """Wait until a run has ended, well."""

        wait_until(lambda: self.has_ended(dag_id, run_id), f"{dag_id} {run_id} ends")
        failed = [task for task in self.tasks(dag_id, run_id) if task["state"] not in ("success", "skipped")]
        logs = [self.log(dag_id, run_id, task["task_id"], task["try_number"]) for task in failed]
        assert failed == [], "\n".join(logs)[-6000:]

    def has_ended(self, dag_id: str, run_id: str) -> bool:
        return self.ask("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"] in ("success", "failed")

    def is_reaped(self, run_id: str, task_id: str, attempt: int) -> bool:
        """True if the scheduler has noticed that a process of a task's try has ended."""
        lines = self.topology.place.log("airflow-scheduler").read_text(encoding="utf-8", errors="replace").splitlines()
        key = (run_id, f"'{task_id}'", f"try_number={attempt},")
        return any(
            "Received executor event with state success" in line and all(k in line for k in key) for line in lines
        )

    def log(self, dag_id: str, run_id: str, task_id: str, attempt: int) -> str:
        lines = self.ask("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{attempt}")["content"]
        return "\n".join(f"{line['event']} {line.get('error_detail', '')}" for line in lines)

    def command(self, *words: str) -> str:
        """Run `airflow ...` as an operator of this Airflow would; return what it prints."""
        topology = self.topology
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *words],
            env=topology.environment("airflow-scheduler"),
            cwd=topology.place.home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # -- tables --------------------------------------------------------------------------------------------------------

    def write(self, name: str, rows: Iterable[tuple[str, str, str]]) -> Rows:
        """Replace a table's source, one file a month: (month or day, key, value)."""
        folder = self.topology.place.warehouse / "raw" / name
        folder.mkdir(parents=True, exist_ok=True)
        rows = list(rows)
        for month in {row[0][:7] for row in rows}:
            partial = folder / f"{month}.partial"
            with partial.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("part", "id", "v"), *(row for row in rows if row[0][:7] == month)])
            partial.replace(folder / f"{month}.csv")
        return Counter(rows)

    def main(self, name: str) -> Rows:
        """The rows of main, read by delta-rs."""
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("main", DeltaTable(str(self.topology.place.warehouse / name)))
        read = query.execute("SELECT cast(part AS varchar) p, cast(id AS varchar) i, v FROM main").read_all()
        return Counter(zip(*(read[column].to_pylist() for column in ("p", "i", "v")), strict=True))

    def status(self, name: str) -> TableStatus:
        return self.reader.status(self.reader.table(name))

    def history(self, name: str) -> tuple[RefreshReport, ...]:
        return self.reader.history(self.reader.table(name).id)


@contextmanager
def signed_in(url: str, user: str, password: str) -> Iterator[httpx.Client]:
    """A client with a user's token."""
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        answer = client.post("/auth/token", json={"username": user, "password": password})
        assert answer.is_success, answer.text
        client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        yield client


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait on a condition, with a limit."""
    waiting.wait_until(condition, PATIENCE_S, what)


@contextmanager
def running_stack(home: Path, dag_files: Iterable[Path], more: Mapping[str, str]) -> Iterator[Stack]:
    """Start everything in `home`, with these DAG files and settings; end it afterwards."""
    (home / "dags").mkdir()
    for file in dag_files:
        (home / "dags" / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    ours = {
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "false",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"admin:admin,{OTHER}:admin",
    }
    topology = Topology(Place(home / "up", home / "dags", home / "env"), ours | dict(more), lambda line: None)
    try:
        url = topology.up()
        password = read_env(topology.place.env_file)["AIRFLOW_ADMIN_PASSWORD"]
        with signed_in(url, "admin", password) as client:
            engine = open_engine(topology.environment("airflow-scheduler")["AIRFLOW__MV__SQL_ALCHEMY_CONN"])
            yield Stack(topology, client, Reader(engine))
            engine.dispose()
    finally:
        topology.down(volumes=True)

"""Environments of other versions: each is made with uv, and has the wheel with what it requires, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.ports import free_port
from tests.e2e.stack import signed_in
from tests.waiting import wait_for_server, wait_until

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
# Airflow with the Spark that its users have: the oldest with the oldest, and with the lowest version of all else that
# is demanded. Airflow 3.1.0 fails beside the newest structlog, which its constraints prevent.
PAIRS = {"3.1": ("3.1.8", "4.0.1"), "3.2": ("3.2.2", "4.1.1"), "3.3": ("3.3.2", "4.2.0")}
_LOWEST = "3.1"
USERS = {"ann": "admin", "vic": "viewer"}
_OF_OTHERS = ("AIRFLOW_", "AMV_", "PYTHON", "PYSPARK_")  # settings of whoever runs this


@dataclass(frozen=True)
class Installed:
    """An environment with the package."""

    place: Path
    airflow: tuple[int, ...]
    more: dict[str, str] = field(default_factory=dict)

    @property
    def warehouse(self) -> Path:
        return self.place / "warehouse"

    @property
    def dags(self) -> Path:
        return self.place / "airflow" / "dags"

    @property
    def environment(self) -> Mapping[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith(_OF_OTHERS)}
        return {
            **others,
            "PATH": f"{self.place / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(self.place / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__MV__WAREHOUSE": str(self.warehouse),
            "AMV_SPARK_MASTER": "local[2]",
            **self.more,
        }

    def run(self, *command: str, fails: bool = False) -> str:
        """Run a command of this environment; return what it prints."""
        done = subprocess.run(
            command, cwd=self.place, env=self.environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0) == fails, (done.stdout + done.stderr)[-4000:]
        return done.stdout + done.stderr if fails else done.stdout

    def mv(self, *command: str) -> Any:
        """Run a command with Airflow's settings; return its answer."""
        return json.loads(self.run("airflow-mv", *command, "--json").strip().splitlines()[-1])


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [found] = place.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make an environment with some requirements, and the wheel."""

    def install(name: str, *requirements: str | Path, is_with_wheel: bool = True, is_lowest: bool = False) -> Path:
        place = tmp_path_factory.mktemp(name)
        uv, python = Path(sys.executable).parent / "uv", place / "venv/bin/python"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place / "venv"], check=True)
        wanted = (*requirements, wheel) if is_with_wheel else requirements
        command = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
        if is_lowest:  # of what is demanded, which uv does not count as direct if a wheel says it
            command += ["--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml"]
        command += wanted
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return place

    return install


@pytest.fixture(scope="module", params=PAIRS)
def installed(request: pytest.FixtureRequest, install: Callable[..., Path]) -> Installed:
    """The package in an Airflow, whose databases are made."""
    airflow, spark = PAIRS[request.param]
    place = install(
        f"airflow-{request.param}",
        *(f"apache-airflow=={airflow}", f"pyspark=={spark}", f"pyspark-client=={spark}"),
        is_lowest=request.param == _LOWEST,
    )
    api, workers, triggers = free_port(), free_port(), free_port()
    passwords = place / "passwords.json"
    passwords.write_text(json.dumps({name: name for name in USERS}))
    more = {
        "AIRFLOW__API__PORT": str(api),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{api}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{api}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(workers),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(triggers),
    }
    found = Installed(place, tuple(map(int, airflow.split("."))), more)
    found.dags.mkdir(parents=True)
    found.run("airflow", "db", "migrate")
    found.run("airflow-mv", "db", "migrate")
    return found


@dataclass(frozen=True)
class Running:
    """An Airflow that runs, asked by its REST API."""

    installed: Installed
    url: str

    @contextmanager
    def user(self, name: str) -> Iterator[httpx.Client]:
        with signed_in(self.url, name, name) as client:
            yield client

    def ask(self, method: str, path: str, **body: Any) -> Any:
        with self.user("ann") as client:
            answer = client.request(method, f"/api/v2/{path}", json=body or None)
            assert answer.is_success, answer.text
            return answer.json()

    def trigger(self, dag_id: str, **conf: Any) -> str:
        wait_until(lambda: self.knows(dag_id), PATIENCE_S, f"{dag_id} is parsed")
        return str(self.ask("POST", f"dags/{dag_id}/dagRuns", logical_date=None, conf=conf)["dag_run_id"])

    def knows(self, dag_id: str) -> bool:
        return dag_id in [dag["dag_id"] for dag in self.ask("GET", "dags")["dags"]]

    def task(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """The only task of a run."""
        [task] = self.ask("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return dict(task)

    def succeeds(self, dag_id: str, run_id: str) -> None:
        """Wait until a run has ended, well."""

        def state() -> str:
            return str(self.ask("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"])

        wait_until(lambda: state() in ("success", "failed"), PATIENCE_S, f"{dag_id} ends")
        task = self.task(dag_id, run_id)
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
        assert state() == "success", str(self.ask("GET", path)["content"])[-4000:]


@pytest.fixture(scope="module")
def running(installed: Installed) -> Iterator[Running]:
    """All processes of the Airflow, as `airflow standalone` starts them."""
    url, log = installed.more["AIRFLOW__API__BASE_URL"], installed.place / "standalone.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            ["airflow", "standalone"],
            cwd=installed.place,
            env=installed.environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
            executable=installed.place / "venv/bin/airflow",
        )
    try:
        wait_for_server(lambda: _is_healthy(url), [process], PATIENCE_S, lambda: log.read_text()[-4000:])
        yield Running(installed, url)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        with suppress(ProcessLookupError):  # its tasks are of its group
            os.killpg(process.pid, signal.SIGKILL)


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/v2/monitor/health", trust_env=False).is_success
    except httpx.HTTPError:
        return False

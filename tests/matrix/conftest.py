"""Environments of other versions: each is made with uv, and has the wheel with what it requires, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.ports import free_port
from tests.e2e.stack import signed_in
from tests.waiting import wait_for_server, wait_until

ROOT = Path(__file__).parents[2]
PATIENCE_S = 900
USERS = {"ann": "admin", "vic": "viewer"}
_UV = Path(sys.executable).parent / "uv"
_OF_OTHERS = ("AIRFLOW_", "AMV_", "PYTHON", "PYSPARK_")  # settings of whoever runs this


@dataclass(frozen=True)
class Versions:
    """What an environment is of: the ids of its tests, and so the record of a run, name it."""

    python: str
    airflow: str = ""
    spark: str = ""
    options: tuple[str | Path, ...] = ()

    @property
    def demanded(self) -> tuple[str | Path, ...]:
        """What `install` is called with. Airflow's provider for Spark demands the client, too."""
        both = (f"pyspark=={self.spark}", f"pyspark-client=={self.spark}")
        return (self.python, *self.options, f"apache-airflow=={self.airflow}", *both)

    def __str__(self) -> str:
        named = (("Airflow", self.airflow), ("Spark", self.spark), ("Python", self.python))
        return " ".join(f"{name}-{version}" for name, version in named if version)


# What the tests of this repository import.
TOOLS = (
    *("psycopg[binary]", "pymysql", "confluent-kafka[schema-registry]", "protobuf>=6.31", "fastavro", "deltalake"),
    *("pyarrow", "pandas<3", "pytest", "pytest-timeout", "hypothesis", "httpx", "jsonschema", "python-dotenv"),
    *("playwright", "axe-playwright-python"),
)
# Of what is demanded; uv does not count as direct what a wheel says.
LOWEST = ("--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml")
# Airflow 3.2.2 was released in May 2026 and needs packages of that time, as its constraints have: beside FastAPI 0.157
# it starts no task (`TITerminalStatePayload needs a discriminator field`). The Delta that is demanded came after it.
OF_ITS_TIME = ("--exclude-newer", "2026-06-20", "--exclude-newer-package", "delta-spark=2026-09-20")
# Airflow with the Spark that its users have.
NEWEST = Versions("3.13", "3.3.2", "4.2.0", ("psycopg[binary]",))  # which an example needs
ENVIRONMENTS = (
    NEWEST,
    Versions("3.12", "3.2.2", "4.1.1", OF_ITS_TIME),
    Versions("3.11", "3.1.8", "4.0.1", LOWEST),
)


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

    def with_settings(self, **more: str) -> Installed:
        """Return the same environment with other settings of Airflow."""
        return replace(self, more=self.more | more)

    def run(self, *command: str, fails: bool = False) -> str:
        """Run a command of this environment; return what it prints."""
        done = subprocess.run(
            command, cwd=self.place, env=self.environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0) == fails, (done.stdout + done.stderr)[-4000:]
        return done.stdout + done.stderr if fails else done.stdout

    def mv(self, *command: str) -> Any:
        """Run a command with Airflow's settings; return its answer."""
        return json.loads(self.run("airflow-mv", *command, "--json"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [found] = place.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Make an environment with some requirements, and the wheel; it is removed at the end."""
    made = []

    def install(python: str, *requirements: str | Path, is_with_wheel: bool = True) -> Path:
        made.append(place := tmp_path_factory.mktemp(f"python-{python}-"))
        subprocess.run([_UV, "venv", "--quiet", "--python", interpreter(python), place / "venv"], check=True)
        pip_install(place, *requirements, *([wheel] if is_with_wheel else []))
        return place

    yield install
    for place in made:
        shutil.rmtree(place, ignore_errors=True)


def pip_install(place: Path, *requirements: str | Path) -> None:
    """Install into an environment what it lacks."""
    into = ("--quiet", "--compile-bytecode", "--python", place / "venv/bin/python")
    done = subprocess.run([_UV, "pip", "install", *into, *requirements], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def interpreter(minor: str) -> str:
    """Return an interpreter of a minor version of Python; skip where this machine has none."""
    named, of_pyenv = shutil.which(f"python{minor}"), Path.home().glob(f".pyenv/versions/{minor}.*/bin/python")
    for python in (sys.executable, named, *sorted(of_pyenv)):
        if python and _runs(python, f"import sys; assert sys.version.startswith('{minor}.')"):
            return str(python)
    pytest.skip(f"Python {minor} is not installed")


def _runs(python: str | Path, code: str) -> bool:
    """True if an interpreter is there and runs; pyenv has a program of each version's name, installed or not."""
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module", params=ENVIRONMENTS, ids=str)
def installed(request: pytest.FixtureRequest, install: Callable[..., Path]) -> Installed:
    """The package in an Airflow, whose databases are made."""
    versions: Versions = request.param
    place = install(*versions.demanded)
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
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "PYSPARK_PYTHON": str(place / "venv/bin/python"),
        "PYTHONPATH": str(place / "airflow/dags"),  # a driver that is submitted finds modules there, as a task does
    }
    found = Installed(place, tuple(map(int, versions.airflow.split("."))), more)
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
        assert state() == "success", self.log(dag_id, run_id)[-4000:]

    def log(self, dag_id: str, run_id: str) -> str:
        """The log of a run's only task, of its last try."""
        task = self.task(dag_id, run_id)
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
        return str(self.ask("GET", path)["content"])


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


def num_passed(python: str | Path, *options: str) -> int:
    """Run tests of this repository in an environment; return how many have passed, all of those that ran."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AMV_", "PYTEST_", "PYSPARK_"))}
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "3600", *options]

    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-6000:]
    return int(re.findall(r"(\d+) passed", done.stdout)[-1])

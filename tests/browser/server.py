"""A real `airflow api-server` on loopback, in an AIRFLOW_HOME of its own, for tests that look at it with a browser.

    with api_server(home, dag_files) as server:
        server.url, server.password("admin")

Nothing runs DAGs here. Whoever starts a scheduler beside it gives it `server.environment`.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.ports import free_port
from tests.waiting import wait_for_server

ROLES = ("viewer", "user", "op", "admin")
_START_S = 240  # half a minute on a machine with nothing else to do
# `airflow db migrate` and `airflow dags reserialize`, in half the time: one process, a database made from the models.
_PREPARE = """
from airflow.utils.db import initdb
initdb()
from airflow.configuration import conf
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
DagBundlesManager().sync_bundles_to_db()
dags = conf.get("core", "dags_folder")
bag = DagBag(dags, bundle_path=dags, bundle_name="dags-folder")
assert bag.import_errors == {}, bag.import_errors
sync_bag_to_db(bag, "dags-folder", None)
"""


@dataclass(frozen=True)
class Server:
    """An API server that answers, and how another process of the same Airflow is started."""

    url: str
    home: Path
    environment: Mapping[str, str]

    @property
    def our_database(self) -> str:
        """The address of our own metadata database."""
        return self.environment["AIRFLOW__MV__SQL_ALCHEMY_CONN"]

    def password(self, name: str) -> str:
        """Return what the simple auth manager has made up for a user; each of ROLES is one."""
        passwords = json.loads((self.home / "simple_auth_manager_passwords.json.generated").read_text(encoding="utf-8"))
        return str(passwords[name])


@contextmanager
def api_server(home: Path, dag_files: Mapping[str, str], **more: str) -> Iterator[Server]:
    """Start one with these DAGs, paused or not as they say, and end it with its children.

    dag_files : text by file name
    more      : further environment variables
    """
    environment = _environment(home, free_port()) | more
    dags = Path(environment["AIRFLOW__CORE__DAGS_FOLDER"])
    dags.mkdir(parents=True)
    for name, text in dag_files.items():
        (dags / name).write_text(text, encoding="utf-8")
    log = home / "api-server.log"
    with log.open("w", encoding="utf-8") as out:
        into_log = {"env": environment, "stdout": out, "stderr": subprocess.STDOUT}
        subprocess.run([sys.executable, "-c", _PREPARE], check=True, timeout=_START_S, **into_log)
        command = [sys.executable, "-m", "airflow", "api-server", "--workers", "1"]
        process = subprocess.Popen(command, start_new_session=True, **into_log)
    try:
        url = environment["AIRFLOW__API__BASE_URL"]
        _wait(url, process, log)
        yield Server(url, home, environment)
    finally:
        os.killpg(
            process.pid, signal.SIGKILL
        )  # it would wait for browsers' open connections, and holds nothing of worth
        process.wait()


def _environment(home: Path, port: int) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "AMV_"))}
    return own | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{role}:{role}" for role in ROLES),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__MV__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'mv.db'}",
        "AIRFLOW__MV__WAREHOUSE": str(home / "warehouse"),
    }


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def answers() -> bool:
        try:
            urllib.request.urlopen(f"{url}/api/v2/monitor/health", timeout=5).close()
        except OSError:
            return False
        return True

    wait_for_server(answers, [process], _START_S, lambda: log.read_text(encoding="utf-8")[-4000:])

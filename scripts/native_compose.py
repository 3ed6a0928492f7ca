"""docker-compose.yaml, read for this machine: each service's command and environment as a native process needs them.

Only what a container would give a service is replaced: host names by 127.0.0.1, ports by free ones where the usual ones
are taken, /opt by folders of the place, and the image by .venv.
"""

from __future__ import annotations

import hmac
import os
import re
import shutil
import socket
import subprocess  # nosec B404  # to write .env
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyspark
import yaml
from dotenv import dotenv_values

from scripts.postgres_programs import account

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

# What the compose file calls a server's port, and where nothing else has it.
_PORTS = (5432, 7077, 8080, 8081, 8082, 15002)
_HOSTS = ("airflow-api-server", "spark-connect", "spark-master", "postgres")


class TopologyError(Exception):
    """What did not come up, and where to read on."""


@dataclass(frozen=True)
class Place:
    """Where one topology lives.

    home     : logs, tables, Airflow's home and the list of processes
    dags     : Airflow's DAG folder
    env_file : the secrets, as docker compose reads them
    """

    home: Path = ROOT / ".up"
    dags: Path = ROOT / "dags"
    env_file: Path = ROOT / ".env"

    @property
    def state(self) -> Path:
        return self.home / "state.json"

    @property
    def warehouse(self) -> Path:
        return self.home / "warehouse"

    @property
    def postgres(self) -> Path:
        """PostgreSQL's data: as root its own user owns it, who may not reach the checkout."""
        owner = account()
        if owner is None:
            return self.home / "postgres"
        return Path(owner.pw_dir) / f"airflow-mv-{sha256(str(self.home).encode()).hexdigest()[:12]}"

    @property
    def environment(self) -> Path:
        """A file to source: the environment of a command that is to work on this installation."""
        return self.home / "environment"

    def log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"


@dataclass(frozen=True)
class Compose:
    """The compose file as it is at one place. Ports are looked for once, when the first is asked for.

    more : environment of every service, after its own
    """

    place: Place
    more: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def services(self) -> dict[str, Any]:
        """The services as the file has them."""
        return dict(yaml.safe_load((ROOT / "docker-compose.yaml").read_text(encoding="utf-8"))["services"])

    @cached_property
    def ports(self) -> dict[int, int]:
        """The port here of each that the file names.

        raises : TopologyError
        """
        return {usual: _port(usual) for usual in _PORTS}

    @cached_property
    def _secrets(self) -> dict[str, str]:
        return read_env(self.place.env_file)

    @property
    def _connect_token(self) -> str:
        """What keeps other users of this machine from the Connect server; containers have a network of their own."""
        return hmac.digest(self.here("${AIRFLOW_SECRET_KEY:?}").encode(), b"Spark Connect", "sha256").hex()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports[8080]}"

    @property
    def spark_page(self) -> str:
        return f"http://127.0.0.1:{self.ports[8081]}"

    def command(self, name: str) -> list[str]:
        """Return the service's command."""
        command = self.services[name]["command"]
        if isinstance(command, str):  # the image's entrypoint gives it to Airflow
            # Logs lie in one folder, so nobody needs the servers that would listen on all addresses to show them.
            serves_logs = command in ("scheduler", "triggerer")
            return [str(BIN / "airflow"), command, *(["--skip-serve-logs"] if serves_logs else [])]
        return [self.here(word) for word in command]

    def environment(self, name: str) -> dict[str, str]:
        """Return the service's environment on top of ours, without our settings of Airflow and of this provider."""
        ours = {each: value for each, value in os.environ.items() if not each.startswith(("AIRFLOW", "AMV_", "SPARK_"))}
        theirs = {key: self.here(str(value)) for key, value in self.services[name].get("environment", {}).items()}
        native = {
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            "AIRFLOW_HOME": str(self.place.home / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.place.dags),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.ports[8080]),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "false",  # it would listen on all addresses
            "NO_PROXY": "127.0.0.1,localhost",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": self._connect_token,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.place.home / "spark"),
        }
        return ours | theirs | native | dict(self.more)

    def here(self, text: str) -> str:
        """Return a value of the compose file with the addresses of containers replaced by this machine's."""
        # PySpark sends a token without TLS to this name only.
        text = text.replace("sc://spark-connect", "sc://localhost")
        for host in _HOSTS:
            text = re.sub(rf"(?<![\w-]){host}(?![\w-])", "127.0.0.1", text)
        for usual, here in self.ports.items():
            text = re.sub(rf"(?<!\d){usual}(?!\d)", str(here), text)
        text = text.replace("/opt/warehouse", str(self.place.warehouse))
        text = text.replace("/opt/airflow", str(self.place.home / "airflow"))
        # Last, for a secret may look like anything.
        return re.sub(r"\$\{(\w+)(?::[?-]([^}]*))?\}|\$\$", self._value, text)

    def _value(self, variable: re.Match[str]) -> str:
        name, otherwise = variable.groups()
        if name is None:
            return "$"
        if value := self._secrets.get(name) or os.environ.get(name):
            return value
        if ":-" in variable.group():
            return str(otherwise)
        raise TopologyError(
            f"{self.place.env_file} has no {name}, which docker/make-env.sh would write into a new one."
        )


def read_env(file: Path) -> dict[str, str]:
    """Return the variables of an .env file, those of the environment before them; a missing file is written.

    raises : TopologyError
    """
    if not file.exists():
        bash = shutil.which("bash") or "bash"
        writes = [bash, str(ROOT / "docker" / "make-env.sh"), str(file)]
        subprocess.run(writes, check=True, stdout=subprocess.DEVNULL)  # nosec B603  # our own words alone
    found = {name: value or "" for name, value in dotenv_values(file, interpolate=False).items()}
    return found | {name: os.environ[name] for name in found.keys() & os.environ.keys()}


def _port(usual: int) -> int:
    """Return the usual port, or one that nobody has."""
    for port in (usual, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise TopologyError("This machine has no free port on its loopback.")

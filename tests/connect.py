"""A real Spark Connect server on loopback, in a process of its own, ended by its own pid.

Its Spark is that of the interpreter that runs the tests, or of another one: then client and server have two versions.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from airflow_mv_provider.core.jvm_zone import IN_UTC
from scripts.ports import free_port
from tests import small_tables
from tests.waiting import accepts, wait_for_server

_PATIENCE_S = 300
_ROOT = Path(__file__).parent.parent
_INSTALLED = """
import os, pyspark
from airflow_mv_provider.spark.packages import delta_packages
print(os.path.dirname(pyspark.__file__), delta_packages())
"""
_CONFS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


@cache
def installed_with(python: str = sys.executable) -> tuple[str, str]:
    """Return the home of the Spark that an interpreter has, and the Maven coordinates of Delta's jars for it."""
    done = subprocess.run([python, "-c", _INSTALLED], cwd=_ROOT, capture_output=True, text=True, check=True)
    home, packages = done.stdout.split()[-2:]
    return home, packages


class ConnectServer:
    """One server; whoever reaches it on this machine may use it."""

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        jars: Sequence[str] = (),
        python: str = sys.executable,
        has_delta: bool = True,
        **confs: str,
    ) -> None:
        self._directory = directory
        self._confs, self._jars, self._python = confs, jars, python
        home, packages = installed_with(python)
        self._log = directory / "connect.log"
        self._port = port or free_port()
        confs = small_tables.CONFS | _CONFS | IN_UTC | confs | {"spark.connect.grpc.binding.port": str(self._port)}
        options = [each for name, value in confs.items() for each in ("--conf", f"{name}={value}")]
        options += [
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--packages",
            ",".join([packages, *jars]),
        ][: None if has_delta else -2]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [Path(home) / "bin" / "spark-submit", "--master", "local[2]", "--driver-memory", "2g", *options],
                env=os.environ | {"SPARK_HOME": home, "PYSPARK_PYTHON": python},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # spark-submit's shell and its JVM are ended together
            )

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The JVM's process: spark-submit's shell becomes it."""
        return self._process.pid

    def wait(self) -> None:
        """Wait until it accepts connections."""
        wait_for_server(
            lambda: accepts(self._port), [self._process], _PATIENCE_S, lambda: self._log.read_text()[-1500:]
        )

    def again(self) -> ConnectServer:
        """Return a server that accepts connections in the place of this one, which was killed."""
        server = ConnectServer(self._directory, self._port, jars=self._jars, python=self._python, **self._confs)
        server.wait()
        return server

    def kill(self) -> None:
        """End it at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_PATIENCE_S)


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """One server for all tests of a process: its start takes more than most of them."""
    yield from serving(tmp_path_factory.mktemp("connect"))


def serving(
    directory: Path, *, jars: Sequence[str] = (), has_delta: bool = True, **confs: str
) -> Iterator[ConnectServer]:
    """Give a server that accepts connections, and end it afterwards: the body of a fixture."""
    server = ConnectServer(directory, jars=jars, has_delta=has_delta, **confs)
    try:
        server.wait()
        yield server
    finally:
        server.kill()

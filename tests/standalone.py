"""A real Spark standalone cluster on loopback: a master and one worker, each a process ended by its own pid."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from scripts.ports import free_port
from tests.waiting import wait_for_server

SPARK_HOME = Path(pyspark.__file__).parent
_PATIENCE_S = 120


class StandaloneCluster:
    """A master and a worker with two cores; `work` holds what the worker keeps of each application."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = directory / "work"
        self._log = directory / "cluster.log"
        self._page = free_port()
        self.url = f"spark://127.0.0.1:{free_port()}"
        host, port = "127.0.0.1", self.url.rpartition(":")[2]
        master = ["master.Master", "--host", host, "--port", port, "--webui-port", str(self._page)]
        worker = ["worker.Worker", "--host", host, "--port", str(free_port()), "--webui-port", str(free_port())]
        worker += ["--cores", "2", "--memory", "1g", "--work-dir", str(self.work), self.url]
        self._processes = [self._start(arguments, directory) for arguments in (master, worker)]

    def wait(self) -> None:
        """Wait until the worker has found the master."""
        wait_for_server(self._has_worker, self._processes, _PATIENCE_S, lambda: self._log.read_text()[-1500:])

    def kill(self) -> None:
        """End both at once, with whatever the worker has started."""
        for each in self._processes:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait(_PATIENCE_S)

    def _has_worker(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as page:
                return bool(json.load(page)["aliveworkers"] == 1)
        except (OSError, ValueError):  # a master that is just starting answers with something else
            return False

    def _start(self, arguments: list[str], directory: Path) -> subprocess.Popen[bytes]:
        name, *options = arguments
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *options],
                env=os.environ
                | {"SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    cluster = StandaloneCluster(tmp_path_factory.mktemp("standalone"))
    try:
        cluster.wait()
        yield cluster
    finally:
        cluster.kill()

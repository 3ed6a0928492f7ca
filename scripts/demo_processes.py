"""The demo's processes: where its files are, and the worker that runs the DAG."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess  # nosec B404  # to run this package as people do, without a shell
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".demo"
WAREHOUSE = HOME / "warehouse"
FILES = WAREHOUSE / "raw" / "flights"
STATE = HOME / "state.db"
AIRFLOW_HOME = HOME / "airflow"
LOG = HOME / "demo.log"
LEASE_S = 10  # short, so that nobody waits long for a dead process; the default is a minute


def environment() -> dict[str, str]:
    """Return the environment of the demo's processes: nobody's own settings, and the demo's places."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "AMV_"))}
    return others | {
        "AIRFLOW_HOME": str(AIRFLOW_HOME),
        "AMV_DATABASE_URL": f"sqlite:///{STATE}",
        "AMV_WAREHOUSE": str(WAREHOUSE),
    }


class Worker:
    """A process that runs the DAG on request; its output goes to the log."""

    def __enter__(self) -> Worker:
        airflow = {"AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"), "AIRFLOW__CORE__LOAD_EXAMPLES": "false"}
        provider = {"AMV_LEASE_S": str(LEASE_S), "AMV_SPARK_LOG_LEVEL": "error"}
        with LOG.open("a") as log:
            self._process = subprocess.Popen(  # nosec B603  # our own words alone
                [sys.executable, str(ROOT / "scripts" / "demo_worker.py")],
                env=environment() | airflow | provider,
                cwd=HOME,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def start(self, crash_at: str = "") -> None:
        """Begin a DAG run, which kills its process at `crash_at`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died; the next read of its output shows that
            self._process.stdin.write(crash_at + "\n")
            self._process.stdin.flush()

    @property
    def is_busy(self) -> bool:
        return self._answers.empty()

    def answer(self) -> str:
        """Return the state of the run that was started last."""
        return self._answers.get() or "dead"

    def wait(self) -> int:
        """Return the exit code of the process; negative for a signal."""
        return self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line.strip())
        self._answers.put("")  # it has ended

"""How long it takes to become a table's owner: in a race, and after the owner has died.

    python benchmarks/ownership.py                      16 processes race 1,000 times, then five takeovers
    python benchmarks/ownership.py --processes 4 --rounds 100 --takeovers 1

On a PostgreSQL server that is started for it, on loopback. The race is one compare-and-set each; a takeover is a whole
`amv refresh --wait` whose table's owner, another `amv refresh`, is killed in the middle.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from tests.connect import ConnectServer
from tests.metadata import racer
from tests.metadata.rows import registered
from tests.postgres import running_server

LEASE_S = 5
PATIENCE_S = 120
TABLE = """
tables:
  - name: orders
    source: {type: files, path: raw/*.csv, format: csv, schema: "id BIGINT, v STRING"}
    key: [id]
    concurrency: queue
"""


def race(address: str, processes: int, rounds: int) -> None:
    """Let processes race for one table, and print how long they wait for the answer."""
    engine = open_engine(address)
    migrations.migrate(engine)
    registered(Store(engine))
    engine.dispose()
    found = racer.race(racer.race_to_acquire, address, *map(str, range(processes)), rounds=rounds)
    won = sorted(epoch for epochs, _ in found.values() for epoch in epochs)
    if won != list(range(1, rounds + 1)):
        raise SystemExit(f"Not one winner in each of {rounds} rounds: {len(won)} won.")
    ms = sorted(1000 * each for _, seconds in found.values() for each in seconds)
    p99 = ms[int(0.99 * len(ms))]
    print(f"{processes} processes, {rounds} rounds: one winner each; ", end="")
    print(f"answered in {statistics.median(ms):.1f} ms (median), {p99:.1f} ms (p99), {ms[-1]:.1f} ms (longest)")


def take_over(address: str, remote: str) -> float:
    """Kill an owner while another one waits; return the seconds from its death to the next ownership.

    remote : a Spark Connect server, so that starting a JVM is not what is measured
    """
    with tempfile.TemporaryDirectory(prefix="amv-ownership-") as home, ExitStack() as started:
        warehouse, definition, log = Path(home) / "warehouse", Path(home) / "tables.yaml", Path(home) / "log"
        (warehouse / "raw").mkdir(parents=True)
        (warehouse / "raw" / "rows.csv").write_text("id,v\n1,a\n2,b\n", encoding="utf-8")
        definition.write_text(TABLE, encoding="utf-8")
        engine = open_engine(address)
        started.callback(engine.dispose)
        migrations.migrate(engine)
        store = Store(engine)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AMV_")} | {
            "AMV_DATABASE_URL": address,
            "AMV_WAREHOUSE": str(warehouse),
            "AMV_LEASE_S": str(LEASE_S),
            "AMV_SPARK_REMOTE": remote,
        }

        def start(*words: str) -> subprocess.Popen[bytes]:
            command = [str(Path(sys.executable).with_name("amv")), *words]
            with log.open("ab") as out:
                process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
            started.callback(kill, process)
            return process

        def wait(condition: Callable[[], bool], *needed: subprocess.Popen[bytes]) -> None:
            until = time.monotonic() + PATIENCE_S
            while not condition():
                if time.monotonic() > until or any(process.poll() is not None for process in needed):
                    raise SystemExit(f"It did not come to a takeover:\n{log.read_text(encoding='utf-8')}")
                time.sleep(0.02)

        if start("apply", str(definition)).wait(PATIENCE_S):
            raise SystemExit(log.read_text(encoding="utf-8"))
        table = store.table("orders")
        owner = start("refresh", "orders")
        wait(lambda: store.state(table.id).phase is not Phase.NORMAL, owner)
        waiting = start("refresh", "orders", "--wait", str(PATIENCE_S))
        wait(lambda: bool(store.waiters(table.id)), owner, waiting)
        epoch = store.state(table.id).epoch
        kill(owner)
        died = time.monotonic()
        if store.state(table.id).phase is Phase.NORMAL:
            raise SystemExit("The owner had ended before it was killed.")
        wait(lambda: store.state(table.id).epoch != epoch, waiting)
        seconds = time.monotonic() - died
        if waiting.wait(PATIENCE_S):
            raise SystemExit(f"The one that took over failed:\n{log.read_text(encoding='utf-8')}")
        return seconds


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with its children at once, if it has not ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--takeovers", type=int, default=5)
    arguments = parser.parse_args()
    with running_server() as server:
        race(server.new_database(), arguments.processes, arguments.rounds)
        with tempfile.TemporaryDirectory(prefix="amv-connect-", ignore_cleanup_errors=True) as home:
            connect = ConnectServer(Path(home))
            try:
                connect.wait()
                seconds = [take_over(server.new_database(), connect.url) for _ in range(arguments.takeovers)]
            finally:
                connect.kill()
    if seconds:
        print(f"a dead owner is followed after {max(seconds):.1f} s at most, with a lease of {LEASE_S} s")


if __name__ == "__main__":
    main()

"""Do what README.md says under *Install* and *A table*, in an empty environment: `make trial-install`.

    a new venv with stock Airflow ─▶ the documented pip command ─▶ `airflow mv db migrate`
    ─▶ the README's definition and DAG ─▶ `airflow standalone`, a run ─▶ `airflow mv status`: both tables are published
    ─▶ one amount is corrected ─▶ the README's commands: one row is updated

Commands and files are taken from the README itself, so it fails where the page is wrong. Versions are those of
constraints.txt, so that it fails for no other reason.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess  # nosec B404  # it runs the README's commands
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from scripts.ports import free_port

ROOT = Path(__file__).parent.parent
_PATIENCE_S = 600
_OF_OTHERS = ("AIRFLOW_", "AMV_", "PYTHON")  # settings of whoever runs this
ORDERS = "order_id,ordered_on,customer,amount\n1,2026-01-15,ann,9.90\n2,2026-02-01,bob,5.00\n"
CUSTOMERS = """
import sys
from airflow_mv_provider.spark.session import local_session

spark = local_session()
rows = spark.sql("SELECT 1 AS customer_id, 'ann' AS name UNION ALL SELECT 2, 'bob'")
rows.write.format("delta").save(sys.argv[1])
spark.stop()
"""


def main() -> None:
    """Install, refresh, and say what came of it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="amv-trial-") as folder:
        home, warehouse = Path(folder, "airflow"), Path(folder, "warehouse")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_OF_OTHERS)},
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            **ports(),
            "AIRFLOW__MV__WAREHOUSE": str(warehouse),
            "VIRTUAL_ENV": str(Path(folder, "venv")),
            "PATH": f"{Path(folder, 'venv', 'bin')}:{os.environ['PATH']}",
        }
        install(Path(folder, "venv"), readme, environment)
        write_tables(home / "dags", warehouse, readme)
        run("airflow db migrate", environment)
        run("airflow mv db migrate", environment)
        Path(folder, "customers.py").write_text(CUSTOMERS, encoding="utf-8")
        run(f"python {folder}/customers.py {warehouse}/raw/customers", environment)
        with standalone(Path(folder, "standalone.log"), environment):
            run("airflow dags reserialize", environment)
            run("airflow dags unpause sales", environment)
            wait_for_the_run(environment)
        status = run("airflow mv status", environment)
        if status.count("published") != 2:
            sys.exit(f"✗ Not both tables are published:\n{status}")
        print(status)
        csv = warehouse / "raw" / "orders" / "2026.csv"
        csv.write_text(ORDERS.replace("9.90", "8.90"), encoding="utf-8")
        commands = re.findall(r"^    \$ (airflow mv [^#\n]*)", readme, re.MULTILINE)
        *_, report = [run(f"cd {home / 'dags'} && {command}", environment) for command in commands]
        if "0 inserted, 1 updated, 0 deleted, 1 unchanged" not in report:
            sys.exit(f"✗ The corrected amount is not published:\n{report}")


def ports() -> dict[str, str]:
    """Return settings by which Airflow's servers listen on free ports."""
    api = f"127.0.0.1:{free_port()}"
    return {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": api.rpartition(":")[2],
        "AIRFLOW__API__BASE_URL": f"http://{api}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{api}/execution/",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
    }


@contextmanager
def standalone(log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run all of Airflow, on free ports, and end it by its own process group."""
    print("▸ airflow standalone", flush=True)
    with log.open("wb") as out:
        process = subprocess.Popen(  # nosec B603 B607  # fixed words
            ["airflow", "standalone"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(lambda: process.poll() is not None or is_healthy(environment), "Airflow starts")
        if process.poll() is not None:
            sys.exit("✗ Airflow has ended instead of starting.")
        yield
    except SystemExit:
        print(log.read_text(encoding="utf-8", errors="replace")[-6000:])
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_healthy(environment: Mapping[str, str]) -> bool:
    """Return whether the API server answers, and the scheduler has shown that it works."""
    health = f"{environment['AIRFLOW__API__BASE_URL']}/api/v2/monitor/health"
    with suppress(OSError, ValueError), urlopen(health, timeout=10) as answer:  # nosec B310  # http, on this machine
        return bool(json.load(answer)["scheduler"]["status"] == "healthy")
    return False


def wait_for_the_run(environment: Mapping[str, str]) -> None:
    """Wait until the scheduled run has ended; leave unless it has succeeded."""
    states: list[str] = []

    def has_ended() -> bool:
        listed = run("airflow dags list-runs sales --output json", environment, is_shown=False)
        found = re.search(r"^\[\{.*", listed, re.MULTILINE | re.DOTALL)  # after lines of a log
        states[:] = [each["state"] for each in json.loads(found[0])] if found else []
        return bool(states) and all(state in ("success", "failed") for state in states)

    wait_until(has_ended, "the run ends")
    if set(states) != {"success"}:
        sys.exit("✗ The run failed.")


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for a condition; leave after ten minutes. (`tests.waiting` needs pytest.)"""
    until = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > until:
            sys.exit(f"✗ Not within ten minutes: {what}.")
        time.sleep(2)


def install(venv: Path, readme: str, environment: Mapping[str, str]) -> None:
    """Make an environment with Airflow alone, and install the package as the README says."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    make = [uv, "venv", "--quiet", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    subprocess.run([*make, str(venv)], check=True)  # nosec B603  # no shell, fixed words
    (airflow,) = re.findall(
        r"^apache-airflow==.*$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    (command,) = re.findall(r"^    (pip install .*)$", readme, re.MULTILINE)
    pip, beside = "pip install --quiet", f"-c {ROOT / 'constraints.txt'}"
    if uv:
        pip = f"{uv} pip install --quiet"  # several times faster, and the same
    run(f"{pip} {beside} {airflow}", environment)
    run(f"{command.replace('pip install', pip)} {beside}", environment)


def write_tables(dags: Path, warehouse: Path, readme: str) -> None:
    """Write the README's definition and DAG, and the files that they read."""
    dags.mkdir(parents=True, exist_ok=True)
    for language, name in (("yaml", "tables.yaml"), ("python", "sales.py")):
        (text,) = re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)
        (dags / name).write_text(text, encoding="utf-8")
    (warehouse / "raw" / "orders").mkdir(parents=True)
    (warehouse / "raw" / "orders" / "2026.csv").write_text(ORDERS, encoding="utf-8")


def run(command: str, environment: Mapping[str, str], *, is_shown: bool = True) -> str:
    """Run a command in the checkout, and return what it prints; leave where it fails."""
    if is_shown:
        print(f"▸ {command}", flush=True)
    done = subprocess.run(  # nosec B603 B607  # commands of the README, which belongs to this repository
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"✗ It failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Airflow ends too
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    main()

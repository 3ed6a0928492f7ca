"""`make up` and `make down`: what docker-compose.yaml describes, run natively on this machine's loopback.

    python scripts/topology.py up              starts what is not there, waits until all of it is healthy
    python scripts/topology.py shell           opens a shell in which `amv` and `airflow` work on it
    python scripts/topology.py down            ends it by pid; tables and databases stay
    python scripts/topology.py down --volumes  removes those, too

Services, commands, environment, secrets and order are the compose file's own, as `native_compose` reads them. Its
health checks need curl, and seconds each, so the same is asked from here.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess  # nosec B404  # to run the services, without a shell but the one that the compose file asks for
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from scripts.demo_flights import shipped_flights, write_months
from scripts.native_compose import ROOT, Compose, Place, TopologyError, read_env
from scripts.postgres_programs import PostgresMissingError, as_account, own, program
from scripts.processes import GRACE_S, boot, born, end, process_of

HEALTHY_S = 300  # half a minute on a machine with nothing else to do

_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy reaches this machine's loopback


@dataclass
class Topology:
    """The services of the compose file, and the processes that run them."""

    place: Place
    more: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = print
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)  # those of this process; they outlive it

    # -- up ------------------------------------------------------------------------------------------------------------

    def up(self) -> str:
        """Start everything, wait until it is healthy, and return Airflow's address; nothing happens if it is there.

        raises : TopologyError, PostgresMissingError; what was started is ended before
        """
        with self._alone():
            return self._up()

    def _up(self) -> str:
        found = self._found()
        if found["processes"]:
            dead = [each["name"] for each in found["processes"] if process_of(each) is None]
            if found["is_ready"] and not dead:
                return str(found["url"])
            self.say(f"▸ {', '.join(dead) or 'some of it'} ended; starting all of it again")
            self._down()
        self._compose = Compose(self.place, self.more)
        self._processes: list[dict[str, Any]] = []
        for folder in ("logs", "airflow/auth", "warehouse", "spark"):
            (self.place.home / folder).mkdir(parents=True, exist_ok=True)
        try:
            self._start_postgres()
            self._run_once("airflow-init")
            started: list[str] = []
            for group in (("spark-master", "airflow-api-server"), ("spark-worker", "spark-connect"), None):
                names = group or [name for name in self._compose.services if name.startswith(("airflow-", "spark-"))]
                new = [name for name in names if name not in {"airflow-init", *started}]
                for name in new:
                    self._start(
                        name, self._compose.command(name), env=self._compose.environment(name), cwd=self.place.home
                    )
                for name in new:
                    self._wait(name, lambda name=name: self._is_healthy(name))
                started += new
        except BaseException:
            self._down()
            raise
        self._write_environment()
        self._remember(is_ready=True)
        return self.url

    def _write_environment(self) -> None:
        """Write what a shell needs for `amv` and `airflow` to find this installation; it holds secrets."""
        scheduler = self._compose.environment("airflow-scheduler")
        known = {
            name: value for name, value in scheduler.items() if name.startswith(("AIRFLOW", "PATH", "SPARK_CONNECT"))
        }
        known["AMV_DATABASE_URL"] = known["AIRFLOW__MV__SQL_ALCHEMY_CONN"]
        known["AMV_WAREHOUSE"] = known["AIRFLOW__MV__WAREHOUSE"]
        if remote := known.get("AIRFLOW__MV__SPARK_REMOTE"):
            known["AMV_SPARK_REMOTE"] = remote
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in sorted(known.items()))
        file = self.place.environment
        file.touch(mode=0o600)
        file.write_text("".join(lines), encoding="utf-8")

    @property
    def url(self) -> str:
        """Airflow's address, once it is up."""
        return self._compose.url

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a service."""
        return self._compose.environment(name)

    def _start_postgres(self) -> None:
        """Make a cluster of databases that asks for the password, once, and start it."""
        place, environment = self.place.postgres, self._compose.services["postgres"]["environment"]
        user, password = environment["POSTGRES_USER"], self._compose.here("${POSTGRES_PASSWORD:?}")
        data, partial = place / "data", place / "data.partial"
        if not data.exists():
            shutil.rmtree(partial, ignore_errors=True)  # of one that was interrupted
            place.mkdir(parents=True, mode=0o700, exist_ok=True)
            (secret := place / "password").write_text(password, encoding="utf-8")
            for each in (place, secret):
                own(each)
            options = ["--username", user, "--pwfile", str(secret), "--auth", "scram-sha-256", "-E", "UTF8"]
            made = [program("initdb"), "--pgdata", str(partial), *options]
            quietly = {"capture_output": True, "text": True}
            done = subprocess.run(made, check=False, **as_account(), **quietly)  # nosec B603  # our own words alone
            secret.unlink()
            if done.returncode:
                raise TopologyError(f"PostgreSQL's initdb failed: {done.stderr.strip()}")
            partial.rename(data)
        port = self._compose.ports[5432]
        # No socket in the file system: its path may be too long for one.
        options = [
            "-D",
            str(data),
            "-p",
            str(port),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ]
        self._start("postgres", [program("postgres"), *options], **as_account())
        address = f"host=127.0.0.1 port={port} user={user} password={password}"

        def answers() -> bool:
            try:
                with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as db:
                    script = (ROOT / "docker" / "postgres-init.sql").read_text(encoding="utf-8")
                    there = {name for (name,) in db.execute("SELECT datname FROM pg_database")}
                    for name in {environment["POSTGRES_DB"], *re.findall(r"^CREATE DATABASE (\w+);$", script, re.M)}:
                        if name not in there:
                            db.execute(f'CREATE DATABASE "{name}"'.encode())
            except psycopg.OperationalError as error:
                if "password authentication failed" in str(error):
                    problem = f"{self.place.env_file} has another password than the databases were created with"
                    raise TopologyError(f"{problem}: restore it, or run `make down VOLUMES=1`.") from error
                return False
            return True

        self._wait("postgres", answers)
        self._fill_shop(["-h", "127.0.0.1", "-p", str(port), "-U", user], password)

    def _fill_shop(self, server: list[str], password: str) -> None:
        """Create what the example DAG `shop` reads, as PostgreSQL's image does with the same file."""
        as_psql = as_account()
        secrets = {"PGPASSWORD": password, "SHOP_READER_PASSWORD": self._compose.here("${SHOP_READER_PASSWORD:?}")}
        as_psql["env"] = as_psql["env"] | secrets
        done = subprocess.run(  # nosec B603  # our own words alone
            [program("psql"), "--no-psqlrc", "--quiet", *server, "-d", "postgres"],
            input=(ROOT / "docker" / "postgres-shop.sql").read_text(encoding="utf-8"),
            check=False,
            capture_output=True,
            text=True,
            **as_psql,
        )
        if done.returncode:
            raise TopologyError(f"the database `shop` could not be filled: {done.stderr.strip()[-300:]}")

    def _run_once(self, name: str) -> None:
        with self.place.log(name).open("ab") as log:
            done = subprocess.run(  # nosec B603  # the compose file's own command
                self._compose.command(name),
                env=self._compose.environment(name),
                cwd=self.place.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            raise TopologyError(f"{name} failed: {self._last_words(name)}")
        self.say(f"▸ {name}")

    def _start(self, name: str, command: list[str], **how: Any) -> None:
        with self.place.log(name).open("ab") as log:
            process = subprocess.Popen(  # nosec B603  # the compose file's own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **how,
            )
        self._children.append(process)
        self._processes.append({"name": name, "pid": process.pid, "born": born(process.pid)})
        self._remember()

    def _wait(self, name: str, is_healthy: Callable[[], bool]) -> None:
        until = time.monotonic() + HEALTHY_S
        [entry] = [each for each in self._processes if each["name"] == name]
        while not is_healthy():
            if process_of(entry) is None:
                raise TopologyError(f"{name} ended: {self._last_words(name)}")
            if time.monotonic() > until:
                raise TopologyError(f"{name} is not healthy after {HEALTHY_S} s: {self._last_words(name)}")
            time.sleep(0.3)
        self.say(f"▸ {name}")

    def _is_healthy(self, name: str) -> bool:
        """Ask what the compose file's health checks ask: Airflow's heartbeats, and Spark's master for its workers."""
        if name == "spark-connect":
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self._compose.ports[15002]), 1).close()
                return True
            return False
        if name.startswith("spark-"):
            cluster = _json(f"{self._compose.spark_page}/json/")
            return cluster is not None and (name == "spark-master" or cluster["aliveworkers"] > 0)
        health = _json(f"{self.url}/api/v2/monitor/health")
        if health is None or name == "airflow-api-server":
            return health is not None
        return bool(health[name.removeprefix("airflow-").replace("-", "_")]["status"] == "healthy")

    def _last_words(self, name: str) -> str:
        log = self.place.log(name)
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
        return f"{lines[-1] if lines else 'it printed nothing'} (whole output: {log})"

    # -- down ----------------------------------------------------------------------------------------------------------

    def down(self, *, volumes: bool = False) -> int:
        """End what runs, PostgreSQL last, with all that it started; return how many services ran.

        volumes : remove tables, databases and logs, too
        """
        with self._alone():
            num_running = self._down()
        if volumes:
            for folder in (self.place.home, self.place.postgres):
                shutil.rmtree(folder, ignore_errors=True)
        return num_running

    def _down(self) -> int:
        found = self._found()["processes"]
        postgres = [each for each in found if each["name"] == "postgres"]
        num_running = end([each for each in found if each not in postgres], signal.SIGTERM)
        num_running += end(postgres, signal.SIGINT)
        for child in self._children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
        self._children.clear()
        self.place.state.unlink(missing_ok=True)
        self.place.environment.unlink(missing_ok=True)
        return num_running

    # -- what is remembered --------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one `up` or `down` of this place work at a time."""
        self.place.home.mkdir(parents=True, exist_ok=True)
        with (self.place.home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _remember(self, *, is_ready: bool = False) -> None:
        state = {"url": self.url, "is_ready": is_ready, "boot": boot(), "processes": self._processes}
        partial = self.place.state.with_suffix(".partial")
        partial.write_text(json.dumps(state, indent=2), encoding="utf-8")
        partial.replace(self.place.state)

    def _found(self) -> dict[str, Any]:
        try:
            found = dict(json.loads(self.place.state.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {"processes": [], "is_ready": False}
        if found.get("boot") != boot():  # the machine was started again: these pids are others' now
            found |= {"processes": [], "is_ready": False}
        return found


def _json(url: str) -> dict[str, Any] | None:
    try:
        with _DIRECTLY.open(url, timeout=5) as answer:
            return dict(json.load(answer))
    except (OSError, ValueError):
        return None


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start everything")
    commands.add_parser("shell", help="open a shell in which `amv` and `airflow` work on it")
    ends = commands.add_parser("down", help="end everything")
    ends.add_argument("--volumes", action="store_true", help="remove tables and databases, too")
    arguments = parser.parse_args()
    topology = Topology(Place())
    if arguments.command == "shell":
        file = topology.place.environment
        if not file.exists():
            raise SystemExit("✗ Nothing is up: `make up` first.")
        bash = shutil.which("bash") or "/bin/bash"
        os.execv(bash, ["bash", "--rcfile", str(file), "-i"])  # nosec B606  # the user's own shell
    if arguments.command == "down":
        try:
            ended = topology.down(volumes=arguments.volumes)
        except PostgresMissingError as error:
            raise SystemExit(f"✗ {error}") from None
        kept = "" if arguments.volumes else " Tables and databases stay; `make down VOLUMES=1` removes them."
        print(f"{ended} services ended.{kept}")
        return
    files = topology.place.warehouse / "raw" / "flights"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    if not files.exists():
        shutil.rmtree(partial := files.with_name("flights.partial"), ignore_errors=True)
        write_months(shipped_flights(), partial)
        partial.rename(files)
    print("Starting PostgreSQL, Airflow and Spark; the first time it takes about a minute.")
    try:
        url = topology.up()
    except (TopologyError, PostgresMissingError) as error:
        raise SystemExit(f"✗ {error}") from None
    password = read_env(topology.place.env_file)["AIRFLOW_ADMIN_PASSWORD"]
    print(f"""
Airflow is up:  {url}
  user          admin
  password      {password}
  tables        {url}/plugin/refreshable-tables

A year of flights lies in .up/warehouse/raw/flights. Trigger the DAG `flights` (it is paused at first: leave "unpause"
ticked), and watch its table on the page. Change a file and trigger it again; kill what you like. The DAG `shop` does
the same with a table of the PostgreSQL database `shop`.
A new file in dags/ is there after some 15 s. `make shell` opens a shell in which `amv` and `airflow` work on this
installation; logs are in .up/logs. `make down` ends it all.""")


if __name__ == "__main__":
    main()

"""Refresh for hours while processes are killed at random and the source keeps changing; nothing may ever be wrong.

    make soak                                        100 refreshes
    make soak N=500 RECORD=tests/records/soak.json   and write down how it went

Every refresh is a real process, a client of a Spark Connect server, with its state in a real PostgreSQL. A round
changes a source, starts a refresh, and lets it be or lets something die: the process by SIGKILL, at a random moment or
at a durable write; the server; PostgreSQL. Whoever comes next (`amv recover`, or just the next refresh) has to mend it,
then everything is looked at. At the first violation it says what it found, and exits with code 1. A seed draws a run
again, up to what a moment hits. Told to end (SIGTERM), it finishes its round and says what it has found so far.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from sqlalchemy import func, select

from airflow_mv_provider.core.fence import app_id, parse_note
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.definition_file import parse
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from tests import record
from tests.conftest import read_independently
from tests.connect import ConnectServer
from tests.postgres import PostgresServer, running_server
from tests.scenarios.owners import be_amv, context
from tests.scenarios.points import POINTS

TABLES = """
tables:
  - name: atomic
    source: {type: delta, path: raw/atomic}
    key: [id]
    partition_by: [p]
    chunk_rows: 40
    guards: {max_deleted_fraction: 1.0}
  - name: progressive
    source: {type: delta, path: raw/progressive}
    key: [id, p]
    partition_by: [p]
    chunk_rows: 40
    publish: progressive
    guards: {max_deleted_fraction: 1.0}
"""
FAULTS = {"none": 45, "killed at a moment": 20, "killed at a write": 25, "server killed": 3, "PostgreSQL killed": 7}
# Rows that live only as long as a refresh; the others are history, a few a refresh.
PASSING = ("refresh_progress", "refresh_chunk", "refresh_ticket")
_LEASE_S = 2
_PATIENCE_S = 300


class ViolationError(AssertionError):
    """Something that may never be."""


@dataclass
class Summary:
    """What a soak has come to."""

    refreshes: int = 0
    processes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    changed_rows: int = 0
    metadata_rows: list[tuple[int, int]] = field(default_factory=list)  # refreshes and rows, now and then
    slowest_s: float = 0.0


class Soak:
    """One warehouse with two tables, one of them published progressively."""

    def __init__(self, directory: Path, server: ConnectServer, postgres: PostgresServer, seed: int) -> None:
        self.summary = Summary()
        self._root = directory
        self._warehouse = directory / "warehouse"
        self._server = server
        self._postgres = postgres
        self._random = random.Random(seed)
        self._url = postgres.new_database()
        self._engine = open_engine(self._url)
        self._store = Store(self._engine)
        self._rows: dict[str, dict[int, tuple[int, str]]] = {}
        self._next_id = 0
        self._is_to_stop = False
        self._usual_s = 5.0  # of a refresh that nothing happens to, so that moments fall into all of it
        migrations.migrate(self._engine)
        (directory / "tables.yaml").write_text(TABLES)
        for definition in parse(TABLES):
            self._rows[definition.name] = {}
            self._change(definition.name, 60)
        self._expect(0, "apply", str(directory / "tables.yaml"))

    def run(self, refreshes: int) -> None:
        """Go on until so many refreshes have published, or `stop` is called: to the end of its round, then."""
        while self.summary.refreshes < refreshes and not self._is_to_stop:
            self.round()
            if self.summary.refreshes >= 10 * len(self.summary.metadata_rows):
                self.summary.metadata_rows.append((self.summary.refreshes, sum(self._count().values())))
        self._check_growth()

    def stop(self) -> None:
        """End after this round, and tell what was found so far; called by a signal's handler."""
        self._is_to_stop = True

    def round(self) -> None:
        """Change a source, refresh it under some fault, and see that it is mended."""
        name = self._random.choice(list(self._rows))
        if self._random.random() > 0.1:
            self._change(name, self._random.randint(1, 8))
        fault = self._random.choices(list(FAULTS), list(FAULTS.values()))[0]
        self.summary.faults[fault] += 1
        begun = time.monotonic()
        code = self._refresh_under(fault, name)
        if code != 0:
            self._wait_for_the_lease(name)
            if self._random.random() < 0.5:
                self._expect(0, "recover")
                if self._store.state(self._store.table(name).id).phase is not Phase.NORMAL:
                    raise ViolationError(f"{name}: `amv recover` has left it unfinished after {fault}")
        self._expect(0, "refresh", name)
        self._expect(0, "recover")  # what a refresh that was reset has left
        self._check(name)
        self.summary.slowest_s = max(self.summary.slowest_s, round(time.monotonic() - begun, 1))

    # -- faults ------------------------------------------------------------------------------------------------------

    def _refresh_under(self, fault: str, name: str) -> int:
        variables = {}
        if fault == "killed at a write":
            variables["AMV_CRASH_AT"] = self._random.choice(POINTS[name])
        begun = time.monotonic()
        process = self._start("refresh", name, **variables)
        if fault not in ("none", "killed at a write"):
            process.join(self._random.uniform(0.05, 1.1) * self._usual_s)
        match fault:
            case "killed at a moment":
                process.kill()
            case "server killed":
                self._server.kill()
                self._server = self._server.again()  # at once: a client looks for its server for ten minutes
            case "PostgreSQL killed":
                self._postgres.kill()
                process.join(_PATIENCE_S)
                self._postgres.start()
        code = self._ended(process, f"refresh {name} under {fault}", {0, 75, -signal.SIGKILL})
        if fault == "none":
            self._usual_s = max(2.0, time.monotonic() - begun)  # one with nothing to do says little
        return code

    def _wait_for_the_lease(self, name: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while self._store.state(self._store.table(name).id).is_lease_live:
            if time.monotonic() > until:
                raise ViolationError(f"{name}: a dead owner's lease does not end")
            time.sleep(0.1)

    # -- processes ---------------------------------------------------------------------------------------------------

    def _expect(self, code: int, *arguments: str) -> None:
        process = self._start(*arguments)
        process.join(_PATIENCE_S)
        self._ended(process, " ".join(arguments), {code})

    def _start(self, *arguments: str, **variables: str) -> Any:
        surroundings = {"AMV_DATABASE_URL": self._url, "AMV_WAREHOUSE": str(self._warehouse)}
        surroundings |= {"AMV_SPARK_REMOTE": self._server.url, "AMV_LEASE_S": str(_LEASE_S)}
        self.summary.processes += 1
        process = context.Process(target=be_amv, args=(arguments, surroundings | variables, str(self._root / "said")))
        process.start()
        return process

    def _ended(self, process: Any, what: str, expected: set[int]) -> int:
        process.join(_PATIENCE_S)
        code = process.exitcode
        if code is None:
            process.kill()
        if code not in expected:
            raise ViolationError(f"{what} ended with {code}:\n{(self._root / 'said').read_text()[-3000:]}")
        return int(code)

    # -- the source --------------------------------------------------------------------------------------------------

    def _change(self, name: str, num_rows: int) -> None:
        rows = self._rows[name]
        for _ in range(num_rows):
            known = list(rows)
            match self._random.choice(["insert", "update", "delete", "move"]) if len(known) > 30 else "insert":
                case "insert":
                    rows[self._next_id] = (self._random.randrange(6), "new")
                    self._next_id += 1
                case "update":
                    one = self._random.choice(known)
                    rows[one] = (rows[one][0], f"v{self._random.randrange(10**9)}")
                case "delete":
                    del rows[self._random.choice(known)]
                case "move":
                    one = self._random.choice(known)
                    rows[one] = (self._random.randrange(6), rows[one][1])
        self.summary.changed_rows += num_rows
        columns = {
            "id": pa.array(list(rows), pa.int64()),
            "p": pa.array([p for p, _ in rows.values()], pa.int32()),
            "v": pa.array([v for _, v in rows.values()], pa.string()),
        }
        write_deltalake(str(self._warehouse / "raw" / name), pa.table(columns), mode="overwrite")

    # -- what must be true -------------------------------------------------------------------------------------------

    def _check(self, name: str) -> None:
        table = self._store.table(name)
        state = self._store.state(table.id)
        main = self._warehouse / name
        wanted = sorted(((each, p, v) for each, (p, v) in self._rows[name].items()), key=repr)
        self._hold(state.phase is Phase.NORMAL, f"{name} is in {state.phase}")
        self._hold(read_independently(main) == wanted, f"{name} is not what its source is")
        self._hold(not (left := self._left_in_staging()), f"staging holds {left[:3]}")
        actions = [json.loads(line) for file in _log_files(main) for line in file.read_text().splitlines()]
        applications = {action["txn"]["appId"] for action in actions if "txn" in action}
        self._hold(applications <= {app_id(table.uuid)}, f"main's log knows {applications}")
        noted = (
            parse_note(action["commitInfo"].get("userMetadata"), table.uuid)
            for action in actions
            if "commitInfo" in action
        )
        epochs = [note.epoch for note in noted if note]
        self._hold(epochs == sorted(epochs), "a commit of an older epoch follows a later one's")
        counted = self._count()
        self._hold(not any(counted[each] for each in PASSING), f"rows are left of refreshes that have ended: {counted}")
        history = self._store.history(table.id, 100_000)
        self._hold(all(report.finished_at for report in history), "a refresh that is over has not ended")
        every = [report for each in self._store.tables() for report in self._store.history(each.id, 100_000)]
        self.summary.outcomes = Counter(str(report.outcome) for report in every)
        self.summary.refreshes = self.summary.outcomes["published"]

    def _check_growth(self) -> None:
        """The rows that a finished refresh leaves do not become more as time goes on."""
        points = self.summary.metadata_rows
        if len(points) < 5:
            return
        (first, few), (middle, some), (last, many) = points[0], points[len(points) // 2], points[-1]
        early, late = (some - few) / (middle - first), (many - some) / (last - middle)
        self._hold(late <= 1.5 * early, f"a refresh left {early:.1f} rows at first, and {late:.1f} later")

    def _hold(self, claim: bool, otherwise: str) -> None:
        if not claim:
            raise ViolationError(f"after {self.summary.refreshes} refreshes ({dict(self.summary.faults)}): {otherwise}")

    def _left_in_staging(self) -> list[str]:
        states = [self._store.state(table.id) for table in self._store.tables()]
        kept = [Path(state.published_digests.path) for state in states if state.published_digests]
        area = self._warehouse / "_mv"
        files = (file for file in area.rglob("*") if file.is_file() and not any(each in file.parents for each in kept))
        return sorted(str(file.relative_to(area)) for file in files)

    def _count(self) -> dict[str, int]:
        with self._engine.connect() as db:
            tables = Base.metadata.sorted_tables
            return {each.name: db.scalar(select(func.count()).select_from(each)) or 0 for each in tables}

    def close(self) -> None:
        self._engine.dispose()
        self._server.kill()


def _log_files(main: Path) -> list[Path]:
    """Main's newest commits; the older ones were looked at when they were new."""
    return sorted((main / "_delta_log").glob("*.json"))[-60:]


@contextlib.contextmanager
def soaking(directory: Path, server: ConnectServer, postgres: PostgresServer, seed: int) -> Iterator[Soak]:
    soak = Soak(directory, server, postgres, seed)
    try:
        yield soak
    finally:
        soak.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refreshes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--record", type=Path, help="write the summary to this file, as JSON")
    asked = parser.parse_args()
    begun, directory = time.monotonic(), Path(tempfile.mkdtemp(prefix="mv-soak-"))
    print(f"{asked.refreshes} refreshes, seed {asked.seed}, in {directory}")
    violation = ""
    with running_server() as postgres:
        server = ConnectServer(directory, **{"spark.connect.session.manager.defaultSessionTimeout": "120s"})
        server.wait()
        with soaking(directory, server, postgres, asked.seed) as soak:
            signal.signal(signal.SIGTERM, lambda *_: soak.stop())
            try:
                soak.run(asked.refreshes)
            except ViolationError as error:
                violation = str(error)
    found = {
        "begun": datetime.fromtimestamp(time.time() - (time.monotonic() - begun), UTC).isoformat(timespec="seconds"),
        "minutes": round((time.monotonic() - begun) / 60, 1),
        **record.surroundings(),
        "seed": asked.seed,
        "violation": violation or None,
        **vars(soak.summary),
    }
    print(json.dumps({name: value for name, value in found.items() if name != "metadata_rows"}, indent=2))
    if asked.record:
        asked.record.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if violation:
        print(f"VIOLATION {violation}\nWhat is left lies in {directory}.", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    return 0

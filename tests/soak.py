"""Refresh for hours while something befalls the refreshes and their sources change; nothing may ever be wrong.

    make soak                                        100 refreshes
    make soak N=500 RECORD=tests/records/soak.json   and write down how it went

Every refresh is a real process, a client of a Spark Connect server, with its state in a real PostgreSQL. A round
changes a source, starts a refresh, and lets it be or lets one of `tests/faults.py` befall it. Whoever comes next
(`amv recover`, or just the next refresh) has to mend it, then everything is looked at. At the first violation it says
what it found, and exits with code 1. A seed draws a run again, up to what a moment hits. Told to end (SIGTERM), it
finishes its round and says what it has found so far.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from pyarrow import csv
from pyspark.errors import PySparkException
from sqlalchemy import func, select

from airflow_mv_provider.core.fence import app_id, parse_note
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.definition_file import parse
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.spark.session import connect_session
from tests import faults, record
from tests.conftest import read_independently
from tests.connect import ConnectServer
from tests.engine.versioned import Log, Place, rows_at, versions, writes
from tests.postgres import PostgresServer, running_server
from tests.scenarios.owners import be_amv, context
from tests.scenarios.points import POINTS, points_of

TABLES = """
tables:
  - name: atomic
    source: {type: delta, path: raw/atomic}
    key: [id]
    partition_by: [p]
    chunk_rows: 40
    history: {deletes: mark}
    guards: {max_deleted_fraction: 1.0}
  - name: progressive
    source: {type: delta, path: raw/progressive}
    key: [id, p]
    partition_by: [p]
    chunk_rows: 40
    publish: progressive
    history: true
    guards: {max_deleted_fraction: 1.0}
  - name: folder
    source:
      type: files
      path: raw/folder/*.csv
      format: csv
      schema: "id BIGINT, p INT, v STRING"
      options: {header: "true"}
    key: [id]
    chunk_rows: 40
    guards: {max_deleted_fraction: 1.0}
"""
# Rows that live only as long as a refresh; the others are history, a few a refresh.
PASSING = ("refresh_progress", "refresh_chunk", "refresh_ticket")
MARKERS = ("_SUCCESS", "._SUCCESS.crc")
LEASE_S = 10
PATIENCE_S = 300


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
    slowest: dict[str, Any] = field(default_factory=dict)


class Soak:
    """One warehouse with three tables: of a Delta source, atomic and progressive, and of a folder of files.

    logs : what the histories have to hold, by the table
    """

    definitions: ClassVar[str] = TABLES
    every_fault: ClassVar[Mapping[str, faults.Weighted]] = faults.FAULTS

    def __init__(
        self, directory: Path, server: ConnectServer, postgres: PostgresServer, seed: int, only: Sequence[str] = ()
    ) -> None:
        self._faults = {name: each for name, each in self.every_fault.items() if name in only or not only}
        self.summary = Summary()
        self.root = directory
        self.warehouse = directory / "warehouse"
        self.server = server
        self.postgres = postgres
        self.random = random.Random(seed)
        self.surroundings: dict[str, str] = {}  # more of the environment of each process
        self.usual_s = 5.0  # of a refresh that nothing happens to, so that moments fall into all of it
        self.forgotten: set[str] = set()  # refreshes that only a database knew that was put back or left
        self._rows: dict[str, dict[int, tuple[int, str]]] = {}
        self._next_id = 0
        self._is_to_stop = False
        self.open(postgres.new_database())
        migrations.migrate(self.engine)
        (directory / "tables.yaml").write_text(self.definitions)
        defined = parse(self.definitions)
        self.names = [definition.name for definition in defined]
        self.logs = {each.name: Log(each.history.deletes, each.key) for each in defined if each.history}
        for name in self.names:
            self._rows[name] = {}
            self.change(name, 60)
        self.expect(0, "apply", str(directory / "tables.yaml"))

    def open(self, url: str) -> None:
        """Go on with the metadata database at this address."""
        self.url = url
        self.engine = open_engine(url)
        self.store = Store(self.engine)

    def run(self, refreshes: int) -> None:
        """Go on until so many refreshes have published, or `stop` is called: to the end of its round, then."""
        while self.summary.refreshes < refreshes and not self._is_to_stop:
            self.round()
            if self.summary.refreshes >= 10 * len(self.summary.metadata_rows):
                counted = self._count()
                self.summary.metadata_rows.append((counted["refresh"], sum(counted.values())))
        self._check_growth()

    def stop(self) -> None:
        """End after this round, and tell what was found so far; called by a signal's handler."""
        self._is_to_stop = True

    def round(self) -> None:
        """Change a source, refresh it under some fault, and see that it is mended."""
        name = self.random.choice(self.names)
        if self.random.random() > 0.1:
            self.change(name, self.random.randint(1, 8))
        fault = self.random.choices(list(self._faults), [weight for weight, _ in self._faults.values()])[0]
        self.summary.faults[fault] += 1
        begun = time.monotonic()
        if not self._faults[fault][1](self, name):
            self.wait_for_the_lease(name)
            if self.random.random() < 0.5:
                self.expect(0, "recover")
                for each in self.together(name):
                    if self.store.state(self.store.table(each).id).phase is not Phase.NORMAL:
                        raise ViolationError(f"{each}: `amv recover` has left it unfinished after {fault}")
        self.settle()
        self.expect(0, *self.last_command(name))
        self.expect(0, "recover")  # what a refresh that was reset has left
        for each in self.together(name):
            self._check(each)
        self.summary.refreshes += 1
        took = {"seconds": round(time.monotonic() - begun, 1), "fault": fault}
        self.summary.slowest = max(self.summary.slowest, took, key=lambda each: each.get("seconds", 0))

    def together(self, name: str) -> tuple[str, ...]:
        """Return the tables that a process of `command` may have at once, this one among them."""
        return (name,)

    def command(self, name: str) -> tuple[str, ...]:
        """Return the command of `amv` that a fault befalls."""
        return ("refresh", name)

    def last_command(self, name: str) -> tuple[str, ...]:
        """Return the command of `amv` after which the tables equal their sources."""
        return ("refresh", name)

    def points(self, name: str) -> list[str]:
        """Return the points at which a process of `command` may die."""
        of_history = points_of("history") if name in self.logs else []
        return POINTS["progressive" if name == "progressive" else "atomic"] + of_history

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Take what is inside for as long as a refresh usually takes; one with nothing to do says little."""
        begun = time.monotonic()
        yield
        self.usual_s = max(2.0, time.monotonic() - begun)

    def spark_sql(self, text: str) -> None:
        """Run SQL as another user of the server; what the server says of it is nobody's violation."""
        session = connect_session(self.server.url)
        with contextlib.suppress(PySparkException):
            session.sql(text).collect()

    def fail(self, problem: str) -> None:
        """End the soak: something was found that may not be."""
        raise ViolationError(problem)

    def wait_for_the_lease(self, name: str) -> None:
        """Wait until nobody can be at work on a table any more, or on what is refreshed together with it."""
        until = time.monotonic() + PATIENCE_S
        while any(self.store.state(self.store.table(each).id).is_lease_live for each in self.together(name)):
            if time.monotonic() > until:
                raise ViolationError(f"{name}: a dead owner's lease does not end")
            time.sleep(0.1)

    # -- processes ---------------------------------------------------------------------------------------------------

    def expect(self, code: int, *arguments: str) -> None:
        """Run `amv` to its end, which has to be this one."""
        process = self.start(*arguments)
        self.ended(process, " ".join(arguments), {code})

    def start(self, *arguments: str, url: str | None = None, dies_at: str | None = None, **variables: str) -> Any:
        """Start `amv`, which kills itself at a durable write; url: another metadata database than the one in use."""
        surroundings = {"AMV_DATABASE_URL": url or self.url, "AMV_WAREHOUSE": str(self.warehouse)}
        surroundings |= {"AMV_SPARK_REMOTE": self.server.url, "AMV_LEASE_S": str(LEASE_S)} | self.surroundings
        surroundings |= {"AMV_DEBUG": "1"}  # what nobody expects shows where it happened
        self.summary.processes += 1
        said = str(self.root / f"said-{self.summary.processes % 20}")
        process = context.Process(target=be_amv, args=(arguments, surroundings | variables, said, dies_at), name=said)
        process.start()
        return process

    def ended(self, process: Any, what: str, expected: set[int]) -> int:
        """Wait for the end of a process; return its exit code, which has to be among those expected."""
        process.join(PATIENCE_S)
        code = process.exitcode
        if code is None:
            process.kill()
        if code not in expected:
            raise ViolationError(f"{what} ended with {code}:\n{Path(process.name).read_text()[-3000:]}")
        return int(code)

    # -- the source --------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let a source be complete, before the refresh after which its table has to equal it."""

    def change(self, name: str, num_rows: int) -> None:
        rows = self._rows[name]
        for _ in range(num_rows):
            known = list(rows)
            match self.random.choice(["insert", "update", "delete", "move"]) if len(known) > 30 else "insert":
                case "insert":
                    rows[self._next_id] = (self.random.randrange(6), "new")
                    self._next_id += 1
                case "update":
                    one = self.random.choice(known)
                    rows[one] = (rows[one][0], f"v{self.random.randrange(10**9)}")
                case "delete":
                    del rows[self.random.choice(known)]
                case "move":
                    one = self.random.choice(known)
                    rows[one] = (self.random.randrange(6), rows[one][1])
        self.summary.changed_rows += num_rows
        columns = {
            "id": pa.array(list(rows), pa.int64()),
            "p": pa.array([p for p, _ in rows.values()], pa.int32()),
            "v": pa.array([v for _, v in rows.values()], pa.string()),
        }
        if name == "folder":
            self._write_files(pa.table(columns))
        else:
            write_deltalake(str(self.warehouse / "raw" / name), pa.table(columns), mode="overwrite")

    def _write_files(self, rows: pa.Table) -> None:
        """One file a partition; those whose rows are the same stay as they are."""
        folder = self.warehouse / "raw/folder"
        folder.mkdir(parents=True, exist_ok=True)
        for partition in range(6):
            sink = pa.BufferOutputStream()
            csv.write_csv(rows.filter(pc.equal(rows["p"], partition)), sink)
            file, content = folder / f"{partition}.csv", sink.getvalue().to_pybytes()
            if not file.exists() or file.read_bytes() != content:
                (folder / "new").write_bytes(content)
                (folder / "new").replace(file)

    # -- what must be true -------------------------------------------------------------------------------------------

    def _check(self, name: str) -> None:
        table = self.store.table(name)
        state = self.store.state(table.id)
        main = self.warehouse / name
        self._hold(state.phase is Phase.NORMAL, f"{name} is in {state.phase}")
        self._hold(Counter(read_independently(main)) == Counter(self.wanted(name)), f"{name} is not what its source is")
        if name in self.logs:
            self._hold(self._is_history_right(name), f"{name}__history is not what main's versions are")
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
        history = self.store.history(table.id, 100_000)
        self._hold(all(report.finished_at for report in history), "a refresh that is over has not ended")
        self.summary.outcomes[str(history[0].outcome)] += 1

    def _is_history_right(self, name: str) -> bool:
        """True if a history holds what main was at each version that it has reached."""
        log, history = self.logs[name], Place(self.warehouse)
        for note in writes(history, f"{name}__history")[log.number :]:
            log.publish(rows_at(self.warehouse / name, note["reached"]))
        return versions(history, f"{name}__history") == log.all

    def wanted(self, name: str) -> list[tuple[Any, ...]]:
        """Return the rows of a source as `read_independently` would return them of main."""
        return sorted(((each, p, v) for each, (p, v) in self._rows[name].items()), key=repr)

    def _check_growth(self) -> None:
        """The rows that a finished refresh leaves do not become more as time goes on."""
        points = self.summary.metadata_rows
        if len(points) >= 5:
            early, late = (rows / refreshes for refreshes, rows in (points[1], points[-1]))
            self._hold(late <= 1.5 * early, f"a refresh left {early:.1f} rows at first, and {late:.1f} later")

    def _hold(self, claim: bool, otherwise: str) -> None:
        if not claim:
            raise ViolationError(f"after {self.summary.refreshes} refreshes ({dict(self.summary.faults)}): {otherwise}")

    def _left_in_staging(self) -> list[str]:
        """Return the files of refreshes that have ended, less what only a database knew that is not used any more.

        A job that outlives its client on a Connect server may put its marker, or the checksum of one, into a folder
        that is being removed: hidden files, which no client of the server can list. Those alone are left out.
        """
        published = {table.uuid: self.store.state(table.id).published_totals for table in self.store.tables()}
        kept = [
            Path(Workspace(str(self.warehouse), uuid, each.refresh_id).kept(each.name))
            for uuid, found in published.items()
            if found
            for each in found.kept
        ]
        area = self.warehouse / "_mv"
        visible = (file for file in area.rglob("*") if file.is_file() and file.name not in MARKERS)
        files = (file for file in visible if not any(each in file.parents for each in kept))
        return sorted(
            str(file.relative_to(area)) for file in files if not self.forgotten & set(file.relative_to(area).parts)
        )

    def _count(self) -> dict[str, int]:
        with self.engine.connect() as db:
            tables = Base.metadata.sorted_tables
            return {each.name: db.scalar(select(func.count()).select_from(each)) or 0 for each in tables}

    def close(self) -> None:
        self.engine.dispose()
        self.server.kill()


def _log_files(main: Path) -> list[Path]:
    """Main's newest commits; the older ones were looked at when they were new."""
    return sorted((main / "_delta_log").glob("*.json"))[-60:]


@contextmanager
def soaking(
    directory: Path, server: ConnectServer, postgres: PostgresServer, seed: int, only: Sequence[str] = ()
) -> Iterator[Soak]:
    soak = Soak(directory, server, postgres, seed, only)
    try:
        yield soak
    finally:
        soak.close()


def main() -> int:
    return soak_and_tell(soaking, Soak, __doc__)


def soak_and_tell(
    soaking: Callable[..., AbstractContextManager[Soak]], kind: type[Soak], text: str | None, jars: Sequence[str] = ()
) -> int:
    """Read the command line, soak, and print or record what it has come to; return the exit code."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refreshes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--fault", action="append", default=[], choices=list(kind.every_fault), help="only this one")
    parser.add_argument("--record", type=Path, help="write the summary to this file, as JSON")
    asked = parser.parse_args()
    begun, directory = time.monotonic(), Path(tempfile.mkdtemp(prefix="mv-soak-"))
    print(f"{asked.refreshes} refreshes, seed {asked.seed}, in {directory}")
    violation = ""
    with running_server() as postgres:
        session_ends = {"spark.connect.session.manager.defaultSessionTimeout": "120s"}
        server = ConnectServer(directory, jars=jars, **session_ends)
        server.wait()
        with soaking(directory, server, postgres, asked.seed, asked.fault) as soak:
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

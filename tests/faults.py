"""What befalls a refresh in a soak (`tests/soak.py`): one function each, drawn by weight.

A fault starts a refresh of one table, does what its name says, and waits for the end of every process that it started.
It returns True where the refresh ended by itself, so that nothing is left that a lease would have to run out for.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil
from sqlalchemy import make_url, select, update

from airflow_mv_provider.metadata.models import RefreshRow, RefreshStateRow
from scripts.postgres_programs import as_account, program
from tests.conftest import read_independently
from tests.full_disk import full_disk

if TYPE_CHECKING:
    from tests.soak import Soak

DONE, PERSON, RETRY = 0, 1, 75
ENDED = {DONE, RETRY}
_KILLED = ENDED | {-signal.SIGKILL}
_JVM_START_S = 8
_DAY_MS = 86_400_000
Weighted = tuple[int, "Callable[[Any, str], bool]"]
"""A fault, and how often it is drawn."""
_OTHER_KEYS = {"atomic": "[id, p]", "progressive": "[p, id]", "folder": "[id, p]"}


def nothing(soak: Soak, name: str) -> bool:
    """Nothing happens."""
    with soak.timed():
        return soak.ended(soak.start(*soak.command(name)), f"refresh {name}", ENDED) == DONE


def killed_at_a_moment(soak: Soak, name: str) -> bool:
    """The process is killed at a random moment."""
    with at_a_moment(soak, name, _KILLED) as process:
        process.kill()
    return bool(process.exitcode == DONE)


def killed_at_a_write(soak: Soak, name: str) -> bool:
    """The process is killed just before or after a durable write."""
    process = soak.start(*soak.command(name), dies_at=soak.random.choice(soak.points(name)))
    return soak.ended(process, f"refresh {name} that dies at a write", _KILLED) == DONE


def server_killed(soak: Soak, name: str) -> bool:
    """The Spark Connect server dies and is started again at once: a client looks for its server for ten minutes."""
    with at_a_moment(soak, name, ENDED) as process:
        soak.server.kill()
        soak.server = soak.server.again()
    return bool(process.exitcode == DONE)


def postgres_killed(soak: Soak, name: str) -> bool:
    """PostgreSQL dies, and comes back once the refresh has ended."""
    with at_a_moment(soak, name, ENDED) as process:
        soak.postgres.kill()
        process.join(300)
    soak.postgres.start()
    return bool(process.exitcode == DONE)


def stopped_and_overtaken(soak: Soak, name: str) -> bool:
    """The process stands still until it is taken over, and goes on then."""
    with at_a_moment(soak, name, ENDED) as process:
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGSTOP)
            soak.wait_for_the_lease(name)
            soak.expect(DONE, "recover")
            os.kill(process.pid, signal.SIGCONT)
    return bool(process.exitcode == DONE)


def cancelled(soak: Soak, name: str) -> bool:
    """Somebody cancels it, in whichever phase it is."""
    with at_a_moment(soak, name, ENDED | {PERSON}):
        soak.expect(DONE, "cancel", name)
    return True


def interrupted(soak: Soak, name: str) -> bool:
    """Ctrl-C, in whichever phase it is; once or twice."""
    with at_a_moment(soak, name, ENDED | {-signal.SIGINT, 130}) as process:
        for _ in range(soak.random.choice((1, 2))):
            if process.exitcode is None:
                os.kill(process.pid, signal.SIGINT)
    return bool(process.exitcode == DONE)


def clock_set_back(soak: Soak, name: str) -> bool:
    """Its process is killed, and what it wrote is of a clock that was a day ahead."""
    ended = killed_at_a_moment(soak, name)
    state = RefreshStateRow
    ahead = {"lease_expires_ms": state.lease_expires_ms + _DAY_MS, "owned_since_ms": state.owned_since_ms + _DAY_MS}
    with soak.engine.begin() as db:
        db.execute(update(state).where(state.refresh_id.is_not(None)).values(**ahead))
    return ended


def main_restored(soak: Soak, name: str) -> bool:
    """Somebody restores main to an older version beside a refresh."""
    versions = [int(f.stem) for f in (soak.warehouse / name / "_delta_log").glob("*.json") if f.stem.isdigit()]
    with at_a_moment(soak, name, ENDED) as process:
        if versions:
            older = soak.random.choice(sorted(versions)[-8:])
            soak.spark_sql(f"RESTORE TABLE delta.`{soak.warehouse / name}` TO VERSION AS OF {older}")
    return bool(process.exitcode == DONE)


def database_restored(soak: Soak, name: str) -> bool:
    """PostgreSQL is dumped while a refresh runs, which goes on with some others; then the dump is put back."""
    with at_a_moment(soak, name, ENDED):
        dump = _dumped(soak)
    for _ in range(soak.random.randint(0, 2)):
        soak.change(name, 3)
        soak.expect(DONE, "refresh", name)
    known = _known(soak)
    url = _restored(soak, dump)
    soak.engine.dispose()
    soak.open(url)
    soak.forgotten |= known - _known(soak)
    return False


def two_databases(soak: Soak, name: str) -> bool:
    """A copy of the database is used for a refresh, as if a second installation had been made from a backup."""
    url = _restored(soak, _dumped(soak))
    known = _known(soak)
    soak.ended(soak.start("refresh", name, url=url), f"refresh {name} in a second database", {DONE})
    soak.change(name, 3)
    ours = soak.ended(soak.start("refresh", name), f"refresh {name} in the first database", {DONE})
    soak.ended(soak.start("refresh", name, url=url), f"refresh {name} in the second database again", {DONE})
    first, there = soak.url, soak.engine
    soak.open(url)
    soak.forgotten |= _known(soak) - known
    soak.engine.dispose()
    there.dispose()
    soak.open(first)
    return ours == DONE


def warehouse_copied(soak: Soak, name: str) -> bool:
    """Its process is killed; then warehouse and database are copied, and the copy goes on in a place of its own."""
    ended = killed_at_a_write(soak, name)
    soak.wait_for_the_lease(name)
    place = soak.root / "copy"
    shutil.copytree(soak.warehouse, place)
    url = _restored(soak, _dumped(soak))
    has_main, there = (place / name / "_delta_log").exists(), {"AMV_WAREHOUSE": str(place)}
    # Both places hold a table of this identity: only a person knows which one is the copy.
    refused = soak.start("relocate", name, url=url, **there)
    soak.ended(refused, f"relocate {name} to a copy", {PERSON} if has_main else {DONE})
    for arguments in (("relocate", name, "--old-is-gone"), ("refresh", name)):
        soak.ended(soak.start(*arguments, url=url, **there), f"{arguments[0]} {name} in a copy", {DONE})
    if read_independently(place / name) != soak.wanted(name):
        soak.fail(f"the copy of {name} is not what its source is")
    shutil.rmtree(place)
    return ended


def disk_full(soak: Soak, name: str) -> bool:
    """The server's disk is full from a moment on, and has room again once the refresh has ended."""
    with at_a_moment(soak, name, ENDED) as process, full_disk(soak.server.pid):
        process.join(300)
    return bool(process.exitcode == DONE)


def another_key_applied(soak: Soak, name: str) -> bool:
    """Beside a refresh somebody applies a definition with another key, and puts the first one back later."""
    file, first = soak.root / "tables.yaml", (soak.root / "tables.yaml").read_text()
    other = soak.root / "other.yaml"
    lines, inside = [], False
    for line in first.splitlines():
        inside = line.strip() == f"- name: {name}" if line.strip().startswith("- name:") else inside
        lines.append(f"    key: {_OTHER_KEYS[name]}" if inside and line.strip().startswith("key:") else line)
    other.write_text("\n".join(lines))
    with at_a_moment(soak, name, ENDED) as process:
        soak.expect(DONE, "apply", str(other))
    if soak.random.random() < 0.5:
        soak.expect(DONE, "refresh", name)
    soak.expect(DONE, "apply", str(file))
    return bool(process.exitcode == DONE)


def ten_at_once(soak: Soak, name: str) -> bool:
    """Ten processes want the same table at once; one of them gets it, or several one after the other."""
    processes = [soak.start("refresh", name) for _ in range(10)]
    codes = {soak.ended(process, f"one of ten refreshes of {name}", ENDED) for process in processes}
    if DONE not in codes:
        soak.fail(f"{name}: none of ten had an answer")
    return True


def jvm_killed(soak: Soak, name: str) -> bool:
    """Its JVM, which it has started itself, is killed under it."""
    with _embedded(soak, name, ENDED) as process:
        for child in _children(process):
            child.kill()
    return bool(process.exitcode == DONE)


def parent_of_a_jvm_killed(soak: Soak, name: str) -> bool:
    """It is killed, and the JVM that it has started lives on for as long as it likes."""
    with _embedded(soak, name, _KILLED) as process:
        process.kill()
    return bool(process.exitcode == DONE)


def killed_with_its_jvm(soak: Soak, name: str) -> bool:
    """It is killed together with the JVM that it has started."""
    with _embedded(soak, name, _KILLED) as process:
        children = _children(process)
        process.kill()
        for child in children:
            child.kill()
    return bool(process.exitcode == DONE)


FAULTS: dict[str, Weighted] = {
    "none": (30, nothing),
    "killed at a moment": (15, killed_at_a_moment),
    "killed at a write": (20, killed_at_a_write),
    "server killed": (2, server_killed),
    "PostgreSQL killed": (4, postgres_killed),
    "stopped and overtaken": (4, stopped_and_overtaken),
    "cancelled": (5, cancelled),
    "interrupted": (5, interrupted),
    "clock set back": (4, clock_set_back),
    "main restored": (5, main_restored),
    "database dumped and restored": (5, database_restored),
    "two databases in turns": (3, two_databases),
    "warehouse copied": (2, warehouse_copied),
    "disk full": (3, disk_full),
    "another key applied": (4, another_key_applied),
    "ten at once": (2, ten_at_once),
    "its JVM killed": (1, jvm_killed),
    "the parent of its JVM killed": (1, parent_of_a_jvm_killed),
    "killed with its JVM": (1, killed_with_its_jvm),
}


@contextmanager
def at_a_moment(soak: Soak, name: str, codes: set[int]) -> Iterator[Any]:
    """Start a refresh, and enter at a random moment of it; leave once it has ended, with one of these codes."""
    process = soak.start(*soak.command(name))
    process.join(soak.random.uniform(0.05, 1.1) * soak.usual_s)
    yield process
    soak.ended(process, f"refresh {name}", codes)


@contextmanager
def _embedded(soak: Soak, name: str, codes: set[int]) -> Iterator[Any]:
    """As `at_a_moment`, with Spark in a JVM of the process's own."""
    process = soak.start("refresh", name, AMV_SPARK_REMOTE="", AMV_SPARK_MASTER="local[1]")
    process.join(_JVM_START_S + soak.random.uniform(-0.5, 1.5) * soak.usual_s)
    yield process
    soak.ended(process, f"refresh {name} with a JVM of its own", codes)


def _children(process: Any) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(psutil.Process(process.pid).children(recursive=True))
    return []


def _dumped(soak: Soak) -> str:
    return _run("pg_dump", "--no-owner", *_to(soak.url))


def _restored(soak: Soak, dump: str) -> str:
    """Return the address of a new database that holds a dump."""
    url = soak.postgres.new_database()
    _run("psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", *_to(url), text=dump)
    return url


def _to(url: str) -> tuple[str, ...]:
    return "--dbname", make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _known(soak: Soak) -> set[str]:
    with soak.engine.connect() as db:
        return set(db.scalars(select(RefreshRow.id)))


def _run(name: str, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        [program(name), *arguments], **as_account(), input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{name}: {done.stderr.strip()}"
    return done.stdout

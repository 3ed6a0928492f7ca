"""Measure what a long history costs whole commands: the same table in two databases, of 10 refreshes and of 10,000.

    python benchmarks/commands.py                SQLite
    python benchmarks/commands.py --postgres     a PostgreSQL server of its own, started for it

The source is a folder of 50,000 csv files. A command is asked of one database and then of the other, five times, or
fifty if it needs no Spark, in one process with an embedded Spark; printed are medians of the pairs' seconds and of this
process's CPU seconds, without the JVM's: it knows nothing of the database. Of the page it is what its list and a
table's page are made from.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import yaml
from click.testing import CliRunner
from sqlalchemy import insert, select, text

sys.path.insert(0, str(Path(__file__).parent.parent))

from airflow_mv_provider.api.detail import detail_of
from airflow_mv_provider.api.table_list import Query, selected
from airflow_mv_provider.cli.main import main as amv
from airflow_mv_provider.core.frontier import fingerprint
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import SourceBindingRow, SourceFrontierRow
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.sources.files.listing import listed
from airflow_mv_provider.spark.session import local_session
from tests.conftest import Clock
from tests.metadata.reading import repeat
from tests.postgres import running_server

SHORT, LONG = "10 refreshes", "10,000 refreshes"
WITH_SPARK = ("plan", "refresh with nothing to do", "recover")  # they list the files
QUICK = 10  # the others take milliseconds, and are asked so many times as often


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--files", type=int, default=50_000)
    arguments.add_argument("--refreshes", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--postgres", action="store_true")
    asked = arguments.parse_args()
    os.environ |= {"AMV_SPARK_MASTER": "local[2]"}
    logging.getLogger("py4j").setLevel(logging.WARNING)  # what the page imports lets Airflow log to standard output
    with tempfile.TemporaryDirectory(prefix="amv-commands-") as home, databases(Path(home), asked) as addresses:
        print(json.dumps(measure(Path(home), addresses, asked), indent=2))


@contextmanager
def databases(home: Path, asked: argparse.Namespace) -> Iterator[tuple[str, Callable[[], str]]]:
    """Give the address of an empty database, and what copies it and gives the copy's address."""
    if not asked.postgres:

        def copied_file() -> str:
            with closing(sqlite3.connect(home / "short.db")) as db:
                db.execute(f"VACUUM INTO '{home / 'long.db'}'")
            return f"sqlite:///{home / 'long.db'}"

        yield f"sqlite:///{home / 'short.db'}", copied_file
        return
    with running_server() as server:
        address = server.new_database()

        def copied() -> str:
            with psycopg.connect(f"{address.rpartition('/')[0]}/postgres", autocommit=True) as db:
                # The commands that ran in this process have left connections, and a template may have none.
                left = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                db.execute(left, (address.rpartition("/")[2],))
                db.execute(f'CREATE DATABASE "long" TEMPLATE "{address.rpartition("/")[2]}"')
            return f"{address.rpartition('/')[0]}/long"

        yield address, copied


def measure(home: Path, addresses: tuple[str, Callable[[], str]], asked: argparse.Namespace) -> dict[str, Any]:
    """Fill both databases, and ask."""
    short, copied = addresses
    publish(home, short, asked.files)
    for _ in range(10 - 2):  # with the two that `publish` has made, ten
        run(home, short, "refresh", "t")
    open_engine(short).dispose()
    of = {SHORT: short, LONG: copied()}
    lengthen(of[LONG], asked.refreshes - 10)
    found: dict[str, Any] = {}
    for name, ask in commands(home, of).items():
        taken: dict[str, list[tuple[float, float]]] = {SHORT: [], LONG: []}
        for number in range(asked.rounds * (1 if name in WITH_SPARK else QUICK) + 1):
            for which in (SHORT, LONG) if number % 2 else (LONG, SHORT):
                began, cpu = time.perf_counter(), time.process_time()
                ask(which)
                if number:  # the first is not counted
                    taken[which].append((time.perf_counter() - began, time.process_time() - cpu))
        found[name] = compared(taken)
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return {"database": short.partition(":")[0], "files": asked.files, "refreshes": asked.refreshes, "commands": found}


def compared(taken: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """Return the medians of what a command took, and of the pairs' ratios."""
    short, long = taken[SHORT], taken[LONG]
    figures: dict[str, float] = {}
    for place, what in enumerate(("seconds", "cpu seconds")):
        figures[f"{what}, {SHORT}"] = round(statistics.median(each[place] for each in short), 3)
        figures[f"{what}, {LONG}"] = round(statistics.median(each[place] for each in long), 3)
        ratios = (b[place] / a[place] for a, b in zip(short, long, strict=True))
        figures[f"{what}, ratio"] = round(statistics.median(ratios), 2)
    return figures


def commands(home: Path, of: dict[str, str]) -> dict[str, Callable[[str], Any]]:
    """Return what is asked, each of one of the two databases."""
    file = home / "tables.yaml"
    asked = {
        "status": ("status", "t"),
        "status of all tables": ("status",),
        "history": ("history", "t", "--limit", "10"),
        "ledger": ("ledger", "t"),
        "apply": ("apply", str(file)),
        "plan": ("plan", "t"),
        "refresh with nothing to do": ("refresh", "t"),
        "recover": ("recover",),
    }
    found: dict[str, Callable[[str], Any]] = {}
    for name, words in asked.items():
        found[name] = lambda which, words=words: run(home, of[which], *words)  # type: ignore[misc]
    stores = {which: Store(open_engine(address)) for which, address in of.items()}
    table = stores[SHORT].table("t")
    found["page: list"] = lambda which: selected(
        stores[which].overview(), lambda name: True, {}, Query(), lambda name: True
    )
    seen = (table, (), lambda owners: (), lambda name: True)
    found["page: table"] = lambda which: detail_of(stores[which], *seen, may_act=True)
    return found


def run(home: Path, address: str, *words: str) -> Any:
    """Run one command in this process; return its answer."""
    done = CliRunner().invoke(amv, [*words, "--json", "--database", address, "--warehouse", str(home)])
    assert done.exit_code == 0, (words, done.output)
    return json.loads(done.stdout)


def publish(home: Path, address: str, num_files: int) -> None:
    """Publish a table of ten files, then let the database say that it was one of as many as there are now."""
    source = {"type": "files", "path": "raw", "format": "csv", "schema": "id BIGINT, v STRING"}
    definition = {"tables": [{"name": "t", "key": ["id"], "source": source}]}
    (home / "tables.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    (home / "raw").mkdir()
    engine = open_engine(address)
    migrations.migrate(engine)
    write_files(home / "raw", range(10))
    run(home, address, "apply", str(home / "tables.yaml"))
    run(home, address, "refresh", "t")
    write_files(home / "raw", range(10, num_files))
    found = listed(local_session(), str(home / "raw")).frontier
    with engine.begin() as db:
        row = db.execute(select(SourceFrontierRow.table_id)).one()
        new = {"fingerprint": fingerprint(found)}
        db.execute(insert(SourceFrontierRow).values(table_id=row.table_id, **new, frontier=found.to_json()))
        db.execute(SourceBindingRow.__table__.update().values(**new))
    engine.dispose()
    assert run(home, address, "refresh", "t")["outcome"] == "nothing_to_do"


def write_files(folder: Path, numbers: range) -> None:
    for number in numbers:
        (folder / f"part-{number:06}.csv").write_text(f"id,v\n{number},a\n", encoding="utf-8")


def lengthen(address: str, num_refreshes: int) -> None:
    """Let a history go on: what its refreshes did is done again, nine with nothing to do for one that publishes."""
    engine, clock = open_engine(address), Clock()
    store = Store(engine, clock.now)
    past = store.history(store.table("t").id, 10)
    (first,) = (report for report in past if report.outcome == "published")
    assert first.refresh_id and past[0].refresh_id
    for _ in range(10):  # the two by turns
        repeat(store, clock, first.refresh_id, num_refreshes // 100)
        repeat(store, clock, past[0].refresh_id, num_refreshes // 10 - num_refreshes // 100)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        if engine.dialect.name == "postgresql":
            db.execute(text("VACUUM ANALYZE"))
    engine.dispose()


if __name__ == "__main__":
    main()

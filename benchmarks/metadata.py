"""Measure what a long history costs: every question of the commands to the metadata database, without and with it.

    python benchmarks/metadata.py                              SQLite
    python benchmarks/metadata.py --database postgresql://…    a database that is empty: it is migrated and filled

One table whose source is a listing of 50,000 files, published once; then the same with 10,000 refreshes more, of which
every tenth published. Printed are the bytes that a refresh adds, and milliseconds a question. What whole commands take
is measured by `commands.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parent.parent))

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.sources.files.frontier import FilesFrontier, SourceFile
from tests.metadata.rows import a_caller, a_refresh, acquired, registered, walk

DAY_MS = 86_400_000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--files", type=int, default=50_000)
    arguments.add_argument("--refreshes", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=25)
    arguments.add_argument("--database")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="amv-metadata-") as home:
        print(json.dumps(measure(asked.database or f"sqlite:///{home}/mv.db", asked), indent=2))


def measure(address: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Fill the database, and ask before and after."""
    engine = open_engine(address)
    migrations.migrate(engine)
    store = Store(engine)
    files = (SourceFile(f"file:/landing/day={n // 100:05}/part-{n:06}.csv", 100_000 + n, n) for n in range(asked.files))
    listing = FilesFrontier(tuple(files))
    table = registered(store)
    first = acquired(store, table, frontier=listing)
    walk(store, first, Phase.NORMAL)
    short, before = times(store, table, asked.rounds), num_bytes(engine)
    # Their rows hold a fingerprint of the listing, whatever its length: a short one fills the database faster.
    short_one = FilesFrontier(listing.files[:10])
    num_idle = asked.refreshes * 9 // 10
    for _ in range(num_idle):
        nothing_to_do(store, table, short_one)
    grown = (num_bytes(engine) - before) / num_idle
    before, num_published = num_bytes(engine), asked.refreshes - num_idle - 1
    for _ in range(num_published):
        walk(store, acquired(store, table, frontier=short_one), Phase.NORMAL)
    of_published = (num_bytes(engine) - before) / num_published
    walk(store, acquired(store, table, frontier=listing), Phase.NORMAL)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            db.execute(text("VACUUM ANALYZE"))
    long = times(store, table, asked.rounds)
    found = {name: {"short": short[name], "long": long[name]} for name in short}
    began = time.perf_counter()
    num_forgotten = store.forget_history(table.id, older_than_ms=-DAY_MS)
    return {
        "database": engine.dialect.name,
        "bytes of a refresh with nothing to do": round(grown),
        "bytes of one that publishes": round(of_published),
        "milliseconds": found,
        "retention": {"refreshes": num_forgotten, "seconds": round(time.perf_counter() - began, 2)},
    }


def times(store: Store, table: Any, rounds: int) -> dict[str, float]:
    """Return the median milliseconds of each question; `listing` is what reading the listing itself takes."""
    state = store.state(table.id)
    last = store.worked_on("one") or ""
    questions: dict[str, Callable[[], Any]] = {
        "listing (newest binding)": lambda: store.newest_binding(table.id),
        "record nothing to do": lambda: nothing_to_do(store, table, FilesFrontier(())),
        "costs (each refresh)": lambda: store.costs(table.id),
        "history": lambda: store.history(table.id),
        "report": lambda: store.report(last),
        "status": lambda: store.status(table),
        "overview": store.overview,
        "ledger": lambda: store.ledger(table.id),
        "age": lambda: store.age_s(table.id),
        "whose refresh": lambda: store.worked_on("nobody"),
        "stale previews": lambda: store.end_stale_previews(table.id),
        "state": lambda: store.state(state.table_id),
    }
    return {name: median_ms(question, rounds) for name, question in questions.items()}


def median_ms(question: Callable[[], Any], rounds: int) -> float:
    """Return the median of a few calls."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        question()
        taken.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(taken), 2)


def nothing_to_do(store: Store, table: Any, listing: FilesFrontier) -> None:
    """Write the history row of a refresh that found nothing new."""
    refresh = a_refresh(table, batch=None, frontier=listing, choice=Choice("skip", "the source and main are unchanged"))
    store.record(refresh, a_caller(uuid.uuid4().hex), Outcome.NOTHING_TO_DO, main_version=6)


def num_bytes(engine: Any) -> int:
    """Return the size of the database, without what PostgreSQL would use again."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            db.execute(text("VACUUM"))
    pages = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    whole = "SELECT pg_database_size(current_database())"
    with engine.begin() as db:
        return int(db.scalars(text(pages if engine.dialect.name == "sqlite" else whole)).one())


if __name__ == "__main__":
    main()

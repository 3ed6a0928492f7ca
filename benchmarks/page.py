"""Measure the page's list: 1,000 tables, each with a refresh under way over 100 partitions.

    python benchmarks/page.py                        SQLite
    python benchmarks/page.py --database postgresql://…   a database that is empty: it is migrated and filled

Airflow's real API application answers in this process, with its own database on SQLite; 1,000 DAGs declare the tables.
Printed are the times of whole requests, authentication and rendering included, and the queries of one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, insert

sys.path.insert(0, str(Path(__file__).parent.parent))

PATHS = (
    *("/mv/", "/mv/?page=10", "/mv/?show=under+way", "/mv/?search=t09"),
    *("/mv/tables/t0500", "/mv/tables/t0500/now", "/mv/tables/t0500/partitions"),
    *("/mv/tables/t0500/over-time?range=all", "/mv/lineage", "/mv/tables/t0500/lineage"),
)
DAG_FILE = """
from datetime import datetime
from airflow.sdk import DAG, Asset
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow_mv_provider.asset import asset_uri

for number in range({tables}):
    with DAG(f"dag_{{number:04}}", start_date=datetime(2026, 1, 1), schedule="@hourly", catchup=False):
        EmptyOperator(task_id="publish", outlets=[Asset(asset_uri(f"t{{number:04}}"))])
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tables", type=int, default=1000)
    arguments.add_argument("--partitions", type=int, default=100)
    arguments.add_argument("--refreshes", type=int, default=20, help="in the history of each table")
    arguments.add_argument("--requests", type=int, default=100)
    arguments.add_argument("--database")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="amv-page-") as home:
        print(json.dumps(measure(Path(home), asked), indent=2))


def measure(home: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Fill both databases and ask; milliseconds by path."""
    ours = asked.database or f"sqlite:///{home / 'mv.db'}"
    os.environ |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__MV__SQL_ALCHEMY_CONN": ours,
    }
    declare_dags(home / "dags", asked.tables)
    num_rows = fill(ours, asked)
    browser = signed_in()
    found: dict[str, Any] = {"database": ours.partition(":")[0], "tables": asked.tables, "partitions": num_rows}
    for path in PATHS:
        assert browser.get(path).status_code == 200, path
        with counted() as statements:
            browser.get(path)
        times, cpu = [], time.process_time()
        for _ in range(asked.requests):
            began = time.perf_counter()
            browser.get(path)
            times.append((time.perf_counter() - began) * 1000)
        cpu = (time.process_time() - cpu) / asked.requests * 1000  # a busy machine does not change it
        p95 = statistics.quantiles(times, n=20)[-1]
        found[path] = {
            "median_ms": round(statistics.median(times), 1),
            "p95_ms": round(p95, 1),
            "cpu_ms": round(cpu, 1),
            "queries": len(statements),
        }
    return found


def declare_dags(folder: Path, tables: int) -> None:
    """Bring a DAG for each table into Airflow's database, as the DAG processor does."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.utils.db import initdb

    initdb()
    folder.mkdir()
    file = folder / "tables.py"
    file.write_text(DAG_FILE.format(tables=tables), encoding="utf-8")
    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(str(file), bundle_path=folder, bundle_name="dags-folder")
    assert len(bag.dags) == tables, bag.import_errors
    sync_bag_to_db(bag, "dags-folder", None)


def fill(url: str, asked: argparse.Namespace) -> int:
    """Fill our database: one table by the store's own methods, the others by copies of its rows; return partitions."""
    from airflow_mv_provider.metadata import migrations
    from airflow_mv_provider.metadata.database import open_engine
    from airflow_mv_provider.metadata.models import Base
    from airflow_mv_provider.metadata.store import Store
    from tests.api.filled import HOUR_MS, Keeper, months, under_way
    from tests.conftest import Clock
    from tests.metadata.rows import registered

    engine = open_engine(url)
    migrations.migrate(engine)
    clock = Clock()
    store = Store(engine, clock.now)
    table = registered(store, "t0000", partition_by=["month"], key=["id", "month"])
    keeper = Keeper(store, clock, table, months(asked.partitions))
    keeper.refreshes(asked.refreshes, HOUR_MS)
    under_way(keeper)
    for number in range(1, asked.tables):
        with engine.begin() as db:
            copy(db, Base.metadata, table.id, f"t{number:04}")
    with engine.begin() as db:
        if engine.dialect.name == "postgresql":
            db.exec_driver_sql("ANALYZE")
        rows = db.exec_driver_sql("SELECT count(*) FROM refresh_progress").scalar_one()
    engine.dispose()
    return int(rows)


def copy(db: Any, metadata: Any, table_id: int, name: str) -> None:
    """Write all rows of a table once more, under another name and with ids of their own."""
    tables = metadata.tables
    own = tables["refreshable_table"]
    first = dict(db.execute(own.select().where(own.c.id == table_id)).mappings().one())
    del first["id"]
    first |= {"name": name, "uuid": str(uuid.uuid4()), "location": f"/wh/{name}"}
    new_id = db.execute(insert(own).values(**first)).inserted_primary_key[0]
    ids: dict[str, str] = {}  # of the new refreshes, by the old ones
    for each in ("refresh", "refresh_attempt", "refresh_chunk", "refresh_progress", "refresh_state"):
        target = tables[each]
        known = target.c.refresh_id.in_(ids) if "table_id" not in target.c else target.c.table_id == table_id
        rows = [dict(row) for row in db.execute(target.select().where(known)).mappings()]
        for row in rows:
            if each == "refresh":
                ids[row["id"]] = uuid.uuid4().hex
                row["id"] = ids[row["id"]]
            if each == "refresh_progress":
                del row["id"]
            if "table_id" in row:
                row["table_id"] = new_id
            if "refresh_id" in row:
                row["refresh_id"] = ids.get(row["refresh_id"])
        db.execute(insert(target), rows)


def signed_in() -> Any:
    """Return a browser of Airflow's API application in which an administrator is signed in."""
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from starlette.testclient import TestClient

    browser = TestClient(create_app(), follow_redirects=False)
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="admin", role="ADMIN"))
    browser.cookies.set("_token", token)
    return browser


@contextmanager
def counted() -> Iterator[list[str]]:
    """Collect the queries of all engines of this process."""
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "WITH")):
            found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


if __name__ == "__main__":
    main()

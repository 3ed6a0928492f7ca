"""The demo of ingestions: tables follow a PostgreSQL through Debezium's real connector and Kafka, and one by JDBC.

    1  PostgreSQL, Kafka and the connector start; one run of the ingestion fills two tables, a refresh by JDBC a third
    2  rows change, and the next run writes only the differences
    3  the connector is killed: a run publishes what Kafka has; it comes back, sends events again, and the rest follows
    4  a run is killed in the middle; the next one takes over
    5  the broker is killed: the run says so, main stays as it is; the broker comes back
    Each time the tables are compared with PostgreSQL's own rows.

All its files but PostgreSQL's are in .demo-ingest beside the Makefile. The definitions are scripts/demo_ingest.yaml.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from deltalake import DeltaTable, QueryBuilder
from psycopg import sql

from airflow_mv_provider.core.outcome import EXIT_RETRY
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.local import open_store
from airflow_mv_provider.runner.settings import Settings
from scripts.debezium_connector import Connector
from scripts.demo_telling import ROOT, Amv, say, shown, title
from scripts.kafka_server import KafkaServer
from scripts.ports import free_port
from scripts.postgres_programs import PostgresMissingError
from scripts.postgres_server import PostgresServer
from scripts.server_error import ServerError
from scripts.shop_database import COLUMNS, TABLES, ShopDatabase

HOME = ROOT / ".demo-ingest"
WAREHOUSE = HOME / "warehouse"
STATE = HOME / "state.db"
LOG = HOME / "demo.log"
DEFINITIONS = ROOT / "scripts" / "demo_ingest.yaml"
LEASE_S = 10  # short, so that nobody waits long for a dead process; the default is a minute
STOCK = ("item_id", "name", "on_hand", "price")
_STOCK: LiteralString = """
CREATE TABLE stock (item_id int PRIMARY KEY, name text NOT NULL, on_hand int NOT NULL, price numeric(10, 2) NOT NULL);
INSERT INTO stock SELECT i, 'item ' || i, i % 50, (i % 9000) / 100.0 FROM generate_series(1, 20000) AS i;
"""
_SELL: LiteralString = """
UPDATE stock SET on_hand = on_hand + 1, price = price + 0.10 WHERE item_id % 400 = 7;
DELETE FROM stock WHERE item_id % 1000 = 500;
"""
_connections: dict[str, str] = {}


@dataclass
class Servers:
    """What the demo starts, and the shop's database."""

    kafka: KafkaServer
    connector: Connector
    shop: ShopDatabase
    store: Store


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(HOME, ignore_errors=True)
    WAREHOUSE.mkdir(parents=True)
    print(f"All files of this demo are in {shown(HOME)}; the log of its commands is {shown(LOG)}.")
    with ExitStack() as stack:
        title(1, "One run fills two tables from Kafka, a refresh fills a third by JDBC")
        servers = stack.enter_context(started())
        stack.enter_context(amv.server())
        amv("apply", shown(DEFINITIONS))
        follow_all(servers)

        title(2, "Rows change, and only the differences are written")
        sell(servers, 120)
        follow_all(servers)

        title(3, "The connector is killed while rows change")
        sell(servers, 60)
        servers.connector.kill()
        sell(servers, 60)
        say("Killed with SIGKILL. A run publishes what Kafka has:\n")
        amv("ingest", "shop")
        say("The connector comes back; it sends again what it had not noted as sent, and then the rest.\n")
        servers.connector.start()
        follow_all(servers)

        title(4, "A run is killed in the middle, and the next one takes over")
        sell(servers, 120)
        servers.connector.settle()
        kill_a_run(servers)
        follow_all(servers)

        title(5, "The broker is killed")
        sell(servers, 60)
        servers.kafka.kill()
        sell(servers, 60)
        amv("ingest", "shop", exit_code=EXIT_RETRY)
        amv("health", exit_code=EXIT_RETRY)
        say("The broker comes back.\n")
        servers.kafka.start()
        follow_all(servers)
    print(f"\nDone in {time.monotonic() - began:.0f} s. The tables are in {shown(WAREHOUSE)}; the history of one:\n")
    print(f"  .venv/bin/amv history accounts --database sqlite:///{shown(STATE)} --warehouse {shown(WAREHOUSE)}")


# -- the steps -------------------------------------------------------------------------------------------------


@contextmanager
def started() -> Iterator[Servers]:
    """Start PostgreSQL, Kafka and the connector, with a shop's tables; end them by pid afterwards."""
    with ExitStack() as stack:
        # PostgreSQL refuses to be root, and its own user may not reach a checkout.
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mv-demo-", ignore_cleanup_errors=True)))
        postgres = PostgresServer(place, free_port(), wal_level="logical")
        stack.callback(postgres.kill)
        postgres.start()
        shop = ShopDatabase(postgres.new_database("shop"), seed=4)
        shop.create(80)
        with psycopg.connect(shop.url) as db:
            db.execute(_STOCK)
        say("PostgreSQL runs; its tables have 80, 80 and 20,000 rows.")
        for name in ("kafka", "connect"):
            (HOME / name).mkdir()
        kafka = KafkaServer(HOME / "kafka")
        stack.callback(kafka.kill)
        say("Kafka runs; the first time its jars come from Maven, 120 MB with the connector's.")
        connector = Connector(HOME / "connect", kafka.address, shop.url, "shop", [f"public.{name}" for name in TABLES])
        stack.callback(connector.kill)
        say("Debezium's connector runs, and has begun with a snapshot.\n")
        extra = {"bootstrap.servers": kafka.address}
        _connections["AIRFLOW_CONN_SHOP_EVENTS"] = json.dumps({"conn_type": "kafka", "extra": extra})
        _connections["AIRFLOW_CONN_SHOP"] = shop.url
        yield Servers(kafka, connector, shop, open_store(Settings(f"sqlite:///{STATE}")))


def environment() -> dict[str, str]:
    """Return the environment of the demo's commands: nobody's own settings, and the demo's places and connections."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "AMV_"))}
    ours = {"AMV_DATABASE_URL": f"sqlite:///{STATE}", "AMV_WAREHOUSE": str(WAREHOUSE), "AMV_LEASE_S": str(LEASE_S)}
    ours["AIRFLOW_HOME"] = str(HOME / "airflow")  # whose Spark server is the demo's own
    return others | ours | _connections | {"AMV_SOURCE_DATABASES": "kafka,postgresql"}


amv = Amv(environment, LOG)


def sell(servers: Servers, num_statements: int) -> None:
    """Let the shop do business: insert, update, delete, change keys, and roll some of it back."""
    servers.shop.change(num_statements)
    with psycopg.connect(servers.shop.url) as db:
        db.execute(_SELL)
    say(f"{num_statements} random statements on customers and accounts, two on stock.")


def follow_all(servers: Servers) -> None:
    """Refresh all three tables once Kafka has everything, and compare them with PostgreSQL's rows."""
    servers.connector.settle()
    amv("ingest", "shop")
    amv("refresh", "stock")
    amv("health")
    for table, columns in (COLUMNS | {"stock": STOCK}).items():
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        with psycopg.connect(servers.shop.url) as db:
            found = db.execute(sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(table))).fetchall()
        compare(table, columns, multiset(found))


def compare(table: str, columns: tuple[str, ...], expected: Counter[tuple[Any, ...]]) -> None:
    """Compare main, read by delta-rs, which shares no code with Spark."""
    main = QueryBuilder().register("main", DeltaTable(str(WAREHOUSE / table)))
    found = main.execute(f"SELECT {', '.join(columns)} FROM main").read_all()  # nosec B608  # our own columns
    rows = multiset(list(zip(*(column.to_pylist() for column in found.columns), strict=True)))
    if rows != expected:
        missing, too_many = (expected - rows).total(), (rows - expected).total()
        amv.fail(f"{table} differs from PostgreSQL: {missing} rows are missing, {too_many} too many.")
    say(f"{table} equals PostgreSQL's table: {rows.total()} rows, compared as multisets.")


def multiset(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(tuple(value) if isinstance(value, list) else value for value in row) for row in rows)


def kill_a_run(servers: Servers) -> None:
    """Kill a run once both tables are staged, and wait until nobody can think that it lives."""
    run = amv.start("ingest", "shop")
    while run.poll() is None and not all(phase(servers, table) is Phase.MERGING for table in TABLES):
        time.sleep(0.02)
    run.kill()
    if run.wait() != -signal.SIGKILL:
        amv.fail("The run was expected to be killed, and ended otherwise.")
    say("Killed with SIGKILL once both tables were staged. The durable state now:\n")
    amv("status")
    say(f"The dead process' lease expires after {LEASE_S} s; a live owner is never taken over.\n")
    while any(servers.store.status(servers.store.table(table)).is_lease_live for table in TABLES):
        time.sleep(0.2)


def phase(servers: Servers, table: str) -> Phase:
    return servers.store.status(servers.store.table(table)).phase


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end too
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    try:
        main()
    except (ServerError, PostgresMissingError) as error:
        raise SystemExit(f"\n✗ {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("\nStopped. Run it again to start from the beginning.") from None

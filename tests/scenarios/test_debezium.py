"""PostgreSQL, Debezium's real connector, Kafka and two tables: each of them is killed, one after the other."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_mv_provider.exceptions import EventIncompleteError, SourceUnavailableError
from scripts.debezium_connector import Connector
from scripts.kafka_server import KafkaServer
from scripts.postgres_server import PostgresServer
from scripts.shop_database import COLUMNS, SCHEMAS, SELECTS, TABLES, ShopDatabase
from tests.conftest import Crash, Lake
from tests.postgres import running_server

pytestmark = [pytest.mark.slow, pytest.mark.in_process, pytest.mark.in_test_all]

ANY = {"max_deleted_fraction": 1.0, "allow_empty": True}


@dataclass
class Chain:
    """A shop's database, and what its tables come through on their way to a lake."""

    postgres: PostgresServer
    kafka: KafkaServer
    connector: Connector
    shop: ShopDatabase
    lake: Lake

    def apply(self) -> None:
        for table in TABLES:
            source = {"type": "kafka", "conn_id": "shop", "topic": f"shop.public.{table}", "envelope": "debezium"}
            source |= {"schema": SCHEMAS[table], "select": SELECTS[table]}
            self.lake.apply(name=table, source=source, key=COLUMNS[table][:1], guards=ANY)

    def check(self) -> None:
        """Refresh both tables once Kafka has everything, and compare them with PostgreSQL's own rows."""
        self.connector.settle()
        for table in TABLES:
            self.lake.clock.pass_ms(self.lake.settings.lease_ms + 1)
            self.lake.refresh(table)
            assert self.rows(table) == self.wanted(table)
        assert self.lake.workspaces() == []

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        return Counter(self.lake.rows(table))

    def wanted(self, table: str) -> Counter[tuple[Any, ...]]:
        """Return PostgreSQL's rows with the values in the order of the names, as the independent reader has them."""
        names = COLUMNS[table]
        places = [names.index(name) for name in sorted(names)]
        return Counter(tuple(row[place] for place in places) for row in self.shop.rows(table).elements())


def waits_for(db: psycopg.Connection[Any], transaction: str) -> None:
    """Return once the connector's new slot waits for the end of a transaction."""
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND transactionid::text = %s"
    until = time.monotonic() + 120
    while not db.execute(waiting, [transaction]).fetchall():
        assert time.monotonic() < until, "the connector does not make its slot"


def test_transaction_that_is_open_at_the_snapshot_is_newer_than_it(lake, tmp_path, monkeypatch):
    """It wrote at a position before the snapshot's, is not in it, and its event comes after it.

    A slot waits for the transactions that it finds, and then for those that have begun meanwhile; one that begins after
    that, and before the snapshot, stays open.
    """
    number = "SELECT pg_current_xact_id()::text"
    for name in ("kafka", "connect"):
        (tmp_path / name).mkdir()
    with running_server(wal_level="logical") as postgres:
        url, kafka = postgres.new_database(), KafkaServer(tmp_path / "kafka")
        connectors: list[Connector] = []

        def connect() -> None:
            connectors.append(Connector(tmp_path / "connect", kafka.address, url, "shop", ["public.orders"]))

        try:
            with (
                psycopg.connect(url, autocommit=True) as db,
                psycopg.connect(url) as found,
                psycopg.connect(url) as meanwhile,
                psycopg.connect(url) as late,
            ):
                db.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
                db.execute("INSERT INTO orders VALUES (1, 'old'), (2, 'x')")
                first = found.execute(number).fetchone()
                starting = threading.Thread(target=connect)
                starting.start()
                waits_for(db, first[0])
                second = meanwhile.execute(number).fetchone()
                found.rollback()
                waits_for(db, second[0])
                late.execute("UPDATE orders SET v = 'new' WHERE id = 1")
                meanwhile.rollback()
                starting.join()
                connectors[0].settle()
                late.commit()
                connectors[0].settle()
            extra = {"bootstrap.servers": kafka.address}
            monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "kafka", "extra": extra}))
            source = {"type": "kafka", "conn_id": "shop", "topic": "shop.public.orders", "envelope": "debezium"}
            lake.apply(source=source | {"schema": "id INT, v STRING"}, guards=ANY)
            lake.refresh()
        finally:
            for connector in connectors:
                connector.kill()
            kafka.kill()

    assert lake.rows() == [(1, "new"), (2, "x")]


@pytest.fixture
def chain(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chain]:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "connect").mkdir()
    with running_server(wal_level="logical") as postgres:
        kafka = KafkaServer(tmp_path / "kafka")
        try:
            extra = {"bootstrap.servers": kafka.address}
            monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "kafka", "extra": extra}))
            shop = ShopDatabase(postgres.new_database(), seed=9)
            shop.create(30)
            names = [f"public.{table}" for table in TABLES]
            connector = Connector(tmp_path / "connect", kafka.address, shop.url, "shop", names)
            try:
                yield Chain(postgres, kafka, connector, shop, lake)
            finally:
                connector.kill()
        finally:
            kafka.kill()


def test_whoever_is_killed_no_row_is_lost_or_doubled(chain, crash_at):
    chain.apply()
    chain.check()

    for kill in (connector_killed, broker_killed, postgresql_killed, all_killed):
        kill(chain)
        chain.check()
    for point in ("acquire.after", "staging.after", "publish.before", "publish.after"):
        refresh_killed(chain, crash_at, point)
        chain.check()

    assert {table: chain.lake.refresh(table).outcome.value for table in TABLES} == dict.fromkeys(
        TABLES, "nothing_to_do"
    )


def connector_killed(chain: Chain) -> None:
    """It sends again what it had not noted; a refresh before that sees what is there."""
    chain.shop.change(60, may_truncate=True)
    chain.connector.kill()
    chain.shop.change(60)
    refresh_as_it_is(chain)
    chain.connector.start()


def broker_killed(chain: Chain) -> None:
    """A refresh says so, and leaves main as it is."""
    chain.shop.change(60)
    chain.kafka.kill()
    chain.shop.change(60)
    before = {table: chain.rows(table) for table in TABLES}
    for table in TABLES:
        with pytest.raises(SourceUnavailableError):
            chain.lake.refresh(table)
    assert {table: chain.rows(table) for table in TABLES} == before
    chain.kafka.start()


def postgresql_killed(chain: Chain) -> None:
    """Without a checkpoint; the slot has what the connector has not confirmed."""
    chain.shop.change(60)
    chain.postgres.kill()
    refresh_as_it_is(chain)
    chain.postgres.start()
    chain.shop.change(60)


def all_killed(chain: Chain) -> None:
    chain.shop.change(60)
    chain.connector.kill()
    chain.postgres.kill()
    chain.kafka.kill()
    chain.kafka.start()
    chain.postgres.start()
    chain.shop.change(60)
    chain.connector.start()


def refresh_killed(chain: Chain, crash_at: Callable[[str], None], point: str) -> None:
    """More comes before the next owner, which finishes or undoes it."""
    chain.shop.change(40)
    chain.connector.settle()
    crash_at(point)
    with pytest.raises(Crash):
        chain.lake.refresh("customers")
    chain.shop.change(40)


def refresh_as_it_is(chain: Chain) -> None:
    """Refresh in the middle of it: a value that half of a repetition leaves out is an error until the rest is there."""
    for table in TABLES:
        try:
            chain.lake.refresh(table)
        except EventIncompleteError:
            assert chain.rows(table)


def test_large_value_of_a_row_whose_key_changes(chain):
    """It is in no event, which is an error; with REPLICA IDENTITY FULL the connector has it."""
    chain.apply()
    with psycopg.connect(chain.shop.url, autocommit=True) as db:
        db.execute("UPDATE customers SET note = repeat('x', 2100) WHERE customer_id = 1")
        chain.check()
        db.execute("ALTER TABLE customers REPLICA IDENTITY FULL")
        db.execute("UPDATE customers SET customer_id = 1000 WHERE customer_id = 1")
        chain.check()
        db.execute("ALTER TABLE customers REPLICA IDENTITY DEFAULT")
        db.execute("UPDATE customers SET customer_id = 1001 WHERE customer_id = 1000")
        chain.connector.settle()

    before = chain.rows("customers")
    with pytest.raises(EventIncompleteError, match="note is not in the event"):
        chain.lake.refresh("customers")
    assert chain.rows("customers") == before

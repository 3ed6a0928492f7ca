"""The example with a database: filled by the script of `make up`, then followed by reading only what was written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from scripts.postgres_programs import as_account, program

pytestmark = [pytest.mark.slow, pytest.mark.in_test_all]

SCRIPT = Path(__file__).parents[2] / "docker" / "postgres-shop.sql"
PASSWORD = "it's a pass word"


@pytest.fixture
def shop(postgres, monkeypatch):
    """The database `shop`, made twice, as by two `make up`; its owner's address."""
    at = make_url(postgres.new_database())
    with psycopg.connect(at.render_as_string(), autocommit=True) as db:
        db.execute("CREATE DATABASE shop")
    as_psql = as_account()
    as_psql["env"] = as_psql["env"] | {"SHOP_READER_PASSWORD": PASSWORD}
    words = [program("psql"), "--no-psqlrc", "-h", "127.0.0.1", "-p", str(at.port), "-U", "mv", "-d", "postgres"]
    for _ in range(2):
        subprocess.run(words, input=SCRIPT.read_text(), text=True, check=True, capture_output=True, **as_psql)
    reader = at.set(drivername="postgresql", username="shop_reader", password=PASSWORD, database="shop")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", reader.render_as_string(hide_password=False))
    return at.set(database="shop").render_as_string()


def test_table_follows_the_database_by_what_was_written(home, examples, shop):
    dag = examples.load("shop")
    first = examples.run(dag)
    with psycopg.connect(shop, autocommit=True) as db:
        db.execute("UPDATE orders SET amount = 1 WHERE order_id = 7")
        db.execute("DELETE FROM orders WHERE order_id = 8")
        rows = db.execute("SELECT amount, customer, order_id, ordered_at FROM orders").fetchall()
    second = examples.run(dag)

    report = home.store.history(home.store.table("shop_orders").id)[0]
    assert (first.states, second.states) == ({"refresh_shop_orders": "success"},) * 2
    assert (report.strategy, report.rows_updated, report.rows_deleted) == ("incremental", 1, 1)
    assert home.rows("shop_orders") == sorted(rows, key=repr)

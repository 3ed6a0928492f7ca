"""A shop's tables in PostgreSQL, and what may happen to them: each statement that a connector has to tell of.

The demo of ingestions, the soak with Debezium and the recordings of its events draw from the same statements.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg
from psycopg import sql

CREATE: LiteralString = """
CREATE TABLE customers (
  customer_id int PRIMARY KEY,
  name text NOT NULL,
  city text,
  joined_at timestamptz NOT NULL,
  note text
);
-- Not compressed, so that a note of some kB is kept outside of its row: an update of the rest does not send it again.
ALTER TABLE customers ALTER COLUMN note SET STORAGE EXTERNAL;
CREATE TABLE accounts (
  account_id bigint PRIMARY KEY,
  customer_id int NOT NULL,
  balance numeric(12, 2) NOT NULL,
  opened_on date NOT NULL,
  tags text[] NOT NULL
);
"""
TABLES = ("customers", "accounts")
COLUMNS = {
    "customers": ("customer_id", "name", "city", "joined_at", "note"),
    "accounts": ("account_id", "customer_id", "balance", "opened_on", "tags"),
}
# As `schema` and `select` of a source of Debezium's events with `time.precision.mode=isostring`.
SCHEMAS = {
    "customers": "customer_id INT, name STRING, city STRING, joined_at TIMESTAMP, note STRING",
    "accounts": "account_id BIGINT, customer_id INT, balance DECIMAL(12,2), opened_on STRING, tags ARRAY<STRING>",
}
SELECTS = {
    "customers": ["*"],
    "accounts": ["account_id", "customer_id", "balance", "to_date(left(opened_on, 10)) AS opened_on", "tags"],
}
_CITIES = ("Bergen", "Lisbon", "Łódź", "Zürich", None)
_KEYS = 90
_LARGE = 2_100  # characters; PostgreSQL keeps a row of 2,032 bytes as it is


class ShopDatabase:
    """The two tables of one database, changed by whoever calls `change`."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self._draw = random.Random(seed)  # nosec B311  # a seed draws the same again

    def create(self, num_rows: int) -> None:
        """Create the tables, with so many rows each."""
        with self._open() as db:
            db.execute(CREATE)
            for number in range(1, num_rows + 1):
                self._put_customer(db, number)
                self._put_account(db, number)

    def change(self, num_statements: int, *, may_truncate: bool = False) -> None:
        """Run statements, some of them together in a transaction."""
        with self._open() as db:
            left = num_statements
            while left > 0:
                together = self._draw.choice((1, 1, 1, 2, 5))
                with db.transaction(force_rollback=self._draw.random() < 0.03):
                    for _ in range(min(together, left)):
                        self._statement(db, may_truncate=may_truncate)
                left -= together

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """Return PostgreSQL's own rows as a multiset, their values in the order of `COLUMNS`."""
        names = sql.SQL(", ").join(map(sql.Identifier, COLUMNS[table]))
        with self._open() as db:
            found = db.execute(sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(table)))
            return Counter(tuple(_hashable(value) for value in row) for row in found)

    # -- what happens ------------------------------------------------------------------------------------------------

    def _statement(self, db: psycopg.Connection[Any], *, may_truncate: bool) -> None:
        if may_truncate and self._draw.random() < 0.01:
            db.execute("TRUNCATE accounts")
            return
        weighted: dict[Callable[[psycopg.Connection[Any]], None], int] = {
            self._put_customer: 3,
            self._put_account: 3,
            self._rename: 4,
            self._write_a_note: 1,
            self._move_money: 3,
            self._delete: 4,
            self._give_another_key: 2,
        }
        self._draw.choices(list(weighted), list(weighted.values()))[0](db)

    def _put_customer(self, db: psycopg.Connection[Any], number: int = 0) -> None:
        number, city = number or self._any(), self._draw.choice(_CITIES)
        second = self._draw.randrange(10**9) / 1000
        note = self._large() if self._draw.random() < 0.03 else None
        db.execute(
            """INSERT INTO customers
            VALUES (%s, %s, %s, TIMESTAMPTZ '2026-01-01Z' + %s * INTERVAL '1 second', %s)
            ON CONFLICT (customer_id) DO UPDATE SET city = excluded.city, joined_at = excluded.joined_at""",
            (number, f"customer {number}", city, second, note),
        )

    def _put_account(self, db: psycopg.Connection[Any], number: int = 0) -> None:
        number, cents, day = number or self._any(), self._draw.randrange(10**7), self._draw.randrange(365)
        tags = self._draw.sample(["gold", "new", "ünïcode", 'with "quotes", and a comma'], self._draw.randrange(3))
        db.execute(
            """INSERT INTO accounts VALUES (%s, %s, %s / 100.0, DATE '2026-01-01' + %s, %s)
            ON CONFLICT (account_id) DO UPDATE SET balance = excluded.balance, tags = excluded.tags""",
            (number, self._any(), cents, day, tags),
        )

    def _rename(self, db: psycopg.Connection[Any]) -> None:
        """Update one of the customers; a large note that it has is left out of the event."""
        name = f"name {self._draw.randrange(10**6)}"
        db.execute("UPDATE customers SET name = %s WHERE customer_id = %s", (name, self._any()))

    def _write_a_note(self, db: psycopg.Connection[Any]) -> None:
        note = self._draw.choice((self._large(), "short", None))
        db.execute("UPDATE customers SET note = %s WHERE customer_id = %s", (note, self._any()))

    def _move_money(self, db: psycopg.Connection[Any]) -> None:
        """Update several accounts by one statement."""
        low, amount = self._any(), self._draw.randrange(100)
        query = "UPDATE accounts SET balance = balance + %s WHERE account_id BETWEEN %s AND %s"
        db.execute(query, (amount, low, low + 2))

    def _delete(self, db: psycopg.Connection[Any]) -> None:
        table, key = self._a_table()
        db.execute(sql.SQL("DELETE FROM {} WHERE {} = %s").format(table, key), (self._any(),))

    def _give_another_key(self, db: psycopg.Connection[Any]) -> None:
        """Change a key: a delete and an insert for Debezium. The note goes, for it would be left out of both."""
        table, key = self._a_table()
        also = sql.SQL(", note = NULL" if table == sql.Identifier("customers") else "")
        query = sql.SQL(
            "UPDATE {table} SET {key} = %(new)s{also} WHERE {key} = %(old)s"
            " AND NOT EXISTS (SELECT FROM {table} WHERE {key} = %(new)s)"
        ).format(table=table, key=key, also=also)
        db.execute(query, {"old": self._any(), "new": self._any()})

    def _a_table(self) -> tuple[sql.Identifier, sql.Identifier]:
        """Return one of the tables, and its key."""
        table = self._draw.choice(TABLES)
        return sql.Identifier(table), sql.Identifier(COLUMNS[table][0])

    def _any(self) -> int:
        """Return the key of one row, or one that no row has: about every other of them is in use."""
        return self._draw.randint(1, _KEYS)

    def _large(self) -> str:
        return self._draw.choice("abcdef") * _LARGE

    def _open(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

"""`amv explain` and `amv plan --sql`: what keeps a query from being incremental, and what is computed again."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

TABLES = """
tables:
  - name: revenue
    source:
      type: query
      sql: SELECT customer, sum(price) AS revenue FROM orders o JOIN lines l ON l.order_id = o.id GROUP BY customer
      inputs: {orders: raw/orders, lines: raw/lines}
    key: [customer]
    strategy: incremental
  - name: newest
    source: {type: query, sql: SELECT id FROM orders ORDER BY id DESC LIMIT 3, inputs: {orders: raw/orders}}
    key: [id]
  - name: dear
    source:
      type: query
      sql: SELECT id FROM orders WHERE total > (SELECT avg(price) FROM lines)
      inputs: {orders: raw/orders, lines: raw/lines}
    key: [id]
  - name: orders
    source: {type: delta, path: raw/orders}
    key: [id]
  - name: checked
    source: {type: query, sql: "SELECT customer, count(*) AS n FROM orders GROUP BY 1", inputs: {orders: raw/orders}}
    key: [customer]
    checks: [{unique: [n]}]
  - name: daily
    source: {type: query, sql: "SELECT id, current_date() AS day FROM orders", inputs: {orders: raw/orders}}
    key: [id]
  - name: above
    source: {type: query, sql: SELECT id FROM nowhere, inputs: {nowhere: raw/nowhere}}
    key: [id]
  - name: copied
    source: {type: query, sql: SELECT id FROM orders WHERE id > 3, inputs: {orders: raw/orders}}
    key: [id]
"""
SAID = """\
revenue: incremental, by customer
  lines   followed
  orders  followed

newest: not incremental
  `LIMIT` makes every row depend on every other
  To make it incremental: keep the rank as a column, row_number() OVER (PARTITION BY ...), and filter by it.

dear: incremental for some inputs, by id
  lines   not followed
  orders  followed
  lines: a subquery over lines decides about every row
  To make it incremental: join it by a column, or make its value a table of its own, with a column to join by.

orders: its source is not a query

checked: not incremental
  the check unique n is about all rows
  orders  followed

daily: not incremental
  the query is not deterministic (current_date)
  orders  followed

above: not incremental
  source: WAREHOUSE/raw/nowhere is not a Delta table.

copied: incremental, row by row
  orders  followed
"""


@pytest.fixture
def shop(amv, spark):
    """Two inputs."""
    for name, sql in (
        ("orders", "SELECT id, id % 5 AS customer, id * 2 AS total FROM range(20)"),
        ("lines", "SELECT id AS line_id, id % 20 AS order_id, id AS price FROM range(60)"),
    ):
        spark.sql(sql).write.format("delta").save(str(amv.warehouse / "raw" / name))
    return amv


@pytest.mark.in_test_all
def test_explain_names_what_keeps_a_query_from_being_incremental_and_what_to_write(shop):
    said = shop("explain", shop.file(TABLES))

    assert (said.code, said.out) == (0, SAID.replace("WAREHOUSE", str(shop.warehouse))), said.err
    assert not shop.store.tables()


@pytest.mark.in_test_all
def test_explain_fails_if_a_query_is_not_as_its_definition_asks(shop):
    wrong = TABLES.replace("key: [id]\n  - name: dear", "key: [id]\n    strategy: incremental\n  - name: dear")

    said = shop("explain", shop.file(wrong))
    document = shop("explain", shop.file(wrong), "--json").document

    assert said.code == 1
    assert "although `strategy: incremental` asks for it: newest." in said.out
    assert {each["table"] for each in document["tables"] if each["is_incremental"]} == {"revenue", "copied"}


def test_plan_shows_what_is_computed_again_and_how_it_is_found(shop, spark):
    assert shop("apply", shop.file(TABLES)).code == 0
    assert shop("refresh", "revenue").code == 0
    spark.sql(f"UPDATE delta.`{shop.warehouse}/raw/lines` SET price = 7 WHERE line_id IN (3, 4)")

    said = shop("plan", "revenue", "--sql")

    assert said.code == 0, said.err
    head, _, sql = said.out.partition("\n\nSELECT")
    lines = [line.split() for line in head.splitlines()]
    assert ["touched", "by", "customer:", "about", "2"] in lines
    assert [line[:3] for line in lines if line and line[0] in ("orders", "lines")] == [
        ["lines", "2", "60"],
        ["orders", "0", "-"],
    ]
    assert "`gone_lines`" in sql
    assert "`came_lines`" in sql

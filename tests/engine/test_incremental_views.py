"""Queries over several Delta tables that follow the changes of their inputs."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from airflow_mv_provider import Query
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.exceptions import ChangesWrongError
from airflow_mv_provider.sources.query.spark_plan import pinned_sql
from tests.conftest import Crash

pytestmark = pytest.mark.slow

TABLES = {
    "customers": "SELECT id AS customer_id, concat('c', id) AS name, id % 3 AS region FROM range(20)",
    "orders": "SELECT id AS order_id, id % 20 AS customer_id, date_add(DATE '2026-01-01', int(id % 90)) AS day"
    " FROM range(60)",
    "lines": "SELECT id AS line_id, id % 60 AS order_id, CAST(id * 1.5 AS DECIMAL(12, 2)) AS price FROM range(300)",
}
REVENUE = """
    SELECT c.customer_id, month(o.day) AS month, sum(l.price) AS revenue, count(*) AS lines
    FROM customers c JOIN orders o ON o.customer_id = c.customer_id JOIN lines l ON l.order_id = o.order_id
    GROUP BY c.customer_id, month(o.day)
"""
# As people write them; the key is the first column, or the first two.
SHAPES = {
    "rows joined": "SELECT l.line_id, c.name, l.price FROM customers c JOIN orders o USING (customer_id)"
    " JOIN lines l USING (order_id)",
    "customers with their orders, or none": "SELECT c.customer_id, c.name, count(o.order_id) AS orders,"
    " min(o.day) AS first FROM customers c"
    " LEFT JOIN orders o ON o.customer_id = c.customer_id AND o.day < DATE '2026-02-15'"
    " GROUP BY c.customer_id, c.name",
    "orders without lines": "SELECT o.order_id, o.day FROM orders o LEFT JOIN lines l ON l.order_id = o.order_id"
    " WHERE l.line_id IS NULL",
    "last order of each customer": "SELECT customer_id, order_id, day FROM (SELECT *, row_number() OVER"
    " (PARTITION BY customer_id ORDER BY day DESC, order_id DESC) AS place FROM orders) WHERE place = 1",
    "QUALIFY": "SELECT customer_id, order_id FROM orders"
    " QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY day, order_id) = 1",
    "EXISTS": "SELECT customer_id, name FROM customers c WHERE EXISTS"
    " (SELECT 1 FROM orders o WHERE o.customer_id = c.customer_id AND o.day > DATE '2026-02-20')",
    "NOT IN": "SELECT order_id, day FROM orders WHERE order_id NOT IN (SELECT order_id FROM lines WHERE price > 400)",
    "SEMI and ANTI JOIN": "SELECT c.customer_id, c.name FROM customers c"
    " LEFT SEMI JOIN orders o ON o.customer_id = c.customer_id"
    " LEFT ANTI JOIN lines l ON l.order_id = c.customer_id AND l.price > 400",
    "UNION ALL": "SELECT customer_id, name AS text FROM customers WHERE region = 0"
    " UNION ALL SELECT order_id + 1000, string(day) FROM orders WHERE customer_id > 15",
    "DISTINCT and HAVING": "SELECT DISTINCT order_id, max(price) AS most FROM lines"
    " GROUP BY order_id HAVING count(*) > 4",
    "RIGHT JOIN": "SELECT o.order_id, max(l.price) AS most FROM lines l RIGHT JOIN orders o ON l.order_id = o.order_id"
    " GROUP BY o.order_id",
    "a CTE named as its input, as dbt's models": "WITH orders AS (SELECT * FROM orders WHERE customer_id < 18),"
    " paid AS (SELECT order_id, sum(price) AS amount, count(DISTINCT price) AS prices FROM lines GROUP BY 1),"
    " final AS (SELECT orders.order_id, orders.customer_id, coalesce(paid.amount, 0) AS amount, paid.prices"
    " FROM orders LEFT JOIN paid ON orders.order_id = paid.order_id)"
    " SELECT * FROM final",
    "a value of a subquery": "SELECT o.order_id, (SELECT count(*) FROM lines l WHERE l.order_id = o.order_id) AS lines"
    " FROM orders o",
    "medians and names in quotes": "SELECT `o`.`Customer_ID` AS `the customer`, percentile(l.price, 0.5) AS `median`"
    " FROM orders AS o JOIN lines AS l ON l.order_id = o.order_id GROUP BY 1",
    "LEFT JOIN USING": "SELECT customer_id, count(o.order_id) AS orders FROM customers LEFT JOIN orders o"
    " USING (customer_id) GROUP BY customer_id",
    "LATERAL VIEW": "SELECT customer_id, part FROM customers"
    " LATERAL VIEW explode(array(name, concat(name, '!'))) p AS part",
}
KEYS = {"last order of each customer": 1, "rows joined": 1, "LATERAL VIEW": 2}
CHANGES = (
    "UPDATE {lines} SET price = price + 1 WHERE line_id % 100 = 7",
    "DELETE FROM {lines} WHERE order_id IN (9, 29)",
    "INSERT INTO {orders} VALUES (1000, 3, DATE '2026-03-15'), (1001, 99, DATE '2026-03-16')",
    "INSERT INTO {lines} VALUES (2000, 1000, 555.00), (2001, 9, 500.00)",
    "UPDATE {customers} SET name = 'other', region = 0 WHERE customer_id = 5",
    "INSERT INTO {customers} VALUES (50, 'new', 1), (99, 'late', 2)",
    "DELETE FROM {orders} WHERE order_id IN (4, 24, 44)",
    "UPDATE {orders} SET customer_id = 2 WHERE order_id = 8",
)


class Views:
    """A lake with some inputs and one table over them."""

    def __init__(self, lake: Any) -> None:
        self.lake, self.sql = lake, ""
        for name, sql in TABLES.items():
            lake.write(sql, f"raw/{name}")
            lake.spark.sql(f"ALTER TABLE {self.table(name)} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")

    def table(self, name: str) -> str:
        return f"delta.`{self.lake.root}/raw/{name}`"

    def of(self, sql: str, key: list[str], **more: Any) -> None:
        self.sql = sql
        inputs = {name: f"raw/{name}" for name in TABLES}
        self.lake.apply(source=Query(sql, inputs=inputs), key=key, guards={"max_deleted_fraction": 1.0}, **more)
        self.lake.refresh()

    def pinned(self, sql: str) -> str:
        """The query over the inputs as they are."""
        return pinned_sql(sql, {name: f"SELECT * FROM {self.table(name)}" for name in TABLES})

    def change(self, *statements: str) -> None:
        tables = {name: self.table(name) for name in TABLES}
        for each in statements:
            self.lake.spark.sql(each.format(**tables))

    def is_the_query(self) -> None:
        """Compare main with what the query returns now, as multisets."""
        found = self.lake.spark.sql(self.pinned(self.sql))
        rows = found.select(sorted(f"`{name}`" for name in found.columns)).collect()
        assert Counter(self.lake.rows("orders")) == Counter(tuple(row) for row in rows)

    def follows(self) -> Any:
        report = self.lake.refresh(strategy="incremental")
        assert (report.strategy, report.outcome) == ("incremental", Outcome.PUBLISHED), report.reason
        self.is_the_query()
        assert self.lake.spark.catalog.listTables() == []
        return report


@pytest.fixture
def views(lake: Any) -> Views:
    return Views(lake)


def test_groups_that_changed_rows_belong_to_are_computed_again(views):
    views.of(REVENUE, ["customer_id", "month"])
    views.change(
        "UPDATE {lines} SET price = price + 1 WHERE line_id = 7",
        "DELETE FROM {lines} WHERE order_id IN (9, 29)",  # a group vanishes
        "INSERT INTO {orders} VALUES (1000, 3, DATE '2026-07-01')",
        "INSERT INTO {lines} VALUES (2000, 1000, 5.00)",  # a group appears
        "UPDATE {customers} SET name = 'other' WHERE customer_id = 5",  # touches a unit that stays as it is
    )

    report = views.follows()

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 1, 1)


@pytest.mark.in_test_all
@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_follows_changes_of_all_its_inputs_and_of_each(views, shape):
    sql = SHAPES[shape]
    key = views.lake.spark.sql(views.pinned(sql)).columns[: KEYS.get(shape, 1)]
    views.of(sql, key)

    views.change(*CHANGES)
    views.follows()

    read = {name for name in TABLES if name in sql}
    for name, statement in (
        ("customers", "DELETE FROM {customers} WHERE customer_id IN (3, 16)"),
        ("orders", "UPDATE {orders} SET day = date_add(day, 20), customer_id = 19 WHERE order_id % 20 = 11"),
        ("lines", "UPDATE {lines} SET order_id = order_id + 1, price = 450 WHERE line_id % 50 = 3"),
    ):
        views.change(statement)
        if name in read:
            views.follows()


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT order_id, day FROM orders ORDER BY day LIMIT 70", "`LIMIT` makes every row depend on every other"),
        (
            "SELECT order_id, rank() OVER (ORDER BY day, order_id) AS r FROM orders",
            "a window function without PARTITION BY",
        ),
        pytest.param(
            "SELECT posexplode(array(o.day)) AS (place, at), o.order_id"
            " FROM orders o JOIN customers c ON c.customer_id = o.customer_id",
            "Spark and this package understand the query differently",
            marks=pytest.mark.in_test_all,
        ),
        pytest.param(
            "SELECT order_id, to_json(struct(day AS TheDay)) AS text FROM orders"
            " WHERE order_id IN (SELECT l.order_id FROM lines l)",
            "Spark and this package understand the query differently",
            marks=pytest.mark.in_test_all,
        ),
        pytest.param(
            "SELECT order_id, price > (SELECT avg(price) FROM lines) AS is_dear FROM lines WHERE line_id < 60",
            "a subquery over lines decides about every row",
            marks=pytest.mark.in_test_all,
        ),
    ],
)
def test_query_that_cannot_be_followed_is_computed_as_a_whole_and_says_why(views, sql, reason):
    views.of(sql, ["order_id"])
    views.change(
        "UPDATE {orders} SET day = date_add(day, 1) WHERE order_id = 3", "DELETE FROM {lines} WHERE line_id = 8"
    )

    report = views.lake.refresh(strategy="incremental")

    assert report.strategy != "incremental"
    assert f"not incremental: {reason}" in report.reason
    views.is_the_query()


@pytest.mark.in_test_all
def test_inputs_without_a_feed_are_followed_by_their_files_and_a_compaction_changes_nothing(views):
    views.of(REVENUE, ["customer_id", "month"])
    views.change(*(f"ALTER TABLE {{{name}}} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)" for name in TABLES))
    views.change(*CHANGES)
    views.follows()

    views.lake.write(f"SELECT * FROM {views.table('lines')}", "raw/lines", mode="append")
    views.change("DELETE FROM {lines} WHERE true", "INSERT INTO {lines} SELECT id, id % 60, 2.5 FROM range(300)")
    views.lake.refresh()
    views.is_the_query()
    views.change("OPTIMIZE {lines}")
    assert views.lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_plan_shows_what_would_be_computed_again_and_the_report_what_was(views):
    views.of(REVENUE, ["customer_id", "month"])
    views.change(
        "UPDATE {lines} SET price = price + 1 WHERE line_id IN (7, 8)",
        "UPDATE {customers} SET name = 'other' WHERE customer_id = 5",
    )

    plan = views.lake.refresher().plan("orders", Request(strategy="incremental"))
    report = views.follows()

    units = plan.units
    assert units.columns == ("customer_id", "month")
    assert {each.name: each.num_changed for each in units.inputs} == {"customers": 1, "orders": 0, "lines": 2}
    assert {each.name: each.num_rows for each in units.inputs} == {"customers": 20, "orders": None, "lines": 300}
    assert len(units.queries) == 4
    assert all("gone_" in sql or "came_" in sql for sql in units.queries)
    num_rows = len(views.lake.rows("orders"))
    expected = 2 + num_rows // 20  # one customer of twenty is taken to be in a twentieth of the table's rows
    assert next(each.num_units for each in plan.estimates if each.strategy == "incremental") == expected
    assert report.reason.endswith("; 4 units of customer_id, month computed again (customers: 2, lines: 2)")


@pytest.mark.in_test_all
def test_small_views_are_computed_as_a_whole_unless_incremental_was_asked_for(views):
    views.of(REVENUE, ["customer_id", "month"])
    views.change("UPDATE {lines} SET price = price + 1")

    report = views.lake.refresh()

    assert report.strategy == "corrections"
    why = next(each.why for each in report.estimates if each.strategy == "incremental")
    assert re.fullmatch(r"[0-9.]+ s slower", why)
    views.is_the_query()
    views.change("UPDATE {lines} SET price = price + 1")
    views.follows()


@pytest.mark.in_test_all
def test_view_is_computed_as_a_whole_where_spark_rejects_what_would_find_its_units(views):
    """Two columns of a derived table have one name, which nobody asks for."""
    views.of(
        "SELECT u.region, count(*) AS n FROM (SELECT c.customer_id, o.customer_id, c.region, max(o.day) AS day"
        " FROM customers c JOIN orders o ON o.customer_id = c.customer_id GROUP BY 1, 2, 3) AS u"
        " WHERE u.day > DATE '2026-01-02' GROUP BY u.region",
        ["region"],
    )
    views.change("DELETE FROM {orders} WHERE customer_id IN (3, 4)")

    report = views.lake.refresh(strategy="incremental")

    assert report.strategy == "corrections"
    assert "not incremental: Spark rejects what would find its units (AMBIGUOUS_" in report.reason
    views.is_the_query()
    assert views.lake.spark.catalog.listTables() == []


@pytest.mark.in_test_all
def test_every_so_often_the_changes_are_compared_with_the_whole_query(views):
    """The change feed of an input has one wrong value, as a disk would give it."""
    views.lake.spark.conf.set("spark.sql.parquet.compression.codec", "uncompressed")
    views.of("SELECT order_id, sum(line_id) AS s FROM lines GROUP BY order_id", ["order_id"], verify_every=4)
    written = set((views.lake.root / "raw/lines/_change_data").glob("*.parquet"))
    for number in (1, 2):
        views.change(f"UPDATE {{lines}} SET price = {number} WHERE line_id = 7")
        views.follows()
    views.change("UPDATE {lines} SET line_id = 1234567 WHERE line_id = 7")
    for file in set((views.lake.root / "raw/lines/_change_data").glob("*.parquet")) - written:
        rotten = file.read_bytes().replace((7).to_bytes(8, "little"), (9).to_bytes(8, "little"))
        file.write_bytes(rotten)
        file.with_name(f".{file.name}.crc").unlink()

    with pytest.raises(ChangesWrongError, match=r"1 keys would differ.*order_id"):
        views.lake.refresh(strategy="incremental")
    report = views.lake.refresh(strategy="incremental")

    assert report.strategy == "corrections"
    views.is_the_query()


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["staging.after", "seal.after", "publish.after"])
def test_view_killed_anywhere_comes_out_right(views, crash_at, point):
    views.of(REVENUE, ["customer_id", "month"])
    views.change(*CHANGES)
    crash_at(point)
    with pytest.raises(Crash):
        views.lake.refresh()
    views.lake.clock.pass_ms(views.lake.settings.lease_ms + 1)
    views.change("UPDATE {lines} SET price = 1 WHERE line_id = 10")

    views.lake.refresh()

    views.lake.refresh()
    views.is_the_query()
    assert views.lake.workspaces() == []
    found = views.lake.refresh(force=True)
    assert found.rows_inserted + found.rows_updated + found.rows_deleted == 0


@pytest.mark.in_test_all
def test_view_is_computed_as_a_whole_once_vacuum_has_removed_what_its_change_is_read_from(views):
    views.of(REVENUE, ["customer_id", "month"])
    views.change(*CHANGES)
    gone = list((views.lake.root / "raw/lines/_change_data").glob("*.parquet"))
    for file in gone:
        file.unlink()

    assert gone
    report = views.lake.refresh(strategy="incremental")

    assert report.strategy != "incremental"
    assert "cannot be read" in report.reason
    views.is_the_query()
    views.change("UPDATE {lines} SET price = 3 WHERE line_id = 11")
    views.follows()


def _texts(views: Views, columns: str) -> tuple[list[Any], list[Any]]:
    """Main's rows and the query's, of expressions whose values Python carries as they are."""
    main, query = f"delta.`{views.lake.root}/orders`", f"({views.pinned(views.sql)})"
    found = (views.lake.spark.sql(f"SELECT {columns} FROM {each}").collect() for each in (main, query))
    return tuple(sorted(tuple(row) for row in rows) for rows in found)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("statement", "sql", "columns"),
    [
        pytest.param(
            "UPDATE {customers} SET name = CAST(X'41FF' AS STRING) WHERE customer_id IN (3, 4)",
            "SELECT name, count(*) AS n, sum(region) AS s FROM customers GROUP BY name",
            "hex(name), n, s",
            id="texts that are no UTF-8",
        ),
        pytest.param(
            "INSERT INTO {orders} VALUES (1000, 1, DATE '0099-03-01'), (1001, 2, DATE '0001-01-01')",
            "SELECT day, count(*) AS n, sum(customer_id) AS s FROM orders GROUP BY day",
            "string(day), n, s",
            id="days of years that Python writes otherwise",
            marks=pytest.mark.in_test_all,
        ),
        pytest.param(
            "INSERT INTO {orders} VALUES (1000, 1, make_date(10000, 1, 1))",
            "SELECT day, count(*) AS n, sum(customer_id) AS s FROM orders GROUP BY day",
            "string(day), n, s",
            id="days that Python does not know",
            marks=pytest.mark.in_test_all,
        ),
    ],
)
def test_units_are_found_whose_values_python_would_carry_as_others(views, statement, sql, columns):
    views.change("ALTER TABLE {customers} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)", statement)
    views.of(sql, [sql.split(" ")[1].rstrip(",")])
    views.change(
        "UPDATE {customers} SET region = region + 1 WHERE customer_id = 3",
        "UPDATE {orders} SET customer_id = customer_id + 1 WHERE order_id >= 1000 OR order_id = 1",
    )

    report = views.lake.refresh(strategy="incremental")

    assert report.strategy == "incremental", report.reason
    main, query = _texts(views, columns)
    assert main == query


@pytest.mark.parametrize(
    ("statement", "change", "sql", "columns"),
    [
        pytest.param(
            "UPDATE {customers} SET name = CAST(X'41FF' AS STRING) WHERE customer_id = 3",
            "UPDATE {customers} SET region = region + 1 WHERE customer_id = 3",
            "SELECT name, sum(region) AS s FROM customers GROUP BY name",
            "hex(name), s",
            id="texts that are no UTF-8",
        ),
        pytest.param(
            "INSERT INTO {orders} VALUES (1000, 1, DATE '1582-10-07')",
            "UPDATE {orders} SET customer_id = 2 WHERE order_id = 1000",
            "SELECT day, sum(customer_id) AS s FROM orders GROUP BY day",
            "string(day), s",
            id="days that Java's older calendar lacks",
        ),
    ],
)
def test_values_that_the_feed_shows_as_others_are_read_from_the_table(views, statement, change, sql, columns):
    views.change(statement)
    views.of(sql, [sql.split(" ")[1].rstrip(",")])
    views.change(change)

    report = views.lake.refresh(strategy="incremental")

    assert report.strategy != "incremental"
    assert "changes cannot be read" in report.reason
    main, query = _texts(views, columns)
    assert main == query


@pytest.mark.in_test_all
def test_units_of_a_union_in_a_union_are_cast_as_its_rows_are(views):
    """A text becomes a day, which becomes a time; the text itself is another time."""
    views.change("UPDATE {customers} SET name = concat('2026-01-', lpad(customer_id + 1, 2, '0'), ' 10:00:00')")
    views.of(
        "SELECT name AS at FROM customers UNION SELECT day FROM orders WHERE order_id < 0"
        " UNION ALL SELECT CAST(date_add(DATE '2030-01-01', int(line_id)) AS TIMESTAMP) AS at FROM lines",
        ["at"],
    )
    views.change("UPDATE {customers} SET name = '2026-02-01 11:00:00' WHERE customer_id = 1")

    views.follows()


@pytest.mark.in_test_all
def test_map_in_a_derived_table_does_not_decide_which_of_its_rows_have_changed(views):
    views.of(
        "SELECT u.region, count(u.day) AS n FROM (SELECT c.region, map('name', c.name) AS names, o.day"
        " FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id) AS u"
        " WHERE coalesce(u.day, DATE '2026-01-01') > '2025-01-01' GROUP BY u.region",
        ["region"],
    )
    views.change(*CHANGES)

    views.follows()


@pytest.mark.in_test_all
def test_rows_that_a_subquery_leaves_out_are_not_cast_to_find_units(views):
    views.change("UPDATE {customers} SET name = string(customer_id) WHERE region = 0")
    views.of(
        "SELECT CAST(c.name AS INT) AS number, count(*) AS n FROM customers c"
        " WHERE c.region IN (SELECT l.line_id FROM lines l WHERE l.line_id = 0) GROUP BY CAST(c.name AS INT)",
        ["number"],
    )
    views.change("UPDATE {customers} SET name = concat(name, '1') WHERE customer_id IN (3, 4)")

    views.follows()

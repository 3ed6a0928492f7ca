"""TPC-H's queries as tables that follow their inputs, under its refresh functions and changes of each input."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from airflow_mv_provider import Query
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.sources.query.spark_plan import pinned_sql
from tests import tpch

pytestmark = [pytest.mark.slow, pytest.mark.in_test_all]

# So few rows with so few values that each query finds some, and each change reaches some of them.
ROWS = {
    "region": "SELECT id AS r_regionkey, element_at(array('AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'), "
    "int(id) + 1)"
    " AS r_name, 'r' AS r_comment FROM range(5)",
    "nation": "SELECT id AS n_nationkey, element_at(array('FRANCE', 'GERMANY', 'BRAZIL', 'CANADA', 'SAUDI ARABIA', "
    "'INDIA',"
    " 'JAPAN', 'KENYA', 'PERU', 'CHINA'), int(id) + 1) AS n_name, element_at(array(3, 3, 1, 1, 4, 2, 2, 0, 1, 2),"
    " int(id) + 1) + 0L AS n_regionkey, 'n' AS n_comment FROM range(10)",
    "supplier": "SELECT id AS s_suppkey, concat('Supplier#', id) AS s_name, 'street' AS s_address, id % 10 AS "
    "s_nationkey,"
    " '11-1' AS s_phone, CAST(id * 10 AS DECIMAL(12,2)) AS s_acctbal,"
    " if(id % 7 = 3, 'Customer has Complaints', 's') AS s_comment FROM range(20)",
    "customer": "SELECT id AS c_custkey, concat('Customer#', id) AS c_name, 'street' AS c_address, id % 10 AS "
    "c_nationkey,"
    " concat(element_at(array('13', '31', '23', '29', '30', '18', '17', '99'), int(id % 8) + 1), '-1') AS c_phone,"
    " CAST(id * 3 AS DECIMAL(12,2)) AS c_acctbal, if(id % 2 = 0, 'BUILDING', 'MACHINERY') AS c_mktsegment, 'c' AS "
    "c_comment"
    " FROM range(60)",
    "part": "SELECT id AS p_partkey, element_at(array('forest green', 'blue', 'forest', 'green'),"
    " int(pmod(hash(id, 'n'), 4)) + 1) AS p_name,"
    " 'Manufacturer#1' AS p_mfgr, element_at(array('Brand#12', 'Brand#23', 'Brand#45'), int(id % 3) + 1) AS p_brand,"
    " element_at(array('ECONOMY ANODIZED STEEL', 'LARGE BRASS', 'PROMO TIN', 'SMALL BRASS'),"
    " int(pmod(hash(id, 't'), 4)) + 1) AS p_type,"
    " element_at(array(15, 49, 3, 9), int(pmod(hash(id, 'z'), 4)) + 1) AS p_size,"
    " if(id % 2 = 0, 'MED BOX', 'SM CASE') AS p_container,"
    " CAST(id AS DECIMAL(12,2)) AS p_retailprice, 'p' AS p_comment FROM range(24)",
    "partsupp": "SELECT id % 24 AS ps_partkey, (id * 7) % 20 AS ps_suppkey, int(id * 13 % 90) * 9 + 100 AS ps_availqty,"
    " CAST(id % 11 AS DECIMAL(12,2)) AS ps_supplycost, 'ps' AS ps_comment FROM range(96)",
    "orders": "SELECT id AS o_orderkey, (id * 11) % 50 AS o_custkey, if(id % 3 = 0, 'O', 'F') AS o_orderstatus,"
    " CAST(id * 100 AS DECIMAL(12,2)) AS o_totalprice, date_add(DATE '1993-07-01', int(id * 13 % 1200)) AS "
    "o_orderdate,"
    " element_at(array('1-URGENT', '2-HIGH', '3-MEDIUM', '5-LOW'), int(id % 4) + 1) AS o_orderpriority, 'k' AS "
    "o_clerk,"
    " 0 AS o_shippriority, if(id % 9 = 0, 'special requests', 'o') AS o_comment FROM range(300)",
    "lineitem": "SELECT id % 300 AS l_orderkey, pmod(hash(id, 'l'), 96) % 24 + 0L AS l_partkey,"
    " pmod(hash(id, 'l'), 96) * 7 % 20 + 0L AS l_suppkey,"
    " int(id / 300) + 1 AS l_linenumber, CAST(id * 17 % 130 AS DECIMAL(12,2)) AS l_quantity,"
    " CAST(id % 97 * 10 AS DECIMAL(12,2)) AS l_extendedprice, CAST(id % 10 / 100 AS DECIMAL(12,2)) AS l_discount,"
    " CAST(id % 8 / 100 AS DECIMAL(12,2)) AS l_tax, element_at(array('R', 'A', 'N'), int(id % 3) + 1) AS "
    "l_returnflag,"
    " if(id % 2 = 0, 'F', 'O') AS l_linestatus, date_add(DATE '1993-08-01', int(id * 13 % 1200)) AS l_shipdate,"
    " date_add(DATE '1993-08-01', int(id * 13 % 1200) + int(id % 20)) AS l_commitdate,"
    " date_add(DATE '1993-08-01', int(id * 13 % 1200) + int(pmod(hash(id), 30))) AS l_receiptdate,"
    " 'DELIVER IN PERSON' AS l_shipinstruct, element_at(array('MAIL', 'SHIP', 'AIR'), int(id % 3) + 1) AS l_shipmode,"
    " 'l' AS l_comment FROM range(1200)",
}
# The refresh functions: orders come with their lines, others go with theirs.
RF1 = (
    "INSERT INTO {orders} SELECT o_orderkey + 1000, o_custkey, o_orderstatus, o_totalprice, o_orderdate, "
    "o_orderpriority,"
    " o_clerk, o_shippriority, o_comment FROM {orders} WHERE o_orderkey % 40 = 1",
    "INSERT INTO {lineitem} SELECT l_orderkey + 1000, l_partkey, l_suppkey, l_linenumber, l_quantity, "
    "l_extendedprice,"
    " l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, "
    "l_shipmode,"
    " l_comment FROM {lineitem} WHERE l_orderkey % 40 = 1",
)
RF2 = (
    "DELETE FROM {lineitem} WHERE l_orderkey % 50 = 2",
    "DELETE FROM {orders} WHERE o_orderkey % 50 = 2",
)
UPDATES = {
    "lineitem": "UPDATE {lineitem} SET l_quantity = 120, l_extendedprice = l_extendedprice + 1, l_receiptdate ="
    " date_add(l_receiptdate, 9) WHERE l_orderkey % 60 = 7",
    "orders": "UPDATE {orders} SET o_orderdate = date_add(o_orderdate, 40), o_orderstatus = 'F' WHERE o_orderkey % "
    "50 = 9",
    "customer": "UPDATE {customer} SET c_nationkey = 2, c_mktsegment = 'BUILDING' WHERE c_custkey IN (7, 20)",
    "supplier": "UPDATE {supplier} SET s_comment = 'Customer Complaints', s_nationkey = 3 WHERE s_suppkey IN (4, 5)",
    "part": "UPDATE {part} SET p_name = 'forest green', p_type = 'SMALL BRASS', p_size = 15 WHERE p_partkey IN (5, 9)",
    "partsupp": "UPDATE {partsupp} SET ps_supplycost = 0.5, ps_availqty = 99 WHERE ps_partkey IN (3, 11)",
    "nation": "UPDATE {nation} SET n_regionkey = 3 WHERE n_nationkey = 7",
    "region": "UPDATE {region} SET r_name = 'EUROPE' WHERE r_regionkey = 0",
}
PARTLY = {15: {"supplier"}, 22: {"orders"}}
FOLLOWED = (1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 15, 16, 18, 20, 21, 22)


@pytest.fixture
def lake(prepared: Any) -> Any:
    def build(lake: Any) -> None:
        for name, sql in ROWS.items():
            lake.write(sql, f"tpch/{name}")
            lake.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", path=f"tpch/{name}")

    return prepared("tpch", build)


def table(lake: Any, name: str) -> str:
    return f"delta.`{lake.root}/tpch/{name}`"


@pytest.mark.parametrize("number", FOLLOWED)
def test_view_follows(lake, number):
    view = tpch.VIEWS[number]
    read = tpch.inputs(number)
    inputs = {name: f"tpch/{name}" for name in sorted(read)}
    guards = {"max_deleted_fraction": 1.0, "allow_empty": True}
    lake.apply(source=Query(view.sql, inputs=inputs), key=list(view.key), guards=guards)
    lake.refresh()
    num_rows = 0

    for names, statements in (
        ({"orders", "lineitem"}, RF1),
        ({"orders", "lineitem"}, RF2),
        *(({name}, (statement,)) for name, statement in UPDATES.items()),
    ):
        if not names & read:
            continue
        for statement in statements:
            lake.spark.sql(statement.format(**{name: table(lake, name) for name in tpch.SCHEMA}))

        report = lake.refresh(strategy="incremental")

        if names & read <= PARTLY.get(number, read):
            assert report.strategy == "incremental" or report.outcome is Outcome.NOTHING_TO_DO, report.reason
        found = lake.spark.sql(pinned_sql(view.sql, {name: f"SELECT * FROM {table(lake, name)}" for name in inputs}))
        rows = found.select(sorted(found.columns)).collect()
        assert Counter(lake.rows("orders")) == Counter(tuple(row) for row in rows), names
        num_rows += len(rows)
    assert num_rows, "the query finds rows"

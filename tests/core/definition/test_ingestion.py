"""Ingestions in definition files and in Python: what a table's source stands for, and what is refused where."""

from __future__ import annotations

import pytest

from airflow_mv_provider import Ingestion, Jdbc, Kafka, RefreshableTable
from airflow_mv_provider.core.definition.document import json_schema
from airflow_mv_provider.core.definition.source import Ingested
from airflow_mv_provider.definition_file import parse, parse_file
from airflow_mv_provider.exceptions import DefinitionError

TEXT = """
ingestions:
  - name: shop
    source: {type: kafka, conn_id: kafka_shop, group: mv-shop, envelope: upsert}
    outputs:
      customers: {topic: shop.customers}
      accounts: {topic: shop.accounts}
  - name: erp
    source: {type: jdbc, conn_id: erp}
    outputs:
      orders: {table: public.orders}
tables:
  - name: accounts
    source: {type: output, of: shop, output: accounts, schema: "id INT"}
    key: [id]
  - name: orders
    source: {type: output, of: erp, output: orders, changes: xmin}
    key: [id]
"""


def test_output_stands_for_a_source_of_the_ingestions_kind():
    accounts, orders = parse(TEXT)

    mark = Ingested(name="shop", output="accounts", group="mv-shop")
    expected = Kafka("shop.accounts", conn_id="kafka_shop", envelope="upsert", schema="id INT", ingestion=mark)
    assert accounts.source == expected
    assert orders.source == Jdbc("erp", table="public.orders", changes="xmin", ingestion=orders.source.ingested)
    assert orders.source.ingested == Ingested(name="erp", output="orders")
    assert [each.name for each in parse_file(TEXT).ingestions] == ["shop", "erp"]


def test_python_gives_the_same_definition():
    shared = {"type": "kafka", "conn_id": "kafka_shop", "group": "mv-shop", "envelope": "upsert"}
    shop = Ingestion(name="shop", source=shared, outputs={"accounts": {"topic": "shop.accounts"}})

    table = RefreshableTable(name="accounts", source=shop.output("accounts", schema="id INT"), key=("id",))

    assert table == parse(TEXT)[0]


def test_table_that_joins_an_ingestion_keeps_its_rows_and_its_position():
    alone = RefreshableTable(
        name="accounts",
        source=Kafka("shop.accounts", conn_id="other", envelope="upsert", schema="id INT"),
        key=("id",),
    )

    assert alone.content_hash == parse(TEXT)[0].content_hash
    assert "ingestion" not in alone.to_json()["source"]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("of: shop", "of: shap", 14, "'shap' is not an ingestion of this file (did you mean shop?)"),
        ("output: accounts", "output: acounts", 14, "the ingestion has no output 'acounts' (did you mean accounts?)"),
        ("of: shop, output: accounts", "of: shop", 14, "source.output: missing"),
        ("of: shop", "of: [shop]", 14, "source.of: expected a name"),
        ('schema: "id INT"', 'schema: "id INT", topic: x', 14, "topic is already given by the ingestion 'shop'"),
        ('schema: "id INT"', 'schema: "id INT", max_records: 5', 14, "max_records would end each table"),
        ("topic: shop.accounts", "topic: shop.accounts, conn_id: x", 3, "conn_id is the same for all outputs"),
        ("jdbc, conn_id: erp", "jdbc, conn_id: erp, group: a", 8, "group is the name of a consumer group"),
        ("jdbc, conn_id: erp", "delta, conn_id: erp", 8, "expected type jdbc or kafka"),
        ("conn_id: erp", "conn: erp", 8, "conn_id is missing"),
        ("name: erp", "name: shop", None, "ingestion 'shop' is defined twice"),
        ("name: erp", "name: 'a b'", 8, "'a b' is not a name"),
        ("type: kafka", "type: output", 3, "an ingestion is not an output"),
    ],
)
def test_wrong_ingestion_is_named_with_its_line(old, new, line, said):
    with pytest.raises(DefinitionError) as error:
        parse(TEXT.replace(old, new))

    assert said in str(error.value)
    assert line is None or f"line {line}," in str(error.value)


def test_ingestions_are_a_list():
    with pytest.raises(DefinitionError, match="`ingestions` is a list"):
        parse("ingestions: {shop: {}}\ntables: []")


def test_json_schema_describes_ingestions_and_outputs():
    schema = json_schema()

    assert schema["properties"]["ingestions"]["items"]["required"] == ["name", "source", "outputs"]
    assert schema["$defs"]["Output"]["required"] == ["type", "of", "output"]
    assert "ingestion" not in schema["$defs"]["Kafka"]["properties"]

"""What a name in Spark's catalog may lead to, and what is done about a main's."""

from __future__ import annotations

import json

import pytest

from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.catalog.entry import Entry, NameStep, name_step, obstacle, parsed, registering
from airflow_mv_provider.core.definition.dag_options import options_of
from airflow_mv_provider.core.definition.identifier import check_catalog_name
from airflow_mv_provider.core.definition.table import parse_table
from airflow_mv_provider.exceptions import DefinitionError, InvalidIdentifierError, NameGoneError, NameTakenError
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier

NAME, MAIN = "spark_catalog.shop.orders", "/wh/gold/orders"
TABLE = {"name": "gold.orders", "source": {"type": "delta", "path": "raw/orders"}, "key": ["id"]}


def entry(location: str | None = MAIN, kind: str = "EXTERNAL", form: str = "delta") -> Entry:
    return Entry(NAME, kind, form, location)


@pytest.mark.parametrize(
    ("found", "recorded", "step"),
    [
        (None, None, NameStep.REGISTER),
        (None, "spark_catalog.shop.former", NameStep.REGISTER),
        (entry(), None, NameStep.RECORD),
        (entry(), NAME, NameStep.NOTHING),
        (entry(f"file:{MAIN}"), NAME, NameStep.NOTHING),
        (entry(f"file://{MAIN}/"), NAME, NameStep.NOTHING),
    ],
)
def test_name_is_registered_once_and_recorded(found, recorded, step):
    assert name_step("gold.orders", NAME, found, MAIN, recorded) is step


def test_name_that_was_registered_and_is_missing_is_not_given_again():
    with pytest.raises(NameGoneError, match=r"dropped or renamed.*CREATE TABLE IF NOT EXISTS `spark_catalog`.`shop`"):
        name_step("gold.orders", NAME, None, MAIN, NAME)


@pytest.mark.parametrize("recorded", [None, NAME])
@pytest.mark.parametrize(
    ("found", "described"),
    [
        (entry("/wh/gold/others"), "an external delta table at /wh/gold/others"),
        (entry(f"{MAIN}/inside"), "an external delta table at /wh/gold/orders/inside"),
        (entry(kind="MANAGED"), "a managed delta table at /wh/gold/orders"),
        (entry(form="parquet"), "an external parquet table"),
        (entry(form=""), "an external unknown table"),
        (entry(None, "VIEW", ""), "a view"),
    ],
)
def test_name_that_leads_elsewhere_is_refused(found, described, recorded):
    with pytest.raises(NameTakenError, match=rf"{NAME} is {described}.*expected an external delta table at {MAIN}"):
        name_step("gold.orders", NAME, found, MAIN, recorded)
    assert obstacle(found, MAIN) is not None


def test_entry_is_what_spark_shows_of_it():
    text = """Catalog: spark_catalog
Database: shop
Table: orders
Owner: root
Created Time: Thu Nov 26 09:34:08 UTC 2026
Type: EXTERNAL
Provider: delta
Comment: two lines
Type: MANAGED
Location: file:/wh/gold/my orders
Partition Provider: Catalog
"""
    assert parsed(NAME, text) == entry("file:/wh/gold/my orders")
    assert parsed(NAME, "Type: VIEW\nView Text: SELECT 1") == entry(None, "VIEW", "")


def test_statement_quotes_what_comes_from_outside():
    statement = registering(NAME, "/wh/it's")

    assert statement == (r"CREATE TABLE IF NOT EXISTS `spark_catalog`.`shop`.`orders` USING delta LOCATION '/wh/it\'s'")


@pytest.mark.parametrize("name", ["orders", "shop.orders", "a.b.c.d", "spark_catalog.shop.", "spark_catalog.s p.o"])
def test_name_without_three_plain_parts_is_refused(name):
    with pytest.raises(InvalidIdentifierError, match=r"is not catalog.schema.table.*Write spark_catalog"):
        check_catalog_name(name)


def test_other_catalogs_are_refused():
    with pytest.raises(InvalidIdentifierError, match="the only catalog that is supported"):
        check_catalog_name("unity.shop.orders")


def test_name_has_one_spelling():
    assert check_catalog_name("Spark_Catalog.Shop.ORDERS") == NAME


def test_source_with_a_path_has_the_document_and_the_hash_that_it_always_had():
    table = parse_table(TABLE)

    assert table.to_json()["source"] == {
        "select": None,
        "watermark": None,
        "type": "delta",
        "path": "raw/orders",
    }
    assert table.content_hash == parse_table(TABLE | {"catalog_name": NAME}).content_hash, "main has the same rows"


def test_source_with_a_name_survives_its_document():
    table = parse_table(TABLE | {"source": {"type": "delta", "table": "spark_catalog.Raw.orders"}})

    assert table.source == DeltaSource(table="spark_catalog.raw.orders")
    assert parse_table(json.loads(json.dumps(table.to_json()))) == table
    assert (table.source.paths, table.source.names) == ((), ("spark_catalog.raw.orders",))
    assert table.source.reads == "spark_catalog.raw.orders"


@pytest.mark.parametrize("source", [{}, {"path": "raw/orders", "table": "spark_catalog.raw.orders"}])
def test_delta_source_has_a_path_or_a_name(source):
    with pytest.raises(DefinitionError, match="give either path or table"):
        parse_table(TABLE | {"source": {"type": "delta"} | source})


def test_inputs_of_a_query_have_paths_or_names():
    inputs = {"o": "raw/orders", "c": {"table": "spark_catalog.raw.customers"}}
    table = parse_table(TABLE | {"source": {"type": "query", "sql": "SELECT * FROM o", "inputs": inputs}})

    assert (table.source.paths, table.source.names) == (("raw/orders",), ("spark_catalog.raw.customers",))
    assert table.to_json()["source"]["inputs"] == inputs
    assert parse_table(table.to_json()) == table


@pytest.mark.parametrize(
    "source",
    [
        {"type": "delta", "table": NAME},
        {"type": "query", "sql": "SELECT * FROM o", "inputs": {"o": {"table": NAME.upper()}}},
    ],
)
def test_table_cannot_be_made_of_its_own_name(source):
    with pytest.raises(DefinitionError, match="a table cannot be made of itself"):
        parse_table(TABLE | {"source": source, "catalog_name": NAME})


def test_frontier_of_a_path_is_stored_as_it_always_was():
    assert DeltaFrontier("id", 3).to_json() == {"type": "delta", "table_id": "id", "version": 3}
    pinned = DeltaFrontier("id", 3, commit="c0ffee")
    assert DeltaFrontier.from_json(pinned.to_json()) == pinned != DeltaFrontier("id", 3, commit="decaf")


def test_frontier_of_a_name_knows_where_it_led():
    frontier = DeltaFrontier("id", 3, "/metastore/raw/orders")

    assert DeltaFrontier.from_json(frontier.to_json()) == frontier


def test_dag_cannot_wait_for_the_commits_of_a_name():
    table = parse_table(TABLE | {"source": {"type": "delta", "table": "spark_catalog.raw.orders"}})

    with pytest.raises(DefinitionError, match="a Delta source with a path"):
        options_of({"tables": {"gold.orders": {"schedule": "source"}}}, (table,))

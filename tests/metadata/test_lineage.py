"""What registered tables read, of every kind of source, in one query on both databases."""

from __future__ import annotations

from sqlalchemy import event

from airflow_mv_provider import DeltaSource, Files, Function, Jdbc, Kafka, Query
from airflow_mv_provider.core.lineage.graph import Edge, Origin, graph_of, table_id
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata.lineage import origins_of
from tests.metadata.rows import acquired, registered, walk


def test_tables_are_told_with_their_state_and_what_they_read(store):
    walk(store, acquired(store, registered(store, "gold.orders")), Phase.NORMAL)
    query = Query("SELECT * FROM a JOIN b USING (id)", inputs={"a": "gold/orders", "b": "/wh/raw/b"})
    checks = [{"references": {"column": "id", "table": "gold.orders", "key": "id"}}, {"not_null": ["id"]}]
    registered(store, "totals", source=query, checks=checks)
    statements = []
    event.listen(store.engine, "before_cursor_execute", lambda *found: statements.append(found[2]))

    found = store.registered_tables()

    assert [(line.table, line.last is not None) for line in found.lines] == [("gold.orders", True), ("totals", False)]
    assert [(each.name, each.location) for each in found.inputs] == [
        *(("gold.orders", "/wh/gold/orders"), ("totals", "/wh/totals")),
    ]
    assert [each.origins for each in found.inputs] == [
        (Origin("raw/orders", "/wh/raw/orders"),),
        (Origin("gold/orders", "/wh/gold/orders"), Origin("/wh/raw/b", "/wh/raw/b")),
    ]
    assert [each.referenced for each in found.inputs] == [(), ("gold.orders",)]
    assert len([each for each in statements if "refreshable_table" in each]) == 1
    assert store.overview().lines == found.lines


def test_without_a_table_there_is_nothing(store):
    assert (store.registered_tables().lines, store.registered_tables().inputs) == ((), ())


def origins(source) -> list[tuple[str, str | None]]:
    stored = source.model_dump(mode="json", by_alias=True)
    return [(each.name, each.location) for each in origins_of(stored, "s3://lake/wh")]


def test_each_kind_of_source_is_told_by_its_paths_or_by_what_it_reads():
    assert origins(DeltaSource("raw/x")) == [("raw/x", "s3://lake/wh/raw/x")]
    assert origins(Files("raw/*.parquet", format="parquet")) == [("raw/*.parquet", "s3://lake/wh/raw/*.parquet")]
    assert origins(Function("jobs.rates:load")) == [("function jobs.rates:load", None)]
    assert origins(Jdbc("shop", table="public.orders")) == [("jdbc shop: public.orders", None)]
    assert origins(Jdbc("shop", query="SELECT 1")) == [("jdbc shop: a query", None)]
    topic = Kafka("orders", conn_id="bus", envelope="upsert", schema="id BIGINT")
    assert origins(topic) == [("kafka orders", None)]


def test_names_of_a_catalog_are_told_as_they_are():
    name = "spark_catalog.gold.orders"
    assert origins(DeltaSource(table=name)) == [(name, name)]
    assert origins(Query("SELECT * FROM a, b", inputs={"a": {"table": name}, "b": "raw/b"})) == [
        *(("raw/b", "s3://lake/wh/raw/b"), (name, name)),
    ]


def test_table_that_is_read_by_its_name_is_that_table(store):
    registered(store, "orders", catalog_name="spark_catalog.gold.orders")
    registered(store, "copies", source=DeltaSource(table="spark_catalog.Gold.orders"))

    graph = graph_of(store.registered_tables().inputs)

    assert Edge(table_id("orders"), table_id("copies")) in graph.edges


def test_a_path_that_no_refresh_would_read_has_no_place():
    assert origins_of({"type": "delta", "path": "../x"}, "/wh") == (Origin("../x", None),)


def test_of_a_kind_that_is_not_installed_nothing_is_known():
    assert origins_of({"type": "unheard_of"}, "/wh") == ()

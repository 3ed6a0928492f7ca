"""Definition files: read safely, named in every error. What a wrong definition gets is in `test_table`."""

from __future__ import annotations

import pytest

from airflow_mv_provider import Function, Query
from airflow_mv_provider.definition_file import load, parse
from airflow_mv_provider.exceptions import ArgumentError, DefinitionError, InvalidIdentifierError

ORDERS = "{name: orders, source: {type: delta, path: raw/orders}, key: [id]}"


def test_file_holds_several_tables_in_their_order(tmp_path):
    file = tmp_path / "tables.yaml"
    file.write_text(
        f"tables:\n- {ORDERS}\n- {ORDERS.replace('orders', 'größen_x'.replace('ö', 'o').replace('ß', 's'))}"
    )

    tables = load(file)

    assert [t.name for t in tables] == ["orders", "grosen_x"]


def test_no_tables_are_no_mistake():
    assert parse("tables: []") == ()


def test_byte_order_mark_is_ignored(tmp_path):
    file = tmp_path / "tables.yaml"
    file.write_text(f"tables: [{ORDERS}]", encoding="utf-8-sig")

    assert [t.name for t in load(file)] == ["orders"]


def test_anchors_save_typing():
    text = f"tables: [{ORDERS[:-1]}, guards: &careful {{allow_empty: false}}}}, " + (
        "{name: b, source: {type: delta, path: b}, key: [id], guards: *careful}]"
    )

    assert [t.guards for t in parse(text)] == [parse(text)[0].guards] * 2


@pytest.mark.parametrize(
    "text",
    [
        f"tables: [{ORDERS}, {ORDERS}]",
        "tables: [a: b: c]",
        "tables: ['",
        "\ttables: []",
        "tables: \x00",
        "tables: !!python/object/apply:os.system [id]",
        "tables: !!python/name:os.system",
        "--- {tables: []}\n--- {tables: []}",
        "? [a]\n: 1",
        "? {a: b}\n: 1",
        "tables: &a [*a]",
        "tables: *nobody",
        "tables: [null]",
        "tables: {name: x}",
        "null",
    ],
)
def test_what_is_no_list_of_tables_is_refused_with_the_files_name(text):
    with pytest.raises(DefinitionError) as caught:
        parse(text, where="here.yaml")

    assert "here.yaml" in caught.value.message


def test_bad_name_keeps_its_class(tmp_path):
    with pytest.raises(InvalidIdentifierError, match=r"here\.yaml"):
        parse(f"tables: [{ORDERS.replace('orders', '_mv_x', 1)}]", where="here.yaml")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ArgumentError, match=r"no\.yaml: the file cannot be read: No such file or directory\."):
        load(tmp_path / "no.yaml")


def test_directory_is_no_file(tmp_path):
    with pytest.raises(ArgumentError, match="the file cannot be read: Is a directory"):
        load(tmp_path)


def test_other_encoding_is_named(tmp_path):
    file = tmp_path / "tables.yaml"
    file.write_bytes("tables: [größe]".encode("latin-1"))

    with pytest.raises(DefinitionError, match=r"tables\.yaml: the file is not UTF-8 text\."):
        load(file)


def test_query_and_function_are_sources():
    query, function = parse(
        """
        tables:
        - name: sales
          source:
            type: query
            sql: SELECT o.id, c.name FROM orders AS o JOIN customers AS c USING (customer_id)
            inputs: {orders: raw/orders, customers: raw/customers}
          key: [id]
        - name: rates
          source: {type: function, callable: "rates:read", select: [day, rate]}
          key: [day]
        """
    )

    assert query.source == Query(
        "SELECT o.id, c.name FROM orders AS o JOIN customers AS c USING (customer_id)",
        inputs={"orders": "raw/orders", "customers": "raw/customers"},
    )
    assert function.source == Function("rates:read", select=["day", "rate"])

"""The definition: what it accepts, what it refuses by name, and what its hash depends on."""

from __future__ import annotations

import json
from functools import cache

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider import DeltaSource, Files, Function, Query
from airflow_mv_provider.core.definition.document import json_schema
from airflow_mv_provider.core.definition.guards import Guards
from airflow_mv_provider.core.definition.table import RefreshableTable, parse_table
from airflow_mv_provider.exceptions import DefinitionError, InvalidIdentifierError
from tests.conftest import a_table

ORDERS = {"name": "orders", "source": {"type": "delta", "path": "raw/orders"}, "key": ["id"]}
QUERY = {"type": "query", "sql": "SELECT * FROM o", "inputs": {"o": "raw/orders"}}
FUNCTION = {"type": "function", "callable": "orders:rows"}
CANARY = "c4n4ry"
CSV = {"type": "files", "path": "raw/*.csv", "format": "csv", "schema": "id INT"}


def refusal(document) -> str:
    with pytest.raises(DefinitionError) as caught:
        parse_table(document)
    return caught.value.message


def test_python_and_document_describe_the_same_table():
    python = RefreshableTable(
        name="gold.flights",
        source=Files("raw/*.csv", format="csv", schema="id INT", options={"header": "true"}, select=["id", "1 AS x"]),
        key=["id"],
        partition_by=["x"],
        guards=Guards(max_deleted_fraction=0.1, allow_empty=True),
        chunk_rows=10,
        adopt=True,
    )
    document = {
        "name": "gold.flights",
        "source": CSV | {"options": {"header": "true"}, "select": ["id", "1 AS x"]},
        "key": ["id"],
        "partition_by": ["x"],
        "guards": {"max_deleted_fraction": 0.1, "allow_empty": True},
        "chunk_rows": 10,
        "adopt": True,
    }

    assert parse_table(document) == python
    assert parse_table(json.loads(json.dumps(python.to_json()))) == python


def test_defaults_are_careful():
    table = parse_table(ORDERS)

    assert (table.publish, table.on_conflict, table.concurrency) == ("atomic", "fail", "reject")
    assert (table.schema_policy, table.on_lost_column) == ("fail", "fail")
    assert (table.guards, table.adopt, table.partition_by) == (Guards(max_deleted_fraction=0.3), False, ())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        *(({name: 1}, name) for name in ("colour", "Name", "keys", "schema", "__class__", "self")),
        *(({"source": CSV | {name: "x"}}, name) for name in ("schema_", "driver", "url", "user", "self", "path_")),
        *(
            ({"source": CSV | {"format": fmt}}, "format")
            for fmt in ("avro", "CSV", "com.evil.Source", "csv\n", "", None)
        ),
        ({"source": CSV | {"format": "org.apache.spark.sql.jdbc"}}, "format"),
        ({"source": CSV | {"type": "pigeon"}}, "pigeon"),
        ({"source": CSV | {"schema": None}}, "a csv source needs a schema"),
        ({"source": CSV | {"schema": ""}}, "a csv source needs a schema"),
        ({"source": CSV | {"format": "json", "schema": None}}, "a json source needs a schema"),
        ({"source": CSV | {"format": "orc", "schema": None}}, "an orc source needs a schema"),
        ({"source": CSV | {"format": "json", "options": {"header": "true"}}}, "forbidden options: header"),
        ({"source": CSV | {"format": "json", "options": {"mode": "DROPMALFORMED"}}}, "forbidden options: mode"),
        ({"source": CSV | {"options": {"allowComments": "true"}}}, "forbidden options: allowComments"),
        *(
            ({"source": CSV | {"options": {name: value}}}, f"{name}: expected one character")
            for name, value in (("quote", "''"), ("escape", "\\\\"), ("comment", "😀"))
        ),
        *(({"source": CSV | {"options": {name: ""}}}, f"{name}: expected a string") for name in ("sep", "encoding")),
        ({"source": CSV | {"format": "orc", "options": {"mergeSchema": "true"}}}, "an orc source takes no options"),
        ({"source": CSV | {"format": "parquet", "options": {"header": "true"}}}, "a parquet source takes no options"),
        *(
            ({"source": CSV | {"schema": f"id INT, {column}"}}, f"the type {kind} (in '{shown}')")
            for column, kind, shown in (
                ("s VARCHAR(10)", "VARCHAR", "s VARCHAR(10)"),
                ("`a b` char (3) NOT NULL, x INT", "CHAR", "`a b` char (3) NOT NULL"),
                ("t TIME", "TIME", "t TIME"),
                ("t time(3) NOT NULL", "TIME", "t time(3) NOT NULL"),
                ("v STRUCT<a: INT, b: ARRAY<VARCHAR(2)>>", "VARCHAR", "v STRUCT<a: INT, b: ARRAY<VARCHAR(2)>>"),
                ("s STRING COLLATE UNICODE_CI", "STRING COLLATE", "s STRING COLLATE UNICODE_CI"),
            )
        ),
        ({"source": {"type": "delta"}}, "source: give either path or table"),
        *(({"source": {k: v for k, v in QUERY.items() if k != name}}, name) for name in ("sql", "inputs")),
        ({"source": QUERY | {"path": "raw/orders"}}, "source.path: unknown name"),
        ({"source": QUERY | {"inputs": {}}}, "source.inputs"),
        ({"source": QUERY | {"inputs": ["o"]}}, "source.inputs"),
        ({"source": QUERY | {"inputs": {"o": "a", "O": "b"}}}, "an input is named twice"),
        *(
            ({"source": QUERY | {"inputs": {name: "raw/orders"}}}, "not an input's name")
            for name in ("", "a b", "a.b", "a`b", "1a", "_mv_x", "_MV_x", "x" * 129, "o\n")
        ),
        *(
            ({"source": QUERY | {"sql": sql}}, "expected one query")
            for sql in (
                "",
                " ",
                "DROP TABLE o",
                "INSERT INTO o SELECT 1",
                "/* x",
                "selected",
                "-- SELECT 1",
                "/* a */ " * 60 + "DROP",
                "EXPLAIN SELECT 1",
            )
        ),
        ({"source": QUERY | {"sql": "SELECT 1 AS _mv_x"}}, "_mv_ is reserved"),
        ({"source": FUNCTION | {"sql": "SELECT 1"}}, "source.sql"),
        *(
            ({"source": FUNCTION | {"callable": name}}, "source.callable")
            for name in (
                "",
                "rows",
                "orders:",
                ":rows",
                "orders:rows()",
                "a b:c",
                "a:b:c",
                "../a:b",
                "orders:rows\n",
                None,
            )
        ),
        ({"source": "raw/orders"}, "source"),
        ({"source": ORDERS["source"] | {1: 2}}, "a name in it is not a string"),
        ({"source": ORDERS["source"] | {None: 2}}, "a name in it is not a string"),
        ({1: 2}, "a name must be a string: put it in quotes"),
        ({"key": []}, "key"),
        ({"key": None}, "key"),
        ({"key": "id"}, "key"),
        ({"key": ["id", "ID"]}, "a column is named twice"),
        ({"key": [1]}, "key.0"),
        ({"partition_by": ["p", "p"]}, "a column is named twice"),
        ({"publish": "progressive"}, "progressive table needs partition_by"),
        ({"publish": "eventual"}, "publish"),
        ({"frozen_before": "a"}, "frozen_before needs partition_by"),
        ({"frozen_before": "", "partition_by": ["p"]}, "frozen_before"),
        ({"on_conflict": "overwrite"}, "on_conflict: overwrite needs order_by"),
        ({"on_conflict": "last"}, "on_conflict"),
        ({"order_by": ["n"]}, "order_by needs on_conflict"),
        ({"on_conflict": "ignore", "order_by": ["n", "N"]}, "a column is named twice"),
        ({"concurrency": "wait"}, "concurrency"),
        ({"schema_policy": "merge"}, "schema_policy"),
        ({"schema_policy": "add", "on_lost_column": "lose"}, "on_lost_column"),
        ({"schema_policy": "ignore", "on_lost_column": "keep"}, "on_lost_column needs schema_policy: add or evolve"),
        (
            {"schema_policy": "add", "on_lost_column": "drop", "partition_by": ["p"], "frozen_before": "a"},
            "on_lost_column: drop rewrites the table",
        ),
        ({"adopt": "yes"}, "adopt"),
        ({"adopt": 1}, "adopt"),
        ({"chunk_rows": 0}, "chunk_rows"),
        ({"chunk_rows": "10"}, "chunk_rows"),
        ({"chunk_rows": 1.5}, "chunk_rows"),
        *(
            ({"guards": {"max_deleted_fraction": value}}, "guards.max_deleted_fraction")
            for value in (-0.1, 1.1, float("nan"), float("inf"), "0.3", None, True)
        ),
        *(
            ({"guards": {"max_null_fraction": {"amount": value}}}, "guards.max_null_fraction.amount: expected")
            for value in (-0.1, 1.1, float("nan"), "0.3", None, True)
        ),
        *(
            ({"guards": {guard: {"usual": value}}}, f"guards.{guard}.usual: expected")
            for guard in ("max_deleted_fraction", "max_updated_fraction", "max_inserted_fraction")
            for value in (0.5, "3", None, True)
        ),
        (
            {"guards": {"max_changed_partitions": {"usual": 0}}},
            "guards.max_changed_partitions.usual: expected at least",
        ),
        (
            {"guards": {"max_null_fraction": {"a": {"usual": 0.5}}}},
            "guards.max_null_fraction.a.usual: expected at least",
        ),
        ({"guards": {"min_rows": {"usual": 0}}}, "guards.min_rows.usual: expected more than 0.0, found 0"),
        ({"guards": {"min_rows": {"usual": 1.5}}}, "guards.min_rows.usual: expected at most 1.0, found 1.5"),
        ({"guards": {"min_rows": {"usual": float("nan")}}}, "guards.min_rows.usual: expected"),
        ({"guards": {"min_rows": {}}}, "guards.min_rows.usual: missing"),
        ({"guards": {"min_rows": {"usualy": 0.9}}}, "guards.min_rows.usualy: unknown name (did you mean usual?)"),
        ({"guards": {"max_changed_fraction": {"usual": 0.5}}}, "guards.max_changed_fraction.usual: expected at least"),
        ({"guards": {"max_null_fraction": 0.1}}, "guards.max_null_fraction: expected a mapping, found 0.1"),
        ({"guards": {"max_null_fraction": {5: 0.1}}}, "guards.max_null_fraction.5: expected a string"),
        ({"guards": {"max_null_fraction": {"a": 0.1, "A": 0.1}}}, "guards.max_null_fraction: a column is named twice"),
        ({"guards": {"allow_empty": "false"}}, "guards.allow_empty"),
        ({"guards": {"max_lost": 1}}, "guards.max_lost"),
        ({"guards": None}, "guards"),
        ({"name": 5}, "name"),
        ({"name": None}, "name"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(change, named):
    message = refusal(ORDERS | change)

    assert named in message
    assert message.startswith("definition")


@pytest.mark.parametrize(
    "schema",
    [
        "time TIMESTAMP, collate STRING, `char` INT",
        "a STRUCT<time: INT, varchar: STRING>, b DECIMAL(10,2) COMMENT 'was CHAR(3), TIME'",
    ],
)
def test_names_of_columns_are_no_types(schema):
    assert parse_table(ORDERS | {"source": CSV | {"schema": schema}}).source.schema_ == schema


@pytest.mark.parametrize(
    "option",
    [
        *("autoDeserialize", "socketFactory", "driver", "url", "path", "mode", "enforceSchema", "columnPruning"),
        *("columnNameOfCorruptRecord", "recursiveFileLookup", "pathGlobFilter", "modifiedAfter", "inferSchema"),
        *("samplingRatio", "spark.jars", "HEADER", "header ", "", "mergeSchema", "basePath", "ignoreCorruptFiles"),
        *("unescapedQuoteHandling", "fs.s3a.access.key", "{{ var.value.secret }}"),
    ],
)
def test_option_that_is_not_known_is_refused(option):
    message = refusal(ORDERS | {"source": CSV | {"options": {option: "SECRET"}}})

    assert "unknown or forbidden options" in message
    assert option in message
    assert "SECRET" not in message


@pytest.mark.parametrize(
    "change",
    [
        {"source": f"jdbc:postgresql://h/d?user=anna&password={CANARY}"},
        {"source": f"s3a://anna:{CANARY}@bucket/in"},
        {"guards": f"token {CANARY}"},
        {"key": f"s3a://anna:{CANARY}@bucket/in"},
        {"chunk_rows": CANARY * 20},
        {"source": CSV | {"options": {"quote": CANARY}}},
        {"password": CANARY},
    ],
    ids=str,
)
def test_value_that_may_be_a_secret_is_not_shown(change):
    assert CANARY not in refusal(ORDERS | change)


def test_every_wrong_key_is_in_one_message():
    message = refusal(ORDERS | {"colour": 1, "chunk_rows": 0, "guards": {"x": 1}})

    assert all(name in message for name in ("colour", "chunk_rows", "guards.x"))


@pytest.mark.parametrize(
    ("document", "kind"), [(None, "nothing"), ([], "a list"), ("orders", "a string"), (5, "a number")], ids=repr
)
def test_document_that_is_no_mapping_is_refused(document, kind):
    assert refusal(document) == f"definition: expected a mapping, found {kind}."


@pytest.mark.parametrize("name", ["x; DROP TABLE y", "x`y", "a.b.c.d", "", "x" * 300, "x\x00", "_mv.x"])
def test_name_that_is_none_is_refused_as_such(name):
    with pytest.raises(InvalidIdentifierError):
        parse_table(ORDERS | {"name": name})


@pytest.mark.parametrize("role", ["key", "partition_by"])
@pytest.mark.parametrize("column", ["", "a\x00b", "_mv_hash", "a`b", "x" * 256])
def test_column_that_is_none_is_refused_as_such(role, column):
    with pytest.raises(InvalidIdentifierError):
        parse_table(ORDERS | {role: [column]})


def test_secret_in_a_template_stays_text():
    table = parse_table(ORDERS | {"source": {"type": "delta", "path": "{{ var.value.secret }}"}})

    assert table.source.path == "{{ var.value.secret }}"


def test_definition_does_not_change():
    with pytest.raises(ValueError, match="frozen"):
        a_table().chunk_rows = 5


def test_group_by_is_the_key_and_then_other_partition_columns():
    table = a_table(key=["b", "a"], partition_by=["p", "a"])

    assert table.group_by == ("b", "a", "p")


@pytest.mark.parametrize(
    "source",
    [Query("SELECT * FROM o", inputs={"o": "raw/orders"}, select=["id"]), Function("package.orders:Rows.all")],
    ids=lambda s: s.type,
)
def test_source_in_python_and_in_a_document_is_the_same(source):
    document = ORDERS | {"source": json.loads(source.model_dump_json(by_alias=True))}

    assert parse_table(document).source == source


# -- content hash ----------------------------------------------------------------------------------------------------

CONTENT = [
    {"source": DeltaSource("raw/other")},
    {"source": DeltaSource("raw/orders", select=["id"])},
    {"source": Files("raw/orders", format="parquet")},
    {"source": Files("raw/orders", format="json", schema="id INT")},
    {"source": Files("raw/orders", format="json", schema="id INT", options={"multiLine": "true"})},
    {"source": Query("SELECT * FROM o", inputs={"o": "raw/orders"})},
    {"source": Query("SELECT id FROM o", inputs={"o": "raw/orders"})},
    {"source": Query("SELECT * FROM o", inputs={"o": "raw/other"})},
    {"source": Query("SELECT * FROM o", inputs={"o": "raw/orders", "p": "raw/other"})},
    {"source": Function("orders:rows")},
    {"source": Function("orders:rows", select=["id"])},
    {"key": ["id", "line"]},
    {"partition_by": ["p"]},
    {"schema_policy": "ignore"},
    {"schema_policy": "add"},
    {"schema_policy": "evolve"},
    {"schema_policy": "add", "on_lost_column": "keep"},
    {"schema_policy": "add", "on_lost_column": "drop"},
]
NOT_CONTENT = [
    {"name": "gold.orders"},
    {"guards": Guards(max_deleted_fraction=1.0, max_null_fraction={"id": 0.0}, allow_empty=True)},
    {"chunk_rows": 1},
    {"adopt": True},
]


def test_content_hash_tells_contents_apart():
    hashes = [a_table().content_hash, *(a_table(**change).content_hash for change in CONTENT)]

    assert len(set(hashes)) == len(hashes)
    assert all(len(h) == 16 for h in hashes)


@pytest.mark.parametrize("change", NOT_CONTENT, ids=lambda c: next(iter(c)))
def test_content_hash_depends_on_nothing_else(change):
    assert a_table(**change).content_hash == a_table().content_hash


def test_fingerprint_says_how_to_find_the_content_not_what_it_is():
    files = {"type": "files", "path": "raw", "format": "parquet"}

    assert a_table(source=files | {"fingerprint": "checksum"}).content_hash == a_table(source=files).content_hash
    with pytest.raises(ValueError, match="fingerprint"):
        a_table(source=files | {"fingerprint": "etag"})


def test_watermark_says_how_to_find_the_content_not_what_it_is():
    delta, function = ({"type": "delta", "path": "raw/orders"}, {"type": "function", "callable": "m:f"})

    assert a_table(source=delta | {"watermark": "t"}).content_hash == a_table(source=delta).content_hash
    with pytest.raises(ValueError, match="cannot have a watermark"):
        a_table(source=function | {"watermark": "t"})
    with pytest.raises(InvalidIdentifierError, match="column name"):
        a_table(source=delta | {"watermark": "_mv_t"})


def test_content_hash_is_the_same_in_every_process_and_order():
    one = parse_table(ORDERS | {"source": CSV | {"options": {"sep": ";", "header": "true"}}})
    other = parse_table(ORDERS | {"source": CSV | {"options": {"header": "true", "sep": ";"}}})

    assert one.content_hash == other.content_hash
    assert a_table().content_hash == "8512436da2e31aa6"


# -- JSON Schema -----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["orders", "gold.orders"])
COLUMNS = st.lists(st.sampled_from(["a", "b", "c", "größe"]), min_size=1, unique=True)


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema())


TIMES = st.builds(lambda usual: {"usual": usual}, st.floats(1, 1e6))
NULLS = st.dictionaries(st.sampled_from(["a", "b", "größe"]), st.floats(0, 1) | TIMES)
GUARDS = st.fixed_dictionaries(
    {"max_null_fraction": NULLS},
    optional={
        "max_deleted_fraction": st.floats(0, 1) | TIMES,
        "max_updated_fraction": st.none() | st.floats(0, 1) | TIMES,
        "max_inserted_fraction": st.none() | st.floats(0, 1e6) | TIMES,
        "min_rows": st.none() | st.integers(1, 10**15) | st.builds(lambda usual: {"usual": usual}, st.floats(0.01, 1)),
        "max_changed_partitions": st.none() | st.integers(0, 10**9) | TIMES,
    },
)


@given(
    name=NAMES, key=COLUMNS, partition_by=COLUMNS, chunk_rows=st.integers(1, 10**9), adopt=st.booleans(), guards=GUARDS
)
def test_what_the_model_writes_the_schema_accepts(name, key, partition_by, chunk_rows, adopt, guards):
    table = a_table(name=name, key=key, partition_by=partition_by, chunk_rows=chunk_rows, adopt=adopt, guards=guards)

    document = {"tables": [json.loads(json.dumps(table.to_json()))]}

    _validator().validate(document)
    assert parse_table(document["tables"][0]) == table


def test_schema_is_a_valid_schema():
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_error_table_needs_a_source_that_reads_the_same_twice():
    with pytest.raises(ValueError, match="errors needs a deterministic source"):
        a_table(source=Function("orders:rows"), errors={})


def test_error_table_changes_what_main_holds():
    assert a_table(errors={}).content_hash != a_table().content_hash
    assert a_table(errors={}).content_hash == a_table(errors={"max_rows": 5}).content_hash

"""Definition files: the design's own example, and every mistake named."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from airflow_mv_provider.core.definition.document import json_schema
from airflow_mv_provider.definition_file import load, parse, parse_file
from airflow_mv_provider.exceptions import DefinitionError

# The example of the design document, its `…` in the schema completed.
FROM_THE_DESIGN = """
tables:
  - name: flights
    source:
      type: files
      path: raw/flights/*.csv
      format: csv
      schema: "year INT, month INT, day INT, carrier STRING, flight INT, origin STRING, dep_delay DOUBLE"
      options: {header: "true", nullValue: "NA"}
      select: ["make_date(year, month, day) AS flight_date", "trunc(make_date(year, month, day), 'MM') AS flight_month", "carrier", "flight", "origin", "dep_delay"]
    key: [flight_date, carrier, flight, origin]
    partition_by: [flight_month]
    guards: {max_deleted_fraction: 0.3, allow_empty: false}
  - name: orders
    source: {type: delta, path: raw/orders}
    key: [o_orderkey]
"""  # noqa: E501

ORDERS: dict[str, Any] = {"name": "orders", "source": {"type": "delta", "path": "raw/orders"}, "key": ["id"]}
CSV = {"type": "files", "path": "raw/*.csv", "format": "csv", "schema": "id INT"}
JSON = {"type": "files", "path": "raw/*.json", "format": "json", "schema": "id INT"}
ORC = {"type": "files", "path": "raw/*", "format": "orc", "schema": "id INT"}
QUERY = {"type": "query", "sql": "SELECT * FROM o", "inputs": {"o": "raw/orders"}}
FUNCTION = {"type": "function", "callable": "orders:rows"}
PARQUET = {"type": "files", "path": "raw/*", "format": "parquet"}


def test_example_of_the_design_parses_as_it_stands():
    flights, orders = parse(FROM_THE_DESIGN)

    assert (flights.name, flights.partition_by, flights.source.path) == (
        "flights",
        ("flight_month",),
        "raw/flights/*.csv",
    )
    assert (orders.name, orders.key) == ("orders", ("o_orderkey",))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tables: [{name: t, source: {type: delta, path: p}, key: [id], colour: red}]", "colour"),
        ("tables: [{name: t, source: {type: delta, path: p, speed: 9}, key: [id]}]", "speed"),
        ("tables: [{name: t, source: {type: delta, path: p}, key: [id], guards: {max_lost: 1}}]", "guards.max_lost"),
        ("tables: [{name: t, source: {type: delta, path: p}, key: [id], chunk_rows: lots}]", "chunk_rows"),
        ("tables: [{name: t, source: {type: delta, path: p}, key: id}]", "key"),
        ("tables: [{name: t, source: {type: delta, path: p}, key: []}]", "key"),
        ("tables: [{name: t, source: {type: delta, path: p}}]", "key"),
        ("tables: [{name: t, source: {path: p}, key: [id]}]", "type"),
        ("tables: [{name: t, source: {type: pigeon, path: p}, key: [id]}]", "pigeon"),
        ("tables: [{name: t, source: {type: files, path: p, format: com.evil.Source}, key: [id]}]", "format"),
        ("tables: [{name: t, source: {type: delta, path: p}, key: [id], key: [other]}]", "'key' appears twice"),
        ("tables: [{name: x; DROP TABLE y, source: {type: delta, path: p}, key: [id]}]", "DROP TABLE"),
        ("tables: []\nviews: []", "views"),
        ("views: []", "tables"),
        ("tables: 3", "tables"),
        ("- a\n- b", "tables"),
        ("", "tables"),
        ("tables: [oops", "line 1"),
        ("tables: [!!python/object/apply:os.system ['true']]", "line 1"),
        (
            "tables:\n- {name: t, chunk_rows: !!int abc}",
            "the file is not YAML in line 2: the value is not a valid int.",
        ),
        (
            "tables:\n- {name: t, chunk_rows: !!timestamp now}",
            "the file is not YAML in line 2: the value is not a valid timestamp.",
        ),
        *(
            (f"tables: [!!{tag} {text}]", f"the value is not a valid {tag}")
            for tag, text in (("bool", "x"), ("int", "''"), ("float", "x"))
        ),
        ("tables: [" + "9" * 5000 + "]", "is not a valid int"),
        ("tables: [!!set [a]]", "expected a mapping node"),
        ('tables: [{name: t, frozen_before: "\\ud800"}]', "frozen_before: expected a string that UTF-8 can encode"),
        ("tables: [{name: t, chunk_rows: " + "9" * 3000 + "}]", "found a number with hundreds of digits"),
        ("tables: [{name: t, !foo bar: 5}]", "the file is not YAML in line 1: the tag '!foo' is not supported."),
        (
            "tables:\n- name: t\n  <<: {key: [id]}",
            "the file is not YAML in line 3: a merge key (<<) is not supported: write its",
        ),
        ("tables: [{5: t}]", "line 1, 5: a name must be a string: put it in quotes"),
        ("tables: [{source: {5: t, type: delta}}]", "source: a name in it is not a string: put it in quotes"),
        (
            "tables: [{source: {type: query, sql: SELECT 1, inputs: {5: p}}}]",
            "line 1, source.inputs.5: expected a string, found 5: put it in quotes",
        ),
        (
            "tables: [{source: {type: function, callable: x}}]",
            "source.callable: 'x' is not of the form module:function",
        ),
        (
            "tables: [{source: {type: files, path: p, format: csv, schema: a INT, options: {quote: ab}}}]",
            "source.options: quote: expected one character, found 2",
        ),
        (
            "tables: [{source: {type: files, path: p, format: csv, schema: a INT, options: {headr: a}}}]",
            "source: unknown or forbidden options: headr (did you mean header?)",
        ),
        (
            "tables: [{source: {type: files, path: p, format: csv, schema: a INT, options: {sep: ''}}}]",
            "source.options: sep: expected a string that is not empty",
        ),
        ("tabels: []\ntables: []", "line 1, unknown key 'tabels' next to `tables` (did you mean tables?)."),
    ],
)
def test_a_mistake_is_named_with_its_file(text, named):
    with pytest.raises(DefinitionError) as caught:
        parse(text, where="here.yaml")

    assert named in caught.value.message
    assert "here.yaml" in caught.value.message


TABLE = "tables:\n- name: orders\n  source: {type: delta, path: raw/orders}\n  key: [id]\n"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("colour: red", "line 5, colour: unknown name; known are name, source, key,"),
        (
            "guards:\n    allow_emty: true",
            "line 6, guards.allow_emty: unknown name (did you mean allow_empty?);",
        ),
        (
            "schema_policy: evolv",
            "line 5, schema_policy: expected 'fail', 'ignore', 'add' or 'evolve', found 'evolv' (did you",
        ),
        ("partition_by: day", "line 5, partition_by: expected a list, found 'day': write [day]."),
        ("chunk_rows: 1.5", "line 5, chunk_rows: expected a whole number, found 1.5."),
        ("adopt: please", "line 5, adopt: expected true or false, found 'please'."),
        ("frozen_before: 5", "line 5, frozen_before: expected a string, found 5: put it in quotes."),
        ("errors: 5", "line 5, errors: expected a mapping, found 5."),
        ("order_by: [n]", "line 2, order_by needs on_conflict"),
    ],
)
def test_what_is_wrong_is_said_in_words_with_its_line(more, told):
    with pytest.raises(DefinitionError) as caught:
        parse(f"{TABLE}  {more}\n", where="here.yaml")

    assert f"here.yaml, definition of 'orders': {told}" in caught.value.message


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("maxColumns: -1", "maxColumns: expected a whole number of at least 1, found '-1'"),
        ("maxColumns: 0", "maxColumns: expected a whole number of at least 1, found '0'"),
        (
            "maxCharsPerColumn: -5",
            "maxCharsPerColumn: expected a whole number of at least 1, or -1 for no limit, found '-5'",
        ),
    ],
)
def test_limit_of_a_reader_that_no_file_keeps_is_refused_with_its_line(option, told):
    text = f"tables:\n- name: t\n  source: {CSV | {'options': {}}}\n  key: [id]\n"

    with pytest.raises(DefinitionError) as caught:
        parse(text.replace("{}", f"{{{option}}}"), where="here.yaml")

    assert f"here.yaml, definition of 't': line 3, source.options: {told}" in caught.value.message


def test_file_without_an_end_is_read_to_a_length():
    with pytest.raises(DefinitionError, match="the file is longer than 16,000,000 bytes"):
        load("/dev/zero")


def test_date_in_a_definition_is_a_text_whatever_the_calendar_says():
    (table,) = parse(f"{TABLE}  partition_by: [day]\n  frozen_before: 2024-02-30\n")

    assert table.frozen_before == "2024-02-30"


def test_flag_of_a_reader_may_be_yamls_own():
    (table,) = parse(json.dumps({"tables": [ORDERS | {"source": CSV | {"options": {"header": False}}}]}))

    assert table.source.options == {"header": "false"}


@pytest.mark.parametrize(
    ("dags", "told"),
    [
        ("defaults: {schedule: abcdef}", "dags of 'orders': line 6, schedule: 'abcdef' is not a schedule"),
        ("tables: {orders: {schedule: 0 0 30 2 *}}", "line 6, schedule: '0 0 30 2 *' is not a schedule"),
        ("defaults: {schedule: 61 * * * *}", "'61 * * * *' is not a schedule"),
        (
            "defaults: {schedule: '@dayly'}",
            "'@dayly' is not a schedule (did you mean @daily?): expected the five fields",
        ),
        ("defaults: {schedule: sourc}", "'sourc' is not a schedule (did you mean source?)"),
        ("defaults: {dag_id: a b}", "dag_id: 'a b' is not a DAG id: use letters, digits, and any of _ . ~ -"),
        ("defaults: {schedule: '@continuous'}", "@continuous needs max_active_runs: 1"),
        ("defaults: {timezone: Europe/Berlim}", "'Europe/Berlim' is not a time zone (did you mean Europe/Berlin?)"),
        ("defaults: {start_date: 2024-02-30}", "start_date: expected a date such as 2026-01-31, found '2024-02-30'."),
        ("defaults: {retry_delay_s: .inf}", "retry_delay_s: expected at most"),
        ("defaults: {retries: " + "9" * 30 + "}", "retries: expected at most"),
        ("tables: {order: {}}", "line 6, tables.order: 'order' is not a table of this file (did you mean orders?)"),
        ("defaults: {shedule: null}", "line 6, shedule: unknown name (did you mean schedule?)"),
    ],
)
def test_dag_that_airflow_would_not_make_is_refused(dags, told):
    with pytest.raises(DefinitionError) as caught:
        parse_file(f"{TABLE}dags:\n  {dags}\n")

    assert told in caught.value.message


@pytest.mark.parametrize(
    "schedule", ["@daily", "@quarterly", "@once", "0 6 * * 1-5", "*/5 0 6 * * *", "@annually", "@Daily", "source", None]
)
def test_schedule_that_airflow_takes_is_accepted(schedule):
    text = f"{TABLE}dags: {{defaults: {{schedule: {json.dumps(schedule)}}}}}"

    assert parse_file(text).dags["orders"].schedule == schedule


def test_one_table_defined_twice_is_named():
    text = json.dumps({"tables": [ORDERS, ORDERS]})

    with pytest.raises(DefinitionError, match="'orders' is defined twice"):
        parse(text)


def _changed(**changes: Any) -> dict[str, Any]:
    return {k: v for k, v in (ORDERS | changes).items() if v is not None}


@pytest.mark.parametrize(
    "table",
    [
        *(_changed(), _changed(source=CSV), _changed(source=PARQUET), _changed(partition_by=["day"])),
        *(_changed(chunk_rows=10, adopt=True), _changed(guards={"max_deleted_fraction": 1, "allow_empty": True})),
        _changed(source=CSV | {"options": {"header": "true"}, "select": ["id"]}),
        *(_changed(source=JSON), _changed(source=JSON | {"options": {"multiLine": "true"}}), _changed(source=ORC)),
        *(_changed(source=QUERY), _changed(source=QUERY | {"select": ["id"]}), _changed(source=FUNCTION)),
        # and wrong ones
        *(_changed(source=QUERY | change) for change in ({"inputs": {}}, {"inputs": {"a b": "p"}}, {"path": "p"})),
        *(_changed(source=FUNCTION | change) for change in ({"callable": "rows"}, {"path": "p"}, {"sql": "SELECT 1"})),
        *(_changed(source=each | {"schema": None}) for each in (JSON, ORC)),
        *(_changed(source=each | {"options": {"header": "true"}}) for each in (JSON, ORC)),
        *(_changed(key=None), _changed(key=[]), _changed(key="id"), _changed(name=None), _changed(source=None)),
        *(_changed(colour="red"), _changed(chunk_rows=0), _changed(chunk_rows="5"), _changed(adopt="yes")),
        *(_changed(guards={"max_deleted_fraction": 2}), _changed(guards={"allow_empty": "no"})),
        *(_changed(guards={"max_deleted_fraction": "0.3"}), _changed(publish="progressive")),
        _changed(publish="progressive", partition_by=["p"]),
        _changed(publish="progressive", partition_by=[]),
        *(_changed(on_conflict="overwrite"), _changed(on_conflict="overwrite", order_by=["n"])),
        *(_changed(on_conflict="ignore"), _changed(order_by=["n"]), _changed(on_conflict="overwrite", order_by=[])),
        *(_changed(schema_policy="evolve"), _changed(schema_policy="merge"), _changed(on_lost_column="fail")),
        *(_changed(on_lost_column="keep"), _changed(on_lost_column="keep", schema_policy="add")),
        *(_changed(on_lost_column="drop", schema_policy="evolve", publish=mode) for mode in ("atomic", "progressive")),
        _changed(on_lost_column="drop", schema_policy="add", frozen_before="a", partition_by=["p"]),
        *(_changed(errors={}), _changed(errors={"max_rows": 5}, source=CSV), _changed(errors={"max_rows": 0})),
        *(_changed(errors={"colour": 1}), _changed(errors={}, source=FUNCTION), _changed(errors={}, source=QUERY)),
        *(_changed(frozen_before="a"), _changed(frozen_before="a", partition_by=["p"]), _changed(frozen_before=1)),
        *(_changed(source={"path": "p"}), _changed(source={"type": "jdbc", "path": "p"})),
        *(_changed(source=CSV | {"schema": None}), _changed(source={k: CSV[k] for k in ("type", "path", "format")})),
        *(_changed(source=CSV | {"options": {"header": value}}) for value in (True, "false", "yes", 1)),
        *(
            _changed(source=CSV | {"options": {name: value}})
            for name in ("maxColumns", "maxCharsPerColumn")
            for value in (5, "5", "five", True, 0, "0", -1, "-1", -5, "-5", 10**9, "05")
        ),
        *(_changed(source=CSV | {"options": {"nullValue": value}}) for value in (False, 0, "NO")),
        *(_changed(source=CSV | {"options": {"quote": value}}) for value in ("'", "", "''", False)),
        *(_changed(source=CSV | {"options": {"sep": value}}) for value in ("||", "", "\t")),
        *(_changed(chunk_rows=10**13), _changed(errors={"max_rows": 10**10}, source=CSV)),
        _changed(source=CSV | {"options": {"mode": "DROPMALFORMED"}}),
        _changed(source=PARQUET | {"options": {"header": "true"}}),
    ],
)
def test_json_schema_and_model_agree(table):
    document = {"tables": [table]}

    problems = list(jsonschema.Draft202012Validator(json_schema()).iter_errors(document))

    try:
        parse(json.dumps(document))
    except DefinitionError as error:
        assert problems, f"only the model refuses it: {error}"
    else:
        assert not problems


def test_json_schema_accepts_the_example_of_the_design():
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.validate(yaml.safe_load(FROM_THE_DESIGN), json_schema())

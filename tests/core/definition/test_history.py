"""Which histories a definition may ask for, and what it makes of a table."""

from __future__ import annotations

import jsonschema
import pytest

from airflow_mv_provider.core.definition.history import History
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.core.definition.table import RefreshableTable, parse_table
from airflow_mv_provider.exceptions import DefinitionError
from tests.conftest import a_table


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ({"columns": ["a"], "exclude": ["b"]}, "give one"),
        ({"valid_from": "x", "valid_to": "X"}, "the same name"),
        ({"valid_to_current": "soon"}, "not a time"),
        ({"valid_to_current": "9999-W01-1"}, "not a time"),
        ({"valid_to_current": "2020-01-01"}, "not a time"),
        ({"valid_to_current": "9999-02-31"}, "day"),
        ({"valid_to_current": "9999-12-31T00:00:00+02:00"}, "not a time"),
        ({"deletes": "ignore"}, "deletes"),
        ({"keep": "2 years"}, "duration"),
        ({"valid_from": "_mv_from"}, "reserved"),
        ("yes", "history"),
    ],
)
def test_definitions_that_are_refused(history, problem):
    document = {"name": "a", "source": {"type": "delta", "path": "x"}, "key": ["id"], "history": history}

    with pytest.raises(DefinitionError, match=problem):
        parse_table(document)


@pytest.mark.parametrize("given", [True, False, None, {}, {"deletes": "mark", "keep": "730d"}])
def test_true_is_a_history_and_false_is_none(given):
    document = {"name": "a", "source": {"type": "delta", "path": "x"}, "key": ["id"], "history": given}
    jsonschema.validate(document, RefreshableTable.model_json_schema())

    table = parse_table(document)

    assert (table.history is not None) == (given not in (False, None))
    assert parse_table(table.to_json()) == table


def test_one_that_is_added_makes_a_refresh_compare_everything_but_no_log_be_read_again():
    plain, kept = a_table(), a_table(history=True)

    assert plain.content_hash != kept.content_hash
    assert kept.content_hash == a_table(history={"exclude": ["v"]}).content_hash
    assert kept.content_hash != a_table(history={"deletes": "mark"}).content_hash
    assert not kept.keeps_content(plain.content_hash)
    source = {"type": "kafka", "topic": "t", "conn_id": "k", "envelope": "upsert", "format": "json", "schema": "id INT"}
    log = {"name": "a", "source": source, "key": ["id"]}
    assert parse_table(log | {"history": True}).keeps_content(parse_table(log).content_hash)
    assert parse_table(log).keeps_content(parse_table(log | {"history": {"deletes": "keep"}}).content_hash)


def test_problems_with_the_columns_of_a_table():
    columns = (Column("id", "long"), Column("at", "timestamp"), Column("Operation", "string"))

    assert History(operation="op").problem(columns, ("id",)) is None
    assert "'Operation'" in (History().problem(columns, ("id",)) or "")
    assert "'b'" in (History(operation="op", exclude=("b",)).problem(columns, ("id",)) or "")
    assert "no time" in (History(operation="op", time="id").problem(columns, ("id",)) or "")
    assert "key" in (History(operation="op", exclude=("id",)).problem(columns, ("id",)) or "")


def test_a_time_without_a_zone_may_be_ahead_of_utc():
    hour = 3600 * 1000
    assert not any(History.latest_ms("timestamp", 0) >= each * hour for each in (1, 14))
    assert all(History.latest_ms(kind, 0) >= 14 * hour for kind in ("date", "timestamp_ntz"))


def test_versions_have_the_columns_that_can_be_compared():
    of_map = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
    found = (Column("id", "long"), Column("m", of_map), Column("x", "variant"), Column("v", "string"))

    assert [column.name for column in History.kept(found)] == ["id", "v"]

"""Exit codes, and what is printed where."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest
from sqlalchemy import Pool, event, text

from airflow_mv_provider.core.definition.document import json_schema
from tests.cli.elsewhere import ORDERS, begin_elsewhere


def test_a_table_that_somebody_refreshes_is_worth_a_retry(amv):
    amv("apply", amv.file(ORDERS))
    begin_elsewhere(amv)

    said = amv("refresh", "orders", "--json")

    assert said.code == 75
    assert (said.document["table"], said.document["outcome"]) == ("orders", "failed")
    assert said.document["error"]["code"] == "MV-REFRESH-IN-PROGRESS"
    assert "elsewhere:1" in said.document["error"]["message"]


@pytest.mark.parametrize("command", ["refresh", "status", "history", "ledger", "cancel", "pause", "resume", "drop"])
def test_an_unknown_table_needs_a_person(amv, command):
    said = amv(command, "nope", "--json")

    assert said.code == 1
    assert said.document["error"]["code"] == "MV-TABLE-UNKNOWN"
    assert said.document["error"]["hint"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("refresh",),
        ("refresh", "orders", "--override", "everything"),
        ("refresh", "orders", "--wait", "-1"),
        ("refresh", "orders", "--wait", "nan"),
        ("history", "orders", "--limit", "0"),
        ("apply",),
        ("status", "--colour"),
        ("explode",),
    ],
)
def test_wrong_usage_is_two_and_leaves_stdout_empty(amv, arguments):
    said = amv(*arguments, "--json")

    assert (said.code, said.out) == (2, "")


def test_db_migrate_then_check(amv):
    before = amv("db", "check", "--json")
    migrated = amv("db", "migrate", "--json")
    after = amv("db", "check", "--json")

    assert (before.code, before.document["error"]["code"]) == (1, "MV-DATABASE-VERSION")
    assert (migrated.code, after.code) == (0, 0)
    assert migrated.document == after.document


def test_a_newer_database_is_refused(amv):
    amv("db", "migrate")
    with amv.store.engine.begin() as db:
        db.execute(text("UPDATE mv_alembic_version SET version_num = '9999'"))

    said = amv("status", "--json")

    assert said.code == 1
    assert "9999" in said.document["error"]["message"]


def test_a_file_that_is_no_database_is_named(amv, run_amv):
    url = f"sqlite:///{amv.file(ORDERS)}"

    said = run_amv("status", "--json", "--database", url)

    assert said.code == 1
    assert "tables.yaml" in said.document["error"]["message"]


def test_schema_prints_the_json_schema(amv):
    assert json.loads(amv("schema").out) == amv("schema", "--json").document == json_schema()


@pytest.mark.parametrize("command", [("apply", "tables.yaml"), ("status",), ("history", "orders"), ("db", "check")])
def test_a_command_closes_its_connections(amv, command):
    opened = Counter[int]()

    def count(by: int) -> Callable[..., None]:
        return lambda connection, *_: opened.update({id(connection): by})

    amv("apply", file := amv.file(ORDERS))
    event.listen(Pool, "connect", connected := count(1))
    event.listen(Pool, "close", closed := count(-1))
    try:
        assert amv(*(file if word == "tables.yaml" else word for word in command)).code == 0
    finally:
        event.remove(Pool, "connect", connected)
        event.remove(Pool, "close", closed)

    assert opened
    assert not +opened

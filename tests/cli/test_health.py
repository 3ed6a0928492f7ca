"""`amv health`: exit codes, hints, ingestions and history."""

from __future__ import annotations

from airflow_mv_provider.core.outcome import ErrorReport
from airflow_mv_provider.core.state import Caller

AWAY = ErrorReport("MV-SOURCE-UNAVAILABLE", "orders: no answer.", "Start it.", True)
DENIED = ErrorReport("MV-SOURCE-DENIED", "lines: refused.", "Grant it.", False)
TABLES = """
ingestions:
  - name: erp
    source: {type: jdbc, conn_id: erp}
    outputs: {orders: {table: public.orders}, lines: {table: public.lines}}
tables:
  - {name: orders, source: {type: output, of: erp, output: orders}, key: [id]}
  - {name: lines, source: {type: output, of: erp, output: lines}, key: [id]}
  - {name: other, source: {type: delta, path: raw}, key: [id]}
"""


def test_health_tells_who_is_stalled_and_what_to_do(amv):
    amv("apply", amv.file(TABLES))
    well = amv("health")
    store = amv.store
    store.obstacles.met(store.table("orders").id, AWAY)
    waits = amv("health", "--json")
    store.obstacles.met(store.table("lines").id, DENIED)
    stalled, other = amv("health"), amv("health", "other")

    assert (well.code, waits.code, stalled.code, other.code) == (0, 75, 1, 0)
    problems = {each["table"]: each["problem"] and each["problem"]["namespace"] for each in waits.document["tables"]}
    assert problems == {"orders": "connection", "lines": None, "other": None}
    assert "orders: orders: no answer. Start it." in stalled.out
    assert "created" in other.out


def test_health_of_an_ingestion_is_that_of_its_tables_and_its_release(amv):
    amv("apply", amv.file(TABLES))
    store = amv.store
    run_id = store.ingestions.bind("erp", "somewhere", Caller("me", "host:1"))
    store.ingestions.end(run_id, None, DENIED)

    found = amv("health", "erp", "--json")

    assert found.code == 1
    assert [each["table"] for each in found.document["tables"]] == ["lines", "orders", "erp (release)"]
    assert found.document["tables"][2]["problem"]["namespace"] == "release"
    assert found.document["tables"][2]["since_ms"] is not None


def test_history_lists_changes(amv):
    amv("apply", amv.file(TABLES))
    store = amv.store
    store.obstacles.met(store.table("orders").id, AWAY)

    found, unnamed, unknown = amv("health", "orders", "--history"), amv("health", "--history"), amv("health", "nobody")

    assert (found.code, unnamed.code, unknown.code) == (0, 2, 1)
    assert "MV-SOURCE-UNAVAILABLE (connection)" in found.out
    assert "MV-TABLE-UNKNOWN" in unknown.err


def test_history_of_an_ingestion_is_that_of_its_tables_and_its_release(amv):
    amv("apply", amv.file(TABLES))
    store = amv.store
    store.obstacles.met(store.table("orders").id, AWAY)
    for number, error in enumerate([None, DENIED, DENIED, None]):
        store.ingestions.end(store.ingestions.bind("erp", "somewhere", Caller(f"me{number}", "host:1")), None, error)

    found, said = amv("health", "erp", "--history", "--json"), amv("health", "erp", "--history")

    changes = {each["table"]: each["changes"] for each in found.document["tables"]}
    assert {table: [change["status"] for change in each] for table, each in changes.items()} == {
        "lines": [],
        "orders": ["stalled"],
        "erp (release)": ["running", "stalled", "running"],
    }
    assert (found.code, said.code) == (0, 0)
    assert "MV-SOURCE-DENIED (release)" in said.out
    assert "lines: no refresh has ended yet." in said.out

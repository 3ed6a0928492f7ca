"""`amv why`: what it prints, and its exit codes."""

from __future__ import annotations

import pytest

TABLES = """
tables:
  - name: orders
    source: {type: delta, path: raw/orders}
    key: [order_id]
"""


@pytest.mark.in_test_all
@pytest.mark.slow
def test_a_row_s_history_is_told_with_text_of_data_escaped(amv, spark):
    rows = spark.sql("SELECT id AS order_id, 'a' AS status FROM range(3)")
    rows.write.format("delta").save(str(amv.warehouse / "raw/orders"))
    assert amv("apply", amv.file(TABLES)).code == 0
    assert amv("refresh", "orders", "--note", "first").code == 0
    spark.sql(rf"UPDATE delta.`{amv.warehouse / 'orders'}` SET status = 'b\u001b[31m' WHERE order_id = 2")

    said = amv("why", "orders", "order_id=2")
    document = amv("why", "orders", "order_id=2", "--column", "status", "--last", "1", "--json").document

    assert said.code == 0
    assert said.out.startswith("orders: order_id=2\n")
    assert "\x1b" not in said.out + said.err
    assert r'now       status="b\u001b[31m"' in said.out
    assert "  insert  version " in said.out
    assert "note      first" in said.out
    assert "UPDATE by another writer" in said.out
    assert r'status: "a" -> "b\u001b[31m"' in said.out
    assert "reading version" in said.err
    [event] = document["events"]
    assert (event["operation"], event["changed"], event["cause"]) == ("update", ["status"], None)
    assert (document["begins"]["rows"], document["begins"]["is_complete"]) == ([{"order_id": 2, "status": "a"}], False)
    wrong = amv("why", "orders", "order_id=two", "--json")
    assert (wrong.code, wrong.document["error"]["code"]) == (2, "MV-ARGUMENT")


@pytest.mark.in_test_all
@pytest.mark.slow
def test_the_versions_of_a_row_are_shown_with_text_of_data_escaped(amv, spark):
    rows = spark.sql(r"SELECT id AS order_id, 'b\u001b[31m' AS status FROM range(3)")
    rows.write.format("delta").save(str(amv.warehouse / "raw/orders"))
    assert amv("apply", amv.file(TABLES + "    history: true\n")).code == 0
    assert amv("refresh", "orders").code == 0

    said = amv("history-of", "orders", "order_id=2")
    none = amv("history-of", "orders", "order_id=7")
    [version] = amv("history-of", "orders", "order_id=2", "--json").document["versions"]

    assert (said.code, none.code) == (0, 0)
    assert "to now  insert by refresh" in said.out
    assert r'status="b\u001b[31m"' in said.out
    assert "The history has no such row." in none.out
    assert (version["operation"], version["valid_to"], version["row"]["order_id"]) == ("insert", None, 2)
    assert amv("history-of", "orders", "id=2").code == 2


def test_wrong_input_is_named_before_spark_starts(amv):
    assert amv("apply", amv.file(TABLES)).code == 0

    incomplete = amv("why", "orders", "--json")
    unknown = amv("why", "orders", "id=1")
    time = amv("why", "orders", "order_id=1", "--since", "then")
    table = amv("why", "nowhere", "order_id=1")

    assert (incomplete.code, incomplete.document["error"]["code"]) == (2, "MV-ARGUMENT")
    assert incomplete.document["error"]["hint"] == "amv why orders order_id=VALUE"
    assert (unknown.code, "'id' is not a column of its key" in unknown.err) == (2, True)
    assert (time.code, "'then' is not a time" in time.err) == (2, True)
    assert (table.code, "MV-TABLE-UNKNOWN" in table.err) == (1, True)
    assert amv("why", "orders", "order_id=1", "--last", "0").code == 2

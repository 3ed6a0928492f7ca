"""`amv refresh --hold`, `amv diff`, `amv approve`, `amv reject`: what they print, and their exit codes."""

from __future__ import annotations

import pytest

from tests.conftest import read_independently

pytestmark = pytest.mark.slow

TABLES = """
tables:
  - name: orders
    source: {type: delta, path: raw/orders}
    key: [id]
    guards: {max_deleted_fraction: 0.1}
    approval: guards
"""


@pytest.fixture
def held(amv, spark):
    """A table whose refresh would delete half of its rows, and is held."""

    def write(sql):
        spark.sql(sql).write.format("delta").mode("overwrite").save(str(amv.warehouse / "raw/orders"))

    write("SELECT id, 'a' AS v FROM range(4)")
    assert amv("apply", amv.file(TABLES)).code == 0
    assert amv("refresh", "orders").code == 0
    write("SELECT id, 'a' AS v FROM range(2)")
    return amv("refresh", "orders", "--json")


def rows(amv):
    return len(read_independently(amv.warehouse / "orders"))


@pytest.mark.in_test_all
def test_a_person_sees_decides_and_finds_the_decision_again(amv, held):
    assert (held.code, held.document["error"]["code"], held.document["outcome"]) == (75, "MV-HELD", "running")
    assert amv("status", "orders", "--json").document["is_held"]
    shown = amv("diff", "orders")
    assert shown.code == 0
    assert 'delete  id=2, v="a"' in shown.out
    hold_id = amv("diff", "orders", "--json").document["hold"]["id"]
    assert f"amv approve orders --hold {hold_id}" in shown.out

    said = amv("approve", "orders", "--hold", hold_id, "--note", "half was recalled", "--json")

    assert (said.code, said.document["outcome"], rows(amv)) == (0, "published", 2)
    assert said.document["hold"]["note"] == "half was recalled"
    again = amv("approve", "orders", "--note", "again")
    assert (again.code, "no refresh of it awaits approval" in again.err) == (1, True)


@pytest.mark.in_test_all
def test_a_rejected_difference_is_not_published(amv, held):
    nameless = amv("reject", "orders")
    assert (nameless.code, "needs a reason" in nameless.err) == (2, True)
    other = amv("reject", "orders", "--hold", "another.0", "--note", "no")
    assert (other.code, "MV-NOT-HELD" in other.err) == (1, True)

    said = amv("reject", "orders", "--note", "the export was cut short")

    assert said.code == 0
    assert "cancelled" in said.out
    assert "the export was cut short" in said.out
    assert rows(amv) == 4


@pytest.mark.in_test_all
def test_one_refresh_is_held_on_request(amv, held, spark):
    amv("reject", "orders", "--note", "no")
    spark.sql("SELECT id, 'a' AS v FROM range(5)").write.format("delta").mode("overwrite").save(
        str(amv.warehouse / "raw/orders")
    )

    said = amv("refresh", "orders", "--hold")

    assert (said.code, "its caller asked for a decision" in said.err) == (75, True)
    assert "orders: awaiting approval" in said.out
    assert "awaiting approval" in amv("history", "orders").out


@pytest.mark.in_test_all
def test_what_was_published_is_taken_back(amv, held):
    amv("approve", "orders", "--note", "looked right")
    nameless = amv("rollback", "orders", "--to", "1")
    assert (nameless.code, "needs a reason" in nameless.err) == (2, True)
    first = amv("history", "orders", "--json").document["refreshes"][-1]

    said = amv("rollback", "orders", "--to", first["refresh_id"], "--note", "it was not")

    assert (said.code, rows(amv)) == (0, 4)
    assert "rolled back to version" in said.out
    assert "until `amv resume orders`" in said.out
    assert amv("refresh", "orders").code == 1


@pytest.mark.in_test_all
def test_rows_stay_that_would_be_deleted(amv, held):
    said = amv("approve", "orders", "--without-deletes", "--note", "half is missing")

    assert (said.code, rows(amv)) == (0, 4)
    assert "2 rows that the source no longer has" in said.out
    assert "2 rows that the source no longer has" in amv("status", "orders").out
    assert amv("refresh", "orders").code == 75, "it is asked about again"

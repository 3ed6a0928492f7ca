"""`amv audit`: what it prints, and its exit codes."""

from __future__ import annotations

import pytest

from tests.conftest import read_independently

pytestmark = pytest.mark.slow

TABLES = """
tables:
  - name: orders
    source: {type: delta, path: raw/orders}
    key: [id]
    guards: {max_deleted_fraction: 0.3}
"""


@pytest.fixture
def published(amv, spark):
    """A table of four rows."""
    rows = spark.sql("SELECT id, 'a' AS v FROM range(4)")
    rows.write.format("delta").save(str(amv.warehouse / "raw/orders"))
    assert amv("apply", amv.file(TABLES)).code == 0
    assert amv("refresh", "orders").code == 0
    return lambda sql: spark.sql(sql.format(t=f"delta.`{amv.warehouse / 'orders'}`"))


@pytest.mark.in_test_all
def test_drift_is_shown_and_repaired(amv, published):
    published(r"UPDATE {t} SET v = 'b\u001b[31m' WHERE id = 2")

    said = amv("audit", "orders")

    assert said.code == 1
    assert "[MV-DRIFT] orders: the table has drifted against what was published: rows 1 different" in said.err
    assert "written   since it was published: UPDATE at version" in said.out
    assert "different  id=2" in said.out
    assert r'v: "b\u001b[31m", expected "a"' in said.out
    assert "\x1b" not in said.out + said.err
    repaired = amv("audit", "orders", "--repair", "--json")
    assert (repaired.code, repaired.document["drift"]) == (0, True)
    assert repaired.document["repair"]["outcome"] == "published"
    assert repaired.document["repaired_by"] == repaired.document["repair"]["refresh_id"]
    assert read_independently(amv.warehouse / "orders") == [(each, "a") for each in range(4)]
    again = amv("audit", "orders")
    assert again.code == 0
    assert "orders: the table is as it was published, and as its source was then" in again.out


@pytest.mark.in_test_all
def test_a_repair_that_a_guard_refuses_ends_with_its_error(amv, published):
    published("INSERT INTO {t} SELECT id, 'b' FROM range(10, 20)")

    said = amv("audit", "orders", "--repair", "--json")

    assert (said.code, said.document["repair"]["error"]["code"], said.document["repaired_by"]) == (1, "MV-GUARD", None)
    assert len(read_independently(amv.warehouse / "orders")) == 14


@pytest.mark.in_test_all
def test_wrong_input_is_named(amv, published):
    unknown = amv("audit", "nowhere")
    assert (unknown.code, "MV-TABLE-UNKNOWN" in unknown.err) == (1, True)
    part = amv("audit", "orders", "--partition", "1")
    assert (part.code, "has no natural partitions" in part.err) == (2, True)
    amv("pause", "orders")
    paused = amv("audit", "orders", "--repair")
    assert (paused.code, "MV-PAUSED" in paused.err) == (1, True)
    assert amv("audit", "orders").code == 0

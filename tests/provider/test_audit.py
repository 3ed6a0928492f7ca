"""A table audited by a task."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.approval.audit import Against, Audit, Compared, Finding
from tests.provider.test_metrics import backend

__all__ = ["backend"]

pytestmark = pytest.mark.slow


def run(airflow, arguments=""):
    text = f"""
from airflow.sdk import DAG
from airflow_mv_provider.operators.audit import AuditTableOperator

with DAG("auditing", schedule=None):
    AuditTableOperator(task_id="t", table="orders", retries=2{arguments})
"""
    return airflow.run(airflow.load("auditing", text))


@pytest.fixture
def drifted(home):
    home.write("SELECT id, 'a' AS v FROM range(3)")
    home.apply()
    home.refresh()
    home.sql("INSERT INTO {t} VALUES (9, 'x')")
    return home


@pytest.mark.in_test_all
def test_a_task_fails_for_drift(drifted, airflow):
    failed = run(airflow)

    assert failed.states["t"] == "failed"
    assert drifted.store.last_audit(drifted.store.table("orders").id).is_drift


@pytest.mark.in_test_all
def test_a_task_only_reports_drift_or_repairs_it(drifted, airflow):
    told = run(airflow, ", fail_on_drift=False")
    repaired = run(airflow, ", repair=True, note='nightly'")
    again = run(airflow)

    assert [r.states["t"] for r in (told, repaired, again)] == ["success", "success", "success"]
    found = told.xcoms["t:return_value"]
    assert (found["drift"], found["sides"]["published"]["extra"], found["repaired_by"]) == (True, 1, None)
    done = repaired.xcoms["t:return_value"]
    assert drifted.store.report(done["repaired_by"]).note.startswith("nightly: repair after an audit")
    assert again.xcoms["t:return_value"]["drift"] is False
    assert drifted.rows() == drifted.rows("raw/orders")


@pytest.mark.parametrize(
    ("finding", "result", "rows"),
    [
        (Finding.DRIFT, "drift", [("mv.audit.rows", 3, {"table": "orders", "against": "source", "change": "extra"})]),
        (Finding.UNKNOWN, "partly", []),
        (Finding.SAME, "same", []),
    ],
)
def test_an_audit_is_counted(backend, finding, result, rows):
    from airflow_mv_provider.operators.metrics import count_audit

    sides = (
        Compared(Against.PUBLISHED, Finding.SAME, "", ""),
        Compared(Against.SOURCE, finding, "", "", rows_extra=3),
    )

    count_audit(Audit("a", "orders", "", None, 1, None, (), sides))

    assert backend.sent == [("mv.audit.ended", 1, {"table": "orders", "result": result}), *rows]

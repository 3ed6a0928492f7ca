"""Why a row is as it is, told by a task."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.in_test_all]

DAG_TEXT = """
from airflow.sdk import DAG, Param
from airflow_mv_provider.operators.row_history import WhyRowOperator

params = {"table": "orders", "key": Param({}, type="object"), "column": Param(None, type=["string", "null"])}
with DAG("why", schedule=None, params=params):
    WhyRowOperator(task_id="why", retries=2)
"""


def test_a_task_tells_what_has_happened_to_a_row_and_the_page_gets_it(home, airflow):
    home.apply(sensitive=["v"])
    home.refresh()
    home.write("SELECT id, concat('w', id) AS v FROM range(5)")
    home.refresh()
    table = home.store.table("orders")

    def asked(**conf):
        return airflow.run(airflow.load("why", DAG_TEXT), **conf)  # a run here leaves its params in the DAG's object

    told = asked(key={"ID": 3})
    other = asked(key={"id": 3}, column="id")
    wrong = asked(key={"id": "three"})
    incomplete = asked(key={})
    unknown = asked(table="nowhere", key={"id": 3})

    found = told.xcoms["why:return_value"]
    assert [each["operation"] for each in found["events"]] == ["insert", "update"]
    assert "w3" not in str(found), "it is sensitive"
    assert other.xcoms["why:return_value"]["events"][-1]["operation"] == "insert", "the column has not changed since"
    for run, message in ((wrong, "MV-"), (incomplete, "the key is incomplete: id is missing"), (unknown, "nowhere")):
        assert (run.states, run.tries) == ({"why": "failed"}, {"why": 1})
        assert message in str(run.errors["why"][0])
    answers = home.store.answers_about_rows(table.id)
    assert [(each.asked, each.is_error) for each in answers] == [
        *(("", True), ("id=three", True), ("id=3, column id", False), ("ID=3", False)),
    ]
    assert answers[-1].answer.startswith("orders: id=3\n")
    assert airflow.events("mv://rows/answers") == [], "an answer starts no DAG"

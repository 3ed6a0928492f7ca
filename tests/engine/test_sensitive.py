"""Values of columns that are called sensitive are kept nowhere but in the tables."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from airflow_mv_provider.exceptions import RefreshHeldError
from airflow_mv_provider.metadata.models import Base
from tests.conftest import Lake, dying_at
from tests.engine.holding import GUARDED

pytestmark = pytest.mark.slow

SECRET = "4711-0815"


@pytest.mark.parametrize(
    "changes", [{}, pytest.param({"publish": "progressive", "partition_by": ["p"]}, marks=pytest.mark.in_test_all)]
)
def test_a_sensitive_key_is_in_no_row_of_the_database(lake, changes):
    key = ["id", "p"] if changes else ["id"]
    lake.write(f"SELECT concat('{SECRET}-', id) AS id, id % 2 AS p, 'a' AS v FROM range(6)")
    lake.apply(key=key, sensitive=["id"], **changes)
    lake.refresh()
    lake.write(f"SELECT concat('{SECRET}-', id) AS id, id % 2 AS p, 'b' AS v FROM range(1, 8)")

    with dying_at("publish.before"):
        lake.refresh()

    assert SECRET not in everything(lake)


@pytest.mark.in_test_all
def test_a_sensitive_key_of_rows_that_wait_for_a_decision_is_in_no_row_of_the_database(lake):
    lake.write(f"SELECT concat('{SECRET}-', id) AS id, 'a' AS v FROM range(9)")
    lake.apply(sensitive=["id"], **GUARDED)
    lake.refresh()
    lake.write(f"SELECT concat('{SECRET}-', id) AS id, 'b' AS v FROM range(3)")

    with pytest.raises(RefreshHeldError):
        lake.refresh()

    assert SECRET not in everything(lake)


def everything(lake: Lake) -> str:
    """All rows of all tables of the metadata database."""
    with lake.store.engine.begin() as db:
        rows = [str(row) for name in Base.metadata.tables for row in db.execute(text(f"SELECT * FROM {name}"))]
    assert len(rows) > 8
    return "\n".join(rows)

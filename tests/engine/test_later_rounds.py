"""Another writer commits between the seal and the publish: the next round is judged as the first one would be."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.exceptions import AdoptionError, GuardRefusedError, NotHeldError
from tests.engine.holding import decide, held

pytestmark = pytest.mark.slow


@pytest.mark.in_test_all
def test_guards_count_what_an_overwrite_without_a_column_deletes(lake, at_point):
    lake.write("SELECT id, 'a' AS v, 'x' AS gone FROM range(100)")
    lake.apply(schema_policy="add", on_lost_column="drop", guards={"max_deleted_fraction": 0.1})
    lake.refresh()
    lake.write("SELECT id, 'a' AS v FROM range(95)")
    at_point("seal.after", lambda: lake.sql("INSERT INTO {t} SELECT id, 'foreign', 'y' FROM range(1000, 1100)"))

    with pytest.raises(GuardRefusedError):
        lake.refresh()

    foreign = {("y", number, "foreign") for number in range(1000, 1100)}
    assert Counter(lake.rows()) == Counter({*foreign, *(("x", number, "a") for number in range(100))})


@pytest.mark.in_test_all
def test_deletes_of_an_overwrite_cannot_be_left_out(lake, at_point):
    lake.write("SELECT id, 'a' AS v, 'x' AS gone FROM range(100)")
    lake.apply(schema_policy="add", on_lost_column="drop", approval="schema", guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    at_point("seal.after", lambda: lake.sql("INSERT INTO {t} VALUES (777, 'foreign', 'y')"))
    held(lake)

    with pytest.raises(NotHeldError):
        decide(lake, Decision.WITHOUT_DELETES)

    assert Counter(lake.rows()) == Counter([("y", 777, "foreign"), *(("x", number, "a") for number in range(100))])


def test_a_key_that_comes_twice_keeps_a_table_from_being_adopted(lake, at_point):
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.write("SELECT id, 'a' AS v FROM range(9)", path="orders")
    lake.apply(adopt=True, guards={"max_deleted_fraction": 1.0})
    at_point("seal.after", lambda: lake.sql("INSERT INTO {t} VALUES (3, 'mine')"))

    with pytest.raises(AdoptionError):
        lake.refresh()

    assert sorted(row for row in lake.rows() if row[0] == 3) == [(3, "a"), (3, "mine")]

"""A history follows main however main gets its rows: approved, loaded, repaired, adopted, beside an error table."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.approval.hold import Decision
from tests.engine.holding import decide, held, lose_rows
from tests.engine.versioned import GUARDS, STATES, of_main, put, versions, writes

pytestmark = pytest.mark.slow


def approved_without_deletes(lake: Any) -> None:
    lose_rows(lake, history=True)
    held(lake)
    decide(lake, Decision.WITHOUT_DELETES)


def approved_after_a_rejection(lake: Any) -> None:
    lose_rows(lake, history={"deletes": "mark"})
    held(lake)
    decide(lake, Decision.REJECTED)
    held(lake)
    decide(lake, Decision.APPROVED)


def loaded(lake: Any) -> None:
    put(lake, STATES[0])
    lake.apply(history=True, guards=GUARDS)
    lake.refresh()
    put(lake, STATES[2], path="raw/other")
    lake.refresher().load("orders", DeltaSource("raw/other"), lake.caller(user="ann"))


def repaired(lake: Any) -> None:
    put(lake, STATES[0])
    lake.apply(history=True, guards=GUARDS)
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'theirs' WHERE id < 3")
    lake.refresher().repair(lake.refresher().audit("orders", lake.caller()), lake.caller())


def adopted(lake: Any) -> None:
    put(lake, STATES[1])
    put(lake, STATES[0], path="orders")
    lake.apply(adopt=True, history=True, guards=GUARDS)
    lake.refresh()


def beside_errors(lake: Any) -> None:
    lake.apply(history=True, errors={}, guards=GUARDS)
    for state in STATES:
        put(lake, f"{state}, (NULL, 'no key', 1)")
        lake.refresh()


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "come", [approved_without_deletes, approved_after_a_rejection, loaded, repaired, adopted, beside_errors]
)
def test_versions_are_main_s_however_its_rows_come(lake, come):
    come(lake)

    rules = lake.store.table("orders").definition.history
    assert versions(lake) == of_main(lake, deletes=rules.deletes)
    assert len(writes(lake)) >= (1 if come is adopted else 2)
    assert not lake.refresher().audit("orders", lake.caller()).is_drift

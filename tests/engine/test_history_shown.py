"""A history is shown by row, audited, and shed."""

from __future__ import annotations

import shutil

import pytest

from airflow_mv_provider.exceptions import (
    ArgumentError,
    NotPublishedError,
)
from airflow_mv_provider.report_text.row_history_text import row_versions_text
from tests.engine.versioned import GUARDS, STATES, put, raw, versions

pytestmark = pytest.mark.slow


def test_the_versions_of_one_row(kept):
    put(kept, STATES[1])
    kept.refresh()

    found = kept.refresher().row_versions("orders", ["id=2"])
    why = kept.refresher().row_history("orders", ["id=2"])

    assert [(v.operation, v.row, v.is_current) for v in found.versions] == [
        ("insert", {"id": 2, "v": "b", "n": 1}, False),
        ("update", {"id": 2, "v": "B", "n": 1}, True),
    ]
    assert found.versions[0].valid_to == found.versions[1].valid_from
    assert why.versions == found.versions
    assert "update by refresh" in row_versions_text(found)
    assert [v.operation for v in kept.refresher().row_versions("orders", ["ID=3"]).versions] == ["insert"]
    with pytest.raises(ArgumentError, match="amv history-of orders id=VALUE"):
        kept.refresher().row_versions("orders", ["v=a"])
    kept.apply(guards=GUARDS)
    with pytest.raises(NotPublishedError, match="history: true"):
        kept.refresher().row_versions("orders", ["id=2"])


@pytest.mark.in_test_all
def test_sensitive_values_are_hashed_in_versions_that_are_shown(kept):
    kept.apply(history=True, guards=GUARDS, sensitive=["v", "id"])

    [found] = kept.refresher().row_versions("orders", ["id=2"]).versions

    assert (found.row["n"], found.row["v"] == "b", found.row["id"] == 2) == (1, False, False)


@pytest.mark.in_test_all
@pytest.mark.parametrize("harm", ["update", "delete", "insert", "overlap", "table"])
def test_an_audit_compares_the_history_and_its_repair_mends_current_versions(kept, harm):
    put(kept, STATES[1])
    kept.refresh()
    history = [side for side in kept.refresher().audit("orders", kept.caller()).sides if side.against == "history"]
    assert [side.finding for side in history] == ["same"]
    assert history[0].rows_same == 4
    harms = {
        "update": "UPDATE {t} SET v = 'x' WHERE id = 1 AND is_current",
        "delete": "DELETE FROM {t} WHERE id = 1 AND is_current",
        "insert": "INSERT INTO {t} SELECT 7, v, n, valid_from, NULL, true, operation, 'x' FROM {t} WHERE id = 1",
        "overlap": "UPDATE {t} SET valid_to = valid_to + INTERVAL 1 DAY WHERE id = 2 AND NOT is_current",
    }
    if harm == "table":
        shutil.rmtree(kept.root / "orders__history")
    else:
        kept.sql(harms[harm], path="orders__history")

    found = kept.refresher().audit("orders", kept.caller())

    reasons = {side.against: side.reason for side in found.sides if side.finding == "drift"}
    expected = {
        "update": "1 rows different",
        "delete": "1 rows missing",
        "insert": "1 rows extra",
        "overlap": "1 versions overlap",
        "table": "is gone",
    }
    assert set(reasons) == {"history"}
    assert expected[harm] in reasons["history"]
    if harm in ("update", "delete", "insert"):
        kept.refresher().repair(found, kept.caller())
        assert not kept.refresher().audit("orders", kept.caller()).is_drift


@pytest.mark.in_test_all
def test_versions_that_ended_long_ago_are_shed(kept):
    kept.apply(history={"keep": "30d"}, guards=GUARDS)
    for state in STATES[1:3]:
        put(kept, state)
        kept.refresh()
    current = [version for version in versions(kept) if version[2] is None]
    said: list[str] = []

    kept.refresher().recover(kept.caller(), said.append)
    assert len(versions(kept)) > len(current)
    kept.clock.pass_ms(31 * 24 * 3600 * 1000)
    kept.refresher().recover(kept.caller(), said.append)

    assert versions(kept) == current
    assert [text for text in said if "old versions" in text] == ["orders: removed 6 old versions from its history."]
    put(kept, STATES[3])
    report = kept.refresh()
    assert "history" not in report.reason
    assert len(versions(kept)) == len(current) + 2


@pytest.mark.in_test_all
def test_another_program_s_table_is_not_shed(kept):
    shutil.rmtree(kept.root / "orders__history")
    kept.write(
        "SELECT 1 AS id, TIMESTAMP'2020-01-01' AS valid_from, TIMESTAMP'2020-02-01' AS valid_to, false AS is_current",
        "orders__history",
    )
    kept.apply(history={"keep": "1d"}, guards=GUARDS)
    before = raw(kept)

    kept.refresher().recover(kept.caller(), lambda text: None)

    assert raw(kept) == before
    assert kept.refresher().row_history("orders", ["id=2"]).versions == ()

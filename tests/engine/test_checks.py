"""Checks of a snapshot: what they find, what follows from it, and that a takeover judges by what was sealed."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import CheckFailedError, CheckInvalidError
from airflow_mv_provider.report_text.refresh_text import refresh_text
from tests.conftest import dying_at
from tests.engine.feeding import change, published_with_a_feed
from tests.engine.holding import decide, held

pytestmark = pytest.mark.slow

ROWS = """SELECT * FROM VALUES (1, 'open', 'a@x', 5.0, 'A'), (2, 'paid', 'b@x', -1.0, 'A'), (3, 'lost', 'c', NULL, 'B'),
 (4, NULL, NULL, 2.0, NULL), (5, 'open', 'e@x\n', 0.0, NULL) AS t(id, status, mail, amount, code)"""
EVERY_RULE: list[dict[str, Any]] = [
    {"not_null": ["status"]},
    {"not_null": ["status", "amount"]},
    {"accepted_values": {"column": "status", "values": ["open", "paid"]}},
    {"matches": {"column": "mail", "pattern": "[a-z]@x|z"}},
    {"name": "positive", "expression": "amount >= 0 -- or NULL"},
    {"unique": ["code"]},
    {"unique": ["code", "status"]},
    {"name": "enough", "expect": "count(*) >= 5 AND sum(amount) > 6"},
    {"name": "unknown", "expect": "sum(CAST(NULL AS INT)) > 0"},
]
FOUND = [1, 2, 1, 2, 1, 1, 0, 1, 1]
POSITIVE: dict[str, Any] = {"name": "positive", "expression": "amount >= 0"}


def of_severity(severity: str, *checks: dict[str, Any]) -> list[dict[str, Any]]:
    return [check | {"severity": severity} for check in checks]


def numbers(report: Any) -> list[int]:
    return [check.num_failed for check in report.checks]


@pytest.mark.parametrize("strategy", ["auto", pytest.param("corrections", marks=pytest.mark.in_test_all)])
def test_every_rule_counts_what_breaks_it_and_a_warning_publishes(lake, strategy):
    lake.write(ROWS)
    lake.apply(checks=of_severity("warn", *EVERY_RULE), strategy=strategy)

    report = lake.refresh()

    assert (report.outcome, numbers(report)) == (Outcome.PUBLISHED, FOUND)
    assert {(check.of, check.num_rows, check.skipped) for check in report.checks} == {("all rows", 5, None)}
    assert lake.rows() == lake.rows("raw/orders")
    assert lake.store.history(1, 1)[0].checks == report.checks
    assert "warn      positive: 1 row breaks `amount >= 0 -- or NULL`, of 5 rows." in refresh_text(report)


@pytest.mark.in_test_all
def test_counts_are_those_that_python_counts_in_random_rows(lake):
    random = Random(21)
    names = (None, "n1", "n12", "n", "n1\n", "\nn1", "N1", "n１", "xn1", "n1x", "", " n1", "n1\r\nn2")
    rows = [
        (
            number,
            random.choice((None, *range(-2, 8))),
            random.choice(names),
            random.choice((None, Decimal("-0.01"), Decimal("0.00"), Decimal("12.50"))),
        )
        for number in range(700)
    ]

    def literal(value: Any) -> str:
        if isinstance(value, str):
            return f"CAST(unhex('{value.encode().hex()}') AS STRING)"
        return "NULL" if value is None else str(value)

    values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    lake.write(
        f"SELECT id, v, name, CAST(amount AS DECIMAL(6,2)) AS amount FROM VALUES {values} AS t(id, v, name, amount)"
    )
    expected: list[tuple[dict[str, Any], Callable[..., bool]]] = [
        ({"not_null": ["v"]}, lambda v, name, amount: v is None),
        ({"not_null": ["v", "name", "amount"]}, lambda *each: None in each),
        ({"accepted_values": {"column": "v", "values": [0, 1, -2, 7]}}, lambda v, *_: v not in (None, 0, 1, -2, 7)),
        (
            {"accepted_values": {"column": "name", "values": ["n1", ""]}},
            lambda v, name, _: name not in (None, "n1", ""),
        ),
        (
            {"matches": {"column": "name", "pattern": "n[0-9]+|N."}},
            lambda v, name, _: name is not None and not re.fullmatch("n[0-9]+|N.", name),
        ),
        ({"name": "low", "expression": "amount >= 0"}, lambda v, name, amount: amount is not None and amount < 0),
        (
            {"name": "both", "expression": "v > 0 AND amount > 0"},  # NULL AND false is false
            lambda v, name, amount: (v is not None and v <= 0) or (amount is not None and amount <= 0),
        ),
        (
            {"name": "either", "expression": "v > 0 OR amount > 0"},  # NULL OR false is NULL, which breaks nothing
            lambda v, name, amount: v is not None and v <= 0 and amount is not None and amount <= 0,
        ),
        ({"name": "never", "expression": "id < 0"}, lambda *_: True),
        ({"name": "always", "expression": "id >= 0"}, lambda *_: False),
    ]
    lake.apply(checks=of_severity("warn", *(check for check, _ in expected)))

    report = lake.refresh()

    assert numbers(report) == [sum(is_broken(*row[1:]) for row in rows) for _, is_broken in expected]
    assert {check.num_rows for check in report.checks} == {700}


@pytest.mark.in_test_all
def test_a_broken_check_refuses_and_whoever_takes_over_judges_by_what_was_sealed(lake):
    """The source is mended after the seal: these are not the rows that would be published."""
    lake.write(ROWS.replace("-1.0", "1.0"))
    lake.apply(checks=[POSITIVE])
    assert lake.refresh().outcome is Outcome.PUBLISHED
    before = lake.rows()
    lake.write(ROWS)
    with dying_at("seal.after"):
        lake.refresh()
    lake.write(ROWS.replace("-1.0", "3.0"))
    lake.clock.pass_ms(lake.settings.lease_ms + 1)

    lake.refresher().recover(lake.caller())

    [report] = lake.store.history(1, 1)
    assert (report.outcome, report.error.code, numbers(report)) == (Outcome.REFUSED, "MV-CHECK", [1])
    assert "positive: 1 row breaks `amount >= 0`, of 5 rows." in report.error.message
    assert (lake.rows(), lake.phase(), lake.workspaces()) == (before, "NORMAL", [])
    assert lake.refresh().outcome is Outcome.PUBLISHED
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_a_check_that_asks_for_a_decision_is_held_and_published_as_decided(lake):
    lake.write(ROWS)
    lake.apply(checks=of_severity("hold", POSITIVE))

    problem = held(lake).problem

    assert "check positive: 1 row breaks `amount >= 0`, of 5 rows." in problem
    report = decide(lake, Decision.APPROVED)
    assert (report.outcome, numbers(report)) == (Outcome.PUBLISHED, [1])
    assert lake.rows() == lake.rows("raw/orders")
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_rows_that_break_a_check_are_in_the_error_table_under_its_name(lake):
    checks = of_severity("quarantine", POSITIVE, {"not_null": ["status"]})
    lake.write(ROWS)
    lake.apply(checks=checks, errors={})

    report = lake.refresh()

    assert (report.outcome, report.rows_inserted, report.rows_rejected, numbers(report)) == (
        *(Outcome.PUBLISHED, 3, 2),
        [1, 1],
    )
    assert [row[2] for row in lake.sql("SELECT id, 0, id FROM {t} ORDER BY id")] == [1, 3, 5]
    found = lake.sql(
        "SELECT rule, reason, get_json_object(record, '$.id') FROM {t} ORDER BY rule", path="orders__errors"
    )
    assert [tuple(row) for row in found] == [
        ("not_null status", "not: status is not NULL", "4"),
        ("positive", "not: amount >= 0", "2"),
    ]
    lake.write(ROWS.replace("-1.0", "1.0").replace("NULL, NULL, 2.0", "'open', NULL, 2.0"))
    report = lake.refresh()
    assert (report.rows_inserted, report.rows_rejected, numbers(report)) == (2, 0, [0, 0])
    assert lake.rows() == lake.rows("raw/orders")
    assert lake.rows("orders__errors") == []


@pytest.mark.in_test_all
def test_incremental_refreshes_see_changed_rows_and_checks_of_all_rows_exclude_them(prepared):
    table = published_with_a_feed(prepared)
    table.apply(checks=[{"name": "low", "expression": "id < 0", "severity": "warn"}])
    change(table)

    report = table.refresh()

    [check] = report.checks
    assert (report.strategy, check.of) == ("incremental", "changed rows")
    assert check.num_failed == check.num_rows == report.rows_inserted + report.rows_updated > 0
    table.apply(checks=[{"unique": ["id"]}, {"name": "some", "expect": "count(*) > 0"}])
    change(table, "DELETE FROM {t} WHERE id = 1000")
    report = table.refresh()
    assert (report.strategy, numbers(report)) == ("corrections", [0, 0])
    assert "the check unique id is about all rows" in [each.why for each in report.estimates]


@pytest.mark.in_test_all
def test_a_refresh_of_some_partitions_leaves_out_checks_of_all_rows(lake):
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(10)")
    checks = [{"unique": ["v"], "severity": "warn"}, {"not_null": ["v"]}]
    lake.apply(partition_by=["p"], checks=checks)

    report = lake.refresh(partitions=[["1"]])

    assert [(check.of, check.num_rows, check.is_passed) for check in report.checks] == [
        ("the rows of some partitions", 0, True),
        ("the rows of some partitions", 5, True),
    ]
    assert "not evaluated, because the check is about all rows" in report.checks[0].sentence
    assert numbers(lake.refresh(force=True)) == [1, 0]


@pytest.mark.in_test_all
def test_read_only_refresh_tells_what_checks_would_do(lake):
    lake.write(ROWS)
    lake.apply(checks=[POSITIVE])

    report = lake.refresh(read_only=True)

    assert (report.outcome, numbers(report)) == (Outcome.DIFFERENCES, [1])
    assert report.reason == "a check would refuse: positive: 1 row breaks `amount >= 0`, of 5 rows."


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"not_null": ["statu"]}, "check not_null statu: the source has no column 'statu' (did you mean status?)."),
        pytest.param(
            {"name": "n", "expression": "amuont > 0"}, "check n cannot be evaluated: ", marks=pytest.mark.in_test_all
        ),
        pytest.param(
            {"name": "n", "expression": "amount >"}, "check n cannot be evaluated: ", marks=pytest.mark.in_test_all
        ),
        pytest.param(
            {"name": "n", "expression": "id"}, "check n: expected a condition, found int", marks=pytest.mark.in_test_all
        ),
        pytest.param({"name": "n", "expression": "sum(id) > 0"}, "check n cannot", marks=pytest.mark.in_test_all),
        pytest.param({"name": "n", "expect": "id > 0"}, "check n cannot be evaluated", marks=pytest.mark.in_test_all),
        ({"name": "n", "expression": "1 / amount > 0"}, "its checks cannot be evaluated: "),
        pytest.param(
            {"matches": {"column": "mail", "pattern": "("}}, "its checks cannot", marks=pytest.mark.in_test_all
        ),
    ],
)
def test_check_that_cannot_be_evaluated_is_an_error_that_names_it(lake, check, said):
    lake.write(ROWS)
    lake.apply(checks=[{"not_null": ["id"]}, check])

    with pytest.raises(CheckInvalidError) as caught:
        lake.refresh()

    assert said in str(caught.value)
    assert (lake.rows(), lake.phase()) == ([], "NORMAL")


@pytest.mark.in_test_all
@pytest.mark.parametrize("changes", [{"publish": "progressive", "partition_by": ["p"]}, {"strategy": "replace"}])
def test_every_way_to_publish_is_refused(lake, changes):
    lake.write("SELECT id, id % 2 AS p, 1.0 AS amount FROM range(10)")
    lake.apply(checks=[POSITIVE], **changes)
    lake.refresh()
    before = lake.rows()
    lake.write("SELECT id, id % 2 AS p, -1.0 AS amount FROM range(20)")

    with pytest.raises(CheckFailedError):
        lake.refresh()

    assert (lake.rows(), lake.phase(), lake.workspaces()) == (before, "NORMAL", [])

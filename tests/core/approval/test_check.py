"""What follows from the results of checks, and how they read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.approval.check import ALL, CHANGED, CheckResult, failed, objections, why_refused
from airflow_mv_provider.core.approval.hold import why_held
from airflow_mv_provider.core.guard import Refusal

RESULT = CheckResult("positive", "expression", "amount >= 0", "fail", ALL, num_rows=1200)
BROKEN = replace(RESULT, num_failed=1)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (RESULT, "positive: holds for 1,200 rows."),
        (replace(RESULT, of=CHANGED), "positive: holds for 1,200 changed rows."),
        (BROKEN, "positive: 1 row breaks `amount >= 0`, of 1,200 rows."),
        (replace(RESULT, num_failed=1100), "positive: 1,100 rows break `amount >= 0`, of 1,200 rows."),
        (
            replace(BROKEN, severity="quarantine", num_failed=2),
            "positive: 2 rows break `amount >= 0`, of 1,200 rows, and left out.",
        ),
        (replace(BROKEN, rule="unique"), "positive: 1 value occurs more than once in 1,200 rows."),
        (replace(BROKEN, rule="unique", num_failed=2), "positive: 2 values occur more than once in 1,200 rows."),
        (
            replace(BROKEN, rule="expect", text="count(*) > 5"),
            "positive: count(*) > 5 does not hold for 1,200 rows.",
        ),
        (replace(RESULT, skipped="it is about all rows"), "positive: not evaluated, because it is about all rows."),
    ],
)
def test_sentence(result, sentence):
    assert result.sentence == sentence


@pytest.mark.parametrize("severity", ["fail", "hold", "quarantine", "warn"])
def test_what_follows_from_a_broken_check(severity):
    results = (replace(BROKEN, severity=severity), replace(RESULT, name="another", severity=severity))

    assert failed(results, severity) == results[:1]
    assert (why_refused(results) is not None) == (severity == "fail")
    assert bool(objections(results)) == (severity == "hold")


def test_a_refusal_names_every_broken_check():
    results = (BROKEN, replace(BROKEN, name="other"), replace(BROKEN, name="mild", severity="warn"))

    assert why_refused(results) == (
        "positive: 1 row breaks `amount >= 0`, of 1,200 rows. other: 1 row breaks `amount >= 0`, of 1,200 rows."
    )


GUARD = Refusal("min_rows", "too few.")


@pytest.mark.parametrize(
    ("approval", "has_changes", "refusals", "why"),
    [
        ("never", True, (), "check positive: 1 row breaks `amount >= 0`, of 1,200 rows."),
        ("never", False, (), None),
        ("never", True, (GUARD,), "check positive: 1 row breaks `amount >= 0`, of 1,200 rows."),
        ("guards", True, (GUARD,), "min_rows: too few. check positive: 1 row breaks `amount >= 0`, of 1,200 rows."),
        ("always", True, (), "check positive: 1 row breaks `amount >= 0`, of 1,200 rows."),
    ],
)
def test_a_check_that_asks_for_a_decision_holds_a_refresh_that_changes_rows(approval, has_changes, refusals, why):
    checks = objections((replace(BROKEN, severity="hold"),))
    facts = {"is_requested": False, "changes_columns": False, "last": None}

    assert why_held(approval, has_changes=has_changes, refusals=refusals, checks=checks, **facts) == why

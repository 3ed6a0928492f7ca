"""How a refresh ended: outcome, report and exit code, for every error there is."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields

import pytest

from airflow_mv_provider import exceptions
from airflow_mv_provider.core.outcome import (
    EXIT_DONE,
    EXIT_PERSON,
    EXIT_RETRY,
    EXIT_USAGE,
    ErrorReport,
    Outcome,
    PartitionReport,
    RefreshReport,
    error_of,
    error_report,
    exit_code,
    failed,
    outcome_of,
)
from airflow_mv_provider.exceptions import MvError

ERRORS = [c for _, c in inspect.getmembers(exceptions, inspect.isclass) if issubclass(c, MvError)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda c: c.__name__)
def test_exit_code_says_whether_a_retry_may_help(kind):
    report = failed(RefreshReport(table="orders"), kind("orders", "it failed."))

    if kind is exceptions.ArgumentError:
        assert exit_code(report) == EXIT_USAGE
    else:
        assert exit_code(report) == (EXIT_RETRY if issubclass(kind, exceptions.TransientError) else EXIT_PERSON)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_report_without_an_error_is_done(outcome):
    assert exit_code(RefreshReport(table="orders", outcome=outcome)) == EXIT_DONE


def test_exit_codes_are_what_is_documented():
    assert (EXIT_DONE, EXIT_PERSON, EXIT_USAGE, EXIT_RETRY) == (0, 1, 2, 75)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda c: c.__name__)
def test_refusal_and_cancel_are_told_from_failure(kind):
    special = {
        exceptions.GuardRefusedError: Outcome.REFUSED,
        exceptions.CheckFailedError: Outcome.REFUSED,
        exceptions.RefreshCancelledError: Outcome.CANCELLED,
        exceptions.OvertakenError: Outcome.ABANDONED,
        exceptions.HoldExpiredError: Outcome.ABANDONED,
        exceptions.RefreshHeldError: Outcome.RUNNING,
    }

    outcome = outcome_of(kind("orders", "it failed."))

    assert outcome is special.get(kind, Outcome.FAILED)


def test_error_report_has_code_message_and_hint_but_no_facts():
    error = exceptions.DuplicateKeyError("orders", "2 rows share key (1).", keys=["secret"])

    report = error_report(error)

    assert report == ErrorReport("MV-KEY-DUPLICATE", "orders: 2 rows share key (1).", error.hint, False)


def test_failed_report_keeps_what_is_known():
    before = RefreshReport(table="orders", refresh_id="r", epoch=3, rows_inserted=4)

    after = failed(before, exceptions.GuardRefusedError("orders", "no."))

    assert after == RefreshReport(
        table="orders",
        refresh_id="r",
        epoch=3,
        rows_inserted=4,
        outcome=Outcome.REFUSED,
        error=ErrorReport("MV-GUARD", "orders: no.", exceptions.GuardRefusedError.hint, False),
    )


def test_report_is_one_json_object_with_every_promised_field():
    promised = {
        *("table", "refresh_id", "outcome", "phase", "epoch", "strategy", "reason", "rows_inserted", "rows_updated"),
        *("rows_deleted", "rows_unchanged", "bytes_main", "bytes_staging", "main_version", "started_at"),
        "finished_at",
    }
    part = PartitionReport("[null]", 1, 2, 3, 4)

    facts = json.loads(json.dumps(RefreshReport(table="orders", partitions=(part,), recovered=("r",)).to_json()))

    assert promised <= set(facts)
    assert "error" not in facts
    assert facts["partitions"] == [
        {"partition": "[null]", "rows_inserted": 1, "rows_updated": 2, "rows_deleted": 3, "rows_unchanged": 4}
    ]


def test_failed_report_adds_the_error():
    report = failed(RefreshReport(table="orders"), exceptions.EngineError("orders", "no."))

    facts = json.loads(json.dumps(report.to_json()))

    assert set(facts) == {each.name for each in fields(RefreshReport)}
    assert {"code", "message", "hint"} <= set(facts["error"])


@pytest.mark.parametrize("error", ERRORS, ids=lambda c: c.__name__)
def test_an_error_is_raised_again_from_its_report(error):
    before = error("orders", "expected 1: found 2.", hint="Do this.")

    after = error_of(error_report(before))

    assert (type(after), str(after), after.advice) == (error, str(before), "Do this.")


@pytest.mark.parametrize(
    ("is_transient", "kind"), [(True, exceptions.TransientError), (False, exceptions.TerminalError)]
)
def test_an_error_of_no_known_code_keeps_what_a_retry_may_do(is_transient, kind):
    after = error_of(ErrorReport("MV-UNEXPECTED", "unexpected KeyError", "This is a bug.", is_transient))

    assert type(after) is kind
    assert after.where == "unexpected KeyError"

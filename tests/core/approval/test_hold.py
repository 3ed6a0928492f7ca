"""When a refresh is held, what it does then, and which decisions fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from airflow_mv_provider.core.approval.hold import (
    Decision,
    Hold,
    Objection,
    Step,
    is_outdated,
    keeps_rows,
    next_step,
    objection,
    overridden,
    why_held,
)
from airflow_mv_provider.core.guard import Refusal

HELD = Hold("r", 0, "too many", ("max_deleted_fraction",), since_ms=10, until_ms=20)
APPROVED = replace(HELD, decision=Decision.APPROVED, decided_by="ann", note="it is right")
REJECTED = replace(HELD, decision=Decision.REJECTED)
OVER = replace(HELD, is_over=True)
REFUSAL = Refusal("max_deleted_fraction", "4 of the table's 5 rows would be deleted.")


def why(approval="never", **changes):
    facts = {"is_requested": False, "has_changes": True, "changes_columns": False, "refusals": (), "last": None}
    return why_held(approval, **(facts | changes))


@pytest.mark.parametrize(
    ("approval", "refused", "columns", "is_held"),
    [
        ("never", True, True, False),
        ("guards", False, True, False),
        ("guards", True, False, True),
        ("schema", False, False, False),
        ("schema", False, True, True),
        ("schema", True, False, True),
        ("always", False, False, True),
    ],
)
def test_a_definition_says_what_is_held(approval, refused, columns, is_held):
    found = why(approval, refusals=[REFUSAL] if refused else (), changes_columns=columns)

    assert (found is not None) is is_held
    if is_held and refused:
        assert REFUSAL.problem in found


def test_a_request_holds_any_change_and_nothing_is_held_without_one():
    assert why(is_requested=True) == "its caller asked for a decision."
    assert why("never", refusals=[REFUSAL], is_requested=True) == "its caller asked for a decision."
    for approval, is_requested in product(("never", "guards", "schema", "always"), (True, False)):
        assert why(approval, is_requested=is_requested, has_changes=False) is None


def test_other_corrections_than_the_approved_ones_are_held_whatever_holds_for_them():
    assert "since it was approved" in why("guards", last=APPROVED)
    assert REFUSAL.problem in why("guards", last=APPROVED, refusals=[REFUSAL])
    assert why("guards", last=APPROVED, has_changes=False) is None


@pytest.mark.parametrize("merge_round", [0, 1])
def test_only_the_approval_of_a_round_publishes_it(merge_round):
    steps = {
        name: next_step(last, merge_round, "why")
        for name, last in (("yes", APPROVED), ("no", REJECTED), ("late", OVER))
    }

    assert steps == {"yes": Step.HOLD if merge_round else Step.PUBLISH, "no": Step.STOP, "late": Step.EXPIRE}
    assert next_step(HELD, merge_round, "why") is Step.HOLD
    assert next_step(None, merge_round, "why") is Step.HOLD
    assert next_step(None, merge_round, None) is Step.PUBLISH


def test_guards_are_overridden_by_the_approval_of_just_this_round():
    assert overridden(APPROVED, 0) == HELD.guards
    assert [overridden(last, 0) for last in (None, HELD, REJECTED, OVER)] == [()] * 4
    assert overridden(APPROVED, 1) == ()


def test_a_rejected_or_late_one_is_never_published():
    for last, merge_round, reason in product((REJECTED, OVER), (0, 1, 2), (None, "why")):
        assert next_step(last, merge_round, reason) in (Step.STOP, Step.EXPIRE)


def test_a_decision_fits_what_was_shown_once_and_in_time():
    for decision in Decision:
        assert objection(HELD, None, decision) is None
        assert objection(HELD, "r.0", decision) is None
        assert objection(None, None, decision) is Objection.NOTHING_HELD
        assert objection(HELD, "r.1", decision) is Objection.ANOTHER
        assert objection(APPROVED, "r.0", decision) is Objection.DECIDED
        assert objection(REJECTED, None, decision) is Objection.DECIDED
        assert objection(OVER, None, decision) is Objection.OVER


def test_an_overwrite_cannot_leave_out_its_deletes():
    for decision in Decision:
        found = objection(HELD, None, decision, deletes_by_overwriting=True)
        assert found is (Objection.OVERWRITES if decision is Decision.WITHOUT_DELETES else None)


def test_deletes_are_left_out_in_the_round_that_was_decided_and_after_a_commit_without_them():
    kept = replace(HELD, decision=Decision.WITHOUT_DELETES)

    assert keeps_rows(kept, 0, has_kept=False)
    assert not any(keeps_rows(last, 0, has_kept=False) for last in (None, HELD, APPROVED, REJECTED))
    assert not keeps_rows(kept, 1, has_kept=False)
    assert all(keeps_rows(last, 1, has_kept=True) for last in (None, kept, APPROVED))


def test_a_newer_refresh_ends_only_a_hold_that_is_undecided_and_outdated():
    same = {"is_same_definition": True, "is_same_source": True}
    assert not is_outdated(HELD, **same)
    assert is_outdated(HELD, **(same | {"is_same_source": False}))
    assert is_outdated(HELD, **(same | {"is_same_definition": False}))
    assert not any(is_outdated(each, is_same_definition=False, is_same_source=False) for each in (APPROVED, REJECTED))


def test_who_decided_is_said_in_words():
    assert APPROVED.by == " by ann: it is right"
    assert REJECTED.by == " by an unnamed user"
    assert REJECTED.refusal == "the refresh was rejected by an unnamed user."
    superseded = replace(HELD, decision=Decision.SUPERSEDED, decided_by="ann")
    assert superseded.refusal == "the refresh was superseded by a newer refresh of ann."

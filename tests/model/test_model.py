"""The shipped protocol keeps every invariant in every state that can be reached; weaker designs do not.

What is explored is told in `world` (the state), `order` and `ending` (a process's steps), `process` (their effects) and
`checker` (faults and invariants).
`.venv/bin/pytest -s tests/model/test_model.py` prints how many states each exploration has, and each weaker design's
shortest way into its violation.

`test_history_model.py` explores the same of tables that keep a history.

What is abstracted away: rows (a partition is one value), guards, schema, scopes, queue and pause, the error table, the
totals of the last publish and with them the incremental strategy, a lost metadata database. Of a refresh that waits
for a decision every change needs one; a person decides about what was looked at last, however long ago. How often each
fault may happen stands at the tests; of more than two faults at once `test_simulation.py` draws examples.
"""

from __future__ import annotations

import pytest

from tests.model.checker import Bounds, explore
from tests.model.design import Design
from tests.model.exploring import Explored
from tests.model.world import Faults

ONCE = Faults(source=1, foreign=1, crash=1, expiry=1, twin=1, cancel=1, error=1, lost=1)
EVERY_STEP = frozenset[str]()
A, TWINS, A_AND_B = (0,), (0, 1), (0, 2)


def explored(design: Design, bounds: Bounds) -> Explored:
    found = explore(design, bounds)
    print(f"\n{design.name}: {found}")
    return found


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_workers_and_any_one_fault_step_by_step():
    found = explored(Design(), Bounds(ONCE, together=1, eager=EVERY_STEP))

    assert found.violation is None, str(found)
    assert found.num_states >= 200_000


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_callers_and_any_two_faults():
    found = explored(Design(), Bounds(ONCE, together=2, workers=A_AND_B))

    assert found.violation is None, str(found)
    assert found.num_states >= 300_000


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_progressive_publish_and_any_one_fault():
    found = explored(Design(is_progressive=True), Bounds(ONCE, together=1))

    assert found.violation is None, str(found)
    assert found.num_states >= 150_000


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_backup_of_any_moment_is_put_back_beside_another_fault():
    each = ONCE._replace(twin=0, expiry=0, error=0, crash=0, put_back=1)

    found = explored(Design(), Bounds(each, together=2, workers=A))

    assert found.violation is None, str(found)
    assert found.num_states >= 50_000


def test_backup_is_put_back_and_the_pinned_source_is_gone():
    found = explored(Design(), Bounds(Faults(source=2, put_back=1), together=2, workers=A_AND_B))

    assert found.violation is None, str(found)


def test_backup_of_a_progressive_refresh_is_put_back():
    found = explored(Design(is_progressive=True), Bounds(Faults(source=1, put_back=1), together=2, workers=A))

    assert found.violation is None, str(found)


HELD = Faults(source=1, foreign=1, crash=1, expiry=1, twin=1, cancel=1, error=1, lost=1, too_late=1)


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_held_refresh_a_decision_and_any_one_fault():
    found = explored(Design(holds=True), Bounds(HELD, together=1, workers=A_AND_B, decisions=1))

    assert found.violation is None, str(found)
    assert found.num_states >= 50_000


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_held_refresh_two_decisions_and_a_backup_that_is_put_back():
    faults = Faults(source=1, foreign=1, put_back=1)

    found = explored(Design(holds=True), Bounds(faults, together=2, workers=A, decisions=2))

    assert found.violation is None, str(found)
    assert found.num_states >= 50_000


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_held_refresh_of_one_caller_and_any_two_faults():
    found = explored(Design(holds=True), Bounds(HELD._replace(twin=0), together=2, workers=A, decisions=1))

    assert found.violation is None, str(found)
    assert found.num_states >= 50_000


@pytest.mark.parametrize("fault", [pytest.param("foreign", marks=pytest.mark.in_test_all), "too_late", "crash"])
def test_held_refresh_of_one_caller(fault):
    found = explored(Design(holds=True), Bounds(Faults()._replace(**{fault: 1}), together=1, workers=A, decisions=2))

    assert found.violation is None, str(found)


WEAKER = [
    # design, its faults, its workers, what breaks, who is in the way there
    (
        Design("no fence, no transaction", has_fence=False, app="none"),
        *(Faults(expiry=1, cancel=1), A_AND_B),
        *("invariant 9: refresh 2 is abandoned, and main has it", "a starts its MERGE"),
    ),
    (
        Design("a transaction, but no fence commit", has_fence=False),
        *(Faults(expiry=1, cancel=1), A_AND_B),
        *("invariant 9: refresh 2 is abandoned, and main has it", "b does not fence"),
    ),
    (
        Design("an application id for each partition", app="partition", is_progressive=True),
        *(Faults(expiry=1), A_AND_B),
        *("invariant 6: epoch 2 commits after epoch 3", "b fences main for epoch 3"),
    ),
    (
        Design("paths shared by the attempts", has_own_paths=False),
        *(Faults(twin=1, source=1), TWINS),
        *("invariant 8: what was sealed was the source at 2, and staging holds 3", "seals"),
    ),
    (
        Design("a lease, and nothing else", has_fence=False, app="none", compares_epochs=False),
        *(Faults(expiry=1), A_AND_B),
        *("invariant 9: refresh 2 is abandoned, and main has it", "the lease runs out"),
    ),
    (
        Design("an epoch passed from task to task", has_epoch_per_process=False),
        *(Faults(twin=1, source=1), TWINS),
        *("invariant 8: what was sealed was the source at 2, and staging holds 3", "goes on under epoch 2"),
    ),
    # These were shipped until the model found what they lead to.
    (
        Design("a cancelled refresh is given up without a look at main's log", looks_first=False),
        *(Faults(crash=1, cancel=1), A_AND_B),
        *("invariant 9: refresh 2 is abandoned, and main has it", "somebody asks for a cancel"),
    ),
    (
        Design("a commit of any round is taken for this round's", tells_rounds=False),
        *(Faults(lost=1, foreign=1), A),
        *("invariant 1: main at version 4 is (2, 9, 0), what was sealed is (2, 1, 0)", "loses the answer"),
    ),
    (
        Design("a refresh is resumed from its seal, whatever main's log shows after it", asks_log=False),
        *(Faults(foreign=1, put_back=1), A),
        *("invariant 10: the table, left alone, does not come to rest", "the backup is put back"),
    ),
    (
        Design("a refresh is settled by whoever once had it", settles_its_own=False),
        *(Faults(twin=1), TWINS),
        *("the hand-over of a refresh that has ended", "finishes"),
    ),
    # Of refreshes that wait for a person's decision.
    (
        Design("an approval holds for every round", holds=True, approves_round=False),
        *(Faults(foreign=1), A),
        *("invariant 14: refresh 2 commits", "others: foreign"),
    ),
    (
        Design("a decision is one about whatever is held", holds=True, names_hold=False),
        *(Faults(source=1, too_late=1), A),
        *("invariant 14: refresh 3 commits", "the time to decide is up"),
    ),
    (
        Design("a commit does not say that it left out deletes", holds=True, notes_kept=False),
        *(Faults(foreign=1), A),
        *("invariant 15: refresh 2 deletes a row that was to be kept", "without deletes"),
    ),
    (  # This was shipped, too.
        Design("a refresh that main has is asked about again", holds=True, completes_unasked=False),
        *(Faults(lost=1, foreign=1), A),
        *("invariant 9: refresh 2 is abandoned, and main has it", "the MERGE that nobody waits for commits"),
    ),
    (  # What the remedy for that alone would lead to.
        Design("the database alone knows what was kept", holds=True, looks_for_kept=False),
        *(Faults(lost=1, foreign=1), A),
        *("invariant 15: refresh 2 deletes a row that was to be kept", "the MERGE that nobody waits for commits"),
    ),
    pytest.param(
        Design("a hold that is superseded ends without a fence", holds=True, ends_by_takeover=False),
        *(Faults(lost=1, foreign=1, source=1), A_AND_B),
        *("invariant 9: refresh 2 is abandoned, and a commit of it reaches main", "supersedes"),
        marks=(pytest.mark.in_test_all, pytest.mark.slow),
    ),
]


@pytest.mark.parametrize(
    ("design", "faults", "workers", "violation", "step"),
    WEAKER,
    ids=[getattr(case, "values", case)[0].name for case in WEAKER],
)
def test_weaker_design_breaks_an_invariant(design, faults, workers, violation, step):
    eager = Bounds(faults, 0).eager if design.holds else EVERY_STEP
    found = explored(
        design, Bounds(faults, together=sum(faults), workers=workers, eager=eager, decisions=int(design.holds))
    )

    assert found.violation is not None
    assert found.violation.startswith(violation), str(found)
    assert any(step in line for line in found.trace), str(found)

"""A history beside main has every version of its rows once, in every state that can be reached; weaker designs do not.

    19  the history is, version by version, the type-2 log of main's rows at the versions that it says it has reached
    20  whoever takes main for published finds the history at that version
    21  no commit of an older epoch in the history after a later epoch's

Others may change the history, too. What has ended is theirs then; of each row one version at most is current, and
the next refresh compares. What is abstracted away: the times of versions, columns that begin none, what deletes leave.
"""

from __future__ import annotations

import pytest

from tests.model.checker import Bounds, explore
from tests.model.design import Design
from tests.model.world import Faults

ONCE = Faults(source=1, foreign=1, crash=1, expiry=1, twin=1, cancel=1, error=1, lost=1, drift=1)
A, A_AND_B, ALL = (0,), (0, 2), (0, 1, 2)
KEPT = Design(keeps_history=True)
FORCED = Design(keeps_history=True, is_forced=True)
PROGRESSIVE = Design(keeps_history=True, is_progressive=True)
HELD = Design(keeps_history=True, holds=True)


def explored(design, faults, workers=A_AND_B, history="begun", together=None, **more):
    together = sum(faults) if together is None else together
    found = explore(design, Bounds(faults, together=together, workers=workers, history=history, **more))
    print(f"\n{design.name}: {found}")
    return found


@pytest.mark.parametrize("history", ["none", "begun"])
@pytest.mark.parametrize("fault", ["crash", "lost", "expiry", "foreign", "drift", "error"])
def test_history_and_one_fault(fault, history):
    found = explored(KEPT, Faults()._replace(**{fault: 1}), history=history)

    assert found.violation is None, str(found)


@pytest.mark.parametrize("fault", ["crash", "lost", "expiry"])
def test_history_that_a_person_wants_compared_and_one_fault(fault):
    found = explored(FORCED, Faults()._replace(**{fault: 1}), history="outdated")

    assert found.violation is None, str(found)


def test_history_and_a_backup_that_is_put_back():
    found = explored(KEPT, Faults(source=1, put_back=1), A)

    assert found.violation is None, str(found)


def test_history_of_a_progressive_refresh():
    found = explored(PROGRESSIVE, Faults(crash=1))

    assert found.violation is None, str(found)


# -- more of them at once ----------------------------------------------------------------------------------------------

LARGE = [
    # design, faults, how many of them together, workers, history, the least number of states
    pytest.param(KEPT, ONCE, 1, ALL, "begun", 140_000, id="any one fault of three workers"),
    pytest.param(KEPT, ONCE, 1, ALL, "none", 100_000, id="any one fault of three workers, begun with it"),
    pytest.param(KEPT, ONCE._replace(error=0, twin=0, cancel=0), 2, A_AND_B, "begun", 100_000, id="any two faults"),
    pytest.param(KEPT, Faults(crash=1, lost=1, cancel=1, drift=1), 3, A, "begun", 10_000, id="three faults of one"),
    pytest.param(FORCED, ONCE, 1, A_AND_B, "outdated", 50_000, id="compared as a person wants"),
    pytest.param(PROGRESSIVE, ONCE, 1, A_AND_B, "begun", 100_000, id="progressive"),
    pytest.param(KEPT, Faults(source=1, lost=1, put_back=1), 2, A_AND_B, "begun", 20_000, id="a backup is put back"),
]


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("design", "faults", "together", "workers", "history", "num_states"), LARGE)
def test_history_and_faults_together(design, faults, together, workers, history, num_states):
    found = explored(design, faults, workers, history, together)

    assert found.violation is None, str(found)
    assert found.num_states >= num_states


@pytest.mark.in_test_all
@pytest.mark.slow
def test_history_of_a_refresh_that_waits_for_decisions():
    found = explored(HELD, Faults(crash=1, foreign=1, lost=1), A, together=1, decisions=2)

    assert found.violation is None, str(found)


# -- weaker designs ----------------------------------------------------------------------------------------------------

WEAKER = [
    # design, its faults, its history, what breaks, who is in the way there
    (
        KEPT._replace(name="no fence in the history", fences_history=False),
        *(Faults(expiry=1), "begun"),
        *("invariant 19: the versions in the history are (((1, 2, 3), (2, 3, 3)", "b fences main for epoch 3"),
    ),
    (
        KEPT._replace(name="the history before main", writes_history_after=False),
        *(Faults(), "begun"),
        *("invariant 19: the history says that it has main's version 3, which is not there", "mints"),
    ),
    (
        KEPT._replace(name="corrections are the changes, whoever has written", minds_others=False),
        *(Faults(foreign=1), "begun"),
        *("invariant 19: the versions in the history are", "others: foreign"),
    ),
    # These were built until the model found what they lead to.
    (
        FORCED._replace(name="no fence where everything is compared", fences_compares=False),
        *(Faults(expiry=1), "outdated"),
        *("invariant 19: the history has ((1,), (1, 1), (1,)) as current versions", "has nothing to commit"),
    ),
    (
        KEPT._replace(name="what others change while it is decided is taken for known", notes_base=False),
        *(Faults(drift=1), "begun"),
        *("invariant 20: main's rows are ((2,), (1,), ()), the current versions", "others: a current version"),
    ),
]


@pytest.mark.parametrize(
    ("design", "faults", "history", "violation", "step"), WEAKER, ids=[case[0].name for case in WEAKER]
)
def test_weaker_history_breaks_an_invariant(design, faults, history, violation, step):
    found = explored(design, faults, history=history)

    assert found.violation is not None
    assert found.violation.startswith(violation), str(found)
    assert any(step in line for line in found.trace), str(found)

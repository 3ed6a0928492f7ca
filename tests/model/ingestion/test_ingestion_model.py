"""An ingestion keeps every invariant in every state that can be reached; weaker designs do not.

What is explored is told in `world` (the state), `order` (a process's steps), `process` (their effects) and `checker`
(what may happen, and the invariants). `make model` prints how many states each exploration has, and the shortest way of
each weaker design into its violation.

What is abstracted away: what the model of one table explores (rounds, MERGEs that go on, parts, decisions of which
rounds), several topics (each is released by itself, from its own tables alone), and the moment between the look which
topic has the name and the commit to the group, which Kafka cannot make one.
"""

from __future__ import annotations

import pytest

from tests.model.exploring import Explored
from tests.model.ingestion.checker import Bounds, explore
from tests.model.ingestion.world import Design, Faults

RUN = (("run", 0),)
ALONE = (("alone", 0), ("alone", 1))
ANY = RUN + ALONE
TWINS = ("a", "a")
EVERY_STEP = frozenset[str]()


def explored(design: Design, bounds: Bounds) -> Explored:
    found = explore(design, bounds)
    print(f"\n{design.name}: {found}")
    return found


SHIPPED = {
    # everything that happens in it may happen at any moment, so many times together; then what the second process is
    "two crashes, whoever comes after them": (Design(), Bounds(Faults(sent=1, crash=2, begun=3), 3, ())),
    "one crash beside a refresh alone": (Design(), Bounds(Faults(sent=1, crash=1, begun=2), 2, ALONE)),
    "guard, hold, retention and a crash": (
        Design(),
        Bounds(Faults(sent=1, crash=1, refused=1, held=1, removed=1, begun=2), 2, ()),
    ),
    "topic made again, pause, drop, other writers": (
        Design(),
        Bounds(Faults(sent=1, made_again=1, paused=1, dropped=1, others=1, removed=1, begun=1), 2, ()),
    ),
    "complete topic, rolled back, made again": (
        Design(is_complete=True),
        Bounds(Faults(sent=1, rolled_back=1, made_again=1, crash=1, begun=2), 1, (("reload", 0),)),
    ),
    "snapshot beside a refresh alone": (Design(is_log=False), Bounds(Faults(sent=1, begun=2), 1, ALONE)),
}

LARGER = {
    "snapshot, a retry beside its zombie": (
        Design(is_log=False),
        Bounds(Faults(sent=1, begun=2), 1, RUN, TWINS),
    ),
    "two crashes beside another run": (Design(), Bounds(Faults(sent=1, crash=2, begun=3), 3, RUN)),
    "two crashes beside a refresh alone": (Design(), Bounds(Faults(sent=1, crash=2, begun=3), 3, ALONE)),
    "a zombie, and retention": (
        Design(),
        Bounds(Faults(sent=1, crash=1, expiry=1, removed=1, begun=2), 3, ANY),
    ),
    "any one, step by step": (
        Design(),
        Bounds(Faults(1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, begun=2), 1, ANY, eager=EVERY_STEP),
    ),
    "any three of one process": (Design(), Bounds(Faults(2, 2, 0, 1, 1, 1, 1, 1, 0, 1, 1, begun=3), 3, ())),
    "snapshot, any two": (Design(is_log=False), Bounds(Faults(2, 1, 1, 1, 1, 1, 1, 1, begun=2), 2, ANY)),
    "snapshot, twins, any two": (
        Design(is_log=False),
        Bounds(Faults(2, 1, 1, 1, 1, 1, begun=2), 2, RUN, TWINS),
    ),
}


@pytest.mark.parametrize("case", SHIPPED)
def test_every_invariant_holds(case):
    found = explored(*SHIPPED[case])

    assert found.violation is None, str(found)
    assert found.num_states >= 1_000


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", LARGER)
def test_every_invariant_holds_in_larger_worlds(case):
    found = explored(*LARGER[case])

    assert found.violation is None, str(found)
    assert found.num_states >= 20_000


WEAKER = [
    # design, what happens, what breaks, a step on the way there
    (
        Design("released before it is published", releases="when sealed"),
        Bounds(Faults(begun=1), 0, ()),
        *("invariant 16: 2 is released, and output 0 has to read from 1", "releases what is sealed"),
    ),
    (
        Design("released as far as the furthest output", release_of="the first"),
        Bounds(Faults(refused=1, begun=1), 1, ()),
        *("invariant 16: 2 is released, and output 1 has to read from 1", "is refused by a guard"),
    ),
    (
        Design("released as far as the run's own outputs", release_of="the run's"),
        Bounds(Faults(held=1, begun=1), 1, ()),
        *("invariant 16: 2 is released, and output 1 has to read from 1", "holds it for a decision"),
    ),
    (
        Design("paused outputs are not waited for", release_of="open"),
        Bounds(Faults(paused=1, begun=1), 1, ()),
        *("invariant 16: 2 is released, and output 1 has to read from 1", "somebody pauses output 1"),
    ),
    (
        Design("offsets are released to whatever has the topic's name", knows_topic=False),
        Bounds(Faults(made_again=1, begun=1), 1, ()),
        *("invariant 16: 1 is released, and output 0 has to read from 0", "the topic is made again"),
    ),
    (
        Design("the binding is not durable", binds=False),
        Bounds(Faults(sent=1, crash=1, begun=1), 2, ()),
        *("invariant 1: output 0 is published as (10, 11, 12)", "a record is sent"),
    ),
    (
        Design("read on from the offset in the group", continues_own=False),
        Bounds(Faults(sent=1, crash=1, begun=2), 2, ()),
        *("invariant 1: output 0 is published as (10, 11, 11, 12)", "a record is sent"),
    ),
    (
        Design("each output finds its own state", fixes_one_state=False),
        Bounds(Faults(sent=1, begun=1), 1, ()),
        *("invariant 17: a run reports one state, and its outputs end with [(11,), (12,)]", "a record is sent"),
    ),
    # These were shipped until the model found what they lead to.
    (
        Design("a run looks before it begins", checks_as_it_begins=False),
        Bounds(Faults(sent=1, begun=2), 1, ALONE),
        *("invariant 18: MV-SOURCE-REGRESSED, and it can be continued", "writes that it is published"),
    ),
    (
        Design("an error is told that was met with an outdated row", asks_again=False),
        Bounds(Faults(begun=2), 0, ALONE),
        *("invariant 18: MV-STREAM-NEEDS-RELOAD, and it can be continued", "writes that it is published"),
    ),
    (
        Design("a run of a snapshot looks before it begins", is_log=False, checks_as_it_begins=False),
        Bounds(Faults(sent=1, begun=2), 1, ALONE),
        *("invariant 17: a run reports one state", "has nothing to do"),
    ),
    (
        Design("a run goes on with what its retry has begun", is_log=False, checks_as_it_begins=False),
        Bounds(Faults(sent=1, begun=2), 1, RUN, TWINS),
        *("invariant 1: output 0 is published as (10, 11), and is said to have (10, 11, 12)", "of its caller"),
    ),
]


@pytest.mark.parametrize(("design", "bounds", "violation", "step"), WEAKER, ids=[case[0].name for case in WEAKER])
def test_weaker_design_breaks_an_invariant(design, bounds, violation, step):
    found = explored(design, bounds)

    assert found.violation is not None
    assert found.violation.startswith(violation), str(found)
    assert any(step in line for line in found.trace), str(found)

"""What an answer to a required action does, and that the question holds no markup. Asking itself: tests/e2e."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import RefreshHeldError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.operators import decision
from tests.metadata.rows import acquired, registered, walk

pytestmark = pytest.mark.slow


@pytest.fixture
def held(tmp_path):
    """A store with a table whose refresh is held, and the id of the hold."""
    store = Store(open_engine(f"sqlite:///{tmp_path}/mv.db"))
    migrations.migrate(store.engine)
    own = acquired(store, registered(store, "orders"))
    walk(store, own, Phase.MERGING)
    yield store, store.holds.begin(own, 0, "too many", ["max_deleted_fraction"], hold_ms=60_000).id
    store.engine.dispose()


def answer(*options, note="I have looked", **more):
    user = {"id": "1", "name": "ann"}
    return {
        "chosen_options": list(options),
        "params_input": {"note": note},
        "responded_at": datetime.now(UTC),
        "responded_by_user": user,
    } | more


def decided(held, event):
    store, hold_id = held
    decision.record(store, "orders", hold_id, event)
    hold = store.last_hold(hold_id.partition(".")[0])
    return hold.decision, hold.decided_by, hold.note


def test_an_answer_is_recorded_once_with_who_and_why(held):
    assert decided(held, answer("Approve")) == (Decision.APPROVED, "ann", "I have looked")
    assert decided(held, answer("Reject", note="too late")) == (Decision.APPROVED, "ann", "I have looked")


@pytest.mark.parametrize(
    "event",
    [
        {"error": "timeout", "error_type": "timeout"},
        answer(),
        answer("Publish everything"),
        answer(timedout=True, responded_by_user=None),
    ],
    ids=["timeout", "none", "unknown", "default"],
)
def test_no_answer_decides_nothing(held, event):
    assert decided(held, event) == (None, None, None)


def test_an_answer_without_a_note_or_a_user_counts(held):
    event = answer("Reject", note=None, responded_by_user=None)

    assert decided(held, event) == (Decision.REJECTED, None, None)


@pytest.mark.in_test_all
def test_no_line_of_the_question_is_markup(home):
    home.apply()
    home.refresh()
    home.write("SELECT id, concat('``` <b>', id, '</b>\n# x') AS v FROM range(4)")
    with pytest.raises(RefreshHeldError) as caught:
        home.refresh(hold=True)

    body = decision._body(
        home.refresher(), "orders", home.store.last_hold(caught.value.facts["hold"].partition(".")[0])
    )

    assert "```" in body
    assert all(line.startswith("    ") for line in body.split("\n")), "an indented block has no end within"

"""What an answer to a required action does, and that the question holds no markup. Asking itself: tests/e2e."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput
from airflow.sdk.execution_time import task_runner

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import ErrorReport, Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Ownership
from airflow_mv_provider.exceptions import RefreshHeldError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.notifications import message
from airflow_mv_provider.operators import decision
from airflow_mv_provider.operators.refresh import RefreshTableOperator
from tests.metadata.rows import acquired, handed_over, registered, walk

pytestmark = pytest.mark.slow


@pytest.fixture
def held(tmp_path, monkeypatch):
    """A store with a table whose refresh is held, and the id of the hold."""
    store = Store(open_engine(f"sqlite:///{tmp_path}/mv.db"))
    migrations.migrate(store.engine)
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", str(store.engine.url))
    monkeypatch.setenv("AIRFLOW__MV__WAREHOUSE", "/wh")
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


def test_deletes_of_a_topic_that_is_not_complete_are_not_left_out(held):
    """Its next refresh would have to read it from its start."""
    store, _ = held
    topic = {"type": "kafka", "topic": "t", "conn_id": "k", "schema": "id BIGINT, v STRING", "envelope": "upsert"}
    registered(store, "orders", source=topic)

    assert decided(held, answer("Approve without deletes")) == (None, None, None)
    assert decided(held, answer("Approve")) == (Decision.APPROVED, "ann", "I have looked")


def test_an_answer_without_a_note_or_a_user_counts(held):
    event = answer("Reject", note=None, responded_by_user=None)

    assert decided(held, event) == (Decision.REJECTED, None, None)


def woken(held, **more):
    """Wake the task that waits for a decision, as Airflow's scheduler does; return what it raises."""
    _, hold_id = held
    task = RefreshTableOperator(task_id="r", table="orders", **more)
    with pytest.raises(BaseException) as caught:
        task.decided({}, {"error": "timeout", "error_type": "timeout"}, hold_id)
    return caught.value


def test_a_task_that_is_woken_waits_on_for_the_same_question(held):
    found = woken(held, poll_interval=0.5)

    assert isinstance(found, TaskAwaitingInput)
    assert (found.kwargs["hold_id"], found.timeout) == (held[1], timedelta(seconds=5))
    assert timedelta(seconds=50) < woken(held, poll_interval=99).timeout <= timedelta(seconds=60), "until it is over"


def test_a_task_that_is_woken_notices_that_it_was_rejected_elsewhere(held):
    store, hold_id = held
    store.holds.decide(store.table("orders").id, Decision.REJECTED, "ann", "no", hold_id)
    own = handed_over(store, Ownership(store.table("orders").id, hold_id.partition(".")[0], 1), "another")
    store.abandon(
        own, Outcome.CANCELLED, ErrorReport("MV-CANCELLED", "orders: the refresh was rejected by ann: no.", ""), {}
    )

    found = woken(held)

    assert isinstance(found, AirflowFailException)
    assert "the refresh was rejected by ann: no." in str(found)


def test_a_task_that_is_woken_while_the_database_is_away_waits_on(held, monkeypatch):
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", "postgresql+psycopg://mv@127.0.0.1:1/mv")

    found = woken(held, poll_interval=0.5)

    assert isinstance(found, TaskAwaitingInput)
    assert (found.kwargs["hold_id"], found.timeout) == (held[1], timedelta(seconds=5))


def test_a_task_that_is_woken_after_its_table_was_dropped_fails_and_is_not_repeated(held, monkeypatch, tmp_path):
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/another.db")

    found = woken(held)

    assert isinstance(found, AirflowFailException)
    assert "is not known. Was its table dropped?" in str(found)


def test_people_are_told_what_waits_for_them(held):
    store, hold_id = held
    task = RefreshTableOperator(task_id="r", table="orders")
    task.held_difference = ["orders: awaiting approval", "  delete  id=3"]
    run = SimpleNamespace(dag_id="d", run_id="r1")

    told = message(store.report(hold_id.partition(".")[0]), {"dag_run": run, "task": task})

    assert told.startswith("orders: awaiting approval. too many Answer it in Airflow, or with `amv approve`")
    assert told.endswith("\n  delete  id=3")


@pytest.mark.in_test_all
def test_no_line_of_the_question_is_markup(home):
    home.apply()
    home.refresh()
    home.write("SELECT id, concat('``` <b>', id, '</b>\n# x') AS v FROM range(4)")
    with pytest.raises(RefreshHeldError) as caught:
        home.refresh(hold=True)

    hold = home.store.last_hold(caught.value.facts["hold"].partition(".")[0])
    body = decision._body(decision.difference(home.refresher(), "orders", hold))

    assert "```" in body
    assert all(line.startswith("    ") for line in body.split("\n")), "an indented block has no end within"


@pytest.mark.parametrize("users", [None, [{"id": "7", "name": "ann"}, {"id": "8", "name": "bob"}]])
def test_the_question_is_for_those_who_may_answer(held, monkeypatch, users):
    """What Airflow's supervisor is asked to store; Airflow itself refuses the answers of all others."""
    store, hold_id = held
    sent = []

    def send(msg):
        sent.append(msg)

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    context = {"task_instance": SimpleNamespace(id=uuid4())}

    decision.ask(store.table("orders"), store.last_hold(hold_id.partition(".")[0]), ["orders: held"], context, users)

    [question] = sent
    assert [{"id": user.id, "name": user.name} for user in question.assigned_users] == (users or [])
    assert (question.options, question.body) == (["Approve", "Approve without deletes", "Reject"], "    orders: held")

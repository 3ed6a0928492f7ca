"""A refresh that waits for a decision: where the page shows it, why, and where to decide."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from sqlalchemy import update

from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.phase import Phase
from tests.api.conftest import PAGE, text_of
from tests.metadata.rows import RECORDED, acquired, registered, walk

pytestmark = pytest.mark.slow

URL = f"{PAGE}/tables/orders"
REASON = "max_deleted_fraction: 5 of the table's 33 rows would be deleted <b>."


@pytest.fixture
def table(store):
    return registered(store, "orders")


def held(store, table, key="one"):
    own = acquired(store, table, key=key)
    walk(store, own, Phase.MERGING)
    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)
    return store.holds.begin(own, 0, REASON, ["max_deleted_fraction"], hold_ms=3_600_000)


def test_it_needs_attention_and_is_neither_publishing_nor_left(user, store, table):
    held(store, table)

    listed = user.get(f"{PAGE}/?show=needs+attention").text
    assert "awaiting approval" in listed
    assert "publishing" not in listed
    assert "stalled" not in listed


def test_the_tables_page_says_why_and_how_to_decide(user, store, table):
    held(store, table)

    page = user.get(URL).text

    assert "Awaiting approval" in page
    assert "5 of the table&#39;s 33 rows would be deleted &lt;b&gt;." in page
    assert "amv diff orders" in page
    assert "works on it any more" not in page
    assert "waiting for the next task" not in page


SAMPLE = Sample(
    0,
    (
        RowChange("delete", {"id": 7}, {"id": 7, "v": "<img src=x>"}, None),
        RowChange("update", {"id": 8}, {"id": 8, "v": "old", "w": 1}, {"id": 8, "v": None, "w": 1}),
    ),
    {"v": 1},
)


def test_changed_rows_are_shown_to_whoever_may_decide_and_to_nobody_else(user, viewer, store, table):
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    store.samples.keep(own, SAMPLE)
    store.holds.begin(own, 0, REASON, ["max_deleted_fraction"], hold_ms=3_600_000)

    for path in (URL, f"{URL}/now", f"{URL}/refreshes/{own.refresh_id}"):
        page = user.get(path).text
        assert "&lt;img src=x&gt;" in page, path
        assert "<img" not in page, path
        [update] = re.findall(r'<tr class="update">.*?</tr>', page, re.DOTALL)
        assert text_of(update) == 'update id 8 v "old" → NULL', path
        assert "&lt;img" not in viewer.get(path).text, path
    assert "<code>v</code> in 1" in user.get(URL).text


def test_one_refresh_has_a_page_of_its_own(user, store, table):
    hold = held(store, table)
    store.holds.decide(table.id, Decision.REJECTED, "ann", "too many <b>", hold.id)
    page = f"{URL}/refreshes/{hold.refresh_id}"

    shown = user.get(page).text

    assert "too many &lt;b&gt;" in shown
    assert "<strong>Rejected</strong> by ann" in shown
    assert "No changed rows are kept of it" in shown
    assert "amv diff" not in shown, "it has published nothing"
    assert f'href="../tables/orders/refreshes/{hold.refresh_id}"' in user.get(URL).text
    other = registered(store, "other")
    for wrong in (f"{URL}/refreshes/nothing", f"{PAGE}/tables/other/refreshes/{hold.refresh_id}"):
        assert user.get(wrong).status_code == 404, (wrong, other)


def decide(browser, decision: str, hold_id: str, note: str = "looked", name: str = "orders") -> str:
    """Send the form; return what the page then says."""
    fields = {"decision": decision, "hold": hold_id, "note": note}
    answer = browser.post(f"{PAGE}/tables/{name}/decide", data=fields)
    assert answer.status_code == 303
    shown = browser.get(URL, params=answer.headers["location"].partition("?")[2]).text
    return re.search(r'id="message"[^>]*>([^<]*)', shown)[1]


def test_the_page_says_how_much_would_change_and_lets_only_some_decide(user, viewer, store, table):
    hold = held(store, table)

    page = user.get(URL).text

    assert "It would insert <strong>32</strong>, update <strong>1</strong>, delete <strong>5</strong> rows" in page
    assert re.findall(r'name="decision" value="([^"]*)"', page) == ["approved", "without deletes", "rejected"]
    assert f'name="hold" value="{hold.id}"' in page
    assert "data-answers" not in page
    assert 'name="decision"' not in viewer.get(URL).text
    assert 'href="./tables/orders#decide"' in user.get(f"{PAGE}/?show=needs+attention").text, "two clicks from the list"


@pytest.mark.parametrize(
    ("decision", "said", "then"),
    [
        ("approved", "Approved: the next refresh", "Approved by user: looked &lt;i&gt;. The next refresh publishes it"),
        (
            "without deletes",
            "Approved without deletes",
            "Without deletes by user: looked &lt;i&gt;. The next refresh publishes",
        ),
        ("rejected", "Rejected: the table stays", "Rejected by user: looked &lt;i&gt;. The next refresh ends it"),
    ],
)
def test_a_decision_is_recorded_with_who_and_why(user, store, table, decision, said, then):
    hold = held(store, table)

    assert decide(user, decision, hold.id, " looked <i> ").startswith(said)

    decided = store.last_hold(hold.refresh_id)
    assert (decided.decision, decided.decided_by, decided.note) == (decision, "user", "looked <i>")
    assert then in user.get(URL).text
    assert "works on it any more" not in user.get(URL).text


def test_nothing_but_what_was_shown_is_decided_and_nothing_without_a_reason(user, store, table):
    assert decide(user, "approved", "x.0").startswith("Nothing was decided: no refresh of this table awaits approval")
    hold = held(store, table)

    assert decide(user, "approved", f"{hold.refresh_id}.7").startswith("Nothing was decided: another difference")
    assert decide(user, "approved", "").startswith("Nothing was decided: a decision needs")
    assert decide(user, "approved", hold.id, "  ").startswith("Nothing was decided: a decision needs a reason")
    assert decide(user, "superseded", hold.id).startswith("Nothing was decided")
    assert store.last_hold(hold.refresh_id).decision is None
    decide(user, "rejected", hold.id)
    assert decide(user, "approved", hold.id) == "Nothing was decided: the refresh has been decided already."
    assert store.last_hold(hold.refresh_id).decision is Decision.REJECTED
    assert user.post(f"{URL}/decide", content=b"note=" + b"x" * 200_000).status_code == 413


def test_a_decision_needs_the_right_to_act_and_comes_from_our_own_page(user, viewer, as_role, store, table):
    hold = held(store, table)
    fields = {"decision": "approved", "hold": hold.id, "note": "looked"}

    refused = [
        viewer.post(f"{URL}/decide", data=fields).status_code,
        as_role(None).post(f"{URL}/decide", data=fields).status_code,
        user.post(f"{URL}/decide", data=fields, headers={"sec-fetch-site": "cross-site"}).status_code,
    ]

    assert refused == [403, 401, 403]
    assert store.last_hold(hold.refresh_id).decision is None


def test_what_airflows_task_asks_is_answered_there(user, store, table):
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251
    from airflow.utils.session import create_session  # noqa: TID251

    run_id = user.post("/api/v2/dags/hourly/dagRuns", json={"logical_date": None}).json()["dag_run_id"]
    hold = held(store, table, key=f"airflow:hourly:publish_orders:-1:{run_id}")
    with create_session() as session:
        is_ours = (TaskInstance.run_id == run_id, TaskInstance.task_id == "publish_orders")
        session.execute(update(TaskInstance).where(*is_ours).values(state="awaiting_input", try_number=1))

    page = user.get(URL).text

    run = quote(run_id, safe="")
    assert f'href="../../dags/hourly/runs/{run}/required_actions"' in page
    assert f'data-answers="../../api/v2/dags/hourly/dagRuns/{run}/taskInstances/publish_orders/-1/hitlDetails"' in page
    assert re.findall(r'name="decision" value="([^"]*)"', page) == ["approved", "without deletes", "rejected"]
    assert "amv diff" not in page
    # It is woken at times, to look around, and its next try asks again.
    for state in ("awaiting_input", "scheduled", "queued", "running", "up_for_retry", "restarting"):
        with create_session() as session:
            session.execute(update(TaskInstance).where(*is_ours).values(state=state))
        assert decide(user, "approved", hold.id).startswith("Nothing was decided: a task asks in Airflow"), state
        cancelled = user.post(f"{URL}/cancel", data={"refresh": hold.refresh_id})
        assert cancelled.headers["location"].endswith("done=decide-in-airflow"), state
        assert store.last_hold(hold.refresh_id).decision is None
    assert not store.state(table.id).is_cancel_requested


def test_deletes_of_a_topic_that_is_not_complete_are_not_left_out(user, store):
    """Its next refresh would have to read it from its start."""
    source = {"type": "kafka", "topic": "t", "conn_id": "k", "schema": "id BIGINT, v STRING", "envelope": "upsert"}
    hold = held(store, registered(store, "orders", source=source))

    assert decide(user, "without deletes", hold.id).startswith("Nothing was decided: without its deletes")

    assert store.last_hold(hold.refresh_id).decision is None


def test_after_the_decision_it_is_no_longer_held(user, store, table):
    hold = held(store, table)
    before = user.get(f"{URL}/now").text
    store.holds.decide(table.id, Decision.APPROVED, "ann", "looked", hold.id)

    after = user.get(f"{URL}/now").text

    assert "Awaiting approval" in before
    assert "Awaiting approval" not in after
    assert before.split("data-revision=")[1].split(" data")[0] != after.split("data-revision=")[1].split(" data")[0]

"""One table's page: what it shows."""

from __future__ import annotations

import re

import pytest

from airflow_mv_provider.core.cost import Estimate
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.strategy import Choice
from tests.api.conftest import PAGE, text_of
from tests.metadata.rows import (
    ERROR,
    FIRST,
    LEASE_MS,
    RECORDED,
    SEAL,
    a_caller,
    acquired,
    handed_over,
    publish,
    registered,
    walk,
)

pytestmark = pytest.mark.slow

URL = f"{PAGE}/tables/orders"


@pytest.fixture
def table(store):
    return registered(store, "orders")


def test_a_table_that_was_never_refreshed(user, table):
    shown = text_of(user.get(URL).text)

    assert "Phase Normal" in shown
    assert "Fresh as of never" in shown
    assert "No refresh yet." in shown
    assert "path: raw/orders" in shown


def test_a_table_that_is_not_there(user, store):
    answer = user.get(URL, headers={"accept": "text/html"})

    assert answer.status_code == 404
    assert "no refreshable table has this name" in answer.text


def test_a_refresh_under_way_shows_who_and_how_far(user, store, table):
    own = acquired(store, table, choice=Choice("corrections", "the definition changed"))
    walk(store, own, Phase.MERGING)
    store.merging.record_chunk(own, FIRST)

    shown = text_of(user.get(f"{URL}/now").text)

    assert "2 of 3" in shown
    assert "All rows compared corrections : the definition changed" in shown
    assert "host:one" in shown
    assert "1 ✓ compared 10 2 1 1" in shown, "a partition with its state, rows staged, inserted, updated and deleted"
    assert "3 waiting 30" in shown


def test_a_first_refresh_that_cleans_up_is_fresh(user, store, table):
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    assert "Fresh as of never" in text_of(user.get(URL).text)
    publish(store, own)

    assert re.search(r"Fresh as of (just now|\d+ s ago)", text_of(user.get(URL).text))
    assert "never" not in text_of(user.get(f"{PAGE}/").text)
    assert store.age_s(table.id) is not None


def test_what_is_compared_is_being_published(user, store, table):
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)

    shown = text_of(user.get(f"{URL}/now").text)
    assert "all is compared; publishing" in shown
    assert not re.search(r"\d of \d", shown)
    assert "publishing" in text_of(user.get(f"{PAGE}/").text)
    publish(store, own)
    assert "published; cleaning up" in text_of(user.get(f"{URL}/now").text)


def test_progress_is_seen_to_move(user, store, table):
    own = acquired(store, table)
    seen = [re.search(r'data-announcement="([^"]*)"', user.get(f"{URL}/now").text)[1]]
    walk(store, own, Phase.MERGING)
    seen.append(re.search(r'data-announcement="([^"]*)"', user.get(f"{URL}/now").text)[1])
    store.merging.record_chunk(own, FIRST)
    seen.append(re.search(r'data-announcement="([^"]*)"', user.get(f"{URL}/now").text)[1])

    assert seen == [
        "orders: Refreshing",
        "orders: Merging, 0 of 3 partitions",
        "orders: Merging, 2 of 3 partitions",
    ]


def test_only_a_refresh_under_way_is_looked_at_often(user, store, table):
    at_rest = user.get(URL).text
    own = acquired(store, table)
    under_way = user.get(URL).text
    walk(store, own, Phase.NORMAL)

    assert "data-live" in under_way
    assert "data-live" not in at_rest
    assert "data-live" not in user.get(URL).text


def test_the_page_is_outdated_when_a_refresh_has_begun_or_ended(user, store, table):
    def revision() -> str:
        return re.search(r'data-revision="([^"]*)"', user.get(f"{URL}/now").text)[1]

    seen = [revision()]
    own = acquired(store, table)
    seen.append(revision())
    store.merging.seal(own, SEAL, (Chunk(0, None),), {})
    assert revision() == seen[-1], "from phase to phase only the live part changes"
    store.abandon(own, Outcome.CANCELLED, ERROR, {})
    seen.append(revision())
    store.pause(table.id, "ann")
    seen.append(revision())

    assert len(set(seen)) == len(seen)


def test_the_last_strategy_and_why_each_other_way_lost(user, store, table):
    judged = (Estimate("corrections", 3.2, "chosen", 9), Estimate("incremental", None, "the source lists no changes"))
    walk(store, acquired(store, table, choice=Choice("corrections", "source changed", judged)), Phase.NORMAL)

    shown = text_of(user.get(URL).text)

    assert "All rows compared corrections : source changed" in shown
    assert "All rows compared corrections 3.2 s 3.8 s 9 38 chosen" in shown, (
        "seconds and rows: expected, and as they were"
    )
    assert "Only what changed incremental – – the source lists no changes" in shown
    assert "published +32 ~1 −5" in shown


def test_phases_are_drawn_with_a_lane_for_each_attempt(user, store, table, clock):
    own = acquired(store, table)
    clock.pass_ms(3_000)
    newer = handed_over(store, own)
    clock.pass_ms(4_000)
    walk(store, newer, Phase.NORMAL)

    page = user.get(URL).text

    assert re.findall(r">(Attempt [^<]*)</li>", page) == ["Attempt 1: refreshing", "Attempt 2: refreshing"]
    assert re.search(r"Phases [\d.]+ s .*Refreshing [\d.]+ s Merging 2.0 s Cleanup 0.2 s", text_of(page))


def test_history_is_drawn_and_listed(user, store, table):
    walk(store, acquired(store, table), Phase.NORMAL)
    store.abandon(acquired(store, table), Outcome.FAILED, ERROR, {"REFRESHING": 2.0})

    page = user.get(URL).text

    assert page.count('<figure class="plot">') == 3
    assert len(re.findall(r'<rect class="inserted"', page)) == 1
    assert len(re.findall(r'<rect class="tone-(?:good|bad)"', page)) == 6, "an outcome's mark under each plot"
    for report in store.history(table.id):
        assert f'id="{report.refresh_id}"' in page, "links from tasks end here"


def test_an_error_says_what_to_do(user, store, table):
    store.abandon(acquired(store, table), Outcome.FAILED, ERROR, {})

    shown = text_of(user.get(URL).text)

    assert "MV-ENGINE orders: it failed." in shown
    assert "What to do: Look." in shown
    assert "The next refresh may succeed" in shown


def test_a_dead_owners_refresh_says_who_ends_it(user, store, table, clock):
    acquired(store, table)
    clock.pass_ms(LEASE_MS + 1)
    # The page judges leases by the database's clock; the test's is ahead of it, so the lease is taken away instead.
    own = store.state(table.id)
    store.hand_over(own, a_caller("two"), epoch=own.epoch + 1, lease_ms=-LEASE_MS - 2)

    page = user.get(URL).text

    assert "Stalled: no process works on it." in text_of(page)
    assert ">Recover</button>" in page


def test_between_two_tasks_nobody_is_named_as_working(user, store, table):
    own = acquired(store, table, key="airflow:hourly:refresh:-1:manual__2026-11-24T01:00:00+00:00")
    store.park(own, until_ms=LEASE_MS)

    page = user.get(URL).text
    [link] = re.findall(r'href="([^"]*/runs/[^"]*)"', page)

    shown = text_of(page)
    assert link in user.get(f"{URL}/now").text, "the script puts this into the page"
    assert "Works on it no process now, run manual__2026-11-24T01:00:00+00:00" in shown
    assert link == "../../dags/hourly/runs/manual__2026-11-24T01%3A00%3A00%2B00%3A00"
    assert "waiting for the next task" in shown
    assert "reading and comparing the source" not in shown


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("reject", "is rejected until it has ended, and tries again later"),
        ("queue", "The run waits for its turn, at place 2 of the queue"),
        (
            "join",
            "The run gets its result, if both would read and do the same; else it waits at place 2",
        ),
    ],
)
def test_the_dialog_says_what_a_run_will_do_while_a_refresh_runs(user, store, policy, said):
    table = registered(store, "orders", concurrency=policy)
    before = text_of(user.get(URL).text)
    acquired(store, table)
    store.queue.take_ticket(table.id, a_caller("airflow:hourly:x:-1:manual__1"), patience_ms=60_000)

    page = user.get(URL).text

    assert "A refresh is in progress" not in before
    assert re.search(r"A refresh is in progress \(Refreshing, began .*?\)", text_of(page))
    assert said in text_of(page)
    assert 'href="../../dags/hourly/runs/manual__1"' in page


def test_a_refresh_without_a_process_is_what_airflow_says_of_its_run(user, store, table):
    run_id = user.post("/api/v2/dags/hourly/dagRuns", json={"logical_date": None}).json()["dag_run_id"]
    own = acquired(store, table, key=f"airflow:hourly:refresh:-1:{run_id}")
    store.park(own, until_ms=LEASE_MS)
    assert "No process works on it" not in text_of(user.get(URL).text), "its next task is expected"
    store.park(own, until_ms=0)
    expired = text_of(user.get(URL).text)
    user.patch(f"/api/v2/dags/hourly/dagRuns/{run_id}", json={"state": "failed"})
    dead = text_of(user.get(f"{URL}/now").text)
    store.park(own, until_ms=LEASE_MS)

    assert "Its run is queued in Airflow, so its next task or try continues." in expired
    assert "Stalled: no process works on it." in dead
    assert "No process works on it, and its run is failed in Airflow. Clear" in text_of(user.get(URL).text)


def test_who_waits_is_listed_in_order(user, store, table):
    acquired(store, table)
    for key in ("first", "second"):
        store.queue.take_ticket(table.id, a_caller(key), patience_ms=60_000)

    shown = text_of(user.get(f"{URL}/now").text)

    assert shown.index("host:first") < shown.index("host:second")

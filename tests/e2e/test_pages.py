"""Every page on the whole stack of `make up`, in Chromium: how it looks, how it is reached, what it asks and tells."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import create_engine, text

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from tests.browser.looks import flaws, unreached_by_tab
from tests.e2e.conftest import MONTHS, sales
from tests.e2e.stack import Stack, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.in_test_all, pytest.mark.timeout(900)]  # the first one starts everything

HOSTILE = '</script><img src=x onerror="window.hacked = 1"><b>{{7*7}}\'&'
MOST_LINKS = 60
PAGES = {
    "list": "/mv/",
    "list of an owner": "/mv/?owner=ann+%3Ci%3E+co&sort=owner&order=desc",
    "list of nothing": "/mv/?search=no+such+table",
    "table": "/mv/tables/sales",
    "table in Airflow": "/plugin/refreshable-tables/mv/tables/sales",
    "table never refreshed": "/mv/tables/days",
    "refresh published": "/mv/tables/sales/refreshes/{published}",
    "refresh failed": "/mv/tables/sales/refreshes/{failed}",
    "refreshes": "/mv/tables/sales/refreshes",
    "partitions": "/mv/tables/sales/partitions",
    "over time": "/mv/tables/sales/over-time?range=24h",
    "lineage": "/mv/lineage",
    "lineage of a table": "/mv/tables/sales/lineage",
    "message": "/mv/tables/not_there",
}


@contextmanager
def opened(window: Any, stack: Stack, path: str, *, expects_404: bool = False) -> Iterator[Any]:
    """Open a page; at the end nothing of it may have gone wrong, and no request may have left the server."""
    page, problems = window.new_page(), []

    def note(message: Any) -> None:
        if message.type == "error" and "/mv/" in str(message.location.get("url", "")) and not expects_404:
            problems.append(message.text)

    def look_at(request: Any) -> None:
        is_ours = path.startswith("/mv") or "/mv/" in request.frame.url  # Airflow's own pages may ask elsewhere
        if is_ours and not request.url.startswith((stack.topology.url, "data:", "blob:")):
            problems.append(f"asks {request.url}")

    page.on("console", note)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", look_at)
    page.goto(path)
    yield page
    assert page.evaluate("window.hacked") is None
    page.close()
    assert problems == []


@pytest.fixture(scope="module")
def ids(stack, filled) -> dict[str, str]:
    """Refreshes of `sales` by real runs: one published, its reason hostile; one that fails for good."""
    stack.write("sales", sales("2"))
    of_published = stack.trigger("sales", note=HOSTILE)
    stack.succeeds("sales", of_published)
    published = stack.history("sales")[0].refresh_id
    stack.write("sales", sales("3"))
    broken = stack.topology.place.warehouse / "raw/sales/2026-99.csv"
    broken.write_text(f"part,id,v\n2026-01,no number {HOSTILE},x\n", encoding="utf-8")
    run_id = stack.trigger("sales", force=True)
    wait_until(lambda: stack.has_ended("sales", run_id), "a run whose source is broken fails")
    broken.unlink()
    failed = stack.history("sales")[0]
    assert failed.outcome is Outcome.FAILED, failed
    return {"published": str(published), "failed": str(failed.refresh_id), "run of published": of_published}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_flaw_in_any_look(stack, window, ids, name):
    with opened(window, stack, PAGES[name].format(**ids), expects_404=name == "message") as page:
        if "Airflow" in name:
            page.frame_locator("iframe").get_by_role("heading", name="sales", exact=True).wait_for()
        else:
            assert flaws(page) == []
            assert page.locator("img").count() == 0


@pytest.mark.parametrize("name", [name for name in PAGES if name not in ("table in Airflow", "message")])
def test_a_page_is_reached_by_the_keyboard_alone(stack, window, ids, name):
    with opened(window, stack, PAGES[name].format(**ids)) as page:
        assert unreached_by_tab(page) == []


def test_hostile_words_are_shown_as_words(stack, window, ids):
    with opened(window, stack, PAGES["refresh published"].format(**ids)) as page:
        page.get_by_text(HOSTILE).first.wait_for()
    with opened(window, stack, "/mv/?tag=%3Cb%3Edaily+%26+night") as page:
        assert page.locator("tbody tr").count() == 1
        page.get_by_role("link", name="#<b>daily & night").wait_for()


def test_a_refresh_tells_its_story_and_how_its_estimate_came_out(stack, window, ids):
    with opened(window, stack, PAGES["refresh published"].format(**ids)) as page:
        told = [each.split("\n")[-1] for each in page.locator(".story li").all_inner_texts()]
        ways = page.locator("table.estimates tr.chosen td").all_inner_texts()
        lanes = page.locator(".lane-names a").all_inner_texts()
        assert page.locator(".lanes rect.waiting").count() > 0, "the wait for the next task is hatched"
        page.locator(".lane-names a", has_text="stage, try 1").press("Enter")
        page.wait_for_url(f"**/dags/sales/runs/{quote(ids['run of published'])}/tasks/refresh_sales.stage?try_number=1")

    assert lanes == ["begin, try 1", "stage, try 1", "merge, try 1", "cleanup, try 1"]
    assert re.match(r"admin started it|It was started", told[0])
    assert [each for each in told if each.startswith("No process worked: the next task, or try, and its Spark")]
    assert [each for each in told if re.match(r"It read .*stage, try 1", each)]
    assert [each for each in told if re.match(r"It .*merge, try 1", each)]
    assert re.match(r"Published as Delta version \d+: rows", told[-1])
    assert ways[3].replace(",", "") == str(sum(_changed(stack, ids["published"]))), "rows: changed, beside expected"


def test_a_task_leads_to_its_table_and_its_refresh_and_its_log_is_in_words(stack, window, ids):
    run, task = ids["run of published"], "refresh_sales.merge"
    links = stack.ask("GET", f"dags/sales/dagRuns/{run}/taskInstances/{task}/links")["extra_links"]
    begun, compared = (stack.log("sales", run, f"refresh_sales.{each}", 1) for each in ("begin", "merge"))

    assert links == {"Table": "/mv/tables/sales", "Refresh": PAGES["refresh published"].format(**ids)}
    for link, heading in ((links["Table"], "sales"), (links["Refresh"], "Refresh of sales")):
        with opened(window, stack, link) as page:
            page.get_by_role("heading", name=heading, exact=True).wait_for()
    for each in (begun, compared):
        assert re.search(r"Starting Spark \(.+\)\.", each)
        assert re.search(r"Spark is ready after [\d.]+ s\.", each)
        assert "alembic" not in each.lower()
    assert "sales: looking for what has changed in its source and in the table." in begun
    assert re.search(r"sales: published.*: \d+ rows inserted, \d+ updated, \d+ deleted", compared)


def _changed(stack: Stack, refresh_id: str) -> tuple[int, int, int]:
    report = stack.reader.report(refresh_id)
    return report.rows_inserted, report.rows_updated, report.rows_deleted


def test_open_pages_notice_a_refresh_that_others_began_and_its_end(stack, window, ids):
    with opened(window, stack, "/mv/") as listed, opened(window, stack, "/mv/tables/sales") as table:
        for page in (listed, table):
            page.evaluate("window.sameDocument = true")
        stack.write("sales", sales("4"))
        run_id = stack.trigger("sales")

        table.get_by_role("heading", name="Refresh in progress").wait_for()
        listed.bring_to_front()
        listed.locator("#tables").get_by_text(re.compile("Refreshing|Merging|Cleanup")).first.wait_for()
        stack.succeeds("sales", run_id)
        table.bring_to_front()
        table.locator(f"[id='{stack.history('sales')[0].refresh_id}']").get_by_text("published").wait_for()
        listed.bring_to_front()
        listed.locator("#tables tr", has_text="sales").get_by_text("Normal").wait_for()

        assert [page.evaluate("window.sameDocument") for page in (listed, table)] == [True, True]


def test_the_dialog_refuses_what_the_task_would_and_starts_by_keyboard_what_it_would_not(stack, window, ids):
    stack.write("sales", sales("5"))
    known = len(stack.runs("sales"))
    with opened(window, stack, "/mv/tables/sales") as page:
        press(page, "Refresh")
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Wait for a decision").press("Space")
        dialog.get_by_label("Only show the differences").press("Space")
        press(dialog, "Start")
        dialog.get_by_text("`hold` and `read_only` exclude").wait_for()
        assert flaws(page) == []
        dialog.get_by_label("Wait for a decision").press("Space")
        press(dialog, "Start")
        page.get_by_text(re.compile(r"Run manual__\S+ was started")).wait_for()

    wait_until(lambda: len(stack.runs("sales")) > known, "the run is created")
    stack.succeeds("sales", stack.runs("sales")[-1]["dag_run_id"])
    assert stack.history("sales")[0].outcome is Outcome.DIFFERENCES


def test_a_table_picked_in_the_list_is_refreshed_with_what_was_chosen_there(stack, window, ids):
    before, rows, known = stack.main("sales"), stack.write("sales", sales("7")), len(stack.runs("sales"))
    with opened(window, stack, "/mv/") as page:
        page.get_by_label("Pick sales").press("Space")
        press(page, "Refresh")
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("A run of sales is started with these options.").wait_for()
        dialog.get_by_text("More").press("Enter")
        assert flaws(page) == []
        dialog.get_by_label("Partitions").select_option("a range")
        dialog.get_by_label("From").fill("2026-02")
        dialog.get_by_label("Until").fill("2026-01")
        press(dialog, "Start")
        dialog.get_by_text("the range from '2026-02' until '2026-01' is empty").wait_for()
        dialog.get_by_label("Until").fill("2026-03")
        dialog.get_by_label("Why this run").fill("February was corrected")
        press(dialog, "Start")
        page.get_by_text("1 of 1 runs were started.").wait_for()

    wait_until(lambda: len(stack.runs("sales")) > known, "the run is created")
    stack.succeeds("sales", stack.runs("sales")[-1]["dag_run_id"])
    report = stack.history("sales")[0]
    assert (report.scope, report.note) == ("partitions from 2026-02 until 2026-03", "February was corrected")
    kept, fresh = (
        {row for row in of if (row[0] == "2026-02") is is_it} for of, is_it in ((before, False), (rows, True))
    )
    assert stack.main("sales") == Counter(kept | fresh)


def test_a_run_that_is_asked_for_while_one_works_waits_in_sight(stack, window, filled):
    rows, first = stack.write("sales", sales("11")), stack.trigger("sales")
    with opened(window, stack, "/mv/tables/sales") as page:
        page.get_by_role("heading", name="Refresh in progress").wait_for()
        press(page, "Refresh")
        dialog = page.get_by_role("dialog")
        dialog.get_by_text(
            re.compile(r"A refresh is in progress [\s\S]*waits for its turn, at place 1 of the queue")
        ).wait_for()
        press(dialog, "Start")
        said = page.get_by_text(re.compile(r"Run manual__\S+ was started"))
        said.wait_for()
        second = said.inner_text().split()[1]
        page.locator("ol.queue").get_by_role("link", name=second).wait_for()

    for run_id in (first, second):
        stack.succeeds("sales", run_id)
    assert [each.outcome for each in stack.history("sales")[:2]] == [Outcome.NOTHING_TO_DO, Outcome.PUBLISHED]
    assert stack.main("sales") == rows


def press(place: Any, name: str) -> None:
    """Press a button by the keyboard."""
    place.get_by_role("button", name=name, exact=True).press("Enter")


def test_a_held_refresh_whose_task_failed_is_decided_and_goes_on_from_there(stack, window, stocked):
    rows = stack.write("stock", sales("6"))
    before, run_id = stack.main("stock"), stack.trigger("stock", hold=True)

    def merge() -> dict[str, Any]:
        return next((task for task in stack.tasks("stock", run_id) if task["task_id"].endswith("merge")), {})

    wait_until(lambda: merge().get("state") == "awaiting_input", "the merge task waits for a decision")
    with opened(window, stack, "/mv/tables/stock") as page:
        assert flaws(page) == []
        assert unreached_by_tab(page) == []
    task = merge()["task_id"]
    stack.ask("PATCH", f"dags/stock/dagRuns/{run_id}/taskInstances/{task}", new_state="failed")
    wait_until(lambda: stack.has_ended("stock", run_id), "the run fails with its task")
    assert stack.status("stock").is_held

    with opened(window, stack, "/mv/?show=needs+attention") as page:
        page.get_by_role("link", name="awaiting approval").press("Enter")
        page.get_by_label("Why, for the history").fill(HOSTILE)
        press(page, "Approve")
        page.get_by_text("Approved: the next refresh").wait_for()
        press(page, "Go on from merge, try 1")
        press(page.get_by_role("dialog"), "Yes")
        page.get_by_text("Airflow starts it again.").wait_for()

    def is_published() -> bool:
        return stack.main("stock") == rows and stack.status("stock").phase is Phase.NORMAL

    assert before != rows
    wait_until(is_published, "the cleared task publishes what was approved")
    wait_until(lambda: stack.ask("GET", f"dags/stock/dagRuns/{run_id}")["state"] == "success", "the run succeeds")
    with opened(window, stack, f"/mv/tables/stock/refreshes/{stack.history('stock')[0].refresh_id}") as page:
        page.get_by_text(re.compile(r"It was approved by admin: .*onerror")).first.wait_for()


@contextmanager
def no_further_task(stack: Stack) -> Iterator[None]:
    """Let Airflow start no task: the pool that all of them are in has no slot. Those that run go on.

    By one statement, not by the REST API, which keeps the pool's row locked while it answers: a scheduler that finds it
    locked ends, because Airflow 3.3 does not take psycopg 3's error for a lock that is held.
    """
    engine = create_engine(stack.topology.environment("airflow-scheduler")["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    change = text("UPDATE slot_pool SET slots = :slots WHERE pool = 'default_pool'")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as airflow:
        slots = airflow.scalar(text("SELECT slots FROM slot_pool WHERE pool = 'default_pool'"))
        airflow.execute(change, {"slots": 0})
        try:
            yield
        finally:
            airflow.execute(change, {"slots": slots})
    engine.dispose()


@pytest.mark.parametrize(
    ("last", "waiting", "said", "phase"),
    [
        ("begin", "stage", "Cancelled: no process worked on the refresh, and it has ended.", Phase.NORMAL),
        ("stage", "merge", "All of it was compared: its next task ends it", Phase.MERGING),
    ],
)
def test_a_cancel_between_two_tasks_ends_the_refresh_at_once_or_by_its_next_task(
    stack, window, filled, last, waiting, said, phase
):
    """One that is compared may be published, for all that the database knows: its next task reads the table's log."""
    before = stack.main("sales")
    assert stack.write("sales", sales("8" if last == "begin" else "9")) != before
    run_id = stack.trigger("sales")

    def state(name: str) -> str | None:
        return {task["task_id"]: task["state"] for task in stack.tasks("sales", run_id)}.get(f"refresh_sales.{name}")

    wait_until(lambda: state(last) == "running", f"{last} runs")
    with no_further_task(stack):
        wait_until(lambda: state(last) == "success", f"{last} has done its work")
        with opened(window, stack, "/mv/tables/sales") as page:
            page.get_by_text(f"waiting for {waiting}, try 1, which is scheduled in Airflow").wait_for()
            press(page, "Cancel")
            press(page.get_by_role("dialog"), "Yes")
            page.get_by_text(said).wait_for()
        assert stack.status("sales").phase is phase

    wait_until(lambda: stack.has_ended("sales", run_id), "the run ends")
    log = stack.log("sales", run_id, f"refresh_sales.{waiting}", 1)
    assert "the refresh was cancelled on request" in log
    assert ("Starting Spark" in log) == (phase is not Phase.NORMAL)
    assert stack.status("sales").phase is Phase.NORMAL
    assert stack.history("sales")[0].outcome is Outcome.CANCELLED
    assert stack.main("sales") == before


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Let a process stand still, as one does whose Spark takes long to start."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_task_that_waits_for_spark_and_a_killed_one_are_what_the_page_says_they_are(stack, window, filled):
    rows, run_id = stack.write("sales", sales("10")), stack.trigger("sales")

    def task(name: str) -> dict[str, Any]:
        return next((each for each in stack.tasks("sales", run_id) if each["task_id"].endswith(f".{name}")), {})

    def is_half_way() -> bool:
        status = stack.status("sales")
        return status.phase is Phase.MERGING and 2 <= status.partitions_completed < len(MONTHS)

    wait_until(lambda: task("stage").get("state") == "running", "stage runs")
    with opened(window, stack, "/mv/tables/sales") as page:
        works_on_it = page.locator("#now dt:text-is('Works on it') + dd")
        with stopped(task("stage")["pid"]):
            page.get_by_text("waiting for stage, try 1, which is running in Airflow").wait_for()
            assert works_on_it.inner_text() == f"no process now, run {run_id}"
            assert page.get_by_text("reading and comparing the source").count() == 0

        wait_until(is_half_way, "two partitions are compared")
        with no_further_task(stack):
            os.kill(task("merge")["pid"], signal.SIGKILL)
            page.get_by_text(re.compile("merge, try 1 was killed, or failed. .+ continues")).wait_for()
            assert works_on_it.inner_text() == f"no process now, run {run_id}"
        wait_until(lambda: (task("merge")["try_number"], task("merge")["state"]) == (2, "running"), "its retry runs")
        with stopped(pid := task("merge")["pid"]):
            page.get_by_text("merge, try 2 is running in Airflow and continues as soon as its Spark").wait_for()
            assert page.get_by_text("No process works on it any more").count() == 0
        works_on_it.get_by_text(f"process {pid} on").wait_for()
        stack.succeeds("sales", run_id)

    assert stack.main("sales") == rows
    with opened(window, stack, f"/mv/tables/sales/refreshes/{stack.history('sales')[0].refresh_id}") as page:
        page.get_by_text("It was killed, or failed: the work of this time was lost.").wait_for()
        page.locator("summary", has_text="merge, try 1").press("Enter")
        page.locator("summary", has_text="merge, try 2").press("Enter")
        killed, retry = (page.get_by_role("region", name=f"Log lines of merge, try {number}") for number in (1, 2))
        killed.get_by_text(re.compile(r"Spark is ready after [\d.]+ s\.")).wait_for()
        retry.get_by_text(re.compile(r"sales: published.*rows inserted")).wait_for()
        assert killed.get_by_text("published").count() == 0
        assert flaws(page) == []


def test_every_link_from_the_pages_leads_somewhere(stack, window, ids):
    ours, seen = f"{stack.topology.url}/mv/", dict[str, int]()
    to_open, page = [ours], window.new_page()

    while to_open and len(seen) < MOST_LINKS:
        url = to_open.pop(0)
        seen[url] = page.goto(url).status
        links = page.evaluate(
            """() => [...document.querySelectorAll("a[href]")]  // in pictures too, whose links are objects
              .map(each => new URL(each.getAttribute("href"), location.href).href.split("#")[0])"""
        )
        to_open += [each for each in dict.fromkeys(links) if each.startswith(ours) and each not in (*seen, *to_open)]

    page.close()
    assert len(seen) > 10
    assert {url: status for url, status in seen.items() if status != 200} == {}

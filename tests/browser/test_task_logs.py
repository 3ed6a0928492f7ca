"""A task's log lines on a refresh's page: what is shown of a log, that it grows, and that a large one is cut."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.api.filled import CORRECTIONS, Keeper
from tests.browser.looks import flaws, unreached_by_tab
from tests.browser.server import Server

pytestmark = pytest.mark.slow

HOSTILE = "</script><img src=x onerror=alert(1)><b>{{7*7}}"
OURS = "airflow_mv_provider.runner.context"


def line(event: str, level: str = "info", logger: str = OURS) -> str:
    """Return a line as Airflow's task process writes it."""
    return json.dumps({"timestamp": "2026-11-26T22:15:07.336393Z", "level": level, "event": event, "logger": logger})


class Task:
    """The task for `customers` of a run in Airflow's database, and its log where the API server looks for it."""

    def __init__(self, server: Server, run_id: str) -> None:
        self.server, self.run_id = server, run_id
        self.log = server.home / f"logs/dag_id=hourly/run_id={run_id}/task_id=publish_customers/attempt=1.log"
        self.log.parent.mkdir(parents=True)

    def is_now(self, state: str, keeper: Keeper) -> None:
        moment = datetime.fromtimestamp(keeper.store.now_ms() / 1000, UTC).replace(tzinfo=None).isoformat(sep=" ")
        changed = "start_date" if state == "running" else "end_date"
        with sqlite3.connect(self.server.home / "airflow.db") as airflow:
            change = f"UPDATE task_instance SET state = ?, try_number = 1, pid = 77, {changed} = ?"
            where = "WHERE run_id = ? AND task_id = 'publish_customers'"
            airflow.execute(f"{change} {where}", (state, moment, self.run_id))

    def says(self, *lines: str) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.writelines(f"{each}\n" for each in lines)


@pytest.fixture
def keeper(keepers: dict[str, Keeper]) -> Keeper:
    return keepers["customers"]


def begun(open_page: Any, server: Server, keeper: Keeper) -> tuple[Any, Task, Any]:
    """Return a refresh that a task has begun, the task, and the refresh's page."""
    page = open_page("/mv/")
    task = Task(
        server, page.request.post("/api/v2/dags/hourly/dagRuns", data={"logical_date": None}).json()["dag_run_id"]
    )
    task.is_now("running", keeper)
    own = keeper.begin(CORRECTIONS, key=f"airflow:hourly:publish_customers:-1:{task.run_id}")
    page.goto(f"/mv/tables/customers/refreshes/{own.refresh_id}")
    return own, task, page


def test_an_open_log_shows_a_refreshs_lines_as_words_and_grows_until_its_task_has_ended(open_page, server, keeper):
    own, task, page = begun(open_page, server, keeper)
    task.says(line("Filling up the DagBag", logger="airflow.dag_processing"), line("Starting Spark (local)."))
    task.says(line("orders: published"), "no JSON", line(f"customers: {HOSTILE}", "warning"))
    page.locator("summary", has_text="publish_customers, try 1").press("Enter")
    region = page.get_by_role("region", name="Log lines of publish_customers, try 1")
    region.get_by_text("Starting Spark (local).").wait_for()
    page.evaluate("window.first = document.querySelector('.lines li')")

    task.says(line("Task failed", "error", "task"))
    region.get_by_text("Task failed").wait_for()
    keeper.finish(own)
    task.says(line("customers: the last line"))
    task.is_now("success", keeper)
    region.get_by_text("customers: the last line").wait_for()

    assert words(region) == [
        "22:15:07 Starting Spark (local).",
        f"22:15:07 warning customers: {HOSTILE}",
        "22:15:07 error Task failed",
        "22:15:07 customers: the last line",
    ]
    assert page.evaluate("window.first === document.querySelector('.lines li')"), "what is shown stays as it is"
    assert page.locator("img").count() == 0
    assert flaws(page) == []
    page.reload()
    assert unreached_by_tab(page) == []


def words(place: Any) -> list[str]:
    """Return the lines that are shown, each without its line breaks."""
    return [" ".join(each.split()) for each in place.locator("li").all_inner_texts()]


@pytest.mark.in_test_all
@pytest.mark.parametrize("others", [0, 9_000_000], ids=["many lines", "many bytes"])
def test_a_large_log_is_cut_and_says_so(open_page, server, keeper, others):
    own, task, page = begun(open_page, server, keeper)
    keeper.finish(own)
    task.is_now("success", keeper)
    task.says(
        line("Starting Spark (local)."), *(line(f"{n} {'x' * 1000}", logger="pyspark") for n in range(others // 1000))
    )
    task.says(*(line(f"customers: line {number}") for number in range(600)))
    page.reload()

    page.locator("summary", has_text="publish_customers, try 1").press("Enter")

    said = "This log is longer than what is read here." if others else "… 101 lines are left out here"
    page.get_by_text(said).wait_for()
    shown = [each.removeprefix("22:15:07 ") for each in words(page.locator(".lines"))]
    assert shown[0] == "Starting Spark (local)."
    assert [shown[99:102], shown[-1], len(shown)] == (
        [[], "Starting Spark (local).", 1]
        if others
        else [["customers: line 98", shown[100], "customers: line 200"], "customers: line 599", 501]
    )

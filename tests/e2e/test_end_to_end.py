"""From a click or a request to a table that is right, through every process of a real Airflow on PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from scripts.topology import Topology
from tests.e2e.conftest import MONTHS, sales
from tests.e2e.stack import wait_until
from tests.webhook import webhook_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one starts everything


@pytest.mark.in_test_all
def test_every_server_listens_on_loopback_and_a_second_up_starts_none(stack):
    topology = stack.topology
    processes = [psutil.Process(each["pid"]) for each in json.loads(topology.place.state.read_text())["processes"]]
    everything = [each for process in processes for each in (process, *process.children(recursive=True))]

    addresses = {c.laddr.ip for each in everything for c in each.net_connections("inet") if c.status == "LISTEN"}

    assert len(processes) == 8
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert addresses
    assert Topology(topology.place).up() == topology.url
    assert [process.is_running() for process in processes] == [True] * 8


@pytest.mark.in_test_all
def test_a_shell_that_sources_its_environment_works_on_it(stack, filled):
    file = stack.topology.place.environment
    command = f"source {shlex.quote(str(file))} && amv status --json && airflow config get-value mv warehouse"

    done = subprocess.run(
        ["bash", "-c", command], env={"HOME": "/nowhere"}, capture_output=True, text=True, check=False
    )

    answer, warehouse = done.stdout.strip().splitlines()[0], done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0, done.stderr[-2000:]
    assert "sales" in [table["table"] for table in json.loads(answer)["tables"]]
    assert warehouse == str(stack.topology.place.warehouse)
    assert file.stat().st_mode & 0o777 == 0o600, "it holds passwords"


@pytest.mark.in_test_all
def test_a_run_started_by_rest_refreshes_the_table(stack, filled):
    rows = stack.write("sales", sales("7"))

    stack.succeeds("sales", stack.trigger("sales"))

    assert stack.history("sales")[0].outcome is Outcome.PUBLISHED
    assert stack.main("sales") == rows


@pytest.mark.in_test_all
def test_the_form_refreshes_what_was_chosen_and_history_says_who(stack, filled, window):
    before, asked = stack.main("sales"), MONTHS[2]
    rows = stack.write("sales", sales("2"))
    page = window.new_page()
    page.goto("/dags/refresh_on_demand")

    page.get_by_test_id("trigger-dag-button").click()
    form = page.get_by_role("dialog")
    form.get_by_role("button", name="Which partitions").click()
    form.get_by_label("Refresh").click()
    page.get_by_role("option", name="A range of partitions").click()
    page.fill("#element_from", asked)
    page.fill("#element_until", MONTHS[3])
    form.get_by_role("button", name="How").click()
    page.fill("#element_note", "March was recalled")
    form.get_by_role("button", name="Trigger", exact=True).click()

    wait_until(lambda: stack.runs("refresh_on_demand") != [], "the run is created")
    [run] = stack.runs("refresh_on_demand")
    stack.succeeds("refresh_on_demand", run["dag_run_id"])
    expected = {row for row in before if row[0] != asked} | {row for row in rows if row[0] == asked}
    assert stack.main("sales") == Counter(expected)
    told = json.loads(stack.command("mv", "history", "sales", "--json"))["refreshes"][0]
    assert (told["user"], told["note"]) == ("admin", "March was recalled")
    page.close()


@pytest.mark.in_test_all
def test_progress_is_seen_to_move_after_a_click(stack, filled, window):
    rows = stack.write("sales", sales("3"))
    page = window.new_page()
    page.goto("/mv/tables/sales")
    page.evaluate(
        """() => {  // what the meter shows, each time that the page changes
          window.seen = [];
          new MutationObserver(() => {
            const text = document.querySelector("#now .under-way > .meter .meter-text")?.innerText;
            if (text && text !== window.seen.at(-1)) window.seen.push(text);
          }).observe(document.body, {childList: true, subtree: true, characterData: true});
        }"""
    )
    known = len(stack.runs("sales"))

    page.get_by_role("button", name="Refresh").click()
    page.get_by_role("button", name="Start").click()

    wait_until(lambda: len(stack.runs("sales")) > known, "the run is created")
    run = stack.runs("sales")[-1]
    stack.succeeds("sales", run["dag_run_id"])
    page.locator(f"[id='{stack.history('sales')[0].refresh_id}']").get_by_text("published").wait_for()
    seen = page.evaluate("window.seen")  # gone, had the page been loaded again
    done = [int(found.group(1)) for text in seen if (found := re.match(r"(\d+) of 8", text))]
    assert len(set(done)) >= 3, seen
    assert done == sorted(done), "progress never goes back"
    assert run["triggering_user_name"] == "admin"
    assert stack.main("sales") == rows
    page.close()


@pytest.mark.in_test_all
def test_a_worker_killed_in_merging_is_resumed_by_the_retry_and_the_page_follows(stack, filled, window):
    rows = stack.write("sales", sales("4"))
    run_id = stack.trigger("sales")

    def is_half_way() -> bool:
        status = stack.status("sales")
        return status.phase is Phase.MERGING and 2 <= status.partitions_completed < len(MONTHS)

    wait_until(is_half_way, "two partitions are compared")
    [merge] = [task for task in stack.tasks("sales", run_id) if task["task_id"].endswith("merge")]
    page = window.new_page()
    page.goto("/mv/tables/sales")
    page.get_by_text("merge, try 1").first.wait_for()
    os.kill(merge["pid"], signal.SIGKILL)

    page.get_by_text("merge, try 2").first.wait_for()
    stack.succeeds("sales", run_id)
    assert stack.main("sales") == rows
    tries = {task["task_id"].rpartition(".")[2]: task["try_number"] for task in stack.tasks("sales", run_id)}
    assert tries == {"begin": 1, "stage": 1, "merge": 2, "cleanup": 1}
    published = stack.history("sales")[0]
    assert (published.outcome, stack.status("sales").phase) == (Outcome.PUBLISHED, Phase.NORMAL)
    page.goto(f"/mv/tables/sales/refreshes/{published.refresh_id}")
    page.locator(".legend").get_by_text("Killed, work lost").wait_for()
    lanes = page.locator(".lane-names").get_by_role("link").all_inner_texts()
    assert lanes == ["begin, try 1", "stage, try 1", "merge, try 1", "merge, try 2", "cleanup, try 1"]
    page.close()


@pytest.mark.in_test_all
def test_triggers_at_once_are_served_one_after_the_other(stack, filled):
    rows = stack.write("sales", sales("5"))
    known = len(stack.history("sales"))

    runs = [stack.trigger("sales") for _ in range(3)]

    # They wait in the triggerer, which looks into the database as often as tasks would.
    wait_until(lambda: "Airflow's triggerer" in {each.process for each in stack.status("sales").queue}, "a trigger")
    for run_id in runs:
        stack.succeeds("sales", run_id)
    assert stack.main("sales") == rows
    assert {task["try_number"] for run_id in runs for task in stack.tasks("sales", run_id) if task["try_number"]} == {1}
    outcomes = [report.outcome for report in stack.history("sales")[: len(stack.history("sales")) - known]]
    assert outcomes.count(Outcome.PUBLISHED) == 1
    assert set(outcomes) <= {Outcome.PUBLISHED, Outcome.NOTHING_TO_DO}


@pytest.mark.in_test_all
def test_a_backfill_refreshes_exactly_its_days(stack):
    days = [f"2026-03-{day:02d}" for day in range(1, 8)]
    rows = stack.write("days", [(day, str(id), "new") for day in days for id in range(5)])

    dates = ("--from-date", "2026-03-02", "--to-date", "2026-03-04")
    stack.command("backfill", "create", "--dag-id", "days", *dates)

    wait_until(lambda: len(stack.runs("days")) == 3, "the runs are created")
    for run in stack.runs("days"):
        stack.succeeds("days", run["dag_run_id"])
    asked = set(days[1:4])
    assert set(stack.main("days").elements()) == {row for row in rows if row[0] in asked}
    assert stack.main("days").total() == 15
    told = stack.command("mv", "ledger", "days", "--from", "2026-03-01", "--until", "2026-03-08")
    assert re.findall(r"^(2026\S+) .* done ", told, re.MULTILINE) == sorted(asked), told


@pytest.mark.in_test_all
def test_a_commit_of_the_source_starts_a_run(stack):
    """The triggerer's part: an asset watcher on a Delta table that somebody else writes."""
    import pyarrow as pa
    from deltalake import write_deltalake

    source = str(stack.topology.place.warehouse / "raw" / "feed")
    write_deltalake(source, pa.table({"id": [1, 2]}))
    # Its first look remembers where the table stands, so only what comes after that is news.
    wait_until(lambda: _commit_and_look(stack, source), "a run is started")

    assert stack.runs("on_commits")[0]["run_type"] == "asset_triggered"


def _commit_and_look(stack, source):
    import pyarrow as pa
    from deltalake import write_deltalake

    if stack.runs("on_commits"):
        return True
    write_deltalake(source, pa.table({"id": [3]}), mode="append")
    return False


@pytest.mark.in_test_all
def test_the_tutorial_does_what_it_says(stack, tmp_path):
    page = (Path(__file__).parents[2] / "docs/tutorial.md").read_text(encoding="utf-8")
    place = stack.topology.place
    (tmp_path / ".up").symlink_to(place.home)
    (tmp_path / "dags").symlink_to(place.dags)
    printed = []

    for block in re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL):
        if block.startswith("airflow"):
            wait_until(lambda: "refresh_shop" in {dag["dag_id"] for dag in stack.ask("GET", "dags")["dags"]}, "its DAG")
        command = ["bash", "-euc", f"source {shlex.quote(str(place.environment))}; {block}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        printed.append(done.stdout)
        if "backfill create" in block:
            wait_until(lambda: _num_successes(stack) >= 3, "the three days are refreshed")

    _, defined, first, change, refusal, _, afterwards = printed
    assert f"shop   {place.warehouse}/shop" in defined
    assert "3 inserted, 0 updated, 0 deleted" in first
    assert "1 updated" in change.split("published in")[0], "read-only shows it"
    assert "0 inserted, 1 updated, 0 deleted, 2 unchanged" in change.split("published in")[1]
    assert "refused" in refusal
    assert afterwards.count("done") >= 3
    assert stack.status("shop").phase is Phase.NORMAL


def _num_successes(stack) -> int:
    runs = stack.runs("refresh_shop")
    return sum(run["state"] == "success" and run["run_type"] == "backfill" for run in runs)


@pytest.mark.in_test_all
def test_a_held_difference_is_shown_and_approved_in_airflow(stack, stocked):
    before, rows = stack.main("stock"), stack.write("stock", sales("6"))
    run_id = stack.trigger("stock", hold=True)

    def merge() -> dict[str, Any]:
        return next((task for task in stack.tasks("stock", run_id) if task["task_id"].endswith("merge")), {})

    wait_until(lambda: merge().get("state") == "awaiting_input", "the merge task waits for a decision")
    question = f"dags/stock/dagRuns/{run_id}/taskInstances/{merge()['task_id']}/-1/hitlDetails"
    asked = stack.ask("GET", question)
    assert stack.main("stock") == before
    assert asked["options"] == ["Approve", "Approve without deletes", "Reject"]
    assert "as ever" in asked["body"]
    assert "its caller asked for a decision" in asked["body"]
    assert stack.status("stock").is_held
    assert [user["id"] for user in asked["assigned_users"]] == ["admin"]

    with stack.other_user() as other:
        answer = {"chosen_options": ["Approve"], "params_input": {"note": "I am somebody else"}}
        refused = other.patch(f"/api/v2/{question}", json=answer)
        sent = {"decision": "approved", "hold": stack.status("stock").hold.id, "note": "on the page"}
        page = other.post("/mv/tables/stock/decide", data=sent, headers={"sec-fetch-site": "same-origin"})

    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "User=ann (id=ann) is not a respondent for the task.",
    )
    assert (page.status_code, page.headers["location"]) == (303, "../stock?done=decide-in-airflow")
    assert not stack.ask("GET", question)["response_received"]
    assert (stack.status("stock").is_held, stack.main("stock")) == (True, before)
    assert stack.history("stock")[0].hold.decision is None

    def is_done_after_an_answer() -> bool:
        # Airflow takes a task that is resumed before its former process is reaped for a killed one: it asks once more.
        task = merge()
        is_reaped = stack.is_reaped(run_id, task["task_id"], task["try_number"])
        if task["state"] == "awaiting_input" and is_reaped and not stack.ask("GET", question)["response_received"]:
            stack.ask("PATCH", question, chosen_options=["Approve"], params_input={"note": "I have looked"})
        return stack.has_ended("stock", run_id)

    wait_until(is_done_after_an_answer, "the approved refresh is published")
    stack.succeeds("stock", run_id)
    assert stack.main("stock") == rows
    hold = stack.history("stock")[0].hold
    assert (hold.decision, hold.decided_by, hold.note) == ("approved", "admin", "I have looked")


@pytest.mark.in_test_all
def test_a_run_of_a_late_table_alerts_by_airflows_deadlines(stack):
    """The scheduler's part and the triggerer's: no other test has both."""
    rows = stack.write("watched", [("2026-01", "1", "old")])
    file = stack.topology.place.warehouse / "raw/watched/2026-01.csv"
    os.utime(file, (file.stat().st_mtime - 7200,) * 2)
    stack.command("mv", "apply", str(stack.topology.place.dags / "e2e_watched.yaml"))
    stack.command("mv", "refresh", "watched")

    with webhook_server() as (port, posted):
        stack.ask(
            "POST", "connections", connection_id="alerts", conn_type="http", schema="http", host="127.0.0.1", port=port
        )
        run_id = stack.trigger("watched")
        wait_until(lambda: posted != [], "the scheduler sees the missed deadline, and the triggerer posts")
        stack.succeeds("watched", run_id)

    assert stack.main("watched") == rows
    [(_, document)] = posted
    since = datetime.fromtimestamp(file.stat().st_mtime + 3600, UTC).strftime("%Y-%m-%d %H:%M:%S")
    assert f"watched: is late since {since} UTC; its target is 1 h" in document["text"]
    assert f"DAG watched, run {run_id}." in document["text"]
    assert (document["table"]["is_late"], document["table"]["freshness_target"]) == (True, 3600)

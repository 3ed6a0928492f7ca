"""Log lines on a refresh's page: whose log has them, and that Airflow decides at each request who may read them.

What the script makes of a log is looked at by `tests/browser/test_task_logs.py`.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from urllib.parse import urljoin

import pytest

from airflow_mv_provider.api.attempts import dead_owner, logs_of, work_of
from airflow_mv_provider.core.outcome import AttemptReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Caller
from tests.airflow_home import HOME
from tests.api.conftest import PAGE, ROLES, assert_harmless, text_of
from tests.api.test_going_on import begun_in, failed_run
from tests.api.test_plots import DONE, KILLED, a_try, after, now
from tests.metadata.rows import LEASE_MS, a_refresh, registered, walk

KEY = "airflow:hourly:orders:-1:run:1"
KILLED_ONE = replace(DONE, finished_at=after(40), attempts=KILLED)


def found(report, tries, seconds: float = 900):
    """Return the names of the tries whose logs are shown, and the processes whose logs are not."""
    logs = logs_of(report, work_of(report, now(seconds), tries=tries), tries, now(seconds))
    return [each.text for each in logs.tries], logs.processes


def test_each_try_that_ran_during_a_refresh_has_lines_of_it_whether_or_not_it_came_to_work():
    tries = [
        *(a_try("begin", 1, "success", -9, 1, pid=9), a_try("stage", 1, "success", 0, 10, pid=1)),
        *(a_try("merge", 1, "failed", 9, 25), a_try("merge", 2, "failed", 26, 28, pid=7)),
        a_try("merge", 3, "success", 29, 40),
        replace(a_try("cleanup", 1, "scheduled", 0, None), started_ms=None),
        replace(a_try("merge", 1, "failed", 29, 40, pid=5), task_id="customers.merge"),
    ]

    assert found(KILLED_ONE, tries) == (
        ["begin, try 1", "stage, try 1", "merge, try 1", "merge, try 2", "merge, try 3"],
        (),
    )


def test_tries_of_an_earlier_refresh_in_a_run_that_was_cleared_are_left_out():
    tries = [a_try("stage", 1, "failed", -60, -30, pid=9), a_try("stage", 2, "success", 0, 10, pid=1)]

    assert found(KILLED_ONE, tries)[0] == ["stage, try 2"]
    assert found(KILLED_ONE, [a_try("merge", 9, "running", 46, None, pid=8)])[0] == []
    assert found(replace(KILLED_ONE, finished_at=None), [a_try("merge", 9, "running", 46, None, pid=8)])[0] != []


def test_a_key_of_a_whole_run_has_the_tries_that_worked_and_no_others():
    attempts = (replace(KILLED[0], owner_key="airflow:hourly::-1:run:1"),)
    tries = [a_try("stage", 1, "success", 0, 10, pid=1), a_try("merge", 1, "success", 9, 25, pid=3)]

    assert found(replace(DONE, attempts=attempts), tries)[0] == ["stage, try 1"]


def test_a_process_outside_of_airflow_is_named_once():
    attempts = (AttemptReport(1, Phase.REFRESHING, "w:1", after(0), owner_key="command:7"),) * 2

    assert found(replace(DONE, attempts=attempts), []) == ([], ("process 1 on w",))
    assert found(replace(DONE, started_at=None), []) == ([], ())


@pytest.mark.parametrize(
    ("tries", "is_dead"),
    [
        ([a_try("merge", 1, "up_for_retry", 9, 25)], True),
        ([a_try("merge", 1, "failed", 9, 25), a_try("merge", 2, "running", 26, None, pid=7)], True),
        ([a_try("merge", 1, "running", 9, None)], False),
        ([a_try("merge", 1, "failed", 9, 25), a_try("merge", 2, "running", 26, None)], False),
        ([a_try("merge", 1, "failed", 9, 25, pid=3)], False),
        ([replace(a_try("merge", 1, "failed", 9, 25), run_id="run:2")], False),
        ([], False),
    ],
    ids=["it is repeated", "its retry runs", "it runs", "all have one number", "another's", "another run's", "unknown"],
)
def test_an_owner_is_dead_as_soon_as_airflow_knows_that_its_try_has_ended(tries, is_dead):
    assert dead_owner(KEY, "w:2", tries) == (tries[0] if is_dead else None)


# -- the page ----------------------------------------------------------------------------------------------------------

URL = f"{PAGE}/tables/orders"
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def table(store):
    return registered(store, "orders")


def log_of(run_id: str, task: str, number: int, *lines: str) -> None:
    """Write a task's log where Airflow's own handler writes it."""
    file = HOME / f"logs/dag_id=hourly/run_id={run_id}/task_id={task}/attempt={number}.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    said = ({"timestamp": after(n), "level": "info", "event": line, "logger": "x"} for n, line in enumerate(lines))
    file.write_text("".join(f"{json.dumps(each)}\n" for each in said), encoding="utf-8")


def offered(page: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'data-log="([^"]*)"', page)]


@pytest.mark.slow
def test_a_log_is_read_from_airflows_own_api_by_whoever_may_read_it_there(as_role, user, store, table, rights):
    run_id = failed_run(user)
    own = begun_in(store, table, run_id)
    log_of(run_id, "publish_orders", 2, "Starting Spark", HOSTILE)
    page = f"{URL}/refreshes/{own.refresh_id}"

    [address] = offered(user.get(page).text)
    asked = urljoin(page, address)
    headers = {"accept": "application/x-ndjson"}
    answers = {role: as_role(role).get(asked, headers=headers) for role in (None, *ROLES)}

    assert [answers[role].status_code for role in (None, *ROLES)] == [401, 200, 200, 200, 200]
    assert {len(offered(as_role(role).get(page).text)) for role in ROLES} == {1}
    events = [json.loads(line)["event"] for line in answers["viewer"].text.splitlines()]
    assert events[-2:] == ["Starting Spark", HOSTILE]
    rights["GET"] = {"hourly"}
    assert user.get(asked, headers=headers).status_code == 403
    assert offered(user.get(page).text) == []


@pytest.mark.slow
def test_a_log_is_not_offered_to_whoever_may_not_read_logs(user, store, table, monkeypatch):
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity

    own = begun_in(store, table, failed_run(user))
    manager = get_auth_manager()
    ask = manager.is_authorized_dag

    def decide(*, access_entity=None, **more):
        return access_entity is not DagAccessEntity.TASK_LOGS and ask(access_entity=access_entity, **more)

    monkeypatch.setattr(manager, "is_authorized_dag", decide)
    page = user.get(f"{URL}/refreshes/{own.refresh_id}").text

    assert offered(page) == []
    assert "log-title" not in page


@pytest.mark.slow
def test_names_of_other_tables_and_of_a_process_stay_words(user, store, table):
    state = store.state(table.id)
    own = store.acquire(state, a_refresh(table), Caller("command:1", f"{HOSTILE}:7"), epoch=1, lease_ms=LEASE_MS)
    walk(store, own, Phase.NORMAL)

    page = user.get(f"{URL}/refreshes/{own.refresh_id}").text
    assert_harmless(page)
    assert "its log was printed where it was started, and is not kept" in text_of(page)
    begun = begun_in(store, table, failed_run(user))
    page = user.get(f"{URL}/refreshes/{begun.refresh_id}").text
    assert_harmless(page)
    [others] = re.findall(r'data-others="([^"]*)"', page)
    assert json.loads(html.unescape(others)) == ["customers"], "whose lines the task logs as well"

"""Who gets what answer from which route: every route of the application, for nobody and for each role.

The routes are those of the mounted application itself, so that one without an entry in MATRIX fails.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from airflow_mv_provider.core.phase import Phase
from tests.api.conftest import PAGE, ROLES
from tests.metadata.rows import LEASE_MS, a_caller, acquired, registered, walk

pytestmark = pytest.mark.slow

VALUES = {"name": "orders", "dag_id": "hourly", "file": "page.css", "refresh_id": "a" * 32}
READING = {"GET", "HEAD"}
NOBODY = "anonymous"
# Statuses for: nobody, viewer, user, op, admin. 303 leads back to the page with the result of an action.
READ = (401, 200, 200, 200, 200)
LED_ON = (401, 303, 303, 303, 303)
ACT = (401, 403, 303, 303, 303)
ASK = (401, 403, 200, 200, 200)
MATRIX: dict[tuple[str, str], tuple[int, ...]] = {
    ("GET", "/"): READ,
    ("GET", "/lineage"): READ,
    ("GET", "/dags/{dag_id}"): LED_ON,  # only one of its tables is registered
    ("GET", "/tables/{name}"): READ,
    ("GET", "/tables/{name}/now"): READ,
    ("GET", "/tables/{name}/partitions"): READ,
    ("GET", "/tables/{name}/over-time"): READ,
    ("GET", "/tables/{name}/lineage"): READ,
    ("GET", "/tables/{name}/refreshes"): READ,
    ("GET", "/tables/{name}/refreshes/{refresh_id}"): READ,
    ("GET", "/static/{file}"): READ,
    ("POST", "/tables/{name}/cancel"): ACT,
    ("POST", "/tables/{name}/pause"): ACT,
    ("POST", "/tables/{name}/resume"): ACT,
    ("POST", "/tables/{name}/decide"): ACT,
    ("POST", "/tables/{name}/check"): ASK,
    ("POST", "/picked/check"): ASK,
    ("POST", "/picked"): ACT,
}


def routes_of(application: Any) -> list[tuple[str, str]]:
    """Return method and path of all that the mounted page answers."""
    from fastapi.routing import APIRoute

    [page] = [route.app for route in application.routes if getattr(route, "path", None) == PAGE]
    found = []
    for route in page.routes:
        assert isinstance(route, APIRoute), f"{route} does not know the application's dependencies: serve it by a route"
        found += [(method, route.path) for method in sorted(route.methods)]
    return found


def address(path: str) -> str:
    """Return a route's path with values for what it leaves open."""
    return PAGE + re.sub(r"{(\w+)}", lambda hole: VALUES[hole.group(1)], path)


@pytest.fixture
def routes(application) -> list[tuple[str, str]]:
    return [(method, address(path)) for method, path in routes_of(application)]


@pytest.fixture
def writes(routes) -> list[str]:
    return [path for method, path in routes if method not in READING]


@pytest.fixture
def table(store):
    found = registered(store, "orders")
    walk(store, acquired(store, found, id=VALUES["refresh_id"]), Phase.MERGING)
    return found


def test_every_route_has_an_entry_and_every_entry_a_route(application):
    """A new route's entry is also a reminder to tell of it in the header of `api/app.py`."""
    assert sorted(routes_of(application)) == sorted(MATRIX)


@pytest.mark.parametrize("place", range(len(ROLES) + 1), ids=(NOBODY, *ROLES))
def test_each_route_answers_each_role_as_the_matrix_says(as_role, store, table, place):
    browser, before = as_role(None if place == 0 else ROLES[place - 1]), store.state(table.id)

    answers = {route: browser.request(route[0], address(route[1])) for route in MATRIX}

    assert {route: answer.status_code for route, answer in answers.items()} == {
        route: statuses[place] for route, statuses in MATRIX.items()
    }
    if place == 0:
        assert not [route for route, answer in answers.items() if "orders" in answer.text]
    if place < 2:
        assert store.state(table.id) == before, "who may not act has changed nothing"


def test_a_wrong_token_is_none(as_role, table, routes):
    browser = as_role(None)
    browser.cookies.set("_token", "eyJhbGciOiJub25lIn0.e30.")

    assert {browser.request(method, path).status_code for method, path in routes} <= {401, 403}


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/static/", "/static/../app.py", "/nothing"])
def test_nothing_else_is_served(user, store, path):
    assert user.get(PAGE + path).status_code in (404, 405)


def test_a_session_by_header_is_as_good_as_a_cookie(as_role, user, table):
    token = user.cookies["_token"]
    browser = as_role(None)

    answer = browser.get(f"{PAGE}/tables/orders", headers={"authorization": f"Bearer {token}"})

    assert answer.status_code == 200


# -- other sites -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://testserver"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "", "origin": "https://evil.example"},
        {"sec-fetch-site": "", "origin": "null"},
        {"sec-fetch-site": "", "origin": "http://testserver.evil.example"},
        {"sec-fetch-site": ""},
    ],
    ids=str,
)
def test_another_sites_page_writes_nothing(user, store, table, writes, headers):
    before = store.state(table.id)

    assert [user.post(path, headers=headers).status_code for path in writes] == [403] * len(writes)
    assert store.state(table.id) == before


def test_an_origin_is_enough_where_browsers_do_not_say_more(user, store, table):
    answer = user.post(f"{PAGE}/tables/orders/pause", headers={"sec-fetch-site": "", "origin": "http://testserver"})

    assert answer.status_code == 303


def test_the_address_that_people_use_is_ours_behind_a_proxy(user, store, table, monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/af")

    answer = user.post(
        f"{PAGE}/tables/orders/pause", headers={"sec-fetch-site": "", "origin": "https://airflow.example"}
    )

    assert answer.status_code == 303


def test_a_request_with_a_token_of_its_own_has_no_origin(as_role, user, store, table):
    headers = {"authorization": f"Bearer {user.cookies['_token']}", "sec-fetch-site": ""}

    assert as_role(None).post(f"{PAGE}/tables/orders/pause", headers=headers).status_code == 303


# -- DAGs that not everybody may read or run --------------------------------------------------------------------------


def test_one_dag_that_a_user_may_not_start_is_enough_to_bar_the_table(user, store, table, rights):
    rights["POST"] = {"repair"}

    assert user.post(f"{PAGE}/tables/orders/pause").status_code == 403
    assert "You can view this table, but not act on it" in user.get(f"{PAGE}/tables/orders").text


def test_a_dag_that_a_user_may_not_even_read_bars_the_table_too(user, store, table, rights):
    rights["GET"] = rights["POST"] = {"repair"}

    page = user.get(f"{PAGE}/tables/orders").text
    assert "hourly" in page
    assert "repair" not in page
    assert user.post(f"{PAGE}/tables/orders/pause").status_code == 403


def test_a_table_whose_dags_a_user_may_not_read_is_not_there(user, store, table, rights):
    registered(store, "regions")
    rights["GET"] = {"hourly", "repair"}

    listed = user.get(f"{PAGE}/").text
    assert "tables/regions" in listed
    assert "orders" not in listed
    assert user.get(f"{PAGE}/tables/orders").status_code == 404
    assert user.get(f"{PAGE}/tables/orders/now").status_code == 404
    assert user.get(f"{PAGE}/tables/orders/partitions").status_code == 404
    assert user.get(f"{PAGE}/tables/orders/over-time").status_code == 404
    assert user.get(f"{PAGE}/tables/orders/lineage").status_code == 404
    lineage = user.get(f"{PAGE}/lineage").text.replace("raw/orders", "")  # which `regions` reads
    assert "tables/regions" in lineage
    assert "orders" not in lineage
    assert user.get(f"{PAGE}/dags/hourly").status_code == 403


def test_an_error_in_the_dag_file_frees_its_tables_for_nobody(user, store, table, rights):
    """Airflow takes the DAGs of such a file for stale until it is mended."""
    from airflow.models.dag import DagModel  # noqa: TID251
    from airflow.utils.session import create_session  # noqa: TID251
    from sqlalchemy import update

    def has_error(*, now: bool) -> None:
        with create_session() as session:
            ours = DagModel.dag_id.in_(("hourly", "repair"))
            session.execute(update(DagModel).where(ours).values(is_stale=now, has_import_errors=now))

    has_error(now=True)
    try:
        seen = user.get(f"{PAGE}/tables/orders").text
        rights["GET"] = rights["POST"] = {"hourly", "repair"}
        hidden = user.get(f"{PAGE}/tables/orders"), user.post(f"{PAGE}/tables/orders/pause")
    finally:
        has_error(now=False)

    assert "hourly" in seen
    assert [answer.status_code for answer in hidden] == [404, 403]


def test_a_run_of_a_dag_that_a_user_may_not_read_is_not_named(user, store, rights):
    table = registered(store, "orders")
    own = acquired(store, table, key="airflow:repair:refresh:-1:secret_run")
    store.queue.take_ticket(table.id, a_caller("airflow:repair:x:-1:secret_run"), patience_ms=60_000)
    store.park(own, until_ms=LEASE_MS)
    assert user.get(f"{PAGE}/tables/orders").text.count("/runs/secret_run") == 2
    rights["GET"] = {"repair"}

    assert "/runs/" not in user.get(f"{PAGE}/tables/orders").text
    assert "<dd>no process now</dd>" in user.get(f"{PAGE}/tables/orders").text


def test_an_action_on_a_table_that_is_hidden_says_no_more_than_on_none(user, store, table, rights):
    rights["GET"] = rights["POST"] = {"hourly", "repair"}

    hidden = user.post(f"{PAGE}/tables/orders/pause")
    assert hidden.status_code == 403
    assert "orders" not in hidden.text


def test_a_table_without_a_dag_is_for_whoever_may_start_runs_at_all(viewer, user, store):
    registered(store, "undeclared")

    assert viewer.get(f"{PAGE}/tables/undeclared").status_code == 200
    assert viewer.post(f"{PAGE}/tables/undeclared/pause").status_code == 403
    assert user.post(f"{PAGE}/tables/undeclared/pause").status_code == 303


# -- the audit log ---------------------------------------------------------------------------------------------------


def audit_log(event: str) -> list[tuple[str | None, str | None, str]]:
    from airflow.models.log import Log  # noqa: TID251
    from airflow.utils.session import create_session  # noqa: TID251
    from sqlalchemy import select

    with create_session() as session:
        found = session.execute(select(Log.dag_id, Log.owner, Log.extra).where(Log.event == event).order_by(Log.id))
        return [tuple(row) for row in found]


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
def test_each_action_is_in_airflows_audit_log_with_the_user(user, viewer, store, table, verb):
    before = len(audit_log(f"mv_{verb}"))

    viewer.post(f"{PAGE}/tables/orders/{verb}")
    user.post(f"{PAGE}/tables/orders/{verb}")

    noted = audit_log(f"mv_{verb}")[before:]
    assert noted == [(dag, "user", json.dumps({"table": "orders"})) for dag in ("hourly", "repair")]


def test_airflow_shows_the_entry(as_role, user, store, table):
    def shown() -> dict[str, Any]:
        asked = {"event": "mv_pause", "dag_id": "hourly", "order_by": "-id"}
        return as_role("admin").get("/api/v2/eventLogs", params=asked).json()

    before = shown()["total_entries"]
    user.post(f"{PAGE}/tables/orders/pause")

    after = shown()
    assert (after["total_entries"], after["event_logs"][0]["owner"]) == (before + 1, "user")

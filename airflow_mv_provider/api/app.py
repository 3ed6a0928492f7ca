"""The page's application, which Airflow's API server mounts under /mv. Each route reads its data, then renders it.

    GET  /                        the list of tables
    GET  /lineage                 what all tables are made of, and what comes after them
    GET  /dags/{dag_id}           the same for one DAG; redirects to the table's page if the DAG declares one table
    GET  /tables/{name}           a table
    GET  /tables/{name}/now       the part of a table's page that changes during a refresh
    GET  /tables/{name}/partitions               its partitions, and the intervals that are not done
    GET  /tables/{name}/over-time                its rows, changes, durations, bytes and lag, by time
    GET  /tables/{name}/lineage                  what it is made of, and what comes after it
    GET  /tables/{name}/refreshes                its refreshes, as far as its history keeps them
    GET  /tables/{name}/refreshes/{refresh_id}   one of its refreshes
    POST /tables/{name}/cancel    and /pause, /resume: for users who may start runs of all DAGs that declare the table
    POST /tables/{name}/decide    the same: a decision about a refresh that is held, unless Airflow's task asks for it
    POST /tables/{name}/check     the same, and changes nothing: whether a run could be started with some params
    POST /picked/check            the same as /check, for the runs of tables that are picked in the list
    POST /picked                  pause or resume tables that are picked in the list: the same for each of them
    GET  /static/{file}           style sheet and script

This process has no Spark, so it neither starts a refresh nor takes one over from a dead owner. A DAG run does both; the
script starts it through Airflow's public API, with the user's session. Without JavaScript, users can still read all
pages and cancel, pause and resume.

`actions` holds the POST routes. Every route requires `access.EVERY_ROUTE`, static files included;
`tests/api/test_access.py` checks each. Airflow's dependencies for lists of DAGs return status 500 in a mounted
application, hence `access.readable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Request, Response, status
from fastapi import Query as QueryParameter
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException as AnyHTTPException

from airflow_mv_provider.api import access, actions
from airflow_mv_provider.api.airflow_database import (
    Declared,
    DeclaringDag,
    answering,
    declared,
    declared_and_started,
    written_tasks,
)
from airflow_mv_provider.api.airflow_run import may_clear, owners_run, tries_of_runs
from airflow_mv_provider.api.connection import ConnectionDep
from airflow_mv_provider.api.detail import detail_of, now_of, one_refresh, why_of
from airflow_mv_provider.api.lineage_view import LineageView, lineage_around, lineage_graph, whole_lineage
from airflow_mv_provider.api.messages import MESSAGES
from airflow_mv_provider.api.pages import HEADERS, quoted, render
from airflow_mv_provider.api.partition_list import PartitionQuery, listed_partitions
from airflow_mv_provider.api.refresh_list import FILTERS, ended_between, listed_refreshes
from airflow_mv_provider.api.run_check import choices
from airflow_mv_provider.api.table_list import FIRST_SORT, Query, next_run_ms, runnable, selected
from airflow_mv_provider.api.time_charts import RANGES, range_of, time_charts
from airflow_mv_provider.core.airflow_key import run_of
from airflow_mv_provider.core.lineage.graph import Graph, table_id
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import MvError, TableNotFoundError
from airflow_mv_provider.metadata.lineage import RegisteredTables
from airflow_mv_provider.metadata.reader import Reader

_STATIC = Path(__file__).parent / "static"
_MINUTE_MS = 60_000


def create_app() -> FastAPI:
    """Return the application; reads nothing before the first request."""
    app = FastAPI(
        title="Refreshable tables",
        docs_url=None,  # the docs and the schema would be accessible without authentication
        redoc_url=None,
        openapi_url=None,
        dependencies=[access.EVERY_ROUTE],
    )
    app.add_api_route("/", list_tables, methods=["GET"])
    app.add_api_route("/lineage", show_lineage_of_all, methods=["GET"])
    only_readable = [Depends(requires_access_dag("GET"))]
    app.add_api_route("/dags/{dag_id}", list_tables_of_dag, methods=["GET"], dependencies=only_readable)
    app.add_api_route("/tables/{name}", show_table, methods=["GET"])
    app.add_api_route("/tables/{name}/now", show_table_now, methods=["GET"])
    app.add_api_route("/tables/{name}/partitions", show_partitions, methods=["GET"])
    app.add_api_route("/tables/{name}/over-time", show_over_time, methods=["GET"])
    app.add_api_route("/tables/{name}/lineage", show_lineage, methods=["GET"])
    app.add_api_route("/tables/{name}/refreshes", show_refreshes, methods=["GET"])
    app.add_api_route("/tables/{name}/refreshes/{refresh_id}", show_refresh, methods=["GET"])
    from_us = [Depends(access.from_our_own_page)]
    for action in (actions.cancel, actions.pause, actions.resume, actions.decide, actions.check):
        app.add_api_route(f"/tables/{{name}}/{action.__name__}", action, methods=["POST"], dependencies=from_us)
    app.add_api_route("/picked/check", actions.check_picked, methods=["POST"], dependencies=from_us)
    app.add_api_route("/picked", actions.pause_or_resume, methods=["POST"], dependencies=from_us)
    app.add_api_route("/static/{file}", static_file, methods=["GET"])
    app.add_exception_handler(MvError, _error_response)
    app.add_exception_handler(AnyHTTPException, _refusal_response)
    return app


def list_tables(
    request: Request,
    user: GetUserDep,
    session: SessionDep,
    connection: ConnectionDep,
    search: str = "",
    show: str = "all",
    owner: str = "",
    tag: str = "",
    sort: str = FIRST_SORT,
    order: str = "",
    page: int = 1,
    done: str = "",
) -> Response:
    """Show the tables that the user may see; three queries for any number of tables."""
    everything = declared(session)
    seen = access.readable(user, everything)

    def visible(table: str) -> bool:
        return access.may_see(table, everything, seen)

    query = Query(search[:400], show, owner[:400], tag[:400], sort, order == "desc", page)
    listing = selected(connection.reader().overview(), visible, seen, query, _may_act_on(user, everything))
    message = MESSAGES.get(done, "")
    return render("list.html", request, facts=(listing.facts, message), listing=listing, of_dag=None, message=message)


def list_tables_of_dag(
    request: Request, dag_id: str, user: GetUserDep, session: SessionDep, connection: ConnectionDep, page: int = 1
) -> Response:
    """Show the tables that a DAG declares; redirect to the table's page if it is only one."""
    everything = declared(session)
    of_dag = {table: dags for table, dags in everything.items() if any(dag.dag_id == dag_id for dag in dags)}
    seen = access.readable(user, of_dag)
    overview = connection.reader().overview()
    listing = selected(overview, of_dag.__contains__, seen, Query(page=page), _may_act_on(user, everything))
    if listing.matching == 1:
        return RedirectResponse(f"../tables/{quoted(listing.rows[0].line.table)}", status.HTTP_303_SEE_OTHER)
    return render("list.html", request, facts=listing.facts, listing=listing, of_dag=dag_id, message="")


def _may_act_on(user: Any, everything: Declared) -> Callable[[str], bool]:
    return lambda table: access.may_act(user, everything.get(table, ()))


def show_table(
    request: Request, name: str, user: GetUserDep, session: SessionDep, connection: ConnectionDep, done: str = ""
) -> Response:
    """Show one table, with the actions that the user may take."""
    reader = connection.reader()
    everything, seen, table = _visible_table(name, user, session, reader)
    all_dags, dags = everything.get(name, ()), seen.get(name, ())
    may_act = access.may_act(user, all_dags)
    tries_of = tries_of_runs(session, dags)
    detail = detail_of(
        reader, table, dags, tries_of, lambda other: access.may_see(other, everything, seen), may_act=may_act
    )
    startable = runnable(dags) if may_act else ()
    dag_ids = [dag.dag_id for dag in startable]
    return render(
        "table.html",
        request,
        detail=detail,
        now=detail.now,
        may_act=may_act,
        dags=dags,
        run=owners_run(session, user, detail.now.status.owner_key, dags, tries_of),
        next_run_ms=detail.next_run_ms,
        runnable=startable,
        choices=choices(name, dag_ids, written_tasks(session, dag_ids)),
        others={dag.dag_id: _tables_of(dag, everything, besides=name) for dag in startable},
        message=MESSAGES.get(done, ""),
        why=why_of(reader, table, _row_history_dags(session, user)) if may_act else None,
    )


def _row_history_dags(session: SessionDep, user: Any) -> Iterable[DeclaringDag]:
    """Return the DAGs that answer what has happened to a row, and whose runs the user may start."""
    return [dag for dag in answering(session) if access.may_act(user, [dag])]


def show_table_now(
    request: Request, name: str, user: GetUserDep, session: SessionDep, connection: ConnectionDep
) -> Response:
    """Show a table's present state, which is one part of its page."""
    reader = connection.reader()
    everything, seen, table = _visible_table(name, user, session, reader)
    dags = seen.get(name, ())
    tries_of = tries_of_runs(session, dags)
    now = now_of(reader, table, dags, tries_of)
    may_act = access.may_act(user, everything.get(name, ()))
    run = owners_run(session, user, now.status.owner_key, dags, tries_of)
    planned = next_run_ms(dags)
    facts = None if now.facts is None else (now.facts, dags)
    shown: dict[str, Any] = {"now": now, "dags": dags, "next_run_ms": planned, "run": run, "may_act": may_act}
    return render("now.html", request, facts=facts, within=1, **shown)


def show_refresh(
    request: Request, name: str, refresh_id: str, user: GetUserDep, session: SessionDep, connection: ConnectionDep
) -> Response:
    """Show one refresh: what it changed and why, when and by whom; changed rows only to users who may act on it.

    raises : HTTPException 404
    """
    reader = connection.reader()
    everything, seen, table = _visible_table(name, user, session, reader)
    dags = seen.get(name, ())
    found = one_refresh(reader, table, refresh_id, tries_of_runs(session, dags))
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "The table's history has no such refresh.")
    if found.go_on is not None and not may_clear(user, found.go_on, dags):
        found = replace(found, go_on=None)
    may_act = access.may_act(user, everything.get(name, ()))
    others = {dag.dag_id: _tables_of(dag, everything, besides=name) for dag in dags if access.may_read_logs(user, dag)}
    facts = None if found.report.finished_at is None else (replace(found, now_ms=0), may_act, others)
    run = run_of(found.report.attempts[-1].owner_key) if found.report.attempts else None
    shown: dict[str, Any] = {
        "run": run if run is not None and run[0] in {dag.dag_id for dag in dags} else None,
        "logs": [each for each in found.logs.tries if each.dag_id in others],
        "others": others,
        "may_act": may_act,
    }
    return render("refresh.html", request, facts=facts, found=found, report=found.report, **shown)


def show_refreshes(
    request: Request,
    name: str,
    user: GetUserDep,
    session: SessionDep,
    connection: ConnectionDep,
    show: str = "all",
    start: Annotated[str, QueryParameter(alias="from")] = "",
    until: str = "",
    before: str = "",
) -> Response:
    """Show the refreshes of a table that its history keeps, in pages."""
    reader = connection.reader()
    _, _, table = _visible_table(name, user, session, reader)
    found = listed_refreshes(reader, table, show, before[:100], ended_between(start[:40], until[:40]))
    return render("refreshes.html", request, facts=found.facts, found=found, choices=FILTERS)


def show_partitions(
    request: Request,
    name: str,
    user: GetUserDep,
    session: SessionDep,
    connection: ConnectionDep,
    show: str = "all",
    sort: str = "",
    order: str = "",
    start: Annotated[str, QueryParameter(alias="from")] = "",
    until: str = "",
    page: int = 1,
) -> Response:
    """Show the partitions of a table; three queries for any number of tables and partitions."""
    everything, seen = _visible(name, user, session)
    asked = PartitionQuery(show, sort, order == "asc", start[:1000], until[:1000], page)
    found = listed_partitions(connection.reader().known_partitions(name), asked)
    startable = runnable(seen.get(name, ()))
    shown: dict[str, Any] = {
        "may_act": access.may_act(user, everything.get(name, ())),
        "runnable": startable,
        "others": {dag.dag_id: _tables_of(dag, everything, besides=name) for dag in startable},
    }
    return render("partitions.html", request, facts=(found.facts, shown), found=found, **shown)


def show_over_time(
    request: Request,
    name: str,
    user: GetUserDep,
    session: SessionDep,
    connection: ConnectionDep,
    asked: Annotated[str, QueryParameter(alias="range")] = "",
) -> Response:
    """Show a table over time; three queries, and no more to send for 10,000 refreshes than for a hundred."""
    _visible(name, user, session)
    found = connection.reader().over_time(name, range_of(asked))
    facts = (found.facts, found.now_ms // _MINUTE_MS)  # the lag grows all the time; an open page shows it each minute
    return render("over_time.html", request, facts=facts, found=time_charts(found), ranges=RANGES)


def show_lineage_of_all(
    request: Request, user: GetUserDep, session: SessionDep, connection: ConnectionDep, page: int = 1
) -> Response:
    """Show what the tables that the user may see are made of; three queries for any number of tables."""
    found, graph, _ = _lineage(user, session, connection.reader())
    return _lineage_page(request, graph, whole_lineage(graph, found, page))


def show_lineage(
    request: Request, name: str, user: GetUserDep, session: SessionDep, connection: ConnectionDep
) -> Response:
    """Show what a table is made of and what comes after it, as far as the user may see it; three queries.

    raises : TableNotFoundError, also for a table that the user may not see
    """
    found, graph, may_see = _lineage(user, session, connection.reader())
    if not may_see(name) or table_id(name) not in graph.nodes:
        raise TableNotFoundError.of(name)
    return _lineage_page(request, graph, lineage_around(graph, found, name))


def _lineage(user: Any, session: Any, reader: Reader) -> tuple[RegisteredTables, Graph, Callable[[str], bool]]:
    """Return all tables, their lineage as far as the user may see it, and whether a table may be shown."""
    everything, started = declared_and_started(session)
    seen = access.readable(user, everything)

    def may_see(table: str) -> bool:
        return access.may_see(table, everything, seen)

    found = reader.registered_tables()
    return found, lineage_graph(found, seen, access.readable(user, started), may_see), may_see


def _lineage_page(request: Request, graph: Graph, view: LineageView) -> Response:
    facts = (replace(view, now_ms=0, picture=None), graph.edges, view.now_ms // _MINUTE_MS)  # the picture has ages
    return render("lineage.html", request, facts=facts, view=view)


def static_file(file: str) -> Response:
    """Return one of the page's own files; the name is looked up, never joined to a path."""
    found = {path.name: path for path in _STATIC.iterdir() if path.suffix in (".css", ".js")}.get(file)
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "No such file.")
    # Browsers revalidate by ETag each time: a new version of the package must not run with an old script.
    return FileResponse(found, headers=HEADERS | {"Cache-Control": "private, no-cache"})


def _visible_table(name: str, user: Any, session: Any, reader: Reader) -> tuple[Declared, Declared, TableRecord]:
    """Return what `_visible` returns, and the table's record.

    raises : TableNotFoundError, also for a table that the user may not see
    """
    return *_visible(name, user, session), reader.table(name)


def _visible(name: str, user: Any, session: Any) -> tuple[Declared, Declared]:
    """Return all declared tables, and those with the DAGs that the user may read.

    raises : TableNotFoundError, for a table that the user may not see
    """
    everything = declared(session)
    seen = access.readable(user, everything)
    if not access.may_see(name, everything, seen):
        raise TableNotFoundError.of(name)
    return everything, seen


def _tables_of(dag: DeclaringDag, everything: Declared, *, besides: str) -> list[str]:
    return sorted(t for t, dags in everything.items() if t != besides and any(d.dag_id == dag.dag_id for d in dags))


def _error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, MvError)
    # Every other error concerns the database: unreachable, not migrated, or at a wrong address.
    code = 404 if isinstance(error, TableNotFoundError) else 503
    return _response(request, code, error.code, error.message, error.advice)


def _refusal_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    headings = {401: "Please sign in to Airflow", 403: "Not allowed", 404: "Not found"}
    hint = "Sign in to Airflow in this browser, then load this page again." if error.status_code == 401 else ""
    heading = headings.get(error.status_code, "This did not work")
    return _response(request, error.status_code, heading, str(error.detail), hint)


def _response(request: Request, code: int, heading: str, message: str, hint: str) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        return render("message.html", request, code, heading=heading, message=message, hint=hint)
    return JSONResponse({"detail": message, "hint": hint}, code, headers=HEADERS)

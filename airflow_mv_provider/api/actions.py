"""What users do on the page: cancel, pause, resume and decide. Each action checks the user's right and is audited.

`check` and `check_picked` write nothing, and answer with JSON: a dialog asks them before the browser starts runs.

The right to act on a table is the right to start runs of every DAG that declares it (`access.may_act`). Whatever is
refused changes nothing. Every action answers by redirecting to the page that it came from, with its result as `done`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, HTTPException, Request, Response, status
from fastapi.responses import JSONResponse, RedirectResponse

from airflow_mv_provider.api import access
from airflow_mv_provider.api.airflow_database import (
    Declared,
    declared,
    note_action,
    run_state,
    task_tries,
    written_tasks,
)
from airflow_mv_provider.api.connection import ConnectionDep
from airflow_mv_provider.api.pages import HEADERS, quoted
from airflow_mv_provider.api.run_check import Refreshed, problems
from airflow_mv_provider.api.table_list import runnable
from airflow_mv_provider.core.airflow_key import is_of, run_of
from airflow_mv_provider.core.approval.hold import Decision, Objection
from airflow_mv_provider.core.state import Cancelled, TableRecord
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata.control import Control
from airflow_mv_provider.metadata.reader import Reader

_MAX_FORM_BYTES = 200_000  # as many partitions as the form takes, of which each character may be nine bytes
_MAX_NOTE = 1000
_OF_THE_LIST = ("search", "show", "owner", "tag", "sort", "order", "page")
_DECISIONS = {each.value: each for each in (Decision.APPROVED, Decision.WITHOUT_DELETES, Decision.REJECTED)}


async def _fields(request: Request) -> list[tuple[str, str]]:
    """Return the fields of a form that a browser has sent, in its order.

    raises : HTTPException 413
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, "The form is too large.")
    return parse_qsl(body.decode("utf-8", "replace"))


_Sent = Annotated[Sequence[tuple[str, str]], Depends(_fields)]


def cancel(name: str, user: GetUserDep, session: SessionDep, connection: ConnectionDep, sent: _Sent) -> Response:
    """Request the refresh that was shown to stop, or end it if no process works on it.

    One that awaits approval is not cancelled while its task in Airflow asks: that task knows who may answer.

    sent : refresh
    """
    control, table = _to_act_on("cancel", name, user, session, connection.control())
    state = control.state(table.id)
    if state.refresh_id != dict(sent).get("refresh"):
        return _back(table, "cancel-nothing" if state.refresh_id is None else "cancel-another")
    if state.is_held and _is_asked(session, state.owner_key):
        return _back(table, "decide-in-airflow")
    result = connection.cancel(table, user.get_name())
    if result is Cancelled.KEPT:
        run = run_of(connection.reader().state(table.id).owner_key)
        if run is not None and run_state(session, *run) not in ("queued", "running"):
            return _back(table, "cancel-idle")
    return _back(table, f"cancel-{result}")


def pause(name: str, user: GetUserDep, session: SessionDep, connection: ConnectionDep) -> Response:
    """Pause the table: no new refresh begins."""
    control, table = _to_act_on("pause", name, user, session, connection.control())
    return _back(table, "pause" if control.pause(table.id, user.get_name()) else "pause-not")


def resume(name: str, user: GetUserDep, session: SessionDep, connection: ConnectionDep) -> Response:
    """Resume the table: refreshes can begin again."""
    control, table = _to_act_on("resume", name, user, session, connection.control())
    return _back(table, "resume" if control.resume(table.id) else "resume-not")


def decide(
    name: str,
    user: GetUserDep,
    session: SessionDep,
    connection: ConnectionDep,
    sent: _Sent,
) -> Response:
    """Record a decision about the held refresh that was shown; none while its task in Airflow asks, or soon will.

    sent : decision, hold, note
    """
    fields = dict(sent)
    control, table = _to_act_on("decide", name, user, session, connection.control())
    decision, hold_id = _DECISIONS.get(fields.get("decision", "")), fields.get("hold", "")
    note = fields.get("note", "").strip()[:_MAX_NOTE]
    if decision is None or not hold_id or not note:
        return _back(table, "decide-incomplete")
    if _is_asked(session, control.state(table.id).owner_key):
        return _back(table, "decide-in-airflow")  # which knows who may answer, and wakes the task
    definition = table.definition
    # As `pinning.check_can_start_over`, which needs PySpark.
    if decision is Decision.WITHOUT_DELETES and definition.source_kind.is_log and not definition.source.is_complete:
        return _back(table, "decide-not-complete")
    found = connection.decide(table, decision, user.get_name(), note, hold_id)
    result = found.name if isinstance(found, Objection) else decision.value
    return _back(table, f"decide-{result.lower().replace('_', '-').replace(' ', '-')}")


def _is_asked(session: Any, owner_key: str | None) -> bool:
    """Return whether the task of a held refresh asks in Airflow for the decision, or will."""
    run = run_of(owner_key)
    tries = task_tries(session, [run] if run else [])
    return any(t.may_ask and is_of(owner_key, t.task_id, t.map_index) for t in tries)


def check(
    name: str,
    user: GetUserDep,
    session: SessionDep,
    connection: ConnectionDep,
    sent: _Sent,
) -> Response:
    """Return what is wrong with a run's params, as its tasks would say it minutes later; writes nothing.

    sent    : conf, a JSON object; dag, one of the table's
    returns : {"problems": texts, "of_others": texts about tables that the run refreshes as well}
    """
    everything, fields = declared(session), dict(sent)
    _refuse_unless(access.may_act(user, everything.get(name, ())))
    seen = access.readable(user, {name: everything.get(name, ())})
    started = {name: {dag.dag_id for dag in seen[name] if dag.dag_id == fields.get("dag")}}
    return _checked(fields.get("conf", ""), started, everything, user, session, connection.reader())


def check_picked(user: GetUserDep, session: SessionDep, connection: ConnectionDep, sent: _Sent) -> Response:
    """Return the same of the runs that refresh the tables that are picked in the list, for each of these tables.

    sent : conf; table, once for each
    """
    everything = declared(session)
    names = list(dict.fromkeys(value for name, value in sent if name == "table"))
    _refuse_unless(all(access.may_act(user, everything.get(one, ())) for one in names or [""]))
    seen = access.readable(user, {one: everything.get(one, ()) for one in names})
    started = {one: {dag.dag_id for dag in runnable(seen[one])[:1]} for one in names}
    return _checked(dict(sent).get("conf", ""), started, everything, user, session, connection.reader())


def _checked(
    conf: str, started: Mapping[str, set[str]], everything: Declared, user: Any, session: Any, reader: Reader
) -> Response:
    """Look at all tables that runs of some DAGs refresh, as far as the user may see them.

    started : tables, each with the DAGs of which a run is started for it
    raises  : TableNotFoundError
    """
    dag_ids = set().union(*started.values())
    others = {name: dags for name, dags in everything.items() if any(dag.dag_id in dag_ids for dag in dags)}
    seen = access.readable(user, others)
    known = reader.tables_with_types([*started, *(name for name in others if access.may_see(name, others, seen))])
    tasks = written_tasks(session, dag_ids)
    refreshed = []
    for name in [*started, *sorted(set(known) - set(started))]:
        if name not in known:
            raise TableNotFoundError.of(name)
        table, kind = known[name]
        of_table = {dag.dag_id for dag in everything.get(name, ())} & dag_ids
        refreshed.append(Refreshed(table, kind, [each for dag_id in of_table for each in tasks.get(dag_id, ())]))
    found = problems(conf, refreshed, list(started))
    return JSONResponse({"problems": found.of_asked, "of_others": found.of_others}, headers=HEADERS)


def pause_or_resume(
    user: GetUserDep,
    session: SessionDep,
    connection: ConnectionDep,
    fields: _Sent,
) -> Response:
    """Pause or resume the tables that are picked in the list: all of them, or none if the user may not act on one.

    fields : verb; table, once for each; search, show, owner, tag, sort, order and page of the list
    """
    given = dict(fields)
    names = list(dict.fromkeys(value for name, value in fields if name == "table"))
    verb, control, everything = given.get("verb"), connection.control(), declared(session)
    if verb not in ("pause", "resume") or not names:
        _refuse_unless(access.may_act(user, ()))
        return _to_list(given, "bulk-nothing")
    for one in names:
        _refuse_unless(access.may_act(user, everything.get(one, ())))
    for table in [control.table(one) for one in names]:
        note_action(session, f"mv_{verb}", table.name, user.get_name(), everything.get(table.name, ()))
        if verb == "pause":
            control.pause(table.id, user.get_name())
        else:
            control.resume(table.id)
    return _to_list(given, f"bulk-{verb}")


def _to_list(given: Mapping[str, str], result: str) -> Response:
    kept = {name: given[name] for name in _OF_THE_LIST if given.get(name)}
    return RedirectResponse(f"./?{urlencode(kept | {'done': result})}", status.HTTP_303_SEE_OTHER)


def _to_act_on(verb: str, name: str, user: Any, session: Any, control: Control) -> tuple[Control, TableRecord]:
    """Check the user's right to act, write the audit log, and return the control and the table's record.

    raises : HTTPException 403
    """
    dags = declared(session).get(name, ())
    _refuse_unless(access.may_act(user, dags))
    table = control.table(name)
    note_action(session, f"mv_{verb}", table.name, user.get_name(), dags)
    return control, table


def _refuse_unless(may_act: bool) -> None:
    if not may_act:
        raise HTTPException(
            status.HTTP_403_FORBIDDEN, "This needs the permission to start runs of every DAG of this table."
        )


def _back(table: TableRecord, result: str) -> Response:
    return RedirectResponse(f"../{quoted(table.name)}?done={result}", status.HTTP_303_SEE_OTHER)

"""A held refresh as a required action of Airflow: what is asked, and what is done with the answer.

The task waits in the state `awaiting_input`, which takes no worker's slot and no triggerer. It is answered in Airflow's
page or by its REST API, by the assigned users if some are named. Airflow resumes the task, which records the decision
and goes on with its refresh. A retry asks again: Airflow keeps an answer with the try that asked.

Airflow's API lets a task create a question and a logged-in user answer it; nothing lets another program end the wait.
So a task that waits is woken from time to time, for seconds and without Spark, to see whether the decision was made
elsewhere, such as by `amv approve`; if not, it waits on. Its question stays the same and open meanwhile.

Before Airflow 3.3 a task cannot wait so. It is rescheduled until the decision is made on the page or by `amv approve`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import Context, Param
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.execution_time.hitl import HITLUser, upsert_hitl_detail

from airflow_mv_provider.core.approval.hold import Decision, Hold, Objection, objection
from airflow_mv_provider.exceptions import DefinitionError, MvError
from airflow_mv_provider.report_text.difference_text import difference_lines

if TYPE_CHECKING:
    from airflow_mv_provider.core.state import TableRecord
    from airflow_mv_provider.metadata.store import Store
    from airflow_mv_provider.runner.refresh import Refresher

log = logging.getLogger(__name__)

OPTIONS = {
    "Approve": Decision.APPROVED,
    "Approve without deletes": Decision.WITHOUT_DELETES,
    "Reject": Decision.REJECTED,
}
_MAX_BODY = 20_000
_MAX_ROWS = 10  # of a kind


def ask(
    table: TableRecord, hold: Hold, lines: Sequence[str], context: Context, users: Sequence[HITLUser] | None
) -> None:
    """Ask for a decision about a held refresh.

    Args:
        lines: The difference, as `difference` returns it.
        users: Who may answer; None for everybody who may answer required actions of the DAG.
    """
    why = Param(None, type=["null", "string"], maxLength=1000, title="Why", description="Kept in the table's history.")
    params = ParamsDict({"note": why})
    upsert_hitl_detail(
        ti_id=context["task_instance"].id,
        options=[option for option, decision in OPTIONS.items() if _fits(table, decision)],
        subject=f"{table.name}: publish what has changed?",
        body=_body(lines),
        params={name: params.get_param(name).serialize() for name in params},
        assigned_users=list(users) if users else None,
    )
    log.info("%s: its changes wait for a decision in Airflow's required actions: %s", table.name, hold.reason)


def wait(hold_id: str, timeout: timedelta) -> NoReturn:
    """Leave the worker until there is an answer, or until it is time to check for a decision that was made elsewhere.

    Raises:
        TaskAwaitingInput.
    """
    from airflow.sdk.exceptions import TaskAwaitingInput

    raise TaskAwaitingInput(method_name="decided", kwargs={"hold_id": hold_id}, timeout=timeout)


def look_again_after(store: Store, hold: Hold, every: timedelta) -> timedelta:
    """Return how long a task waits before it looks for a decision; no longer than there is time for one."""
    return min(timedelta(milliseconds=max(hold.until_ms - store.now_ms(), 1000)), every)


def undecided(store: Store, hold_id: str) -> Hold | None:
    """Return the hold with this id while it waits for a decision; None once it is decided, over or not the last."""
    hold = store.last_hold(hold_id.partition(".")[0])
    return hold if hold is not None and objection(hold, hold_id, Decision.REJECTED) is None else None


def difference(refresher: Refresher, table: str, hold: Hold) -> list[str]:
    """Return what a held refresh would change, as lines; only why it is held, if that cannot be read."""
    try:
        return difference_lines(refresher.difference(table, _MAX_ROWS))
    except MvError as error:
        log.warning("%s: its difference cannot be shown: %s", table, error)
        return [f"{table}: awaiting approval", f"  reason    {hold.reason}"]


def record(store: Store, table: str, hold_id: str, event: Mapping[str, Any]) -> None:
    """Record the answer to `ask`; nothing if there was none in time, or if it was decided elsewhere."""
    chosen = next((OPTIONS[option] for option in event.get("chosen_options") or () if option in OPTIONS), None)
    if "error" in event or chosen is None:
        log.info("%s: not answered yet.", table)
        return
    shown = store.table(table)
    if not _fits(shown, chosen):
        log.info("%s: the answer is not used: the table could not be refreshed again, see `complete`.", table)
        return
    user = (event.get("responded_by_user") or {}).get("name")
    note = (event.get("params_input") or {}).get("note") or None
    decided = store.holds.decide(shown.id, chosen, user, note, hold_id)
    if isinstance(decided, Objection):
        log.info("%s: the answer is not used: %s.", table, decided)
    else:
        log.info("%s: %s%s.", table, chosen, decided.by)


def _fits(table: TableRecord, decision: Decision) -> bool:
    """Return False for a decision after which the table could not be refreshed from its source."""
    from airflow_mv_provider.runner.pinning import check_can_start_over

    try:
        if decision is Decision.WITHOUT_DELETES:
            check_can_start_over(table, "a decision to leave out deletes")
    except DefinitionError:
        return False
    return True


def _body(lines: Sequence[str]) -> str:
    """Return the difference as Markdown. Rows may hold any text: as an indented block, none of it is markup."""
    text = "\n".join(f"    {line}" for block in lines for line in block.splitlines() or [""])
    return text if len(text) <= _MAX_BODY else f"{text[:_MAX_BODY]}\n    ..."

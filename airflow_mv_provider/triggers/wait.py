"""A trigger for a task that waits for a table: it fires when there is something for the task to do.

It reads the metadata database only, and needs no Spark. What a waiting task does next is decided by the task itself,
when it runs again: this trigger keeps nothing, so a triggerer that is restarted begins it anew from its arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_mv_provider.core.queue import turn
from airflow_mv_provider.core.state import Admission, Caller, RefreshState
from airflow_mv_provider.exceptions import MvError, TerminalError
from airflow_mv_provider.hooks.mv import MvHook

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store

Awaited = Literal["turn", "driver", "decision"]
# A driver that recovers another owner's refresh briefly owns no lease before it begins its own.
NUM_ABSENT_TO_STOP = 2
_MIN_PAUSE_S = 0.1  # a triggerer has one loop for all its triggers


class TableTrigger(BaseTrigger):
    """Fire when a task that waits for a table has something to do, or when it has waited long enough.

    Args:
        table: Name of a registered table.
        caller_key: The task's key; see `core.state.Caller`.
        awaits: `turn`: the table is free, or the caller's place in its queue is lost or answered. `driver`: no driver
            works on the table under this key. `decision`: the held refresh `hold_id` is decided or over.
        hold_id: Of the hold, for `decision`.
        is_in_queue: The caller has a ticket, which is renewed meanwhile.
        until: When the task has waited long enough, in ISO format; None without a limit.
        poll_interval: Seconds between two looks; the first is after one interval.
        kept: What the event hands back to the task.
        mv_conn_id: Connection of the metadata database; its default is that of `hooks.mv`.
    """

    def __init__(
        self,
        table: str,
        caller_key: str,
        awaits: Awaited = "turn",
        hold_id: str | None = None,
        *,
        is_in_queue: bool = False,
        until: str | None = None,
        poll_interval: float = 30.0,
        kept: Mapping[str, Any] | None = None,
        mv_conn_id: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table, self.caller_key, self.awaits, self.hold_id = table, caller_key, awaits, hold_id
        self.is_in_queue, self.until = is_in_queue, until
        self.poll_interval, self.kept, self.mv_conn_id = poll_interval, dict(kept or {}), mv_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        names = ("table", "caller_key", "awaits", "hold_id", "is_in_queue", "until", "poll_interval", "kept")
        arguments = {name: getattr(self, name) for name in (*names, "mv_conn_id")}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the table until there is something to do, and yield one event."""
        store: Store | None = None
        try:
            num_due = 0
            while num_due < (NUM_ABSENT_TO_STOP if self.awaits == "driver" else 1):
                await asyncio.sleep(self._pause_s())
                try:
                    store = store or await self._open()
                    num_due = num_due + 1 if await self._is_due(store) else 0
                    await asyncio.to_thread(store.engine.dispose)  # a hundred waiting tasks hold no connections
                except TerminalError:
                    break  # the task meets it too, and says what it is
                except (MvError, OSError) as error:  # a database that cannot be reached may recover
                    self.log.warning("%s: cannot be looked at now: %s", self.table, error)
                if self._is_over():
                    break
            yield TriggerEvent(self.kept)  # type: ignore[no-untyped-call]
        finally:
            if store is not None:
                store.engine.dispose()

    async def _open(self) -> Store:
        from airflow_mv_provider.runner.local import open_store

        settings = await MvHook(self.mv_conn_id).asettings()
        self._lease_ms = settings.lease_ms
        return await asyncio.to_thread(open_store, settings)

    async def _is_due(self, store: Store) -> bool:
        from airflow_mv_provider.operators.dag_run import is_over

        state = await asyncio.to_thread(self._waits_behind, store)
        if state is None:
            return True
        # Only asgiref's threads can ask the triggerer's supervisor.
        return state.is_kept and state.owner_key is not None and await sync_to_async(is_over)(state.owner_key)

    def _waits_behind(self, store: Store) -> RefreshState | None:
        """Return the state of the table if the task has to wait on, and renew its ticket; else None."""
        from airflow_mv_provider.operators.decision import undecided

        table = store.table(self.table)
        state, queue = store.state(table.id), store.waiters(table.id)
        if self.awaits == "decision":
            return state if undecided(store, self.hold_id or "") is not None else None
        if self.awaits == "driver":
            return state if state.owner_key == self.caller_key and state.is_lease_live else None
        has_ticket = any(waiter.key == self.caller_key for waiter in queue)
        if turn(state, self.caller_key, queue) is not Admission.WAIT or has_ticket != self.is_in_queue:
            return None
        if has_ticket:
            caller = Caller(self.caller_key, process="Airflow's triggerer")
            patience_ms = self._lease_ms + 2 * round(self.poll_interval * 1000)
            store.queue.take_ticket(table.id, caller, patience_ms=patience_ms)
        return state

    def _is_over(self) -> bool:
        return self.until is not None and datetime.now(UTC) >= datetime.fromisoformat(self.until)

    def _pause_s(self) -> float:
        if self.until is None:
            return max(self.poll_interval, _MIN_PAUSE_S)
        left = (datetime.fromisoformat(self.until) - datetime.now(UTC)).total_seconds()
        return max(min(self.poll_interval, left), _MIN_PAUSE_S)

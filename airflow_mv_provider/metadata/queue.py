"""Tickets of the callers that wait for a table: durable, numbered in the order in which they were issued.

A ticket is issued, and renewed at each poll of its waiter, under the lock of the table's state row. So numbers become
visible in order, and the holder of the second ticket can see the first. Admission is part of `Store.acquire`'s
compare-and-set, by `is_first_in_line`. A ticket that was not renewed in time has no effect, and its waiter gets a new
number behind the others when it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, select, update
from sqlalchemy.orm import aliased

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.queue import Waiter
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata.database import StorePart, transaction
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.models import RefreshTicketRow as Ticket
from airflow_mv_provider.metadata.rows import is_lease_live, iso

_NO_NUMBER = 2**63 - 1  # for a caller without a ticket: after all others


@dataclass(frozen=True, slots=True)
class WaiterStatus:
    """One caller that waits for a table. `waits_for` is the owner, or the waiter right before it if there is none."""

    place: int
    process: str
    caller: str
    trigger: str
    user: str | None
    since: str
    waits_for: str | None
    joins: str | None


class Queue(StorePart):
    """The tickets of all tables; each method is one transaction."""

    def take_ticket(self, table_id: int, caller: Caller, *, patience_ms: int, joins: str | None = None) -> None:
        """Issue a ticket to a caller, or renew its live one, which keeps its number and the refresh that it joined.

        patience_ms : longest time between two polls before the caller loses its place
        """
        mine = (Ticket.table_id == table_id, Ticket.caller_key == caller.key)
        until = {"process": caller.process, "expires_ms": self._now() + patience_ms, "patience_ms": patience_ms}
        with transaction(self.engine) as db:
            # Locks the row until the end; a renewal leaves the number unused, which is harmless.
            db.execute(update(State).where(State.table_id == table_id).values(tickets_given=State.tickets_given + 1))
            renewed = db.execute(update(Ticket).where(*mine, _is_live(Ticket, self._now())).values(**until))
            if renewed.rowcount == 1:
                return
            db.execute(delete(Ticket).where(Ticket.table_id == table_id, ~_is_live(Ticket, self._now())))
            number = db.scalar(select(State.tickets_given).where(State.table_id == table_id))
            if number is None:
                raise TableNotFoundError(f"table {table_id}", "the table has been dropped.")
            who = {"trigger": caller.trigger, "user_name": caller.user, "joined_refresh": joins}
            key = {"table_id": table_id, "caller_key": caller.key, "number": number}
            db.execute(insert(Ticket).values(**key, **who, since_ms=self._now(), **until))

    def leave(self, caller_key: str) -> None:
        """Remove a caller from every queue; nothing happens if it is in none."""
        with transaction(self.engine) as db:
            db.execute(delete(Ticket).where(Ticket.caller_key == caller_key))

    def joined(self, table_id: int, caller_key: str) -> str | None:
        """Return the refresh that a caller has joined, also after its ticket has expired; None if it has not."""
        mine = (Ticket.table_id == table_id, Ticket.caller_key == caller_key)
        with transaction(self.engine) as db:
            return db.scalar(select(Ticket.joined_refresh).where(*mine))


def waiters(db: Connection, table_id: int, now: ColumnElement[int]) -> tuple[Waiter, ...]:
    """Return a table's live tickets, in the order in which they are admitted."""
    rows = db.execute(
        select(Ticket.__table__).where(Ticket.table_id == table_id, *_counts(now)).order_by(Ticket.number)
    )
    return tuple(
        Waiter(r.number, r.caller_key, r.process, r.trigger, r.user_name, r.since_ms, r.joined_refresh) for r in rows
    )


def statuses(found: Sequence[Waiter], owner: str | None) -> tuple[WaiterStatus, ...]:
    """Return a table's queue as it is shown to users."""
    before = [None, *(waiter.process for waiter in found)]
    return tuple(
        WaiterStatus(
            place=place,
            process=waiter.process,
            caller=waiter.key,
            trigger=waiter.trigger,
            user=waiter.user,
            since=iso(waiter.since_ms),
            waits_for=owner or before[place - 1],
            joins=waiter.joins,
        )
        for place, waiter in enumerate(found, 1)
    )


def is_first_in_line(table_id: int, caller_key: str, now: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that no live ticket comes before the caller's; every one does if it has no live ticket."""
    own = aliased(Ticket)
    is_mine = (own.table_id == table_id, own.caller_key == caller_key, _is_live(own, now))
    number = select(own.number).where(*is_mine).scalar_subquery()
    others = (Ticket.table_id == table_id, Ticket.caller_key != caller_key)
    is_before = Ticket.number < func.coalesce(number, _NO_NUMBER)
    return ~select(Ticket.number).where(*others, is_before, *_counts(now)).exists()


def _counts(now: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions under which other callers have to wait for a ticket."""
    # A caller that joined a refresh that is published has its result; it has only not fetched it yet.
    is_answered = exists().where(Refresh.id == Ticket.joined_refresh, Refresh.outcome == Outcome.PUBLISHED)
    return _is_live(Ticket, now), ~is_answered


def _is_live(ticket: type[Ticket], now: ColumnElement[int]) -> ColumnElement[bool]:
    return is_lease_live(ticket.expires_ms, ticket.patience_ms, now)

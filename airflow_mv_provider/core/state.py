"""The row that decides who may refresh a table, and what a caller may do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_mv_provider.core.phase import Phase


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    key     : the same for every process that works for one request: dag, run and map index, or a command's own id
    process : this process, for people: host and pid
    trigger : "dag", "manual", "backfill" or "command line"
    user    : who started it, where that is known
    """

    key: str
    process: str
    trigger: str = "command line"
    user: str | None = None


@dataclass(frozen=True, slots=True)
class RefreshState:
    """One table's `refresh_state` row, as read at one moment of the database's clock."""

    table_id: int
    phase: Phase
    epoch: int
    refresh_id: str | None
    owner_key: str | None
    owner_process: str | None
    owned_since_ms: int | None
    is_lease_live: bool
    is_cancel_requested: bool
    published_upper: int
    published_version: int | None
    published_delta_id: str | None
    published_hash: str | None
    is_main_trusted: bool


class Admission(StrEnum):
    """What a caller who wants a refresh may do."""

    START = "start"  # nobody is at work: mint and acquire
    ADOPT = "adopt"  # the caller's own refresh is unfinished: go on with it
    TAKE_OVER = "take over"  # its owner's lease has expired: end it as `on_takeover` says, then look again
    WAIT = "wait"  # a live owner is at work


def admit(state: RefreshState, caller_key: str) -> Admission:
    """Decide whether a caller may refresh the table now."""
    if state.phase is Phase.NORMAL:
        return Admission.START
    if state.owner_key == caller_key:
        return Admission.ADOPT  # a retry, a cleared task or a twin: the hand-over's epoch decides between them
    return Admission.WAIT if state.is_lease_live else Admission.TAKE_OVER


def next_epoch(state_epoch: int, log_epoch: int) -> int:
    """Return the epoch of the next owner: later than both the database and main's log, either of which may be old."""
    return max(state_epoch, log_epoch) + 1

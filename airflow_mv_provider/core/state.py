"""The state row that decides who may refresh a table, and the decisions that callers derive from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.fence import Commit, is_untouched_since, last_of_ours
from airflow_mv_provider.core.frontier import BatchDescription, Frontier
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.published import Published
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.core.scope.scope import EVERYTHING, Covered, Scope
from airflow_mv_provider.core.strategy import Choice


@dataclass(frozen=True, slots=True)
class Caller:
    """A process that asks for a refresh.

    key     : the same for every process that works for one request: dag, run and map index, or a command's own id
    process : this process as shown to users: host and pid
    trigger : "dag", "manual", "backfill" or "command line"
    user    : the user who started it, if known
    will_retry : the same key returns after a failure that a retry may fix
    away_ms    : longest time between two of its polls while it waits for a table
    """

    key: str
    process: str
    trigger: str = "command line"
    user: str | None = None
    will_retry: bool = False
    away_ms: int = 0


@dataclass(frozen=True, slots=True)
class RefreshState:
    """One table's `refresh_state` row, as read at one moment of the database's clock.

    published_commit : the mark of this package's newest commit up to `published_version`
    owner_process : None while no process works on the refresh: it is kept for the caller's next process
    partition_type : type of the first partition column at the last seal; it determines the order of the values
    is_held : its refresh waits for a person's decision, without a process
    num_kept : rows of main that the source had no longer at the last publish, whose deletes were left out
    main_bytes : of main's data files at `published_version`; None if they are not known
    covered : the scopes of refreshes since the last one of the whole table; empty if main has one state of the source
    """

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
    published_commit: str | None
    published_hash: str | None
    published_totals: Published | None
    covered: tuple[Covered, ...]
    is_main_trusted: bool
    paused_since_ms: int | None = None
    paused_by: str | None = None
    is_dropping: bool = False
    partition_type: str | None = None
    is_held: bool = False
    num_kept: int = 0
    main_bytes: int | None = None

    @property
    def holder(self) -> str:
        """Who has the table, in words: a process, the next one of the caller for whom it is kept, or a decision."""
        if self.is_held:
            return "a person's decision"
        return self.owner_process or f"the next process of {self.owner_key}"

    @property
    def is_kept(self) -> bool:
        """True if no process works on a refresh, and it is kept for its caller's next one until its lease ends."""
        return self.is_lease_live and self.owner_process is None and not self.is_held

    @property
    def is_owner_dead(self) -> bool:
        """True if a refresh is unfinished and its owner's lease has expired."""
        return self.phase is not Phase.NORMAL and not self.is_lease_live and not self.is_held


def is_main_as_published(state: RefreshState, commits: Sequence[Commit]) -> bool:
    """True if main provably equals what the last publish left.

    A version alone is no proof: main may have been dropped and recreated, or restored from a copy, and this package's
    commits may have reached that version a second time.

    commits : main's log, newest first, back to a commit of this package that is not after that version; empty if main
              is gone
    """
    version = state.published_version
    if not state.is_main_trusted or version is None or not commits or commits[0].version < version:
        return False
    known = last_of_ours(commits, version)
    return known is not None and known.mark == state.published_commit and is_untouched_since(commits, known.version)


def is_fenced_by_last_publish(state: RefreshState, commits: Sequence[Commit], epoch: int) -> bool:
    """True if `epoch` needs no fence of its own: main's newest commit is the last publish, of the epoch before it.

    Every commit of this package makes those of older epochs fail, and no epoch lies between the two.

    commits : main's log, newest first
    """
    newest = commits[0] if commits else None
    if newest is None or newest.note is None or newest.note.epoch != epoch - 1:
        return False
    is_recorded = (newest.version, newest.mark) == (state.published_version, state.published_commit)
    return is_recorded and is_main_as_published(state, commits)


class Cancelled(StrEnum):
    """What a request to cancel a table's refresh has come to."""

    NOTHING = "nothing"  # none is running, or main has it already
    REQUESTED = "requested"  # its process stops within seconds
    KEPT = "kept"  # no process works on it: its caller's next process ends it
    LEFT = "left"  # its owner is dead: the process that takes it over ends it
    ENDED = "ended"  # no process worked on it, nothing of it can be in main, and it has ended


class Admission(StrEnum):
    """What a caller that wants a refresh may do."""

    START = "start"  # no refresh is running: mint and acquire
    ADOPT = "adopt"  # the caller's own refresh is unfinished: resume it
    TAKE_OVER = "take over"  # the owner's lease has expired: end its refresh as `on_takeover` decides, then look again
    WAIT = "wait"  # a live owner is at work, or others came first
    PAUSED = "paused"  # a person has paused or is dropping the table: no new refresh begins


def admit(state: RefreshState, caller_key: str) -> Admission:
    """Decide whether a caller may refresh the table now."""
    if state.phase is Phase.NORMAL:
        return Admission.START
    if state.is_held:
        return Admission.WAIT  # its own caller too: a new epoch could only hold it again
    if state.owner_key == caller_key:
        return Admission.ADOPT  # a retry, a cleared task or a twin: the new epoch decides which of them may write
    return Admission.WAIT if state.is_lease_live else Admission.TAKE_OVER


def next_epoch(state_epoch: int, log_epoch: int) -> int:
    """Return the epoch of the next owner: later than the database's and main's log's, since either may be outdated."""
    return max(state_epoch, log_epoch) + 1


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A registered table."""

    id: int
    name: str
    uuid: str
    warehouse: str
    location: str
    definition: RefreshableTable

    @property
    def main(self) -> TableRef:
        """How main is addressed."""
        return TableRef(self.location)


@dataclass(frozen=True, slots=True)
class Ownership:
    """The fencing token of a refresh's owner: every state change requires that the row still matches exactly this."""

    table_id: int
    refresh_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    """One refresh as recorded: its plan is written before anything is read, and a later definition never changes it.

    batch    : None in the history of a refresh that minted nothing
    is_of_source : its rows are those of the table's own source; not so for a rollback or a load
    is_hold_requested : its caller wants it held for a decision before it publishes
    is_forced : its caller wants everything compared
    is_reload : its caller wants a log read from its start
    frontier : `NoFrontier` for a refresh that has ended and whose frontier is no longer stored
    """

    id: str
    table_id: int
    definition: RefreshableTable
    overrides: tuple[str, ...]
    batch: BatchDescription | None
    frontier: Frontier
    choice: Choice
    scope: Scope = EVERYTHING
    note: str | None = None  # why it was requested, in the requester's words
    checked_ms: int | None = None  # when that frontier was fixed, if it was before the refresh began
    source_ms: int | None = None  # when the source came to that frontier, as far as it has a time
    is_hold_requested: bool = False
    is_forced: bool = False
    is_reload: bool = False
    is_of_source: bool = True
    seal: Seal | None = None
    merge_round: int = 0
    has_committed: bool = False
    is_ended: bool = False
    outdated_kept: tuple[str, ...] = ()  # the refreshes whose kept files nobody needs since this one published
    num_kept: int | None = None  # deletes that were left out, as a person has decided; None if that was not decided


@dataclass(frozen=True, slots=True)
class Renewal:
    """The result of a heartbeat."""

    is_owner: bool
    is_cancel_requested: bool

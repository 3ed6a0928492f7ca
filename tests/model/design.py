"""What the order of a process's steps depends on: the design, the process's memory, and its effects on the world."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from airflow_mv_provider.core import plan
from airflow_mv_provider.core.approval import hold
from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.fence import LogCheck
from airflow_mv_provider.core.phase import Ending, Recovery
from airflow_mv_provider.core.progress.history import Way
from airflow_mv_provider.core.state import Admission

Own = tuple[Any, int]  # refresh, epoch


class Design(NamedTuple):
    """What is shipped, or in what a design is weaker.

    has_fence             : a new epoch commits to main before it does anything else
    spares_fence          : unless main's newest commit is the last publish, of the epoch before it; what has nothing to
                            commit is fenced at its end then
    app                   : whose transaction a commit is: the table's, its partition's, or none
    has_own_paths         : staging and changes lie at paths of the epoch's own
    compares_epochs       : writes to the database compare the epoch, and do not trust a lease that was just seen
    has_epoch_per_process : the next process of a caller takes an epoch of its own
    looks_first           : a refresh that an epoch before may have published is given up only after a look at the log
    tells_rounds          : a commit of a round that was given up is not taken for one of this round
    asks_log              : a refresh that others have followed is concluded from main's log, and not resumed
    settles_its_own       : a process that fails asks for its lease again, and settles only a refresh that is its own
    holds                 : every refresh that changes main waits for a person's decision first
    approves_round        : an approval is one of the round that was shown, and of no later one
    names_hold            : a decision names the hold that was shown
    notes_kept            : a commit without its deletes says so in main's log
    completes_unasked     : a refresh of which main has a commit is completed, and not asked about again
    looks_for_kept        : a fence looks for a commit that left out its deletes, and not only the database
    keeps_history         : the table keeps a history of its rows
    fences_history        : where an earlier process may still write the history, it is fenced
    fences_compares       : also where one would compare: others have changed the history, or a person wants it
    notes_base            : a write to the history says which version of it was read to decide
    writes_history_after  : main's commit comes first
    minds_others          : where others have changed main, too, current versions are compared
    is_forced             : a person wants everything compared, once
    ends_by_takeover      : a hold that is superseded is ended by whoever takes it over, behind a fence of its own
    """

    name: str = "shipped"
    is_progressive: bool = False
    has_fence: bool = True
    app: str = "table"
    has_own_paths: bool = True
    compares_epochs: bool = True
    has_epoch_per_process: bool = True
    looks_first: bool = True
    tells_rounds: bool = True
    asks_log: bool = True
    settles_its_own: bool = True
    holds: bool = False
    approves_round: bool = True
    names_hold: bool = True
    notes_kept: bool = True
    completes_unasked: bool = True
    looks_for_kept: bool = True
    ends_by_takeover: bool = True
    spares_fence: bool = True
    keeps_history: bool = False
    fences_history: bool = True
    fences_compares: bool = True
    notes_base: bool = True
    writes_history_after: bool = True
    minds_others: bool = True
    is_forced: bool = False


class Worker(NamedTuple):
    """One process: the step that it takes next, what it owns, and what it remembers.

    mode         : how the refresh is ended, once that is decided: "give up" after a cancel, "give up after an error",
                   "give up for good", "bring to its end" where main has it
    base         : main's version that is compared with
    is_overtaken : main's log shows, at the fence, a refresh that began later
    whole        : the version that has all of the refresh, as far as the log proves it; -1 if it does not
    has_tried    : a MERGE of an earlier part or round, or of this one, was begun by this epoch
    num_tries    : MERGEs begun for the part at hand
    last_error   : what the last of them met
    is_unknown   : whether an earlier epoch has committed, or may yet, is not known
    is_in_main   : main's log shows, at the fence, a commit of this refresh
    has_kept     : and that it left out its deletes
    needs_no_fence    : this epoch has needed no fence so far
    data         : what the step needs that comes next; of a process that has ended, why it has
    """

    at: str = "idle"
    own: Own = (0, 0)
    seen: Any = None
    mode: str = ""
    is_fenced: bool = False
    num_fences: int = 0
    base: int = 0
    is_overtaken: bool = False
    whole: int = -1
    has_tried: bool = False
    num_tries: int = 0
    last_error: str = ""
    is_unknown: bool = False
    needs_no_fence: bool = False
    is_in_main: bool = False
    has_kept: bool = False
    data: tuple[Any, ...] = ()


class AtFence(NamedTuple):
    """Main's log, read after a try to fence."""

    is_later: bool  # a later epoch has written
    is_fenced: bool
    base: int
    is_in_main: bool
    has_kept: bool
    is_overtaken: bool
    whole: int
    needs_no_fence: bool


class Published(NamedTuple):
    """What a process has seen of its publish, before it brings the history to it.

    version : main's, with all of the refresh
    commits : the versions of the refresh's commits; none if there was nothing to change
    chunks  : the corrections that were recorded
    """

    version: int
    commits: tuple[int, ...]
    chunks: tuple[Any, ...]


class Target(NamedTuple):
    """Where a history is to be brought, and how.

    mark : of main's newest commit up to that version
    txn  : of the write's transaction
    base : the history's version at which that was decided
    """

    way: Way
    version: int
    mark: str | None
    txn: int
    base: int


class Effects(Protocol):
    """What one process reads, decides and writes; the order in which it does is in `order`.

    A write that needs ownership returns False where the row is no longer this epoch's.
    """

    # -- the table's row
    def admission(self) -> Admission: ...
    def seen(self) -> Any: ...
    def own_as_told(self) -> Own: ...
    def minted(self, seen: Any) -> tuple[int, int] | None: ...
    def next_epoch(self, seen: Any) -> int: ...
    def acquire(self, seen: Any, upper: int, pin: int, epoch: int) -> Own | None: ...
    def recovery(self, seen: Any) -> Recovery | None: ...
    def ends_at_once(self, seen: Any) -> bool: ...  # it is to be cancelled, and nothing of it can be in main
    def hand_over(self, seen: Any, epoch: int) -> Own | None: ...
    def renew(self, own: Own) -> bool | None: ...  # whether a cancel was requested; None if the lease is lost
    def park(self, own: Own) -> bool: ...
    def is_own(self, own: Own) -> bool: ...
    def ending(self, own: Own, code: str) -> Ending: ...

    # -- the refresh
    def next_step(self, own: Own, *, is_fenced: bool, is_overtaken: bool) -> plan.Step: ...
    def is_merging(self, own: Own) -> bool: ...
    def is_cancellable(self, own: Own, *, has_tried: bool) -> bool: ...
    def is_sealed(self, own: Own) -> bool: ...
    def has_committed(self, own: Own) -> bool: ...
    def merge_round(self, own: Own) -> int: ...
    def recorded(self, own: Own) -> tuple[Any, ...]: ...

    # -- a person's decision
    def outdated_hold(self) -> Any: ...  # what a newer refresh of this caller supersedes; None if nothing
    def supersede(self, hold: Any) -> None: ...
    def hold_step(self, own: Own) -> hold.Step: ...
    def hold(self, own: Own) -> Decision | str | None: ...  # what is decided already, or ""; None if the lease is lost
    def deletes_to_leave_out(self, own: Own, *, has_kept: bool) -> tuple[Any, ...]: ...
    def write_kept(self, own: Own, kept: tuple[Any, ...]) -> None: ...
    def record_kept(self, own: Own, kept: tuple[Any, ...]) -> bool: ...

    # -- main's log and its MERGEs
    def latest(self) -> int: ...
    def fence(self, own: Own) -> bool: ...
    def at_fence(self, own: Own) -> AtFence: ...
    def check_log(self, own: Own, chunks: tuple[Any, ...], merge_round: int, part: int | None) -> LogCheck: ...
    def is_in_log(self, own: Own) -> bool: ...  # a commit of this epoch is in main's log
    def next_txn(self, own: Own) -> int: ...
    def start(self, own: Own, part: int, chunks: tuple[Any, ...], merge_round: int, txn: int) -> Any: ...
    def commit(self, merge: Any) -> int | None: ...

    # -- the history beside main
    def has_history(self) -> bool: ...
    def create_history(self) -> None: ...
    def is_history_taken(self, own: Own) -> bool: ...  # a later epoch is in both logs
    def needs_history_fence(self, own: Own) -> bool: ...
    def fence_history(self, own: Own) -> bool: ...
    def history_plan(self, own: Own, found: Published) -> Target: ...
    def compare_history(self, target: Target) -> tuple[Any, ...]: ...
    def start_history(self, own: Own, found: Published, target: Target, actions: tuple[Any, ...] | None) -> Any: ...
    def commit_history(self, write: Any) -> bool: ...
    def is_history_written(self, own: Own) -> bool: ...
    def write_history_ahead(self, own: Own, part: int, chunks: tuple[Any, ...], merge_round: int, txn: int) -> None: ...

    # -- the steps' writes
    def stage(self, own: Own) -> int: ...
    def is_pinned(self, own: Own) -> bool: ...
    def compare_staged(self, own: Own, base: int) -> tuple[Any, ...] | None: ...  # None if its staging is gone
    def seal(self, own: Own, recs: tuple[Any, ...]) -> bool: ...
    def compare(self, own: Own, chunk: int, base: int, merge_round: int) -> Any: ...
    def write_changes(self, own: Own, rec: Any) -> None: ...
    def record(self, own: Own, rec: Any) -> bool: ...
    def commit_recorded(self, own: Own, chunks: tuple[Any, ...], version: int) -> bool: ...
    def discard(self, own: Own, *, is_published: bool, has_stragglers: bool, keeps_rows: bool) -> bool: ...
    def published(self, own: Own, version: int) -> bool: ...
    def concluded(self, own: Own, version: int) -> bool: ...
    def finish(self, own: Own) -> bool: ...
    def abandon(self, own: Own, mode: str, *, is_main_known: bool) -> bool: ...
    def remove_files(self, own: Own) -> None: ...

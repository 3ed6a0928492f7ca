"""The world of the model: what is durable, what is in the air, what each process remembers; all small and hashable.

    ┌ durable ────────────────────────────────────────────────────────────────────────────────────────────┐
    │ source   which version it has; a version is one value for each partition                              │
    │ log      main's commits, each with the partitions that it set; an id, so that states stay small       │
    │ history  those of the history beside main, in the same way; -1 if there is none (`versions`)          │
    │ row      the state row: phase, epoch, refresh, owner, lease, cancel, what was last published          │
    │ refresh  the refresh under way: its pin, its seal, its recorded chunks, its round                     │
    │ bindings, outcomes, files                                                                             │
    ├ in the air ─────────────────────────────────────────────────────────────────────────────────────────┤
    │ orphans  MERGEs whose client died or gave up waiting, and which Spark still works on                  │
    ├ in memory ──────────────────────────────────────────────────────────────────────────────────────────┤
    │ workers  a and a' are twins: one caller's; b is another's. Each stands before its next atomic step    │
    └───────────────────────────────────────────────────────────────────────────────────────────────────────┘

A row of main is abstracted to one value for each of three partitions, and one partition is one chunk: a correction to 0
is a delete. What Delta does
with a MERGE is two steps, its start (the snapshot is taken, transaction version and old values are looked at) and its
commit (whoever committed in between makes it fail, or not, by Delta's rules); a fence is one.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import Chunk
from tests.model.design import Worker

PHASES = tuple(Phase)
NORMAL, REFRESHING, MERGING, CLEANUP = range(4)
FOREIGN = 9
CHUNKS = tuple(Chunk(n, (f'["{n}"]',)) for n in range(3))
UUID = "6a1f6a7e-6d7a-4a0b-9f5e-0d6c1c5a3b11"
KEYS = ("a", "a", "b")
NAMES = ("a", "a'", "b")
WILL_RETRY = (True, True, False)

Values = tuple[int, int, int]
Path = tuple[object, ...]
Files = tuple[tuple[Path, object], ...]
# What the source holds at each of its versions, 0 where it has no row: one change leaves a partition as it was, one
# deletes a row.
SOURCE: tuple[Values, ...] = ((0, 0, 0), (1, 1, 1), (2, 1, 0), (3, 3, 2))


class Commit(NamedTuple):
    """One commit of main. `changes` are (partition, value); `txn` and `app` are 0 where somebody else wrote.

    keeps : it says that its deletes were left out
    base  : of a publish: the version that its corrections were computed against
    """

    kind: str  # create, fence, publish, foreign, optimize, restore
    changes: tuple[tuple[int, int], ...] = ()
    refresh: int = 0
    epoch: int = 0
    txn: int = 0
    app: int = 0
    merge_round: int = 0
    part: int = 0
    keeps: bool = False
    base: int = -1


class Row(NamedTuple):
    """The state row. `left`: no process works on the refresh; `kept`: the last publish has left out deletes."""

    phase: int = NORMAL
    epoch: int = 0
    refresh: int = 0
    owner: str = ""
    live: bool = False
    cancel: bool = False
    upper: int = 0
    version: int = -1
    left: bool = False
    kept: bool = False


class Recorded(NamedTuple):
    """One chunk's corrections: main at `base` has `old` where it ought to have `new`."""

    number: int
    epoch: int
    merge_round: int
    base: int
    old: int
    new: int
    committed: bool = False

    def __str__(self) -> str:
        return f"{self.old} is to be {self.new}"

    @property
    def path(self) -> str | None:
        """None if there is nothing to correct; `Process` has the path itself."""
        return None if self.old == self.new else "changes"


class Held(NamedTuple):
    """The newest hold of a refresh: the round that was shown, what was decided, whether it is too late for that."""

    merge_round: int
    decision: Decision | None = None
    is_over: bool = False


class Refresh(NamedTuple):
    """The refresh under way, since epoch `first`. `merging` counts the epochs that began in MERGING.

    keeps_rows : its corrections are recorded without their deletes, or are to be
    """

    pin: int
    upper: int
    first: int = 0
    merging: int = 0
    sealed_by: int = 0
    chunks: tuple[Recorded | None, ...] = (None, None, None)
    merge_round: int = 0
    has_committed: bool = False
    hold: Held | None = None
    keeps_rows: bool = False


class Merge(NamedTuple):
    """A MERGE between its start and its commit."""

    refresh: int
    epoch: int
    merge_round: int
    part: int
    txn: int
    app: int
    snapshot: int
    changes: tuple[tuple[int, int], ...]
    keeps: bool = False
    base: int = -1

    def __str__(self) -> str:
        return f"{dict(self.changes)} at version {self.snapshot}"


IDLE = Worker()


class Faults(NamedTuple):
    """How often each kind of fault has happened."""

    source: int = 0
    foreign: int = 0
    crash: int = 0
    expiry: int = 0
    twin: int = 0
    cancel: int = 0
    error: int = 0
    lost: int = 0
    put_back: int = 0
    too_late: int = 0
    drift: int = 0


class Shown(NamedTuple):
    """The corrections of a hold as a person has looked at them, or has approved them."""

    refresh: int
    merge_round: int
    changes: tuple[tuple[int, int], ...]
    keeps: bool = False


class Person(NamedTuple):
    """Who decides: what has been looked at last, how many decisions were made, and what was approved by them."""

    shown: Shown | None = None
    num_decided: int = 0
    approved: tuple[Shown, ...] = ()


class Database(NamedTuple):
    """What a backup of the metadata database holds."""

    row: Row
    refresh: Refresh | None
    bindings: tuple[int, ...]
    outcomes: tuple[str, ...]


class State(NamedTuple):
    source: int
    log: int
    row: Row
    refresh: Refresh | None
    bindings: tuple[int, ...]  # of upper 1, 2, ...: the source's version
    outcomes: tuple[str, ...]  # of refresh 1, 2, ...
    files: Files
    orphans: tuple[Any, ...]  # a `Merge`, or a write to the history
    workers: tuple[Worker, Worker, Worker]
    faults: Faults
    backup: Database | None = None
    person: Person = Person()
    history: int = -1


# -- main's log ------------------------------------------------------------------------------------------------------

_logs: list[tuple[Commit, ...]] = []
_ids: dict[tuple[Commit, ...], int] = {}


def log_id(commits: tuple[Commit, ...]) -> int:
    """Return the number that stands for a log; the commit at position n is version n."""
    found = _ids.get(commits)
    if found is None:
        found = _ids[commits] = len(_logs)
        _logs.append(commits)
    return found


def commits_of(log: int) -> tuple[Commit, ...]:
    return _logs[log]


def latest(log: int) -> int:
    return len(_logs[log]) - 1


@cache
def appended(log: int, commit: Commit) -> int:
    return log_id((*_logs[log], commit))


@cache
def content(log: int, version: int | None = None) -> Values:
    """Return main as it is, or was at a version."""
    values = [0, 0, 0]
    for commit in _logs[log] if version is None else _logs[log][: version + 1]:
        for partition, value in commit.changes:
            values[partition] = value
    return values[0], values[1], values[2]


@cache
def last_txn(log: int, app: int) -> int:
    return max((c.txn for c in _logs[log] if c.epoch and c.app == app), default=0)

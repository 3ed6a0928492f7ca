"""The world of the model: what is durable, what is in the air, what each process remembers; all small and hashable.

    ┌ durable ────────────────────────────────────────────────────────────────────────────────────────────┐
    │ source   which version it has; a version is one value for each partition                              │
    │ log      main's commits, each with the partitions that it set; an id, so that states stay small       │
    │ row      the state row: phase, epoch, refresh, owner, lease, cancel, what was last published          │
    │ refresh  the refresh under way: its pin, its seal, its recorded chunks, its round                     │
    │ bindings, outcomes, files                                                                             │
    ├ in the air ─────────────────────────────────────────────────────────────────────────────────────────┤
    │ orphans  MERGEs whose client died or gave up waiting, and which Spark still works on                  │
    ├ in memory ──────────────────────────────────────────────────────────────────────────────────────────┤
    │ workers  a and a' are twins: one caller's; b is another's. Each stands before its next atomic step    │
    └───────────────────────────────────────────────────────────────────────────────────────────────────────┘

A row of main is abstracted to one value for each of three partitions, and one partition is one chunk. What Delta does
with a MERGE is two steps, its start (the snapshot is taken, transaction version and old values are looked at) and its
commit (whoever committed in between makes it fail, or not, by Delta's rules); a fence is one.

Every decision is made by the package's own functions, wrapped below in caches: they are given real `RefreshState`s,
`Commit`s and `Claim`s, made of the small values once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from airflow_mv_provider.core import claim, plan
from airflow_mv_provider.core.batch import mint
from airflow_mv_provider.core.claim import Claim
from airflow_mv_provider.core.fence import Commit as CoreCommit
from airflow_mv_provider.core.fence import (
    CommitNote,
    LogCheck,
    classify_commits,
    fence_version,
    has_fence,
    has_publish,
    last_epoch,
    mark_at,
    next_txn_version,
    overtaken_by,
    whole_publish,
)
from airflow_mv_provider.core.frontier import Binding, desired_upper
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.queue import turn
from airflow_mv_provider.core.state import Admission, Ownership, RefreshState, is_main_as_published
from airflow_mv_provider.core.strategy import compare_reason
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier

PHASES = tuple(Phase)
NORMAL, REFRESHING, MERGING, CLEANUP = range(4)
FOREIGN = 9
CHUNKS = tuple(Chunk(n, (f'["{n}"]',)) for n in range(3))
UUID = "6a1f6a7e-6d7a-4a0b-9f5e-0d6c1c5a3b11"
KEYS = ("a", "a", "b")
NAMES = ("a", "a'", "b")
WILL_RETRY = (True, True, False)

Values = tuple[int, int, int]
# What the source holds at each of its versions: one change leaves a partition as it was.
SOURCE: tuple[Values, ...] = ((0, 0, 0), (1, 1, 1), (2, 1, 2), (3, 3, 2))


class Commit(NamedTuple):
    """One commit of main. `changes` are (partition, value); `txn` and `app` are 0 where somebody else wrote."""

    kind: str  # create, fence, publish, foreign, optimize, restore
    changes: tuple[tuple[int, int], ...] = ()
    refresh: int = 0
    epoch: int = 0
    txn: int = 0
    app: int = 0
    merge_round: int = 0
    part: int = 0


class Row(NamedTuple):
    """The state row."""

    phase: int = NORMAL
    epoch: int = 0
    refresh: int = 0
    owner: str = ""
    live: bool = False
    cancel: bool = False
    upper: int = 0
    version: int = -1


class Recorded(NamedTuple):
    """One chunk's corrections: main at `base` has `old` where it ought to have `new`."""

    chunk: int
    epoch: int
    merge_round: int
    base: int
    old: int
    new: int
    committed: bool = False


class Refresh(NamedTuple):
    """The refresh under way, since epoch `first`. `merging` counts the epochs that began in MERGING."""

    pin: int
    upper: int
    first: int = 0
    merging: int = 0
    sealed_by: int = 0
    chunks: tuple[Recorded | None, ...] = (None, None, None)
    merge_round: int = 0
    has_committed: bool = False


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


class Worker(NamedTuple):
    """One process: where it is, what it owns, and what it remembers for the step at hand."""

    at: str = "idle"
    own: tuple[int, int] = (0, 0)  # refresh, epoch
    seen: Row | None = None
    mode: str = ""  # "give up" or "give up for good", once that is decided
    is_fenced: bool = False
    base: int = 0
    is_overtaken: bool = False  # main's log shows, at the fence, that others have followed
    whole: int = -1  # the version that has all of the refresh, as far as the log proves it; -1 if it does not
    has_tried: bool = False
    is_unknown: bool = False  # whether an epoch before has committed, or may yet
    is_in_main: bool = False
    data: tuple = ()  # type: ignore[type-arg]


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
    files: tuple[tuple[tuple[object, ...], object], ...]
    orphans: tuple[Merge, ...]
    workers: tuple[Worker, Worker, Worker]
    faults: Faults
    backup: Database | None = None


class Violated(Exception):
    """An invariant does not hold. `step` is the step that breaks it, where it is not taken any more."""

    step: tuple[int | None, str] | None = None


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


@cache
def core_log(log: int) -> list[CoreCommit]:
    """Return the log as the package reads it, newest first."""
    return [_core(version, commit) for version, commit in enumerate(_logs[log])][::-1]


@cache
def _core(version: int, commit: Commit) -> CoreCommit:
    operation = {"create": "CREATE TABLE", "optimize": "OPTIMIZE", "restore": "RESTORE", "publish": "MERGE"}
    note = None
    if commit.epoch:
        step = "fence" if commit.kind == "fence" else "publish"
        # The log tells what the shipped transaction version would be, also to designs that use another.
        facts = {"merge_round": commit.merge_round, "part": commit.part}
        facts["is_final"] = step == "publish" and not commit.part
        note = CommitNote(UUID, f"r{commit.refresh}", commit.epoch, step, commit.txn, **facts)
    return CoreCommit(version, operation.get(commit.kind, "WRITE"), version - 1, note)


# -- the package's decisions, by small values ------------------------------------------------------------------------


@cache
def as_state(row: Row) -> RefreshState:
    return RefreshState(
        table_id=1,
        phase=PHASES[row.phase],
        epoch=row.epoch,
        refresh_id=f"r{row.refresh}" if row.refresh else None,
        owner_key=row.owner or None,
        owner_process=None,
        owned_since_ms=None,
        is_lease_live=row.live,
        is_cancel_requested=row.cancel,
        published_upper=row.upper,
        published_version=None if row.version < 0 else row.version,
        published_commit=None,
        published_hash="hash",
        published_digests=None,
        covered=(),
        is_main_trusted=row.version >= 0,
    )


def as_row(state: RefreshState) -> Row:
    return Row(
        PHASES.index(state.phase),
        state.epoch,
        int(state.refresh_id[1:]) if state.refresh_id else 0,
        state.owner_key or "",
        state.is_lease_live,
        state.is_cancel_requested,
        state.published_upper,
        -1 if state.published_version is None else state.published_version,
    )


def _after(row: Row, claimed: Claim) -> Row | None:
    found = claimed.after(as_state(row))
    return None if found is None else as_row(found)


def ownership(own: tuple[int, int]) -> Ownership:
    return Ownership(1, f"r{own[0]}", own[1])


@cache
def acquired(row: Row, seen: Row, refresh: int, key: str, epoch: int) -> Row | None:
    return _after(row, claim.acquire(as_state(seen), f"r{refresh}", key, epoch))


@cache
def handed_over(row: Row, seen: Row, key: str, epoch: int) -> Row | None:
    return _after(row, claim.hand_over(as_state(seen), key, epoch))


@cache
def held(row: Row, own: tuple[int, int], phase: int | None = None) -> Row | None:
    return _after(row, claim.hold(ownership(own), None if phase is None else PHASES[phase]))


@cache
def advanced(row: Row, own: tuple[int, int], old: int, new: int) -> Row | None:
    return _after(row, claim.advance(ownership(own), PHASES[old], PHASES[new]))


@cache
def abandoned(row: Row, own: tuple[int, int]) -> Row | None:
    return _after(row, claim.abandon(ownership(own)))


@cache
def cancelled(row: Row) -> Row | None:
    return _after(row, claim.cancel())


@cache
def admission(row: Row, key: str) -> Admission:
    return turn(as_state(row), key, ())


@cache
def is_believed(row: Row, log: int) -> bool:
    """True if main is taken for what the last publish left."""
    # The model has no log that was put back: the newest of ours up to a version is always the one that was recorded.
    published_commit = mark_at(core_log(log), row.version)
    return is_main_as_published(replace(as_state(row), published_commit=published_commit), core_log(log))


@cache
def minted(row: Row, log: int, bindings: tuple[int, ...], source: int) -> tuple[int, int] | None:
    """Return the upper that a caller who saw this row would bring main to, and the pin; None if nothing is new."""
    must_compare = compare_reason(
        is_first=row.version < 0,
        is_forced=False,
        same_definition=True,
        is_trusted=is_believed(row, log),
        nondeterminism_reason=None,
    )
    newest = Binding(len(bindings), DeltaFrontier("source", bindings[-1])) if bindings else None
    upper = desired_upper(newest, DeltaFrontier("source", source), row.upper, must_compare=must_compare is not None)
    batch = mint(upper, row.upper, None)
    return None if batch is None else (batch.upper, source)


@cache
def steps_left(
    phase: int,
    is_fenced: bool,
    chunks: tuple[Recorded | None, ...],
    is_progressive: bool,
    is_sealed: bool,
    is_overtaken: bool,
) -> tuple[plan.Step, ...]:
    return plan.remaining(
        PHASES[phase],
        is_fenced=is_fenced,
        chunks=CHUNKS if is_sealed else (),
        recorded={c.chunk for c in chunks if c},
        committed={c.chunk for c in chunks if c and (c.committed or c.old == c.new)},
        is_progressive=is_progressive,
        is_overtaken=is_overtaken,
    )


@cache
def standing(
    log: int, base: int, own: tuple[int, int], merge_round: int, part: int | None, tells_rounds: bool
) -> LogCheck:
    commits = core_log(log)
    if not tells_rounds:
        commits = [replace(c, note=c.note and replace(c.note, merge_round=merge_round)) for c in commits]
    facts = {"refresh_id": f"r{own[0]}", "epoch": own[1], "merge_round": merge_round, "part": part}
    return classify_commits(commits, base=base, latest=latest(log), **facts)


@cache
def is_publish_in(log: int, refresh: int) -> bool:
    return has_publish(core_log(log), f"r{refresh}")


@cache
def epoch_in(log: int) -> int:
    return last_epoch(core_log(log))


@cache
def is_fence_in(log: int, own: tuple[int, int]) -> bool:
    return has_fence(core_log(log), own[1], f"r{own[0]}")


@cache
def is_overtaken(log: int, refresh: int, first_epoch: int) -> bool:
    """True if the log shows a refresh that began after this one."""
    return overtaken_by(core_log(log), f"r{refresh}", first_epoch) is not None


@cache
def published_whole(log: int, refresh: int, first_epoch: int) -> int | None:
    """Return the version with all of a refresh, as far as the log alone proves it."""
    commits = core_log(log)
    found = whole_publish(commits, f"r{refresh}", overtaken_by(commits, f"r{refresh}", first_epoch))
    return None if found is None else found.version


@cache
def txn_after(log: int, epoch: int) -> int:
    return next_txn_version(core_log(log), epoch)


__all__ = ["fence_version"]

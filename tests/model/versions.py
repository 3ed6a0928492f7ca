"""The history beside main in the small world: its log, the versions of rows that its commits leave, its invariants.

A version is (value, begin, end): main's versions with which it has begun and ended; an end of -1 is of a current one.
A commit's actions are those of `spark/history`, each of one partition's row: C closes what is current, N begins a
version. As in main, a write is two steps, and a fence is one; a write that others have outrun since its snapshot fails.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tests.model.exploring import Violated
from tests.model.world import Values, commits_of, content, latest

Action = tuple[str, int, int]  # C or N, the partition, the value
Version = tuple[int, int, int]
Versions = tuple[tuple[Version, ...], ...]
NO_HISTORY = -1
_OTHERS = frozenset({"foreign", "unseen"})


class Written(NamedTuple):
    """One commit of the history; `txn` is 0 where somebody else wrote.

    reached, mark : what its note says: which of main's versions it has, and the mark of main's newest commit until then
    begins        : it replaces whatever there is
    base          : the history's version at which it was decided what to write
    """

    kind: str  # create, fence, history, foreign; unseen: what the log does not tell, such as another definition
    actions: tuple[Action, ...] = ()
    refresh: int = 0
    epoch: int = 0
    txn: int = 0
    reached: int = -1
    mark: str | None = None
    begins: bool = False
    base: int = -1


class HistoryWrite(NamedTuple):
    """A write to the history between its start and its commit."""

    commit: Written
    snapshot: int

    def __str__(self) -> str:
        what = ", ".join(f"{action}{partition}" for action, partition, _ in self.commit.actions)
        return f"{what or 'no version'}, up to main's version {self.commit.reached}, at its version {self.snapshot}"


_logs: list[tuple[Written, ...]] = []
_ids: dict[tuple[Written, ...], int] = {}


def history_id(commits: tuple[Written, ...]) -> int:
    """Return the number that stands for a history's log; the commit at position n is version n."""
    found = _ids.get(commits)
    if found is None:
        found = _ids[commits] = len(_logs)
        _logs.append(commits)
    return found


def written_in(history: int) -> tuple[Written, ...]:
    """Return the history's commits, oldest first; none where there is no table."""
    return () if history == NO_HISTORY else _logs[history]


def newest_txn(history: int) -> int:
    return max((c.txn for c in written_in(history)), default=0)


def last_reached(history: int) -> Written | None:
    """Return the newest commit that says which of main's versions the history has."""
    return next((c for c in reversed(written_in(history)) if c.kind == "history"), None)


def is_others_too(history: int) -> bool:
    """True if others have changed the history."""
    return any(c.kind in _OTHERS for c in written_in(history))


@cache
def versions_of(history: int) -> Versions:
    """Return the versions that the history holds, of each partition's row."""
    found: list[list[Version]] = [[], [], []]
    for commit in written_in(history):
        if commit.begins:
            found = [[], [], []]
        for action, partition, value in sorted(commit.actions):  # a MERGE closes what was there before it
            held = found[partition]
            if action == "C":
                found[partition] = [(v, begin, commit.reached if end < 0 else end) for v, begin, end in held]
            elif action == "X":  # others delete what is current
                found[partition] = [version for version in held if version[2] >= 0]
            else:
                held.append((value, commit.reached, -1))
    return tuple(tuple(each) for each in found)


@cache
def current(history: int) -> tuple[tuple[int, ...], ...]:
    """Return the values of the current versions, of each partition's row."""
    return tuple(tuple(value for value, _, end in each if end < 0) for each in versions_of(history))


@cache
def actions_to(history: int, wanted: Values) -> tuple[Action, ...]:
    """Return what turns the current versions into main's rows: a comparison of both."""
    found = list[Action]()
    for partition, (held, value) in enumerate(zip(current(history), wanted, strict=True)):
        if held != ((value,) if value else ()):
            found += [("C", partition, 0)] if held else []
            found += [("N", partition, value)] if value else []
    return tuple(found)


def begun(values: Values) -> tuple[Action, ...]:
    return tuple(("N", partition, value) for partition, value in enumerate(values) if value)


def committed_history(history: int, log: int, write: HistoryWrite) -> int | None:
    """Return the history's log with a write committed, or None if Delta refuses it.

    Refused are: another commit of ours since its snapshot; others' change of what it read.
    """
    for commit in written_in(history)[write.snapshot + 1 :]:
        if commit.txn or (commit.kind == "foreign" and write.commit.actions):
            return None
    return extended_history(history, log, write.commit)


def extended_history(history: int, log: int, commit: Written) -> int:
    """Return the history's log with a commit of ours; check what must be true of it then."""
    newest = max((c.epoch for c in written_in(history)), default=0)
    if commit.epoch and commit.epoch < newest:
        raise Violated(f"invariant 21: epoch {commit.epoch} commits to the history after epoch {newest}")
    if commit.reached > latest(log):
        raise Violated(
            f"invariant 19: the history says that it has main's version {commit.reached}, which is not there"
        )
    after = history_id((*written_in(history), commit))
    found, wanted = versions_of(after), _wanted(after, log)
    if wanted is None:
        if any(len(each) > 1 for each in current(after)):
            raise Violated(f"invariant 19: the history has {current(after)} as current versions")
    elif found != wanted:
        raise Violated(f"invariant 19: the versions in the history are {found}, of main's rows {wanted}")
    return after


def _wanted(history: int, log: int) -> Versions | None:
    """Return the type-2 log of main's rows at the versions that the history has reached.

    None where others have changed the history, so that what has ended is not as it was written.
    """
    if is_others_too(history):
        return None
    found: list[list[Version]] = [[], [], []]
    reached = [c.reached for c in written_in(history) if c.kind == "history"]
    if reached != sorted(reached):
        raise Violated(f"invariant 19: the history goes back: it has reached {reached}")
    for version in reached:
        for held, value in zip(found, content(log, version), strict=True):
            if held and held[-1][2] < 0 and held[-1][0] != value:
                held[-1] = (*held[-1][:2], version)
            if value and not (held and held[-1][2] < 0):
                held.append((value, version, -1))
    return tuple(tuple(each) for each in found)


def check_reached(history: int, log: int, version: int) -> None:
    """Invariant 20: the history is at a version of main that was published, or has the same rows."""
    last = last_reached(history)
    since = [] if last is None else commits_of(log)[last.reached + 1 : version + 1]
    if last is None or any(c.kind in ("publish", "foreign", "restore") for c in since):
        at = "none" if last is None else last.reached
        raise Violated(f"invariant 20: version {version} of main is published, and the history has reached {at}")
    commits = written_in(history)
    since = commits.index(last) if last.base < 0 else last.base
    if any(c.kind in _OTHERS for c in commits[since + 1 :]):
        return  # the next refresh sees that, and compares
    now = tuple((value,) if value else () for value in content(log, version))
    if current(history) != now:
        raise Violated(f"invariant 20: main's rows are {now}, the current versions {current(history)}")

"""How a history is brought to main's version: decided from the two logs.

    its log has no versions yet                          begin     main's rows are the first versions
    main has changed by this refresh's commits alone     changes   its recorded corrections are the changes
    else                                                 compare   current versions are compared with main's rows
    main's rows are those that it has reached            nothing

A history that was written by another definition, or when the table had other columns, is compared: its key or what
deletes do may be another one, and a column that comes back has values in versions that are still current.

A history is written after main's commit, as the error table is, so a takeover may find it written or not. Its log says
which version of main it has reached. What is between is a difference of main's own log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_mv_provider.core.fence import Commit, CommitNote, is_untouched_since, last_epoch, mark_at

_LONG_LOG = 100


class Way(StrEnum):
    """How the versions that a history lacks are found."""

    NOTHING = "nothing"
    BEGIN = "begin"
    CHANGES = "changes"
    COMPARE = "compare"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with a history; `why` is for people, None if it is as usual."""

    way: Way
    why: str | None = None


def last_written(commits: Sequence[Commit]) -> Commit | None:
    """Return the newest commit of a history's log that says which version of main it has reached."""
    return next((c for c in commits if c.note is not None and c.note.step == "history"), None)


def shows_last(commits: Sequence[Commit]) -> bool:
    """True if a history's log, as far as it is read, shows all since the log that its newest write was decided from."""
    last = last_written(commits)
    return last is not None and min(c.version for c in commits) <= _decided_at(last)


def has_begun(history: Sequence[Commit]) -> bool:
    """False if a history has no version yet, and may so begin with whatever columns come."""
    is_whole = bool(history) and history[-1].version == 0  # else what was written may be no longer in its log
    return not (is_whole and last_written(history) is None and is_untouched_since(history, -1))


def planned(
    history: Sequence[Commit],
    main: Sequence[Commit],
    version: int,
    ours: Iterable[Commit],
    *,
    definition_hash: str,
    has_corrections: bool,
    is_forced: bool,
) -> Plan:
    """Return how a history gets to main's `version`.

    history, main   : their logs, newest first; the history's as far as `shows_last` asks for, main's since the version
                      that the history has
    ours            : the commits with which this refresh has published
    definition_hash : what it is written by now, as `written_by` returns it
    has_corrections : what these have changed is recorded, row by row
    is_forced       : a person wants everything compared
    """
    last = last_written(history)
    if not has_begun(history):
        return Plan(Way.BEGIN)
    if last is None or last.note is None or last.note.reached is None:
        return Plan(Way.COMPARE, "its log does not show which version of the table it has")
    note, since = last.note, _changes_since(main, last.note, version)
    if since is None:
        return Plan(Way.COMPARE, f"the table's log no longer shows version {note.reached}, which it has")
    if _is_changed_by_others(history, last):
        return Plan(Way.COMPARE, "another program has changed it")
    if is_forced or note.definition_hash != definition_hash:
        return Plan(Way.COMPARE, None if note.definition_hash else "another program had doubled rows of the table")
    if not since:
        return Plan(Way.NOTHING)
    published = {c.version for c in ours}
    if strangers := [c for c in since if c.version not in published]:
        return Plan(Way.COMPARE, _gap(strangers))
    return Plan(Way.CHANGES if has_corrections else Way.COMPARE)


def written_by(definition_hash: str, columns: Iterable[str]) -> str:
    """Return a hash of a definition and of the columns that versions get."""
    content = json.dumps([definition_hash, sorted(name.lower() for name in columns)])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def needs_fence(history: Sequence[Commit], main: Sequence[Commit], refresh_id: str, epoch: int) -> bool:
    """True if a process of an earlier epoch may still write the history.

    It writes what a commit of main has changed since the history was last written, what another program has changed in
    the history, or, if a person wants everything compared, whatever differs; that refresh has left a commit in main's
    log, too, be it only its fence. If none of these is there but commits of this epoch and refresh, nobody else has had
    a reason to write.
    """
    if last_epoch(history) >= epoch:
        return False
    last = last_written(history)
    newest = max((c.version for c in main), default=0)
    if last is None or last.note is None or last.note.reached is None:
        return True
    if _changes_since(main, last.note, newest) is None or _is_changed_by_others(history, last):
        return True
    since = [c for c in main if c.version > last.note.reached and (c.note is not None or not c.keeps_data)]
    return any(c.note is None or (c.note.refresh_id, c.note.epoch) != (refresh_id, epoch) for c in since)


def is_log_long(main: Sequence[Commit]) -> bool:
    """True if a history that lacks nothing should say so: main's log is read back to the version that it has."""
    return len(main) > _LONG_LOG


def valid_ms(history: Sequence[Commit], at_ms: int) -> int:
    """Return from when new versions are valid: `at_ms`, but later than all that the history has."""
    last = last_written(history)
    before = None if last is None or last.note is None else last.note.valid_ms
    return at_ms if before is None else max(at_ms, before + 1)


def _changes_since(main: Sequence[Commit], note: CommitNote, version: int) -> list[Commit] | None:
    """Return main's commits that may have changed rows since `note`; None if its log does not show that."""
    if note.reached is None or note.reached > version or mark_at(main, note.reached) != note.mark or not main:
        return None
    if min(c.version for c in main) > note.reached:
        return None
    return [c for c in main if note.reached < c.version <= version and not c.keeps_data]


def _decided_at(last: Commit) -> int:
    """Return the history's version at which it was decided what its newest write has to change."""
    return last.version if last.note is None or last.note.base is None else last.note.base


def _is_changed_by_others(history: Sequence[Commit], last: Commit) -> bool:
    # Not only since the newest write: it does not notice what others changed after it was decided, in another row.
    return any(not _keeps_current(c) for c in history if c.version > _decided_at(last))


def _keeps_current(commit: Commit) -> bool:
    return commit.keeps_data or (commit.note is not None and commit.note.step in ("history", "shed"))


def _gap(strangers: Sequence[Commit]) -> str:
    first, last = min(c.version for c in strangers), max(c.version for c in strangers)
    which = f"version {first}" if first == last else f"the versions {first} to {last}"
    return f"it has no versions of its own for {which} of the table"

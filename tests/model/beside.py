"""The history beside main in a simulation: what Delta makes of its writes, its versions, and what must be true of them.

A version is (row, begin, end): main's versions with which it has begun and ended, the end None while it is current.
Rows are matched by id and partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_mv_provider.core.fence import Commit, CommitNote
from airflow_mv_provider.exceptions import FencedError
from tests.model.delta import Change, Row, Rows, SimulatedDelta

Version = tuple[Row, int, int | None]


@dataclass(frozen=True, slots=True)
class HistoryWrite:
    """A write to the history between its start and its commit: what ends, and what begins."""

    snapshot: int
    changes: tuple[Change, ...]
    note: CommitNote


@dataclass
class SimulatedHistory:
    """One history; its first commit is its creation."""

    commits: list[tuple[str, CommitNote | None]] = field(default_factory=lambda: [("CREATE TABLE", None)])
    versions: list[Version] = field(default_factory=list)

    @property
    def latest(self) -> int:
        return len(self.commits) - 1

    @property
    def last_txn(self) -> int:
        return max((note.txn_version for _, note in self.commits if note), default=0)

    def log(self) -> list[Commit]:
        return [Commit(n, operation, n - 1, note) for n, (operation, note) in enumerate(self.commits)][::-1]

    def current(self) -> Rows:
        return tuple(sorted(row for row, _, end in self.versions if end is None))

    def fence(self, note: CommitNote) -> None:
        """Append nothing, unless its transaction is outdated."""
        if note.txn_version > self.last_txn:
            self.commits.append(("WRITE", note))

    def start(self, changes: Sequence[Change], note: CommitNote) -> HistoryWrite | None:
        """Begin a write; None where it is skipped."""
        return HistoryWrite(self.latest, tuple(changes), note) if note.txn_version > self.last_txn else None

    def commit(self, begun: HistoryWrite) -> None:
        """Commit a write. Raises FencedError where another commit of ours is in its way."""
        if any(note is not None for _, note in self.commits[begun.snapshot + 1 :]):
            raise FencedError("history", "another process of this table committed first.")
        at = begun.note.reached
        assert at is not None
        ended = {change.row[:2] for change in begun.changes if change.op != "I"}
        self.versions = [
            (row, begin, at if end is None and row[:2] in ended else end) for row, begin, end in self.versions
        ]
        self.versions += [(change.row, at, None) for change in begun.changes if change.op != "D"]
        self.commits.append(("MERGE", begun.note))


def check_history(history: SimulatedHistory, main: SimulatedDelta, *, is_at_rest: bool) -> None:
    """Invariants 19 and 21; 20, too, at rest, when main was published last."""
    notes = [note for _, note in history.commits if note]
    assert [note.epoch for note in notes] == sorted(note.epoch for note in notes), "invariant 21"
    reached = [note.reached for note in notes if note.reached is not None]
    found = dict[tuple[int, int], list[Version]]()
    for version in reached:
        rows = {row[:2]: row for row in main.rows(version)}
        for key in {*found, *rows}:
            held, row = found.setdefault(key, []), rows.get(key)
            if held and held[-1][2] is None and held[-1][0] != row:
                held[-1] = (*held[-1][:2], version)
            if row is not None and not (held and held[-1][2] is None):
                held.append((row, version, None))
    assert sorted(history.versions, key=repr) == sorted((v for each in found.values() for v in each), key=repr), (
        "invariant 19"
    )
    if is_at_rest:
        assert history.current() == main.rows(), "invariant 20"
        assert all(c.keeps_data for c in main.log() if c.version > reached[-1]), "invariant 20"

"""Delta as it was measured: versions, transactions that are skipped or refused, writes that are rebased or fail.

`test_differential.py` runs the same operations here and on a real Delta table and compares what comes of them.

    a transaction version that the snapshot knows, or a later one      skipped without a word
    another commit of the same application since the snapshot          ConcurrentTransaction
    rows added to a partition that was read, since the snapshot        ConcurrentAppend
    OPTIMIZE of a partition that was read, since the snapshot          ConcurrentDeleteRead
    any other commit since the snapshot                                the write is rebased over it

A row is (id, partition, value). What others do knows nothing of our transactions; a RESTORE keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from airflow_mv_provider.core.fence import Commit, CommitNote
from airflow_mv_provider.exceptions import FencedError, MainMovedError

Row = tuple[int, int, str]
Rows = tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One row to bring into main: insert, update or delete, and the row that it expects there."""

    op: str  # I, U, D
    row: Row
    old: Row | None


def corrections(desired: Iterable[Row], actual: Sequence[Row]) -> tuple[Change, ...]:
    """Return what turns `actual` into `desired`; rows are matched by id and partition, each of which is there once."""
    wanted, held = {r[:2]: r for r in desired}, {r[:2]: r for r in actual}
    changes = [Change("U" if key in held else "I", row, held.get(key)) for key, row in wanted.items()]
    gone = [Change("D", row, row) for key, row in held.items() if key not in wanted]
    return (*(c for c in changes if c.row != c.old), *gone)


@dataclass(frozen=True, slots=True)
class Version:
    """One commit, and main as it leaves it. `touched` are the partitions in which files came or went."""

    operation: str
    read_version: int
    rows: Rows
    touched: frozenset[int]
    note: CommitNote | None = None


@dataclass(slots=True)
class Transaction:
    """A MERGE between its start and its commit."""

    snapshot: int
    changes: tuple[Change, ...]
    note: CommitNote


@dataclass
class SimulatedDelta:
    """One table; version 0 is its creation, empty."""

    versions: list[Version] = field(default_factory=lambda: [Version("CREATE TABLE", -1, (), frozenset())])

    @property
    def latest(self) -> int:
        return len(self.versions) - 1

    def rows(self, version: int | None = None) -> Rows:
        return self.versions[self.latest if version is None else version].rows

    def log(self, since: int | None = None) -> list[Commit]:
        """Return every commit, newest first; `since` is only a hint to whoever has to be cheap."""
        return [Commit(n, v.operation, v.read_version, v.note) for n, v in enumerate(self.versions)][::-1]

    @property
    def last_txn(self) -> int:
        return max((v.note.txn_version for v in self.versions if v.note), default=0)

    def fence(self, note: CommitNote) -> None:
        """Append nothing, unless its transaction is outdated."""
        if note.txn_version > self.last_txn:
            self._commit("WRITE", self.rows(), (), note)

    def start(self, changes: tuple[Change, ...], note: CommitNote) -> Transaction | None:
        """Begin a MERGE; None where it is skipped. Raises MainMovedError where a row is not as it is expected.

        One that inserts nothing does not notice that a row is missing.
        """
        if note.txn_version <= self.last_txn:
            return None
        may_insert = any(change.op == "I" for change in changes)
        found = list[Change]()
        for change in changes:
            # A row may be there several times: an update or a delete that expects it takes all of them.
            held = {row for row in self.rows() if row[:2] == change.row[:2]}
            if not held and not may_insert:
                continue
            if held != ({change.old} if change.old else set()):
                raise MainMovedError("main", "a row of the table changed after the differences were computed.")
            found.append(change)
        return Transaction(self.latest, tuple(found), note)

    def commit(self, begun: Transaction) -> None:
        """Commit a MERGE. Raises FencedError or MainMovedError where somebody else's commit is in its way."""
        read = {change.row[1] for change in begun.changes}
        since = self.versions[begun.snapshot + 1 :]
        if any(v.note is not None for v in since):
            raise FencedError("main", "another process of this table committed first.")
        if any(v.touched & read for v in since):
            raise MainMovedError("main", "another writer changed main during the commit.")
        gone = {change.old for change in begun.changes if change.op == "D"}
        updated = {change.old: change.row for change in begun.changes if change.op == "U"}
        rows = [updated.get(row, row) for row in self.rows() if row not in gone]
        rows += [change.row for change in begun.changes if change.op == "I"]
        self._commit("MERGE", tuple(rows), read, begun.note, begun.snapshot)

    # -- what others do ----------------------------------------------------------------------------------------------

    def append(self, rows: Rows) -> None:
        self._commit("WRITE", (*self.rows(), *rows), {row[1] for row in rows})

    def delete(self, partition: int) -> None:
        if any(row[1] == partition for row in self.rows()):
            self._commit("DELETE", tuple(row for row in self.rows() if row[1] != partition), {partition})

    def optimize(self) -> None:
        """Rewrite the files of every partition; whether there is anything to rewrite is unknown."""
        self._commit("OPTIMIZE", self.rows(), {row[1] for row in self.rows()})

    def restore(self, version: int) -> None:
        before, after = set(self.rows()), set(self.rows(version))
        self._commit("RESTORE", self.rows(version), {row[1] for row in before ^ after})

    def _commit(
        self,
        operation: str,
        rows: Rows,
        touched: Iterable[int],
        note: CommitNote | None = None,
        read_version: int | None = None,
    ) -> None:
        read = self.latest if read_version is None else read_version
        self.versions.append(Version(operation, read, tuple(sorted(rows)), frozenset(touched), note))

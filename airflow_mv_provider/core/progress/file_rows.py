"""What is kept of a source's rows by file for the next refresh: their sums, and a copy of the rows themselves.

    file ──▶ count and sums of its rows
         ──▶ the copy that holds them: a directory, which may hold rows of other files too

A corrected file is then compared with its own former rows, so that neither the other files nor main are read. Copies
are never changed: the rows of new files form a copy of their own. A copy of which no file's rows are needed any more is
deleted; when less than half of all copied rows are still needed, these are copied together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

Sums = tuple[int, int, int]
"""Count, xor and mixed sum of the hashes of some rows, as `spark.compare.hashing.measure` computes them."""


@dataclass(frozen=True, slots=True)
class KeptCopy:
    """A directory of rows that is kept beyond its refresh.

    name : its place among the table's copies, see `core.location.Workspace`; relative, so it survives a relocation
    """

    name: str
    num_rows: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of one file of the source.

    uri  : how the copy's column `_mv_file` names the file; None if it has no rows
    copy : None if its rows are not kept
    """

    sums: Sums
    uri: str | None = None
    copy: KeptCopy | None = None


def total(sums: Iterable[Sums]) -> Sums:
    """Return the sums of all rows of several files."""
    return reduce(lambda one, other: (one[0] + other[0], one[1] ^ other[1], one[2] + other[2]), sums, (0, 0, 0))


def copies_of(files: Iterable[FileRows]) -> frozenset[KeptCopy]:
    """Return the copies that hold rows of these files."""
    return frozenset(each.copy for each in files if each.copy is not None and each.sums[0])


def are_kept(files: Iterable[FileRows]) -> bool:
    """True if the rows of all these files are in copies, or there are none."""
    return all(each.copy is not None or not each.sums[0] for each in files)


def is_mostly_outdated(files: Iterable[FileRows]) -> bool:
    """True if less than half of the rows in the copies are still those of a file."""
    every = tuple(files)
    needed = sum(each.sums[0] for each in every if each.copy is not None)
    return 2 * needed < sum(copy.num_rows for copy in copies_of(every))

"""Totals of rows: their number and two sums of their hashes. Equal totals mean equal rows.

Every total is additive: those of main after a refresh are those before it, plus what its corrections add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of some rows.

    The xor alone is not enough: among a hundred changed rows some can be chosen so that it stays the same, and two
    equal rows cancel out.

    digest : the xor of the rows' 64-bit hashes
    mixed  : the sum of 32 bits of each hash, mixed once more
    """

    num_rows: int = 0
    digest: int = 0
    mixed: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.num_rows + other.num_rows, self.digest ^ other.digest, self.mixed + other.mixed)


def total(several: Iterable[Totals]) -> Totals:
    """Return the totals of all rows of several sets."""
    return reduce(Totals.__add__, several, Totals())


def with_added(before: Mapping[str, Totals], added: Mapping[str, Totals]) -> dict[str, Totals]:
    """Return the totals of partitions after changes; those that have lost all rows are left out.

    added : what the changes add to each partition; numbers may be negative
    """
    names = {*before, *added}
    after = {name: before.get(name, Totals()) + added.get(name, Totals()) for name in names}
    return {name: found for name, found in sorted(after.items()) if found != Totals()}

"""What a source shows of its changes between two of its states, before any row is read.

    SignedRows  rows that went (-1) and came (+1): netted by key they are the corrections
    Upserts     rows that came or changed, perhaps with others: they replace main's rows with their keys
    Units       groups of rows that may differ: they are computed again, and replace main's rows of these groups
    Whole       nothing: all rows are compared

A reader returns one of these, and the rows themselves by `SourceReader.changed`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SignedRows:
    """Rows that the source lost and gained.

    Attributes:
        at_most: Upper bound of the changed rows; None if unknown.
        in_files: Where they are found among the rows of files that came and went: upper bound of these rows, as a
            number, or as a fraction of all rows. None where the source lists the changes themselves.
        is_counted: The number of the source's rows shows whether these are all that changed; otherwise they are.
    """

    at_most: int | None = None
    in_files: int | float | None = None
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class Upserts:
    """Rows that came or changed. Deleted ones are found by the number of rows, or their totals, and then by keys.

    Attributes:
        at_most: As in `SignedRows`.
        in_files: As in `SignedRows`, of files that came.
    """

    at_most: int | None = None
    in_files: int | float | None = None


@dataclass(frozen=True, slots=True)
class ChangedInput:
    """An input of a query.

    Attributes:
        num_changed: Upper bound of its changed rows; None if unknown.
        num_rows: Of all its rows; None if they were not counted, as of an input that has not changed.
        num_bytes: About its size; None if unknown.
    """

    name: str
    num_changed: int | None = None
    num_rows: int | None = None
    num_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Units:
    """Rows that belong together and may differ. Which ones is found by reading the changed rows of the inputs.

    Attributes:
        columns: Rows with equal values in them are one unit.
        queries: SQL that finds the units, for people.
        at_most: As in `SignedRows`.
    """

    columns: tuple[str, ...]
    inputs: tuple[ChangedInput, ...]
    queries: tuple[str, ...] = ()
    at_most: int | None = None

    @property
    def num_bytes(self) -> int | None:
        """Of all inputs together, about; None if unknown."""
        found = [each.num_bytes for each in self.inputs]
        return None if None in found else sum(each or 0 for each in found)

    def expected(self, num_rows: int) -> int | None:
        """Return how many units the changed rows are expected to touch; None if their number is unknown.

        A row of an input with fewer rows than the table is taken to be in that many more of the table's.

        Args:
            num_rows: Of the table.
        """
        changed = [each for each in self.inputs if each.num_changed != 0]
        if any(each.num_changed is None for each in changed):
            return None
        touched = ((each.num_changed or 0) * max(num_rows / max(each.num_rows or num_rows, 1), 1) for each in changed)
        return min(round(sum(touched)), num_rows)


@dataclass(frozen=True, slots=True)
class Whole:
    """All rows.

    Attributes:
        reason: Why the changes cannot be read.
        at_most: As in `SignedRows`.
        is_another: The source was replaced by another one, so that a watermark is not valid for it either.
    """

    reason: str = "the source does not list its changes"
    at_most: int | None = None
    is_another: bool = False


Changeset = SignedRows | Upserts | Units | Whole

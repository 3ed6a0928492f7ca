"""What a source shows of its changes between two of its states, before any row is read.

    SignedRows  rows that went (-1) and came (+1): netted by key they are the corrections
    Upserts     rows that came or changed, perhaps with others: they replace main's rows with their keys
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


Changeset = SignedRows | Upserts | Whole

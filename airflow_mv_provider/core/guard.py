"""Guards judge the exact difference before anything is written to main."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from airflow_mv_provider.core.table import Guards

NAMES = tuple(Guards.model_fields)


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of the whole refresh. `main` counts rows before it, `desired` rows after it."""

    desired: int = 0
    main: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def unchanged(self) -> int:
        return self.main - self.updated - self.deleted

    @property
    def changes(self) -> int:
        return self.inserted + self.updated + self.deleted

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.desired + other.desired,
            self.main + other.main,
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A guard that said no, by the name that overrides it."""

    guard: str
    problem: str


def judge(
    guards: Guards, counts: Counts, overrides: Collection[str] = (), *, is_everything: bool = True
) -> Refusal | None:
    """Return the first guard that refuses, or None when the difference may be published.

    overrides     : names of guards a person has set aside for this one refresh
    is_everything : all of the table was looked at; a part of it may be empty on both sides
    """
    if (
        counts.desired == 0
        and (counts.main or is_everything)
        and not guards.allow_empty
        and "allow_empty" not in overrides
    ):
        return Refusal("allow_empty", f"the source has no rows; main has {counts.main:,}.")
    deleted = counts.deleted / counts.main if counts.main else 0.0
    if deleted > guards.max_deleted_fraction and "max_deleted_fraction" not in overrides:
        return Refusal(
            "max_deleted_fraction",
            f"{counts.deleted:,} of main's {counts.main:,} rows would be deleted "
            f"({deleted:.1%}; the guard allows {guards.max_deleted_fraction:.1%}).",
        )
    return None

"""Guards: limits on the exact difference, judged before anything is written to main."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from airflow_mv_provider.core.definition.table import Guards

NAMES = tuple(Guards.model_fields)
COUNTS_UPDATES = ("max_updated_fraction", "max_times_usual")  # guards that need the exact number of updates
_USUAL_OF = 10
_MIN_KNOWN = 3
_ALWAYS_ALLOWED = 100  # rows: of a table that hardly changes, three times the usual change is nothing


@dataclass(frozen=True, slots=True)
class Counts:
    """Row counts of a refresh or a part of it. `main` counts main's rows before it, `desired` those after it."""

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
class NullCount:
    """In how many of the sealed rows a guarded column is NULL; `column` as the definition spells it."""

    column: str
    num_null: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal by a guard; `guard` is the name that overrides it."""

    guard: str
    problem: str


def judge(
    guards: Guards,
    counts: Counts,
    overrides: Collection[str] = (),
    *,
    is_everything: bool = True,
    num_partitions: int = 0,
    usual: int | None = None,
    nulls: Sequence[NullCount] = (),
) -> Refusal | None:
    """Return the first guard that refuses, or None when the difference may be published; see `refusals`."""
    found = refusals(
        *(guards, counts, overrides),
        is_everything=is_everything,
        num_partitions=num_partitions,
        usual=usual,
        nulls=nulls,
    )
    return next(iter(found), None)


def usual_change(changes: Iterable[int]) -> int | None:
    """Return how many rows a refresh usually changes: the median of the last ten that changed any; None if unknown.

    changes : rows changed by former refreshes of the whole table, newest first
    """
    known = [number for number in changes if number][:_USUAL_OF]
    return None if len(known) < _MIN_KNOWN else round(median(known))


def refusals(
    guards: Guards,
    counts: Counts,
    overrides: Collection[str] = (),
    *,
    is_everything: bool = True,
    num_partitions: int = 0,
    usual: int | None = None,
    nulls: Sequence[NullCount] = (),
) -> tuple[Refusal, ...]:
    """Return the refusals of all guards; none when the difference may be published.

    overrides      : names of guards that a person has set aside for this one refresh
    is_everything  : the whole table was compared; a part of it may be empty on both sides
    num_partitions : the number of partitions with a changed row
    usual          : as `usual_change` returns it
    nulls          : of the guarded columns, counted over all rows that were sealed
    """
    deleted, updated, inserted, main = counts.deleted, counts.updated, _inserted(counts), counts.main
    found = (
        _emptied(guards, counts, is_everything=is_everything),
        _too_few(guards, counts, is_everything=is_everything),
        _too_many("max_deleted_fraction", guards.max_deleted_fraction, deleted, main, "deleted"),
        _too_many("max_updated_fraction", guards.max_updated_fraction, updated, main, "changed"),
        _too_many("max_inserted_fraction", guards.max_inserted_fraction, inserted, main, "inserted"),
        _too_spread(guards, num_partitions if main else 0),
        _unusual(guards, inserted + updated + deleted, usual if main else None),
        _too_many_nulls(guards, nulls),
    )
    return tuple(refusal for refusal in found if refusal is not None and refusal.guard not in overrides)


def _emptied(guards: Guards, counts: Counts, *, is_everything: bool) -> Refusal | None:
    if counts.desired or guards.allow_empty or not (counts.main or is_everything):
        return None
    return Refusal("allow_empty", f"the source has no rows, the table has {counts.main:,}.")


def _too_few(guards: Guards, counts: Counts, *, is_everything: bool) -> Refusal | None:
    if guards.min_rows is None or not is_everything or counts.desired >= guards.min_rows:
        return None
    return Refusal("min_rows", f"the source has {counts.desired:,} rows; the guard requires {guards.min_rows:,}.")


def _too_spread(guards: Guards, num_partitions: int) -> Refusal | None:
    most = guards.max_changed_partitions
    if most is None or num_partitions <= most:
        return None
    problem = f"rows would be changed in {num_partitions:,} partitions; the guard allows {most:,}."
    return Refusal("max_changed_partitions", problem)


def _unusual(guards: Guards, num_rows: int, usual: int | None) -> Refusal | None:
    times = guards.max_times_usual
    if times is None or usual is None or num_rows <= max(_ALWAYS_ALLOWED, times * usual):
        return None
    problem = (
        f"{num_rows:,} rows would be inserted, changed or deleted, {num_rows / usual:,.1f} times as many as usual "
        f"({usual:,}; the guard allows {times:g} times)."
    )
    return Refusal("max_times_usual", problem)


def _too_many_nulls(guards: Guards, nulls: Sequence[NullCount]) -> Refusal | None:
    """Refuse if any column has too many; the problem names all of them. No row has no NULL."""
    found = [
        f"{each.column} is NULL in {each.num_null:,} of {each.num_rows:,} rows"
        f" ({100 * each.num_null / each.num_rows:.3g}%; the guard allows {100 * most:.3g}%)"
        for each in nulls
        if (most := guards.max_null_fraction.get(each.column)) is not None and each.num_null > most * each.num_rows
    ]
    return Refusal("max_null_fraction", f"{', '.join(found)}.") if found else None


def _inserted(counts: Counts) -> int:
    """Return how many rows are new; like the deleted ones, an upper bound where these are one."""
    return counts.desired - counts.main + counts.deleted


def _too_many(guard: str, most: float | None, num_rows: int, main: int, done: str) -> Refusal | None:
    """Refuse changes of more rows than the fraction `most` of main's; None sets no limit, nor does an empty main."""
    fraction = num_rows / main if main else 0.0
    if most is None or fraction <= most:
        return None
    rows = f"{num_rows:,} rows beside" if done == "inserted" else f"{num_rows:,} of"
    problem = f"{rows} the table's {main:,} rows would be {done} ({fraction:.1%}; the guard allows {most:.1%})."
    return Refusal(guard, problem)

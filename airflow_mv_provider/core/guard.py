"""Guards: limits on the exact difference, judged before anything is written to main.

A limit is fixed, or a multiple of what is usual: of the median of the last ten refreshes of the whole table that
changed a row, of which three must be known. Until then the default applies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from airflow_mv_provider.core.definition.guards import MAX_DELETED, Guards, PartOfUsual, TimesUsual

NAMES = tuple(Guards.model_fields)
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


@dataclass(frozen=True, slots=True)
class PastRefresh:
    """What a published refresh of the whole table did, as far as it is known.

    counts         : `desired` is the number of the source's rows; None if changed rows were not counted one by one
    num_partitions : those with a changed row
    """

    num_rows: int | None = None
    counts: Counts | None = None
    num_partitions: int | None = None
    nulls: tuple[NullCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual for a refresh of the whole table; None where fewer than three refreshes show it.

    changes, inserted, updated, deleted : rows
    partitions     : those with a changed row
    num_rows       : rows of the source
    null_fractions : of NULLs in each column that a guard names
    """

    changes: int | None = None
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    partitions: int | None = None
    num_rows: int | None = None
    null_fractions: Mapping[str, float] = field(default_factory=dict)


NOTHING_USUAL = Usual()


def usual(past: Iterable[PastRefresh]) -> Usual:
    """Return what is usual after refreshes that changed a row, newest first."""
    known = tuple(past)
    counts = [each.counts for each in known if each.counts is not None]
    fractions: dict[str, list[float]] = {}
    for count in (count for each in known for count in each.nulls if count.num_rows):
        fractions.setdefault(count.column.lower(), []).append(count.num_null / count.num_rows)
    nulls = {column: _median(values) for column, values in fractions.items()}
    return Usual(
        changes=_usual_number(count.changes for count in counts),
        inserted=_usual_number(count.inserted for count in counts),
        updated=_usual_number(count.updated for count in counts),
        deleted=_usual_number(count.deleted for count in counts),
        partitions=_usual_number(each.num_partitions for each in known if each.num_partitions is not None),
        num_rows=_usual_number(each.num_rows for each in known if each.num_rows is not None),
        null_fractions={column: value for column, value in nulls.items() if value is not None},
    )


def _usual_number(values: Iterable[int]) -> int | None:
    found = _median(tuple(values))
    return None if found is None else round(found)


def _median(values: Sequence[float]) -> float | None:
    known = values[:_USUAL_OF]
    return None if len(known) < _MIN_KNOWN else median(known)


def refusals(
    guards: Guards,
    counts: Counts,
    overrides: Collection[str] = (),
    *,
    is_everything: bool = True,
    num_partitions: int = 0,
    usual: Usual = NOTHING_USUAL,
    nulls: Sequence[NullCount] = (),
) -> tuple[Refusal, ...]:
    """Return the refusals of all guards; none when the difference may be published.

    overrides      : names of guards that a person has set aside for this one refresh
    is_everything  : the whole table was compared; a part of it may be empty on both sides
    num_partitions : the number of partitions with a changed row
    usual          : of refreshes of the whole table; nothing is known if this is not one
    nulls          : of the guarded columns, counted over all rows that were sealed
    """
    deleted, updated, inserted, main = counts.deleted, counts.updated, _inserted(counts), counts.main
    changed = inserted + updated + deleted
    found = (
        _emptied(guards, counts, is_everything=is_everything),
        _too_few(guards, counts, usual, is_everything=is_everything),
        _too_many("max_deleted_fraction", guards.max_deleted_fraction, (deleted, usual.deleted), main, "deleted"),
        _too_many("max_updated_fraction", guards.max_updated_fraction, (updated, usual.updated), main, "changed"),
        _too_many("max_inserted_fraction", guards.max_inserted_fraction, (inserted, usual.inserted), main, "inserted"),
        _too_many(
            "max_changed_fraction",
            guards.max_changed_fraction,
            (changed, usual.changes),
            main,
            "inserted, changed or deleted",
        ),
        _too_spread(guards, num_partitions if main else 0, usual),
        _too_many_nulls(guards, nulls, usual),
    )
    return tuple(refusal for refusal in found if refusal is not None and refusal.guard not in overrides)


def _emptied(guards: Guards, counts: Counts, *, is_everything: bool) -> Refusal | None:
    if counts.desired or guards.allow_empty or not (counts.main or is_everything):
        return None
    return Refusal("allow_empty", f"the source has no rows, the table has {counts.main:,}.")


def _too_few(guards: Guards, counts: Counts, usual: Usual, *, is_everything: bool) -> Refusal | None:
    least, found = guards.min_rows, f"the source has {counts.desired:,} rows"
    if isinstance(least, PartOfUsual):
        if usual.num_rows is None or not is_everything or counts.desired >= least.usual * usual.num_rows:
            return None
        return Refusal(
            "min_rows", f"{found}, usually {usual.num_rows:,}; the guard requires {least.usual:.4g} of them."
        )
    if least is None or not is_everything or counts.desired >= least:
        return None
    return Refusal("min_rows", f"{found}; the guard requires {least:,}.")


def _too_spread(guards: Guards, num_partitions: int, usual: Usual) -> Refusal | None:
    most, found = guards.max_changed_partitions, f"rows would be changed in {num_partitions:,} partitions"
    if isinstance(most, TimesUsual):
        if usual.partitions is None or num_partitions <= most.usual * usual.partitions:
            return None
        usually = f"usually in {usual.partitions:,}; the guard allows {most.usual:g} times as many"
        return Refusal("max_changed_partitions", f"{found}, {usually}.")
    if most is None or num_partitions <= most:
        return None
    return Refusal("max_changed_partitions", f"{found}; the guard allows {most:,}.")


def _too_many_nulls(guards: Guards, nulls: Sequence[NullCount], usual: Usual) -> Refusal | None:
    """Refuse if any column has too many; the problem names all of them. No row has no NULL."""
    judged = (_nulls_problem(each, guards, usual.null_fractions.get(each.column.lower())) for each in nulls)
    found = [problem for problem in judged if problem is not None]
    return Refusal("max_null_fraction", f"{', '.join(found)}.") if found else None


def _nulls_problem(found: NullCount, guards: Guards, usual: float | None) -> str | None:
    most, is_null = guards.max_null_fraction.get(found.column), f"{found.column} is NULL in {found.num_null:,} of"
    if isinstance(most, TimesUsual):
        if usual is None or found.num_null <= max(_ALWAYS_ALLOWED, most.usual * usual * found.num_rows):
            return None
        allowed = f"usually {100 * usual:.3g}%; the guard allows {most.usual:g} times that"
    elif most is None or found.num_null <= most * found.num_rows:
        return None
    else:
        allowed = f"the guard allows {100 * most:.3g}%"
    return f"{is_null} {found.num_rows:,} rows ({100 * found.num_null / found.num_rows:.3g}%; {allowed})"


def _inserted(counts: Counts) -> int:
    """Return how many rows are new; like the deleted ones, an upper bound where these are one."""
    return counts.desired - counts.main + counts.deleted


def _too_many(
    guard: str, most: float | TimesUsual | None, change: tuple[int, int | None], main: int, done: str
) -> Refusal | None:
    """Refuse changes of more rows than `most` allows; None sets no limit, nor does an empty main.

    change : how many rows, and how many of them are usual
    """
    num_rows, usual = change
    of = {"inserted": "rows beside", "deleted": "of", "changed": "of"}.get(done, "rows of, or beside,")
    rows = f"{num_rows:,} {of} the table's {main:,} rows would be {done}"
    if isinstance(most, TimesUsual):
        if usual is not None:
            if not main or num_rows <= max(_ALWAYS_ALLOWED, most.usual * usual):
                return None
            return Refusal(guard, f"{rows}, usually {usual:,}; the guard allows {most.usual:g} times as many.")
        most = MAX_DELETED if guard == "max_deleted_fraction" else None
    fraction = num_rows / main if main else 0.0
    if most is None or fraction <= most:
        return None
    return Refusal(guard, f"{rows} ({fraction:.1%}; the guard allows {most:.1%}).")

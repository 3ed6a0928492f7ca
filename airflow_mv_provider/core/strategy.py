"""The strategy of a refresh and its reason: chosen once, before anything is read, and stored in the history.

    skip         the source and main are as the last publish left them: nothing is read
    incremental  the source lists its changes since the last publish: only they are read
    corrections  the source is read and compared with main; the differences are merged
    replace      most rows differ: main is overwritten, in one fenced commit

All but skip produce the same main. A strategy that cannot be used has an obstacle as its reason. The cheapest of the
others by `core.cost` is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from airflow_mv_provider.core import cost
from airflow_mv_provider.core.changeset import Changeset, SignedRows, Units, Upserts, Whole
from airflow_mv_provider.core.cost import CostSample, Estimate, Search
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.strategy_names import DOING, STRATEGIES, ChosenStrategy, RequestedStrategy, Strategy
from airflow_mv_provider.exceptions import StrategyError

_DOUBTFUL = ("MV-MAIN-MOVED", "MV-SEAL-BROKEN")  # the changes do not apply to main, or do not read back as written
MIN_ROWS_FOR_NEW_FILES = 200_000  # with fewer, comparing everything takes no longer than looking in new files


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy with its reason, a sentence for people; and all estimates, the chosen strategy's first.

    wanted : the strategy that the definition or the caller requests
    """

    strategy: ChosenStrategy
    reason: str
    estimates: tuple[Estimate, ...] = ()
    wanted: RequestedStrategy = "auto"

    @property
    def sentence(self) -> str:
        """Why a refresh is needed, what it will do, and why it does not read only what changed, if it does not."""
        obstacle = next((each.why for each in self.estimates if each.strategy == "incremental"), None)
        aside = (
            f" (not only what changed: {obstacle})" if obstacle and self.strategy in ("corrections", "replace") else ""
        )
        return f"{self.reason}: {DOING[self.strategy]}{aside}"

    @property
    def is_looked_for(self) -> bool:
        """True if only reading shows whether the changes can be found so: among new files' rows, or by units."""
        searches = (each.search for each in self.estimates if each.strategy == self.strategy)
        return any(each.in_new_files is not None or each.num_units is not None for each in searches)


@dataclass(frozen=True, slots=True)
class Determinism:
    """Whether a source returns the same rows whenever it is read at one frontier.

    nondeterminism_reason : why its values may differ; None if they never do
    is_by_row             : each of its rows is computed from one pinned row, independent of the order of rows
    """

    nondeterminism_reason: str | None = None
    is_by_row: bool = True

    @property
    def is_row_for_row(self) -> bool:
        """True if equal rows of the source always give equal rows, whatever rows are beside them."""
        return self.nondeterminism_reason is None and self.is_by_row


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts about a table that are known before a refresh reads anything.

    num_rows     : rows of main as of the last publish; None before the first
    must_compare : why main has to be compared with all of the source; None if it is as it was published
    is_known     : the totals of main's rows since the last publish are known
    changes      : what the source shows since then; None if it was not asked
    has_failed   : the last refresh was incremental and failed: comparing avoids the cause, whatever it was
    """

    scope: Scope
    num_rows: int | None
    must_compare: str | None
    is_known: bool
    changes: Changeset | None
    past: tuple[CostSample, ...] = ()
    has_failed: bool = False


def cost_samples(reports: Sequence[RefreshReport]) -> tuple[CostSample, ...]:
    """Return the cost samples in a table's history: its published refreshes of everything.

    reports : newest first
    """
    return tuple(
        CostSample(
            way,
            num_rows,
            r.rows_inserted + r.rows_updated + r.rows_deleted,
            sum(r.phase_seconds.values()),
            next((each.search for each in r.estimates if each.strategy == way), Search()),
        )
        for r in reports
        for way in STRATEGIES
        if r.strategy == way and r.outcome is Outcome.PUBLISHED and r.scope is None and r.phase_seconds
        if (num_rows := r.rows_updated + r.rows_deleted + r.rows_unchanged)
    )


def has_failed(reports: Sequence[RefreshReport]) -> bool:
    """True if the last refresh that did anything was incremental, and that strategy may be why it failed.

    reports : newest first
    """
    last = next((r for r in reports if r.outcome in (Outcome.PUBLISHED, Outcome.FAILED)), None)
    if last is None or last.strategy != "incremental" or last.error is None:
        return False
    return not last.error.is_transient or last.error.code in _DOUBTFUL


def compare_reason(
    *,
    is_first: bool,
    is_forced: bool,
    same_definition: bool,
    is_trusted: bool,
    nondeterminism_reason: str | None,
    is_partial: bool = False,
    num_kept: int = 0,
    is_rolled_back: bool = False,
) -> str | None:
    """Return why main must be compared although the source may be unchanged, or None if its frontier is sufficient.

    nondeterminism_reason : why the source may have other rows at an equal frontier; None if it never has
    is_rolled_back : main was published last by a rollback
    num_kept : rows that main has and the source had no longer at the last publish, whose deletes were left out
    """
    if is_first:
        return "first refresh"
    if is_forced:
        return "a comparison was requested"
    if is_rolled_back:
        return "the table was rolled back since the last refresh from its source"
    if not same_definition:
        return "the definition changed"
    if not is_trusted:
        return "another writer may have changed the table"
    if num_kept:
        return f"the table has kept {num_kept:,} rows that the source had no longer"
    if is_partial:
        return "earlier refreshes covered only some partitions"
    return nondeterminism_reason


def choose(table: RefreshableTable, wanted: RequestedStrategy, situation: Situation, reason: str) -> Choice:
    """Choose how to bring main up to date with a source that may be new.

    wanted : the strategy that the definition or the caller requests; "auto" takes the cheapest
    reason : why a refresh is needed at all
    raises : StrategyError, if the definition is strict and the requested strategy cannot be used
    """
    if situation.num_rows is None and wanted in ("auto", "incremental"):
        is_empty = not table.adopt and replace_obstacle(table, situation.scope) is None
        return Choice("replace" if is_empty else "corrections", reason, (), wanted)
    judged = {way: _judged(way, table, situation, wanted) for way in STRATEGIES}
    possible = [each for each in judged.values() if each.seconds is not None]
    if not cost.is_worth_replacing(situation.num_rows or 0, _num_changes(situation)):
        possible = [each for each in possible if each.strategy != "replace"]
    best = min(possible, key=lambda each: each.seconds or 0.0)
    chosen, why = best, reason
    if wanted != "auto":
        chosen, why = judged[wanted], f"{reason}; {wanted} was requested"
        if chosen.seconds is None:
            if table.strict:
                raise StrategyError(table.name, f"{wanted} is not possible: {chosen.why}.", wanted=wanted)
            chosen, why = judged["corrections"], f"{reason}; {wanted} is not possible: {judged[wanted].why}"
    others = tuple(_beside(each, chosen) for each in judged.values() if each is not chosen)
    return Choice(chosen.strategy, why, (replace(chosen, why="chosen"), *others), wanted)


def is_expected_unchanged(choice: Choice) -> bool:
    """True if the source lists no change: rows are compared, because main or a person asks for it."""
    return any(each.num_changes == 0 for each in choice.estimates)


def are_totals_first(table: RefreshableTable, choice: Choice) -> bool:
    """True if the source is summed up before it is compared: all of it, or most partitions, may be as main has it.

    If it is not, that has cost a scan.
    """
    return bool(table.partition_by) or is_expected_unchanged(choice)


def replace_obstacle(table: RefreshableTable, scope: Scope) -> str | None:
    """Return why main cannot be overwritten as a whole, or None if it can."""
    if table.publish == "progressive":
        return "a progressive refresh commits part by part"
    if not scope.is_everything:
        return "only some partitions are refreshed"
    return "frozen partitions must not change" if table.frozen_before is not None else None


def count_obstacle(table: RefreshableTable) -> str | None:
    """Return why changed rows must be counted one by one, which overwriting does not do; None if they need not."""
    guards = table.guards
    exact = (name for name in ("max_updated_fraction", "max_changed_fraction") if getattr(guards, name) is not None)
    guard = next(exact, guards.of_usual_changes)
    return None if guard is None else f"{guard} is judged on exact counts"


def feed_obstacle(table: RefreshableTable, situation: Situation, wanted: RequestedStrategy) -> str | None:
    """Return why the source's changes alone do not suffice to update main, or None if they do."""
    if situation.must_compare is not None:
        return situation.must_compare
    if found := replace_obstacle(table, situation.scope):
        return found
    if table.on_conflict != "fail":
        return f"on_conflict: {table.on_conflict} also depends on rows that did not change"
    if table.errors is not None and not table.source_kind.is_log:
        return "the error table needs a full read of the source"
    if check := next((check for check in table.checks if check.is_of_all_rows), None):
        return f"the check {check.title} is about all rows"
    if table.guards.max_null_fraction:
        return "the guard max_null_fraction is about all rows"
    if situation.has_failed:
        return "the last incremental refresh failed"
    match situation.changes:
        case None:
            return Whole().reason
        case Whole(reason):
            return reason
        case Upserts(in_files=in_files) if in_files is not None and table.strict and wanted == "incremental":
            return "the source does not list its changes, so all of it would be read"
        case SignedRows(in_files=in_files) | Upserts(in_files=in_files):
            if in_files is not None and wanted == "auto" and (situation.num_rows or 0) < MIN_ROWS_FOR_NEW_FILES:
                return "the source does not list its changes row by row, and comparing so few rows takes no longer"
    return None if situation.is_known else "the totals of the table's rows are not known"


def is_verified(table: RefreshableTable, lower: int, upper: int) -> bool:
    """True if a refresh that reads only changes also checks that they lead to all of the source's rows.

    lower, upper : the bounds of its batch, in states of the source
    """
    every = table.verify_every
    return every is not None and lower // every < upper // every


def is_copied(table: RefreshableTable, determinism: Determinism) -> bool:
    """True if staging holds whole rows; False if the source is read again at its frontier.

    Delta keeps the pinned version readable. A directory of files keeps no versions: a file that is removed or replaced
    after the seal must not matter, and parsing text twice costs more than the copy. A query can be run again over its
    pinned inputs, but its joins cost more than the copy, and sums of doubles or ties in a window may differ. The same
    holds for a projection that uses more than one row at a time.
    If main's rows win over the source's duplicates of a key, the staged rows depend on main, which will change.
    """
    return not (table.source_kind.keeps_versions and determinism.is_row_for_row) or table.on_conflict in (
        "ignore",
        "keep",
    )


def is_file_by_file(table: RefreshableTable, scope: Scope, determinism: Determinism) -> bool:
    """True if each row of main comes from one file of a source of files, so that its rows can be summed up by file."""
    is_alone = table.on_conflict == "fail" and table.errors is None
    return is_alone and determinism.is_row_for_row and replace_obstacle(table, scope) is None


def keeps_file_sums(choice: Choice, num_rows: int) -> bool:
    """True if a later refresh may look for changes in new files: the sums of all others are kept for it."""
    return choice.wanted == "incremental" or num_rows >= MIN_ROWS_FOR_NEW_FILES


def _judged(way: Strategy, table: RefreshableTable, situation: Situation, wanted: RequestedStrategy) -> Estimate:
    obstacle = None
    if way == "incremental":
        obstacle = feed_obstacle(table, situation, wanted)
    if way == "replace":
        obstacle = replace_obstacle(table, situation.scope) or count_obstacle(table)
    if obstacle is not None:
        return Estimate(way, None, obstacle)
    num_rows, num_changes = situation.num_rows or 0, _num_changes(situation)
    search, reading = _search(situation, is_of_changes=way == "incremental"), _reading(table)
    fresh = cost.seconds(way, num_rows, num_changes, search, reading=reading)
    # What a refresh of a query had to read is known only if it was asked what has changed.
    past = [each for each in situation.past if (each.search.query_bytes is None) == (search.query_bytes is None)]
    expected = fresh * cost.factor(way, past, num_changes, reading=reading)
    why = f"{num_changes:,} of {num_rows:,} rows expected to change"
    return Estimate(way, round(expected, 1), why, num_changes, **asdict(search))


def _search(situation: Situation, *, is_of_changes: bool) -> Search:
    """Return among what a strategy looks for changes.

    is_of_changes : the strategy reads only these
    """
    changes = situation.changes
    found = Search(query_bytes=changes.num_bytes if isinstance(changes, Units) else None)
    if not is_of_changes:
        return found
    in_new_files = _num_in_new_files(situation)
    has_former = in_new_files is not None and isinstance(changes, SignedRows)
    return replace(found, in_new_files=in_new_files, has_former=has_former, num_units=_num_units(situation))


def _reading(table: RefreshableTable) -> cost.Reading:
    if table.source.is_text:
        return "parsed"
    return "pinned" if table.source_kind.keeps_versions else "copied"


def _num_changes(situation: Situation) -> int:
    at_most, past = situation.changes.at_most if situation.changes else None, situation.past
    among = _num_in_new_files(situation) or _num_units(situation)
    if not among:  # None are listed, or files are only gone
        return cost.expected_changes(situation.num_rows or 0, at_most, past)
    # Something is new, so a comparison that somebody had asked for and that found nothing is no example.
    expected = cost.expected_changes(situation.num_rows or 0, at_most, [each for each in past if each.num_changes])
    return min(expected, among)


def _num_units(situation: Situation) -> int | None:
    num_rows = situation.num_rows or 0
    if not isinstance(situation.changes, Units):
        return None
    found = situation.changes.expected(num_rows)
    return cost.expected_changes(num_rows, None, ()) if found is None else found


def _num_in_new_files(situation: Situation) -> int | None:
    match situation.changes:
        case SignedRows(in_files=found) | Upserts(in_files=found):
            return round(found * (situation.num_rows or 0)) if isinstance(found, float) else found
        case _:
            return None


def _beside(other: Estimate, chosen: Estimate) -> Estimate:
    if other.seconds is None or chosen.seconds is None:
        return other
    if other.seconds >= chosen.seconds:
        return replace(other, why=f"{other.seconds - chosen.seconds:.1f} s slower")
    why = "without exact counts" if other.strategy == "replace" else "not requested"
    return replace(other, why=f"{chosen.seconds - other.seconds:.1f} s faster, but {why}")

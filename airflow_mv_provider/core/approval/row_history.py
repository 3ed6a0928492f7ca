"""The history of one row of main: which commits changed it, from what to what, and who made them.

    COLUMN=VALUE... ──▶ parse_key: which row is meant
    main's log      ──▶ commits_to_search: the commits that may have changed rows, within the bounds that were asked for
    its rows before and after a commit, or the commit's part of a change feed ──▶ changes_between
    the refreshes that made these commits ──▶ event

A row is what has the key: none, one, or several, if another writer has copied it. Values are as in JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.core.approval.sample import masked
from airflow_mv_provider.core.definition.problems import nearest
from airflow_mv_provider.core.fence import Commit
from airflow_mv_provider.core.outcome import HoldReport, Outcome, RefreshReport
from airflow_mv_provider.exceptions import ArgumentError

Row = dict[str, Any]
_MAX_SHOWN = 80
MAX_LINES = 20


@dataclass(frozen=True, slots=True)
class SearchedCommits:
    """The part of main's log in which a row is followed.

    newest   : main's newest version
    changing : the commits that may have changed rows, newest first
    why      : why no older commit is looked at; None if main's log has no older one that may have changed rows
    first    : the oldest version that main's log has
    """

    newest: int
    changing: tuple[Commit, ...]
    why: str | None
    first: int


@dataclass(frozen=True, slots=True)
class Cause:
    """The refresh that made a commit; only `refresh_id` is known if the history does not have it any more.

    source : the state of the source that it brought, in words
    note   : why it was requested; of a rollback, to what
    hold   : the decision that it waited for
    """

    refresh_id: str
    outcome: Outcome | None = None
    trigger: str | None = None
    user: str | None = None
    note: str | None = None
    source: str | None = None
    hold: HoldReport | None = None
    checks: tuple[CheckResult, ...] = ()


@dataclass(frozen=True, slots=True)
class RowEvent:
    """One commit's change of the row; times as in a refresh's report.

    operation     : "insert", "update" or "delete"
    before, after : None where there is no row
    changed       : the columns that differ, of an update
    commit        : the operation in main's log, as any writer has named it, made printable
    cause         : None for another writer's commit
    """

    operation: str
    version: int
    at: str | None
    before: Row | None
    after: Row | None
    changed: tuple[str, ...]
    commit: str
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the history begins.

    version     : of main; that is the state that `rows` is
    rows        : none if the row was not there yet
    is_complete : nothing was left out: main begins there
    """

    version: int
    why: str
    rows: tuple[Row, ...] = ()
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a file of the source has records with the row's key.

    lines   : their lines, from 1; the first ones of many
    is_cut  : there are more
    no_line : why the lines are not known
    """

    file: str
    lines: tuple[int, ...] = ()
    is_cut: bool = False
    no_line: str | None = None


@dataclass(frozen=True, slots=True)
class SourcePlaces:
    """Where the row came from, as main was published last.

    no_file : why that is not known; then there are no places
    """

    places: tuple[SourcePlace, ...] = ()
    no_file: str | None = None


@dataclass(frozen=True, slots=True)
class RowVersion:
    """One version of the row, as the table's history has it; times as in a refresh's report.

    valid_to  : None for a version that has no end
    operation : how it began: "insert", "update" or "delete"
    """

    valid_from: str
    valid_to: str | None
    is_current: bool
    operation: str
    refresh_id: str
    row: Row


@dataclass(frozen=True, slots=True)
class RowVersions:
    """The versions of one row, oldest first, if the table keeps a history."""

    table: str
    key: dict[str, Any]
    versions: tuple[RowVersion, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for programs."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RowHistory:
    """What has happened to one row.

    key          : as Spark spells its values
    column       : the only column that is looked at beside the key; None for all
    num_commits  : how many commits were looked at that may have changed rows
    is_from_feed : the newest of them were read from main's change feed, and not from its versions
    rows         : as they are at `main_version`
    events       : oldest first
    came_from    : the files and lines that the row came from; None if there is no row, or its source has no files
    versions     : as the table's history has them, oldest first; none if it keeps no history
    """

    table: str
    key: dict[str, Any]
    column: str | None
    main_version: int
    num_commits: int
    is_from_feed: bool
    rows: tuple[Row, ...]
    events: tuple[RowEvent, ...]
    begins: Beginning
    came_from: SourcePlaces | None = None
    versions: tuple[RowVersion, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for programs."""
        return asdict(self)


def place_of(file: str, num_rows: int, lines: Sequence[tuple[int, Row]], obstacle: str | None) -> SourcePlace:
    """Return where a file has the rows with a key, from the lines that were found in it.

    num_rows : how many rows with the key its reader has found
    lines    : the number of each line and its row; the first `MAX_LINES` and one more
    obstacle : why lines cannot be known
    """
    if obstacle is None and len(lines) != min(num_rows, MAX_LINES + 1):
        obstacle = "its lines are not its records one by one"
    if obstacle is not None:
        return SourcePlace(file, no_line=obstacle)
    return SourcePlace(file, tuple(number for number, _ in lines[:MAX_LINES]), len(lines) > MAX_LINES)


def came_from(rows: Sequence[Row], found: Sequence[tuple[SourcePlace, Sequence[Row]]]) -> SourcePlaces:
    """Return where main's rows with a key came from.

    found : each place that has the key, with the rows of its lines
    """
    is_known = all(place.no_line is None and not place.is_cut for place, _ in found)
    contents = [_content(row) for row in rows]
    if is_known and not any(_content(row) in contents for _, those in found for row in those):
        return SourcePlaces(no_file="no record of the source is the row as it is now")
    return SourcePlaces(tuple(place for place, _ in found))


def parse_key(table: str, given: Sequence[str], key: Sequence[str], command: str = "why") -> dict[str, str]:
    """Return the text of each key column, in the key's order.

    given   : COLUMN=VALUE each; names of columns in any case
    command : for the hint
    raises : ArgumentError, if one is no such pair, names no column of the key, or names one twice, or one is missing
    """
    hint = f"amv {command} {table} {' '.join(f'{column}=VALUE' for column in key)}"
    found: dict[str, str] = {}
    for text in given:
        column = _column_of(text, key)
        if column is None:
            name, sign, _ = text.partition("=")
            problem = f"{name[:_MAX_SHOWN]!r} is not a column of its key{nearest(name, key)}."
            if not sign:
                problem = f"{text[:_MAX_SHOWN]!r} is not COLUMN=VALUE."
            raise ArgumentError(table, problem, hint=hint)
        if column in found:
            raise ArgumentError(table, f"{column!r} is given twice.", hint=hint)
        found[column] = text[len(column) + 1 :]
    if missing := [column for column in key if column not in found]:
        raise ArgumentError(table, f"the key is incomplete: {', '.join(missing)} is missing.", hint=hint)
    return {column: found[column] for column in key}


def key_texts(key: Mapping[str, Any]) -> list[str]:
    """Return a key as `parse_key` takes it; a value that is missing is left out, so that it is named."""
    return [f"{column}={value}" for column, value in key.items() if value is not None]


def asked_text(key: Mapping[str, Any], column: str | None, sensitive: Collection[str]) -> str:
    """Return what is asked about, in words, without values of sensitive columns."""
    hidden = {name.lower() for name in sensitive}
    pairs = (f"{name}={'(sensitive)' if name.lower() in hidden else value}" for name, value in key.items())
    return f"{', '.join(pairs)}{f', column {column}' if column else ''}"


def _column_of(text: str, key: Sequence[str]) -> str | None:
    """Return the key column that begins `text`, before an equals sign; a name may have one itself, so the longest."""
    fitting = [column for column in key if text.lower().startswith(f"{column.lower()}=")]
    return max(fitting, key=len, default=None)


def is_far_enough(commits: Sequence[Commit], last: int, since_ms: int | None) -> bool:
    """True if main's newest commits are all that `commits_to_search` needs: it leaves out the last of them."""
    changing = [commit for commit in commits if not commit.keeps_data]
    return len(changing) > last or (bool(changing) and _is_before(changing[-1], since_ms))


def commits_to_search(commits: Sequence[Commit], last: int, since_ms: int | None) -> SearchedCommits:
    """Return the commits in which a row is followed.

    commits : main's log, newest first, so far that `is_far_enough` holds, or all of it
    last    : at most so many commits that may have changed rows
    """
    changing = [commit for commit in commits if not commit.keeps_data]
    in_time = [commit for commit in changing if not _is_before(commit, since_ms)]
    chosen, why = in_time[:last], None
    if len(in_time) > last:
        why = f"only the newest {last:,} commits that may have changed rows were looked at (--last)"
    elif len(in_time) < len(changing):
        why = "older commits were not looked at (--since)"
    return SearchedCommits(commits[0].version, tuple(chosen), why, commits[-1].version)


def _is_before(commit: Commit, since_ms: int | None) -> bool:
    return since_ms is not None and commit.at_ms is not None and commit.at_ms < since_ms


def beginning(searched: SearchedCommits, rows: Sequence[Row]) -> Beginning:
    """Return where a history begins if every commit of `searched` could be read; `rows` are those before them."""
    before = (searched.changing[-1].version if searched.changing else searched.newest + 1) - 1
    if searched.why is not None:
        return Beginning(before, searched.why, tuple(rows))
    if searched.first > 0:
        return Beginning(min(searched.first, before), "the table's log does not go back further", tuple(rows))
    return Beginning(0, "the table begins there", tuple(rows), is_complete=True)


def changes_between(before: Sequence[Row], after: Sequence[Row]) -> tuple[tuple[Row | None, Row | None], ...]:
    """Return what a commit did to the rows with the key, each as the row before and after it.

    A column that a row lacks is as NULL: a commit that adds a column changes no row. Rows that were rewritten as they
    were cancel out.
    """
    gone, new = _without(before, after), _without(after, before)
    pairs: list[tuple[Row | None, Row | None]] = list(zip(gone, new, strict=False))
    pairs += [(row, None) for row in gone[len(new) :]]
    pairs += [(None, row) for row in new[len(gone) :]]
    return tuple(pairs)


def undone(rows: Sequence[Row], changes: Iterable[tuple[Row | None, Row | None]]) -> tuple[Row, ...]:
    """Return the rows as they were before a commit, from those after it."""
    found = list(changes)
    left = _without(rows, [after for _, after in found if after is not None])
    return (*left, *(before for before, _ in found if before is not None))


def _without(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """Return `rows` without one equal row for each of `others`."""
    taken, left = Counter(map(_content, others)), list[Row]()
    for row in sorted(rows, key=_content):
        if taken[_content(row)]:
            taken[_content(row)] -= 1
        else:
            left.append(row)
    return left


def _content(row: Row) -> str:
    return json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True)


def event(commit: Commit, before: Row | None, after: Row | None, at: str | None, cause: Cause | None) -> RowEvent:
    """Return one change of a row by a commit."""
    operation = "insert" if before is None else "delete" if after is None else "update"
    names = dict.fromkeys((*(before or {}), *(after or {}))) if operation == "update" else {}
    changed = tuple(name for name in names if (before or {}).get(name) != (after or {}).get(name))
    return RowEvent(operation, commit.version, at, before, after, changed, commit.shown_operation, cause)


def cause_of(commit: Commit, reports: Collection[RefreshReport]) -> Cause | None:
    """Return the refresh that made a commit, as the history knows it; None for another writer's."""
    if commit.note is None:
        return None
    found = next((report for report in reports if report.refresh_id == commit.note.refresh_id), None)
    if found is None:
        return Cause(commit.note.refresh_id[:32])
    return Cause(
        refresh_id=commit.note.refresh_id,
        outcome=found.outcome,
        trigger=found.trigger,
        user=found.user,
        note=found.note,
        source=found.source,
        hold=found.hold,
        checks=found.checks,
    )


def hidden_key(key: Mapping[str, Any], sensitive: Collection[str], salt: str) -> dict[str, Any]:
    """Return a key with the values of sensitive columns hashed."""
    return masked([RowChange("", dict(key), None, None)], sensitive, salt)[0].key


def hidden_versions(versions: Iterable[RowVersion], sensitive: Collection[str], salt: str) -> tuple[RowVersion, ...]:
    """Return versions with the values of sensitive columns hashed, as `sample.masked` does."""
    known = tuple(versions)
    rows = masked([RowChange("", {}, None, each.row) for each in known], sensitive, salt)
    return tuple(replace(each, row=row.after or {}) for each, row in zip(known, rows, strict=True))


def hidden(found: RowHistory, sensitive: Collection[str], salt: str) -> RowHistory:
    """Return a history with the values of sensitive columns hashed, as `sample.masked` does."""
    if not sensitive:
        return found

    def mask(row: Row | None) -> Row | None:
        return None if row is None else masked([RowChange("", {}, None, row)], sensitive, salt)[0].after

    def mask_all(rows: Iterable[Row]) -> tuple[Row, ...]:
        return tuple(row for row in map(mask, rows) if row is not None)

    return replace(
        found,
        key=mask(found.key) or {},
        rows=mask_all(found.rows),
        events=tuple(replace(each, before=mask(each.before), after=mask(each.after)) for each in found.events),
        begins=replace(found.begins, rows=mask_all(found.begins.rows)),
        versions=hidden_versions(found.versions, sensitive, salt),
    )

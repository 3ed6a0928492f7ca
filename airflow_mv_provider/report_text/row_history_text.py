"""What has happened to one row, as text: oldest first, as one reads a story."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_mv_provider.core.approval.row_history import (
    Cause,
    Row,
    RowEvent,
    RowHistory,
    RowVersion,
    RowVersions,
    SourcePlace,
    SourcePlaces,
)
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.report_text.figures import number, outcome_words, shown, time_text, value_text
from airflow_mv_provider.report_text.refresh_text import hold_lines

_BESIDE = 6  # characters that stand before what belongs to an event


def row_history_text(found: RowHistory) -> str:
    """Return a row's history, and how it is now."""
    how = "by its change feed" if found.is_from_feed else "by its versions"
    commits = "1 commit" if found.num_commits == 1 else f"{number(found.num_commits)} commits"
    lines = [f"{found.table}: {', '.join(f'{shown(name)}={shown(str(value))}' for name, value in found.key.items())}"]
    if found.column is not None:
        lines.append(f"  column    {shown(found.column)}")
    lines += [f"  version   {found.main_version}; {commits} that may have changed rows, {how}"]
    lines += [f"  now       {text}" for text in _rows(found.rows, found.key)]
    lines += [f"  file      {text}" for text in _places(found.came_from)]
    begins = found.begins
    lines += ["", f"  begins    at version {begins.version}: {shown(begins.why)}"]
    if not begins.is_complete:
        lines += [f"  then      {text}" for text in _rows(begins.rows, found.key)]
    for event in found.events:
        lines += ["", *(f"  {line}" for line in _event(event, found))]
    if not found.events:
        lines += ["", "  Nothing has changed it since."]
    if found.versions:
        lines += ["", "  versions  as its history has them", *_versions(found.versions, found.key)]
    return "\n".join(lines)


def row_versions_text(found: RowVersions) -> str:
    """Return the versions of a row, oldest first."""
    lines = [f"{found.table}: {', '.join(f'{shown(name)}={shown(str(value))}' for name, value in found.key.items())}"]
    return "\n".join([*lines, *(_versions(found.versions, found.key) or ["  The history has no such row."])])


def _versions(versions: Iterable[RowVersion], key: Row) -> list[str]:
    lines = []
    for each in versions:
        end = "now" if each.is_current else time_text(each.valid_to)
        how = "is deleted" if each.is_current and each.operation == "delete" else shown(each.operation)
        lines += ["", f"  {time_text(each.valid_from)} to {end}  {how} by refresh {shown(each.refresh_id)}"]
        lines += [" " * (_BESIDE + 2) + text for text in (_values(each.row, key),) if text]
    return lines


def _places(came_from: SourcePlaces | None) -> list[str]:
    if came_from is None:
        return []
    if came_from.no_file is not None:
        return [f"not known: {shown(came_from.no_file)}"]
    return [f"{shown(place.file)}{_lines(place)}" for place in came_from.places]


def _lines(place: SourcePlace) -> str:
    if place.no_line is not None:
        return f"; line not known: {shown(place.no_line)}"
    *first, last = [*map(number, place.lines), *(["more"] if place.is_cut else [])]
    return f", lines {', '.join(first)} and {last}" if first else f", line {last}"


def _rows(rows: tuple[Row, ...], key: Row) -> list[str]:
    return [_values(row, key) or "the row is there" for row in rows] or ["there is no such row"]


def _values(row: Row, key: Row) -> str:
    """Return the values of all columns outside the key."""
    names = {name.lower() for name in key}
    others = {name: value for name, value in row.items() if name.lower() not in names}
    return ", ".join(f"{shown(name)}={value_text(value)}" for name, value in others.items())


def _event(event: RowEvent, found: RowHistory) -> list[str]:
    who = "another writer" if event.cause is None else f"refresh {shown(event.cause.refresh_id)}"
    lines = [f"{time_text(event.at)}  {event.operation}  version {event.version}: {shown(event.commit)} by {who}"]
    if event.before is not None and event.after is not None:
        changes = ((name, event.before.get(name), event.after.get(name)) for name in event.changed)
        beside = [f"{shown(name)}: {value_text(old)} -> {value_text(new)}" for name, old, new in changes]
    else:
        beside = [text for text in (_values(event.after or event.before or {}, found.key),) if text]
    if event.cause is not None:
        beside += _cause(event.cause)
    return lines + [" " * _BESIDE + line for line in beside]


def _cause(cause: Cause) -> list[str]:
    if cause.outcome is None:
        return ["refresh   it is no longer in the history"]
    by = f"{cause.trigger or 'unknown'}{f', by {cause.user}' if cause.user else ''}"
    lines = [f"trigger   {shown(by)}"]
    for name, text in (("note", cause.note), ("source", cause.source)):
        lines += [f"{name:<9} {shown(text)}"] if text else []
    lines += [f"{name:<9} {text}" for name, text in hold_lines(cause.hold)]
    lines += [f"{each.severity:<9} {shown(each.sentence)}" for each in cause.checks if not each.is_passed]
    if passed := [each for each in cause.checks if each.is_passed and each.skipped is None]:
        lines.append(f"checks    {', '.join(shown(each.name) for each in passed)}: passed")
    if cause.outcome is not Outcome.PUBLISHED:
        lines.append(f"outcome   {outcome_words(cause.outcome)}")
    return lines

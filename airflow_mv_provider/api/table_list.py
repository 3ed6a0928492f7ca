"""The list of tables: its rows, filters and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_mv_provider.api import words
from airflow_mv_provider.api.airflow_database import Declared, DeclaringDag
from airflow_mv_provider.metadata.overview import Overview, TableLine

PAGE_LINES = 100


def _needs_attention(line: TableLine) -> bool:
    is_stalled = line.is_left or line.obstacle is not None
    return line.is_held or is_stalled or line.is_dropping or line.is_late or line.is_last_bad


FILTERS: Mapping[str, Callable[[TableLine], bool]] = {
    "all": lambda line: True,
    "in progress": lambda line: line.is_under_way,
    "needs attention": _needs_attention,
    "paused": lambda line: line.is_paused,
}
FIRST_SORT = "state"  # what needs attention first

COLUMNS: Mapping[str, str] = {
    "table": "Table",
    "state": "State",
    "fresh": "Fresh as of",
    "last": "Last refresh",
    "took": "Took",
    "rows": "Rows",
    "size": "Size",
    "next": "Next run",
    "owner": "Owner",
    "tag": "Tag",
}
"""What the list can be sorted by, in words: its columns, and what stands under a table's name."""


@dataclass(frozen=True, slots=True)
class Query:
    """What the address of the list asks for.

    search     : a part of a table's name
    chosen     : one of FILTERS; any other value means "all"
    sort       : one of COLUMNS; any other value means FIRST_SORT
    page       : counted from 1; a number out of range gives the nearest page
    """

    search: str = ""
    chosen: str = "all"
    owner: str = ""
    tag: str = ""
    sort: str = FIRST_SORT
    is_descending: bool = False
    page: int = 1

    def address(self, **changes: Any) -> dict[str, Any]:
        """Return the parameters of the address that asks for this, with some changes."""
        found = replace(self, **changes)
        order = "desc" if found.is_descending else ""
        sort = "" if found.sort == FIRST_SORT else found.sort
        facts = {"show": found.chosen, "search": found.search, "owner": found.owner, "tag": found.tag}
        return facts | {"sort": sort, "order": order, "page": found.page}

    def by(self, column: str) -> dict[str, Any]:
        """Return the parameters that sort by a column; in the other direction if it sorts already."""
        return self.address(sort=column, is_descending=self.sort == column and not self.is_descending, page=1)


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter of the list, with the number of tables that match it."""

    name: str
    count: int
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One table in the list."""

    line: TableLine
    dags: tuple[DeclaringDag, ...]
    next_run_ms: int | None
    may_act: bool = False

    @property
    def owners(self) -> tuple[str, ...]:
        """The owners of its DAGs, each once."""
        return tuple(dict.fromkeys(owner for dag in self.dags for owner in dag.owners))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of its DAGs, each once."""
        return tuple(dict.fromkeys(tag for dag in self.dags for tag in dag.tags))

    @property
    def took_ms(self) -> int | None:
        """How long its last refresh took."""
        last = self.line.last
        return None if last is None or last.finished_ms is None else last.finished_ms - last.started_ms

    @property
    def runnable(self) -> DeclaringDag | None:
        """The first of its DAGs of which people can start runs."""
        return next(iter(runnable(self.dags)), None)


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the list.

    matching : number of tables that match the search and the filter, on all pages
    """

    now_ms: int
    query: Query
    choices: tuple[Choice, ...]
    rows: tuple[Row, ...]
    matching: int
    page: int
    num_pages: int

    @property
    def facts(self) -> Listing:
        """What the page shows, except what is relative to now: two equal values are shown alike."""
        return replace(self, now_ms=0)

    @property
    def is_live(self) -> bool:
        """True if a table on this page has a running refresh."""
        return any(row.line.is_under_way for row in self.rows)


def selected(
    found: Overview, visible: Callable[[str], bool], dags: Declared, query: Query, may_act: Callable[[str], bool]
) -> Listing:
    """Return a page of the tables that are visible and match the query.

    dags    : the DAGs that the user may see, by table
    may_act : asked only for tables on this page
    """
    wanted = query.search.strip().lower()
    chosen = query.chosen if query.chosen in FILTERS else "all"
    sort = query.sort if query.sort in COLUMNS else FIRST_SORT
    rows = [
        row
        for line in found.lines
        if wanted in line.table.lower() and visible(line.table)
        for row in (_row(line, dags.get(line.table, ())),)
        if (not query.owner or query.owner in row.owners) and (not query.tag or query.tag in row.tags)
    ]
    choices = tuple(
        Choice(name, sum(shows(row.line) for row in rows), name == chosen) for name, shows in FILTERS.items()
    )
    matching = _sorted([row for row in rows if FILTERS[chosen](row.line)], sort, query.is_descending)
    num_pages = max(-(-len(matching) // PAGE_LINES), 1)
    page = min(max(query.page, 1), num_pages)
    here = matching[(page - 1) * PAGE_LINES : page * PAGE_LINES]
    shown = tuple(replace(row, may_act=may_act(row.line.table)) for row in here)
    asked = replace(query, search=query.search.strip(), chosen=chosen, sort=sort, page=page)
    return Listing(found.now_ms, asked, choices, shown, len(matching), page, num_pages)


_VALUES: Mapping[str, Callable[[Row], Any]] = {
    "state": lambda row: not _needs_attention(row.line),
    "fresh": lambda row: row.line.fresh_ms,
    "last": lambda row: row.line.last.finished_ms if row.line.last else None,
    "took": lambda row: row.took_ms,
    "rows": lambda row: row.line.num_rows,
    "size": lambda row: row.line.num_bytes,
    "next": lambda row: row.next_run_ms,
    "owner": lambda row: tuple(map(str.lower, row.owners)) or None,
    "tag": lambda row: tuple(map(str.lower, row.tags)) or None,
}


def _sorted(rows: list[Row], sort: str, is_descending: bool) -> list[Row]:
    """Sort rows that are in the order of their names; those without a value come last, in either direction."""
    if sort == "table":
        return rows[::-1] if is_descending else rows
    value = _VALUES[sort]
    known = [row for row in rows if value(row) is not None]
    return sorted(known, key=value, reverse=is_descending) + [row for row in rows if value(row) is None]


def _row(line: TableLine, dags: tuple[DeclaringDag, ...]) -> Row:
    return Row(line, dags, next_run_ms(dags))


def runnable(dags: Iterable[DeclaringDag]) -> tuple[DeclaringDag, ...]:
    """Return the DAGs of which people can start runs; those that are paused last, since a run of one would wait."""
    return tuple(sorted((dag for dag in dags if dag.can_run), key=lambda dag: dag.is_paused))


def next_run_ms(dags: tuple[DeclaringDag, ...]) -> int | None:
    """Return the time of the next run among a table's DAGs; None if none is planned."""
    planned = [words.ms_of(dag.next_run) for dag in dags]
    return min((ms for ms in planned if ms is not None), default=None)

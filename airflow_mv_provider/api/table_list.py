"""The list of tables: its rows, filters and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from airflow_mv_provider.api import words
from airflow_mv_provider.api.airflow_database import Declared, DeclaringDag
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.metadata.overview import Overview, TableLine

PAGE_LINES = 100
_BAD = frozenset({Outcome.FAILED, Outcome.REFUSED, Outcome.ABANDONED})

FILTERS: Mapping[str, Callable[[TableLine], bool]] = {
    "all": lambda line: True,
    "under way": lambda line: line.is_under_way,
    "needs attention": lambda line: (
        line.is_held or line.is_left or line.is_dropping or (line.last is not None and line.last.outcome in _BAD)
    ),
    "paused": lambda line: line.is_paused,
}


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


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the list.

    matching : number of tables that match the search and the filter, on all pages
    """

    now_ms: int
    search: str
    chosen: str
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
    found: Overview, visible: Callable[[str], bool], dags: Declared, *, search: str, chosen: str, page: int
) -> Listing:
    """Return a page of the tables that are visible and match the search and the filter.

    dags   : the DAGs that the user may see, by table
    chosen : one of FILTERS; any other value means "all"
    page   : counted from 1; a number out of range gives the nearest page
    """
    wanted = search.strip().lower()
    chosen = chosen if chosen in FILTERS else "all"
    lines = [line for line in found.lines if wanted in line.table.lower() and visible(line.table)]
    choices = tuple(Choice(name, sum(shows(line) for line in lines), name == chosen) for name, shows in FILTERS.items())
    matching = [line for line in lines if FILTERS[chosen](line)]
    num_pages = max(-(-len(matching) // PAGE_LINES), 1)
    page = min(max(page, 1), num_pages)
    here = matching[(page - 1) * PAGE_LINES : page * PAGE_LINES]
    rows = tuple(_row(line, dags.get(line.table, ())) for line in here)
    return Listing(found.now_ms, search.strip(), chosen, choices, rows, len(matching), page, num_pages)


def _row(line: TableLine, dags: tuple[DeclaringDag, ...]) -> Row:
    return Row(line, dags, next_run_ms(dags))


def next_run_ms(dags: tuple[DeclaringDag, ...]) -> int | None:
    """Return the time of the next run among a table's DAGs; None if none is planned."""
    planned = [words.ms_of(dag.next_run) for dag in dags]
    return min((ms for ms in planned if ms is not None), default=None)

"""All refreshes that a table's history keeps, newest first, in pages; the table's own page has only the newest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.metadata.reader import Reader

PAGE_LINES = 40  # each refresh is read with what it changed in up to 1,000 partitions

FILTERS: Mapping[str, frozenset[Outcome]] = {
    "all": frozenset(Outcome),
    "published": frozenset({Outcome.PUBLISHED}),
    "not published": frozenset({Outcome.FAILED, Outcome.REFUSED, Outcome.CANCELLED, Outcome.ABANDONED}),
    "only compared": frozenset({Outcome.DIFFERENCES}),
}


@dataclass(frozen=True, slots=True)
class Ended:
    """A range of time, as the address has it; `until` is exclusive."""

    since: str
    until: str

    @property
    def bounds_ms(self) -> tuple[int, int]:
        """The two times, in UTC if they name no zone; raises ValueError or OverflowError if they are none."""
        since, until = (datetime.fromisoformat(each) for each in (self.since, self.until))
        return _ms(since), _ms(until)


def _ms(time: datetime) -> int:
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def ended_between(since: str, until: str) -> Ended | None:
    """Return the range that an address asks for; None if it is none."""
    asked = Ended(since, until)
    try:
        first, last = asked.bounds_ms
    except (ValueError, OverflowError):
        return None
    return asked if first < last else None


@dataclass(frozen=True, slots=True)
class RefreshList:
    """One page of a table's refreshes.

    chosen : one of FILTERS
    ended  : the times between which they ended; None for all
    before : the refresh before which they began, by its id; empty for the newest ones
    older  : the refresh before which those of the next page began; None if there is no other
    """

    table: str
    now_ms: int
    chosen: str
    ended: Ended | None
    before: str
    reports: tuple[RefreshReport, ...]
    older: str | None

    @property
    def facts(self) -> RefreshList:
        """What the page shows, except what is relative to now."""
        return replace(self, now_ms=0)

    def address(self, chosen: str, before: str = "") -> dict[str, str]:
        """Return the parameters of the address of another page."""
        times = {} if self.ended is None else {"from": self.ended.since, "until": self.ended.until}
        return {"show": chosen, **times, "before": before}


def listed_refreshes(
    reader: Reader, table: TableRecord, asked: str, before: str, ended: Ended | None = None
) -> RefreshList:
    """Return a page of a table's refreshes.

    asked  : one of FILTERS; any other value means "all"
    before : the id of a refresh; one that the history does not have gives an empty page
    """
    chosen = asked if asked in FILTERS else "all"
    within = None if ended is None else ended.bounds_ms
    outcomes = FILTERS[chosen]
    found = reader.history(table.id, PAGE_LINES + 1, before=before or None, outcomes=outcomes, ended_ms=within)
    here = found[:PAGE_LINES]
    older = here[-1].refresh_id if len(found) > PAGE_LINES else None
    return RefreshList(table.name, reader.now_ms(), chosen, ended, before, here, older)

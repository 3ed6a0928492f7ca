"""How health changed: a table's by ended refreshes and what kept others from beginning; a release's by its runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from airflow_mv_provider.core.health.health import Health, HealthStatus, Namespace, Obstacle
from airflow_mv_provider.core.ingestion.report import IngestionReport
from airflow_mv_provider.core.outcome import GOOD, UNWANTED, ErrorReport, Outcome


@dataclass(frozen=True, slots=True)
class Ended:
    """A refresh that has ended."""

    ended_ms: int
    outcome: Outcome
    error: ErrorReport | None = None


def changes(ended: Iterable[Ended], obstacles: Iterable[Obstacle]) -> tuple[Health, ...]:
    """Return each health that differs from the one before it, the newest first; `since_ms` is when it began.

    Two problems of one code count as one. Pauses are not kept, so they are not among them.
    """
    events = [
        Health(HealthStatus.RUNNING, each.ended_ms)
        if each.outcome in GOOD
        else Health(HealthStatus.STALLED, each.ended_ms, each.error)
        for each in ended
        if each.outcome in GOOD | UNWANTED
    ]
    events += [Health(HealthStatus.STALLED, each.since_ms, each.error) for each in obstacles]
    events.reverse()  # of two in one millisecond the later one stays the later one
    events.sort(key=lambda each: each.since_ms or 0)
    return _changes(events)


def release_health(run: IngestionReport) -> Health:
    """Return the health of an ingestion's release, as a run that has ended left it."""
    since_ms = None if run.finished_at is None else round(datetime.fromisoformat(run.finished_at).timestamp() * 1000)
    if run.error is None:
        return Health(HealthStatus.RUNNING, since_ms)
    return Health(HealthStatus.STALLED, since_ms, run.error, Namespace.RELEASE)


def release_changes(runs: Iterable[IngestionReport]) -> tuple[Health, ...]:
    """Return each health of an ingestion's release that differs from the one before it, the newest first.

    runs : that have ended, newest first
    """
    return _changes([release_health(run) for run in runs][::-1])


def _changes(events: Iterable[Health]) -> tuple[Health, ...]:
    found: list[Health] = []
    for event in events:
        if not found or _kind(found[-1]) != _kind(event):
            found.append(event)
    return tuple(reversed(found))


def _kind(health: Health) -> tuple[HealthStatus, str | None]:
    return health.status, health.problem.code if health.problem else None

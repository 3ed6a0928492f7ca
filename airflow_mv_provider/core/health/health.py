"""The health of one table, and of several.

    created    registered, and not refreshed yet
    starting   its first refresh is under way
    running    its last refresh ended well
    paused     a person has paused it
    stalled    something keeps it from following its source: an error, a guard, a decision, a dead owner
    dropped    it is being dropped

A table's newest known fact decides. A refresh that a person cancelled is no such fact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from airflow_mv_provider.core.outcome import EXIT_DONE, EXIT_PERSON, EXIT_RETRY, UNWANTED, ErrorReport, Outcome


class HealthStatus(StrEnum):
    """What a table does; the later, the worse."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    DROPPED = "dropped"
    PAUSED = "paused"
    STALLED = "stalled"


class Namespace(StrEnum):
    """Where a problem lies."""

    CONNECTION = "connection"
    READ = "read"
    DECODE = "decode"
    ENVELOPE = "envelope"
    PUBLISH = "publish"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What has kept refreshes of a table from beginning, at each try since then.

    since_ms, last_ms : the first and the newest try
    num_tries         : how many there were
    ended_ms          : when a refresh began again; None while none did
    """

    error: ErrorReport
    since_ms: int
    last_ms: int
    num_tries: int = 1
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a table.

    is_published : main has been published once
    outcome      : of the newest refresh that has ended, with `ended_ms` and `error`; None before the first one
    """

    is_paused: bool = False
    is_dropping: bool = False
    is_under_way: bool = False
    is_left: bool = False
    is_held: bool = False
    is_published: bool = False
    outcome: Outcome | None = None
    ended_ms: int | None = None
    error: ErrorReport | None = None
    obstacle: Obstacle | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """A table's health.

    since_ms : of a problem; None without one, or if that is not known
    problem  : what is wrong and what to do
    where    : where the problem lies, if its code does not show that
    """

    status: HealthStatus
    since_ms: int | None = None
    problem: ErrorReport | None = None
    where: Namespace | None = None

    @property
    def is_stalled(self) -> bool:
        """True if something keeps the table from following its source."""
        return self.status is HealthStatus.STALLED

    @property
    def namespace(self) -> Namespace | None:
        """Where the problem lies; None without one."""
        return None if self.problem is None else self.where or namespace_of(self.problem.code)


_UNKNOWN = ErrorReport("MV-ABANDONED", "its last refresh ended without a result.", "Refresh again.", True)
_LEFT = ErrorReport("MV-ABANDONED", "the process of its refresh died.", "Refresh again, or run `amv recover`.", True)
_HELD = ErrorReport(
    "MV-HELD", "its refresh waits for a decision.", "See it with `amv diff`, then `amv approve` or `amv reject`."
)


def health_of(facts: Facts) -> Health:
    """Return the health that follows from the facts."""
    if facts.is_dropping:
        return Health(HealthStatus.DROPPED)
    if facts.is_held:
        return Health(HealthStatus.STALLED, None, _HELD)
    if facts.is_paused:
        return Health(HealthStatus.PAUSED)
    if facts.is_left:
        return Health(HealthStatus.STALLED, None, _LEFT)
    if facts.obstacle is not None and facts.obstacle.ended_ms is None:
        return Health(HealthStatus.STALLED, facts.obstacle.since_ms, facts.obstacle.error)
    if facts.outcome in UNWANTED:
        return Health(HealthStatus.STALLED, facts.ended_ms, facts.error or _UNKNOWN)
    if facts.is_published:
        return Health(HealthStatus.RUNNING)
    return Health(HealthStatus.STARTING if facts.is_under_way else HealthStatus.CREATED)


# How the codes begin, after MV-.
_CONNECTION = ("CONNECTION", "SOURCE-UNAVAILABLE", "SOURCE-DENIED", "LOCATION")
_ENVELOPE = ("EVENT-INCOMPLETE", "STREAM-RESTARTED")
_DECODE = ("EVENT", "FILE-CORRUPT", "FILE-ENCODING", "COLUMN-INEXACT", "ERRORS-TOO-MANY", "SCHEMA")
_READ = ("SOURCE", "STREAM", "SNAPSHOT", "QUERY", "FUNCTION", "FILE-UNREADABLE")


def namespace_of(code: str) -> Namespace:
    """Return where the error of a code lies."""
    for namespace, beginnings in (
        (Namespace.CONNECTION, _CONNECTION),
        (Namespace.ENVELOPE, _ENVELOPE),
        (Namespace.DECODE, _DECODE),
        (Namespace.READ, _READ),
    ):
        if code.removeprefix("MV-").startswith(beginnings):
            return namespace
    return Namespace.PUBLISH


def worst(healths: Iterable[Health]) -> Health | None:
    """Return the worst of several: a problem that needs a person before one that a retry may end; None of none."""
    return max(healths, key=_badness, default=None)


def _badness(health: Health) -> tuple[int, bool]:
    needs_person = health.problem is not None and not health.problem.is_transient
    return tuple(HealthStatus).index(health.status), needs_person


def exit_code(healths: Iterable[Health]) -> int:
    """Return the exit code of `amv health`: 0 unless a table is stalled; 75 if a retry may end all that stall."""
    problems = [health.problem for health in healths if health.is_stalled]
    if not problems:
        return EXIT_DONE
    return EXIT_RETRY if all(each is not None and each.is_transient for each in problems) else EXIT_PERSON

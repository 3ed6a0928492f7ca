"""A table's health: decided from facts, and the exit code and the history that follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.health.health import (
    Facts,
    Health,
    HealthStatus,
    Namespace,
    Obstacle,
    exit_code,
    health_of,
    namespace_of,
    worst,
)
from airflow_mv_provider.core.health.health_changes import Ended, changes
from airflow_mv_provider.core.outcome import ErrorReport, Outcome

AWAY = ErrorReport("MV-SOURCE-UNAVAILABLE", "source: no answer.", "Start it.", True)
GUARD = ErrorReport("MV-GUARD", "t: too many deletes.", "Look.", False)
GOOD = Facts(is_published=True, outcome=Outcome.PUBLISHED, ended_ms=5)
MET = Obstacle(AWAY, 7, 9, 3)


@pytest.mark.parametrize(
    ("facts", "status", "code"),
    [
        (Facts(), HealthStatus.CREATED, None),
        (Facts(is_under_way=True), HealthStatus.STARTING, None),
        (GOOD, HealthStatus.RUNNING, None),
        (replace(GOOD, outcome=Outcome.NOTHING_TO_DO), HealthStatus.RUNNING, None),
        (replace(GOOD, outcome=Outcome.CANCELLED), HealthStatus.RUNNING, None),
        (replace(GOOD, is_under_way=True), HealthStatus.RUNNING, None),
        (replace(GOOD, outcome=Outcome.FAILED, error=AWAY), HealthStatus.STALLED, "MV-SOURCE-UNAVAILABLE"),
        (replace(GOOD, outcome=Outcome.REFUSED, error=GUARD), HealthStatus.STALLED, "MV-GUARD"),
        (replace(GOOD, outcome=Outcome.ABANDONED), HealthStatus.STALLED, "MV-ABANDONED"),
        (replace(GOOD, outcome=Outcome.FAILED, error=GUARD, is_under_way=True), HealthStatus.STALLED, "MV-GUARD"),
        (replace(GOOD, obstacle=MET), HealthStatus.STALLED, "MV-SOURCE-UNAVAILABLE"),
        (replace(GOOD, obstacle=replace(MET, ended_ms=10)), HealthStatus.RUNNING, None),
        (Facts(obstacle=MET), HealthStatus.STALLED, "MV-SOURCE-UNAVAILABLE"),
        (replace(GOOD, is_left=True, is_under_way=True), HealthStatus.STALLED, "MV-ABANDONED"),
        (replace(GOOD, is_held=True, is_under_way=True), HealthStatus.STALLED, "MV-HELD"),
        (replace(GOOD, is_paused=True, obstacle=MET), HealthStatus.PAUSED, None),
        (replace(GOOD, is_dropping=True, is_paused=True), HealthStatus.DROPPED, None),
    ],
)
def test_health_is_as_the_newest_fact_says(facts, status, code):
    found = health_of(facts)

    assert (found.status, found.problem.code if found.problem else None) == (status, code)
    assert found.is_stalled is (status is HealthStatus.STALLED)


def test_problem_says_since_when():
    assert health_of(replace(GOOD, obstacle=MET)).since_ms == 7
    assert health_of(replace(GOOD, outcome=Outcome.FAILED, error=GUARD)).since_ms == 5


def test_exit_code_tells_whether_a_person_must_act():
    away, refused = Health(HealthStatus.STALLED, 1, AWAY), Health(HealthStatus.STALLED, 1, GUARD)
    running, paused = Health(HealthStatus.RUNNING), Health(HealthStatus.PAUSED)

    assert [exit_code(each) for each in [(), (running, paused), (running, away), (away, refused)]] == [0, 0, 75, 1]
    assert worst([running, away, refused, paused]) == refused
    assert worst([]) is None


@pytest.mark.parametrize(
    ("code", "namespace"),
    [
        ("MV-SOURCE-UNAVAILABLE", Namespace.CONNECTION),
        ("MV-SOURCE-MISSING", Namespace.READ),
        ("MV-STREAM-GONE", Namespace.READ),
        ("MV-EVENT-MALFORMED", Namespace.DECODE),
        ("MV-EVENT-INCOMPLETE", Namespace.ENVELOPE),
        ("MV-STREAM-RESTARTED", Namespace.ENVELOPE),
        ("MV-FILE-CORRUPT", Namespace.DECODE),
        ("MV-GUARD", Namespace.PUBLISH),
    ],
)
def test_code_tells_where_a_problem_lies(code, namespace):
    assert namespace_of(code) is namespace


def test_history_has_changes_only_the_newest_first():
    ended = [
        Ended(80, Outcome.PUBLISHED),
        Ended(60, Outcome.FAILED, GUARD),
        Ended(55, Outcome.FAILED, GUARD),
        Ended(40, Outcome.CANCELLED),
        Ended(20, Outcome.NOTHING_TO_DO),
        Ended(10, Outcome.PUBLISHED),
    ]

    found = changes(ended, [Obstacle(AWAY, 30, 35, 4, 50)])

    assert [(each.status.value, each.since_ms, each.problem and each.problem.code) for each in found] == [
        ("running", 80, None),
        ("stalled", 55, "MV-GUARD"),
        ("stalled", 30, "MV-SOURCE-UNAVAILABLE"),
        ("running", 10, None),
    ]

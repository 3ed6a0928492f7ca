"""Who is admitted next, and when a refresh under way is as good as one's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.definition.table import changed_fields
from airflow_mv_provider.core.frontier import BatchDescription
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.queue import Waiter, ahead_of, joinable, may_join, turn
from airflow_mv_provider.core.scope.request import Request, parse_request
from airflow_mv_provider.core.state import Admission, RefreshRecord
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.conftest import a_state, a_table

FREE = a_state()
BUSY = replace(FREE, phase=Phase.REFRESHING, refresh_id="a" * 32, owner_key="owner", is_lease_live=True)
DEAD = replace(BUSY, is_lease_live=False)
WANTED = a_table(concurrency="join")
ASKED = Request(overrides=("allow_empty",))
RUNNING = RefreshRecord(
    id="a" * 32,
    table_id=1,
    definition=WANTED,
    overrides=("allow_empty",),
    batch=BatchDescription(0, 1),
    frontier=DeltaFrontier("source", 7),
    choice=Choice("corrections", "first refresh"),
)


def waiting(*keys: str) -> tuple[Waiter, ...]:
    return tuple(Waiter(i, key, f"host:{key}", "dag", None, 0) for i, key in enumerate(keys))


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ((), Admission.START),
        (("me",), Admission.START),
        (("me", "other"), Admission.START),
        (("other", "me"), Admission.WAIT),
        (("other",), Admission.WAIT),  # whoever has no ticket comes after all who have one
    ],
)
def test_free_table_is_for_the_first_in_the_queue(queue, expected):
    assert turn(FREE, "me", waiting(*queue)) is expected


@pytest.mark.parametrize("queue", [(), ("me",), ("other", "me")])
def test_live_owner_is_waited_for_and_a_dead_one_taken_over_by_whoever_comes(queue):
    assert turn(BUSY, "me", waiting(*queue)) is Admission.WAIT
    assert turn(DEAD, "me", waiting(*queue)) is Admission.TAKE_OVER


@pytest.mark.parametrize("barred", [{"paused_since_ms": 1}, {"is_dropping": True}], ids=str)
def test_paused_table_lets_nothing_begin_and_what_is_under_way_go_on(barred):
    for state in (FREE, BUSY, DEAD):
        assert turn(replace(state, **barred), "me", ()) is Admission.PAUSED

    assert turn(replace(BUSY, **barred), "owner", waiting("other")) is Admission.ADOPT


def test_owner_is_dead_when_its_refresh_is_unfinished_and_its_lease_has_expired():
    assert (FREE.is_owner_dead, BUSY.is_owner_dead, DEAD.is_owner_dead) == (False, False, True)


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.sampled_from("abcdef"))
def test_exactly_one_of_those_who_wait_may_start(keys, caller):
    queue = waiting(*keys)

    admitted = [key for key in keys if turn(FREE, key, queue) is Admission.START]

    assert admitted == keys[:1]
    assert {w.key for w in ahead_of(queue, caller)} == set(keys[: keys.index(caller)] if caller in keys else keys)


def test_refresh_that_does_what_is_asked_for_is_joinable():
    assert joinable(BUSY, RUNNING, WANTED, ASKED)


@pytest.mark.parametrize("policy", ["reject", "queue"])
def test_policy_decides_whether_anybody_joins(policy):
    wanted = a_table(concurrency=policy)

    assert not joinable(BUSY, replace(RUNNING, definition=wanted), wanted, ASKED)


@pytest.mark.parametrize("overrides", [(), ("max_deleted_fraction",), ("allow_empty", "max_deleted_fraction")])
def test_refresh_with_other_overrides_is_not_joined(overrides):
    assert not joinable(BUSY, RUNNING, WANTED, Request(overrides=tuple(overrides)))


@pytest.mark.parametrize("params", [{"partitions": ["a"]}, {"from": "a"}, {"force": True}, {"stale": True}], ids=str)
def test_refresh_of_another_scope_is_not_joined(params):
    assert not joinable(BUSY, RUNNING, WANTED, parse_request(params | {"overrides": ["allow_empty"]}))


@pytest.mark.parametrize(
    "change", [{"guards": {"max_deleted_fraction": 0.1}}, {"key": ["other"]}, {"chunk_rows": 1}], ids=str
)
def test_refresh_of_another_definition_is_not_joined(change):
    assert not joinable(BUSY, RUNNING, a_table(concurrency="join", **change), ASKED)


@pytest.mark.parametrize(
    "change",
    [
        {"phase": Phase.MERGING},  # main is being compared: a change of it might be missed
        {"phase": Phase.CLEANUP},
        {"is_lease_live": False},
        {"is_cancel_requested": True},
    ],
    ids=str,
)
def test_refresh_that_is_too_far_or_about_to_end_is_not_joined(change):
    assert not joinable(replace(BUSY, **change), RUNNING, WANTED, ASKED)


def test_refresh_of_a_projection_that_is_not_deterministic_is_not_joined():
    assert not may_join(RUNNING, DeltaFrontier("source", 7), "it is random")


def test_source_that_has_moved_since_the_pin_is_not_joined():
    assert may_join(RUNNING, DeltaFrontier("source", 7), None)
    assert not may_join(RUNNING, DeltaFrontier("source", 8), None)
    assert not may_join(RUNNING, DeltaFrontier("made again", 7), None)


def test_changed_fields_are_named_in_the_definitions_order():
    assert changed_fields(a_table(), a_table()) == ()
    assert changed_fields(a_table(), a_table(chunk_rows=1, key=["x"])) == ("key", "chunk_rows")

"""The heartbeat: it keeps the lease, and brings a cancel or the news that the lease is lost.

Beats come every few milliseconds here; a test waits for beats by counting them at the database, never for time.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    InterruptedRefreshError,
    LeaseLostError,
    MetadataUnavailableError,
    RefreshCancelledError,
)
from airflow_mv_provider.runner.lease import Lease
from tests.metadata.rows import ERROR, LEASE_MS, acquired, handed_over
from tests.runner.beating import expiry, hearts


def test_heartbeat_keeps_the_lease_alive(store, own, often, beats, stops, clock):
    with Lease(store.renew, own, LEASE_MS, stops):
        for _ in range(3):
            clock.pass_ms(LEASE_MS - 5000)
            beats.wait()
            assert store.state(own.table_id).is_lease_live

    assert stops.threads == []


def test_heart_stops_with_the_work_and_the_lease_runs_out(store, own, often, beats, stops, clock):
    with Lease(store.renew, own, LEASE_MS, stops):
        beats.wait()
        assert len(hearts()) == 2

    assert hearts() == []
    clock.pass_ms(LEASE_MS + 1)
    assert not store.state(own.table_id).is_lease_live


def test_heart_stops_when_the_work_fails(store, own, often, stops):
    with pytest.raises(ZeroDivisionError), Lease(store.renew, own, LEASE_MS, stops):
        raise ZeroDivisionError

    assert hearts() == []


def test_heart_that_beats_rarely_is_stopped_at_once(store, own, stops):
    with Lease(store.renew, own, 10_000_000, stops):
        pass

    assert hearts() == []


@pytest.mark.parametrize("is_cancellable", [True, False])
def test_cancel_interrupts_the_work_until_it_asks(store, own, often, beats, stops, is_cancellable):
    """An interrupt between two of Spark's jobs stops neither; one after the work has heard would stop its clearing up,
    or the commit that a cancel comes too late for.
    """
    with Lease(store.renew, own, LEASE_MS, stops) as lease:
        beats.wait()
        lease.check()

        store.request_cancel(own.table_id, "ann")
        stops.wait(3)

        with suppress(RefreshCancelledError):
            lease.check(is_cancellable=is_cancellable)
        beats.wait()  # one may have been under way
        before = len(stops.threads)
        beats.wait(4)
        assert len(stops.threads) == before
        with pytest.raises(
            RefreshCancelledError, match=f"refresh {own.refresh_id}: the refresh was cancelled on request"
        ):
            lease.check()

    assert set(stops.threads) == {f"watch-{own.refresh_id[:8]}"}


def test_cancel_does_not_interrupt_a_commit(store, own, often, beats, stops):
    with Lease(store.renew, own, LEASE_MS, stops) as lease:
        lease.check()
        lease.ignore_cancel()
        store.request_cancel(own.table_id, "ann")
        beats.wait(4)
        assert stops.threads == []

        with pytest.raises(RefreshCancelledError):
            lease.check()


def test_lost_lease_is_news_to_work_that_was_cancelled_too_late(store, own, often, beats, stops):
    with Lease(store.renew, own, LEASE_MS, stops) as lease:
        store.request_cancel(own.table_id, "ann")
        lease.check(is_cancellable=False)
        beats.wait()
        before = len(stops.threads)

        handed_over(store, own)

        stops.wait(before + 1)


def test_interrupt_of_the_process_is_repeated_until_the_work_asks(store, own, often, beats, stops):
    interrupted = threading.Event()
    with Lease(store.renew, own, LEASE_MS, stops, interrupted) as lease:
        beats.wait()
        assert stops.threads == []

        interrupted.set()

        stops.wait(2)
        with pytest.raises(InterruptedRefreshError):
            lease.check()


def test_lost_lease_interrupts_the_work_and_leaves_the_new_owners_alone(store, own, often, beats, stops, engine):
    with Lease(store.renew, own, LEASE_MS, stops) as lease:
        newer = handed_over(store, own)
        stops.wait(2)
        before = expiry(engine)
        beats.wait(4)

        assert expiry(engine) == before
        assert store.state(own.table_id).epoch == newer.epoch
        for is_cancellable in (True, False):
            with pytest.raises(LeaseLostError, match="this process no longer owns the table"):
                lease.check(is_cancellable=is_cancellable)


def test_lost_lease_says_more_than_a_cancel(store, own, often, stops):
    with Lease(store.renew, own, LEASE_MS, stops) as lease:
        store.request_cancel(own.table_id, "ann")
        stops.wait()
        handed_over(store, own)

        with pytest.raises(LeaseLostError):
            lease.check()


def test_refresh_that_was_ended_by_somebody_is_lost(store, own, often, stops):
    with Lease(store.renew, own, LEASE_MS, stops) as lease:
        newer = handed_over(store, own)
        store.abandon(newer, Outcome.ABANDONED, ERROR, {})
        acquired(store, store.table("orders"), "two")
        stops.wait()

        with pytest.raises(LeaseLostError):
            lease.check()


@pytest.mark.parametrize(
    ("disturb", "expected"),
    [
        (lambda store, own: store.request_cancel(own.table_id, None), RefreshCancelledError),
        (handed_over, LeaseLostError),
    ],
)
def test_check_asks_the_database_now_and_not_the_last_beat(store, own, stops, disturb, expected):
    lease = Lease(store.renew, own, LEASE_MS, stops)
    lease.check()

    disturb(store, own)

    with pytest.raises(expected):
        lease.check()


def test_check_renews_as_a_beat_does(store, own, stops, clock):
    lease = Lease(store.renew, own, LEASE_MS, stops)
    clock.pass_ms(LEASE_MS + 1)
    assert not store.state(own.table_id).is_lease_live

    lease.check()

    assert store.state(own.table_id).is_lease_live


def test_lease_that_was_lost_stays_lost(store, own, stops):
    lease = Lease(store.renew, own, LEASE_MS, stops)
    newer = handed_over(store, own)
    with pytest.raises(LeaseLostError):
        lease.check()

    store.abandon(newer, Outcome.ABANDONED, ERROR, {})

    with pytest.raises(LeaseLostError):
        lease.check()


def test_heart_beats_on_when_the_database_was_away(store, own, often, beats, stops, caplog):
    with Lease(store.renew, own, LEASE_MS, stops) as lease:
        beats.is_away = True
        beats.wait(3)
        with pytest.raises(MetadataUnavailableError):
            lease.check()
        assert stops.threads == [], "a database that is away is no lost lease"

        beats.is_away = False
        store.request_cancel(own.table_id, "ann")
        stops.wait()

    assert "The lease could not be renewed" in caplog.text


def test_an_interrupted_process_begins_no_further_step(store, own, stops):
    interrupted = threading.Event()
    with Lease(store.renew, own, LEASE_MS, stops, interrupted) as lease:
        lease.check()
        interrupted.set()
        with pytest.raises(InterruptedRefreshError):
            lease.check()

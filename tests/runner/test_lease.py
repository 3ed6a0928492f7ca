"""The heartbeat: it keeps the lease, brings a cancel or the news that it is lost, and survives a database that is away.

Beats come every few milliseconds here; a test waits for beats by counting them at the database, never for time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, event, exc, make_url, select

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    InterruptedRefreshError,
    LeaseLostError,
    MetadataUnavailableError,
    RefreshCancelledError,
)
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import RefreshStateRow
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import lease as lease_module
from airflow_mv_provider.runner.lease import Lease
from tests.metadata.rows import ERROR, LEASE_MS, acquired, handed_over, registered
from tests.proxy import proxied

PATIENCE_S = 30


@pytest.fixture
def engine(tmp_path: Any) -> Iterator[Engine]:
    opened = open_engine(f"sqlite:///{tmp_path / 'mv.db'}")
    migrations.migrate(opened)
    yield opened
    opened.dispose()


@pytest.fixture
def store(engine: Engine, clock: Any) -> Store:
    return Store(engine, clock.now)


@pytest.fixture
def own(store):
    return acquired(store, registered(store))


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beat every five milliseconds."""
    monkeypatch.setattr(lease_module, "_BEATS_PER_LEASE", LEASE_MS / 5)


class Beats:
    """Counts the transactions that the heartbeat's thread ends, and can make them fail."""

    def __init__(self, engine: Engine) -> None:
        self._ended = threading.Semaphore(0)
        self.is_away = False
        event.listen(engine, "commit", self._end)
        event.listen(engine, "begin", self._begin)

    def _is_beat(self) -> bool:
        return threading.current_thread().name.startswith("lease-")

    def _end(self, _connection: object) -> None:
        if self._is_beat():
            self._ended.release()

    def _begin(self, _connection: object) -> None:
        if self.is_away:
            if self._is_beat():
                self._ended.release()
            raise exc.OperationalError("BEGIN", {}, Exception("away"))

    def wait(self, more: int = 2) -> None:
        """Wait until so many beats have ended; of two, the second began after the call."""
        while self._ended.acquire(blocking=False):
            pass
        for _ in range(more):
            assert self._ended.acquire(timeout=PATIENCE_S), "the heart has stopped"


@pytest.fixture
def beats(engine: Engine) -> Beats:
    return Beats(engine)


class Stops:
    """Counts the calls of `on_stop` and says from which thread they came."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self._called = threading.Condition()

    def __call__(self) -> None:
        with self._called:
            self.threads.append(threading.current_thread().name)
            self._called.notify_all()

    def wait(self, times: int = 1) -> None:
        with self._called:
            assert self._called.wait_for(lambda: len(self.threads) >= times, PATIENCE_S), "nobody was told to stop"


@pytest.fixture
def stops() -> Stops:
    return Stops()


def expiry(engine: Engine) -> int:
    with engine.begin() as db:
        return db.scalars(select(RefreshStateRow.lease_expires_ms)).one()


def hearts() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("lease-", "watch-"))]


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
        with pytest.raises(RefreshCancelledError, match=f"refresh {own.refresh_id}: it was cancelled on request"):
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
            with pytest.raises(LeaseLostError, match=f"epoch {own.epoch} no longer owns the table"):
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

    assert "Heartbeat failed, trying again" in caplog.text


def test_an_interrupted_process_begins_no_further_step(store, own, stops):
    interrupted = threading.Event()
    with Lease(store.renew, own, LEASE_MS, stops, interrupted) as lease:
        lease.check()
        interrupted.set()
        with pytest.raises(InterruptedRefreshError):
            lease.check()


# -- on time ---------------------------------------------------------------------------------------------------------


class Hands:
    """This process's clock, moved by hand."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def hands() -> Hands:
    return Hands()


def test_owner_that_cannot_renew_for_a_leases_length_is_none(store, own, often, beats, stops, hands):
    """Others may take the table over from then on: the work is interrupted whether the database answers or not."""
    with Lease(store.renew, own, LEASE_MS, stops, clock=hands) as lease:
        beats.is_away = True
        hands.s += LEASE_MS / 1000 - 1
        beats.wait(3)
        assert stops.threads == []

        hands.s += 1
        stops.wait()

        beats.is_away = False
        with pytest.raises(LeaseLostError, match=rf"epoch {own.epoch} could not renew its lease for 60 s") as caught:
            lease.check()

    assert "refresh again" in caught.value.advice
    assert store.state(own.table_id).epoch == own.epoch


def test_renewals_prolong_what_this_process_believes(store, own, often, beats, stops, hands):
    with Lease(store.renew, own, LEASE_MS, stops, clock=hands) as lease:
        for _ in range(4):
            hands.s += LEASE_MS / 1000 - 1
            beats.wait()
        lease.check()

    assert stops.threads == []


def test_lease_counts_from_before_the_database_was_asked(store, own, stops, hands):
    lease = Lease(store.renew, own, LEASE_MS, stops, clock=hands)

    def slowly(_connection: object) -> None:
        hands.s += LEASE_MS / 1000 / 2

    event.listen(store.engine, "begin", slowly)
    lease.check()
    event.remove(store.engine, "begin", slowly)
    hands.s += LEASE_MS / 1000 / 2

    with pytest.raises(LeaseLostError):
        lease.check()


def test_process_that_stood_still_does_not_renew_what_has_run_out(store, own, stops, hands, engine):
    """A machine that was suspended: what it wakes up with is a lease that others may have had since."""
    lease = Lease(store.renew, own, LEASE_MS, stops, clock=hands)
    before = expiry(engine)
    hands.s += LEASE_MS / 1000

    with pytest.raises(LeaseLostError):
        lease.check()

    assert expiry(engine) == before


def test_clock_of_a_lease_only_goes_forward():
    before = lease_module.elapsed_s()

    assert lease_module.elapsed_s() >= before > 0


@pytest.mark.slow
def test_lease_is_lost_on_time_though_the_database_hangs(postgres, stops):
    """Through a network that swallows packets: neither the watch nor a check waits for the heart."""
    url = make_url(postgres.new_database())
    with proxied(url.port) as proxy:
        engine = open_engine(url.set(port=proxy.port).render_as_string(hide_password=False), answer_s=600)
        migrations.migrate(engine)
        store = Store(engine)
        own = acquired(store, registered(store))
        with Lease(store.renew, own, 2_000, stops) as lease:
            lease.check()
            proxy.swallow()
            assert proxy.wait_for_a_victim(PATIENCE_S), "no heartbeat came"

            stops.wait()  # the heart hangs for ten minutes

            with pytest.raises(LeaseLostError):
                lease.check()
            proxy.close()  # lets the heart go
        engine.dispose()

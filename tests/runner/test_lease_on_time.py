"""An owner that cannot renew its lease in time stops by itself."""

from __future__ import annotations

import pytest
from sqlalchemy import event, make_url

from airflow_mv_provider.exceptions import LeaseLostError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import lease as lease_module
from airflow_mv_provider.runner.lease import Lease
from tests.metadata.rows import LEASE_MS, acquired, registered
from tests.proxy import proxied
from tests.runner.beating import PATIENCE_S, expiry


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
        with pytest.raises(LeaseLostError, match="this process could not renew its lease for 60 s") as caught:
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

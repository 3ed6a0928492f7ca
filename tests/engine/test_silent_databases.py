"""A PostgreSQL that goes silent, ends connections or changes its columns while it is read: a named error, in time."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from airflow_mv_provider.exceptions import SchemaMismatchError, SourceUnavailableError
from tests.engine.test_databases import Shop, shop
from tests.postgres import ASKED
from tests.proxy import proxied

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]

SILENT_S = 2  # what the sources allow
IN_TIME_S = 60  # of that, of Spark on a busy machine, and of the sockets that are given up one after the other
SLOW = "SELECT id, v FROM orders, LATERAL (SELECT pg_sleep(0.5 + id * 0)) AS wait"


@pytest.mark.parametrize("point", ["acquire.before", "staging.before", "staging.after"])
@pytest.mark.parametrize("source", [{}, {"changes": "xmin"}], ids=["whole", "xmin"])
@pytest.mark.sample(1)
def test_silent_server_is_named_in_time(shop: Shop, at_point: Any, point: str, source: dict[str, Any]) -> None:
    """Through a network that loses every packet: before, while and after the rows are read."""
    with proxied(make_url(shop.address).port) as proxy:
        shop.connect(port=proxy.port)
        shop.apply(read_timeout=SILENT_S, **source)
        shop.refresh()
        shop.run("UPDATE orders SET v = 'w' WHERE id = 3", "DELETE FROM orders WHERE id = 4")
        began: list[float] = []

        def swallow() -> None:
            began.append(time.monotonic())
            proxy.swallow()

        at_point(point, swallow)
        with pytest.raises(SourceUnavailableError, match=r"silent|timeout|attempt failed") as caught:
            shop.refresh()
        took = time.monotonic() - began[0]
        proxy.forward()

        assert took < IN_TIME_S
        assert caught.value.is_transient
        assert shop.lake.phase() == "NORMAL"
        shop.refresh()
        assert shop.is_equal()


@pytest.mark.in_test_all
def test_connection_that_is_ended_while_it_reads_is_named(shop: Shop) -> None:
    shop.apply(table=None, query=SLOW)
    reads = f"usename = '{ASKED}' AND query LIKE '%mv_rows%' AND wait_event = 'PgSleep'"
    ended: list[Any] = []

    def end() -> None:
        until = time.monotonic() + IN_TIME_S
        while not ended and time.monotonic() < until:
            ended.extend(shop.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {reads}"))

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(SourceUnavailableError, match="terminating connection"):
        shop.refresh()
    ending.join()

    assert ended == [(True,)]
    assert shop.lake.phase() == "NORMAL"


@pytest.mark.in_test_all
@pytest.mark.parametrize("statement", ["DROP COLUMN v", "ALTER v TYPE int USING 0", "ADD COLUMN w int"])
@pytest.mark.sample(1)
def test_columns_that_change_between_probe_and_read_are_named(shop: Shop, at_point: Any, statement: str) -> None:
    shop.apply()
    shop.refresh()
    before = shop.lake.rows()
    shop.run("UPDATE orders SET v = '7'")
    at_point("acquire.after", lambda: shop.run(f"ALTER TABLE orders {statement}"))

    with pytest.raises(SchemaMismatchError):
        shop.refresh()

    assert shop.lake.rows() == before
    assert shop.lake.phase() == "NORMAL"

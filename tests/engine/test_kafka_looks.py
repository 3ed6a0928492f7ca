"""Looking at a topic without refreshing, while another refresh goes on and forgets what the look began with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mv_provider.core.scope.request import parse_request
from airflow_mv_provider.exceptions import StreamReloadError
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.sources.credentials import of_environment
from tests.engine.streaming import Shop, counts, row, shop

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process, pytest.mark.in_test_all]


def looking(shop: Shop, meanwhile: Any) -> Refresher:
    """Return a runner whose look for the topic's connection, after it has read the table's row, lets others act."""
    left = [meanwhile]

    def lookup(conn_id: str) -> Any:
        if left:
            left.pop()()
        return of_environment(conn_id)

    lake = shop.lake
    return replace(lake, settings=replace(lake.settings, connections=lookup)).refresher()


def followed(shop: Shop) -> None:
    shop.apply()
    shop.send(row(1, "a"))
    shop.refresh()
    shop.send(row(2, "b"))


def publish_twice(shop: Shop) -> None:
    """After the second one nobody knows the binding of the one before the first."""
    for number in (3, 4):
        shop.refresh()
        shop.send(row(number, "c"))


def test_plan_beside_a_refresh_is_no_reason_to_reload(shop):
    followed(shop)

    plan = looking(shop, lambda: publish_twice(shop)).plan("orders")

    assert plan.strategy == "incremental"
    assert counts(shop.refresh()) == ("incremental", 1, 0, 0)


def test_preview_beside_a_refresh_is_of_the_newer_state(shop):
    followed(shop)
    refresher = looking(shop, lambda: publish_twice(shop))

    report = refresher.refresh("orders", shop.lake.caller(), parse_request({"read_only": True}))

    assert counts(report)[1:] == (1, 0, 0)
    assert shop.rows == [(1, "a"), (2, "b"), (3, "c")]


def test_what_is_an_error_without_others_is_one(shop):
    followed(shop)
    shop.apply(source={"select": ["id", "upper(v) AS v"]})

    for look in (shop.lake.refresher().plan, lambda name: shop.refresh(read_only=True)):
        with pytest.raises(StreamReloadError, match="the definition has changed"):
            look("orders")

"""A table's asset names the table, and nobody else's asset does."""

from __future__ import annotations

import pytest

from airflow_mv_provider.asset import asset_uri, table_of_asset

LONGEST = ".".join(["t" * 128] * 3)


@pytest.mark.parametrize("name", ["orders", "Catalog.Gold.orders_2", LONGEST], ids=lambda n: n[:12])
def test_the_table_is_found_again(name):
    assert table_of_asset(asset_uri(name)) == name


@pytest.mark.parametrize("uri", ["", "orders", "s3://bucket/orders", "mv://table", "mv://table/", "MV://table/x"])
def test_other_assets_stand_for_no_table(uri):
    assert table_of_asset(uri) is None


@pytest.mark.slow
def test_airflow_keeps_the_uri_as_it_is():
    from airflow.sdk import Asset

    for name in ("orders", "Catalog.Gold.orders_2", LONGEST):
        assert table_of_asset(Asset(uri=asset_uri(name)).uri) == name

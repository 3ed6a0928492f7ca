"""Readers beside refreshes: fifty of them see published snapshots only, and what one has opened stays readable."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_mv_provider.core.outcome import Outcome
from tests.conftest import read_independently
from tests.scenarios.conftest import FIRST, LATER, check_invariants

pytestmark = pytest.mark.slow

NUM_READERS = 50
NUM_REFRESHES = 2
_PAUSE_S = 2  # fifty that never pause leave no time for the refreshes


def test_fifty_readers_beside_refreshes_see_published_snapshots_only(table):
    published, last = {tuple(table.rows())}, threading.Event()

    def read(number: int) -> list[tuple[Any, ...]]:
        """Read until the refreshes are done, then once more."""
        seen = []
        while True:
            is_last = last.wait(_PAUSE_S * number / NUM_READERS if not seen else _PAUSE_S)
            seen.append(tuple(read_independently(table.root / "orders")))
            if is_last:
                return seen

    with ThreadPoolExecutor(NUM_READERS) as readers:
        reading = [readers.submit(read, number) for number in range(NUM_READERS)]
        try:
            for number in range(NUM_REFRESHES):
                table.write(f"SELECT id, p, concat(v, '-{number}') AS v FROM ({(LATER, FIRST)[number % 2]})")
                assert table.refresh(overrides=["max_deleted_fraction"]).outcome is Outcome.PUBLISHED
                published.add(tuple(table.rows("raw/orders")))
        finally:
            last.set()
        seen = [each.result() for each in reading]

    assert {rows for each in seen for rows in each} <= published
    assert {each[-1] for each in seen} == {tuple(table.rows("raw/orders"))}
    assert all(len(each) > 1 for each in seen), "a reader has read beside no refresh"
    check_invariants(table, published=1 + NUM_REFRESHES)


@pytest.mark.in_test_all
def test_reader_of_an_old_version_survives_cleanup(table):
    old, version = table.rows(), table.versions()
    opened = table.spark.read.format("delta").option("versionAsOf", version).load(str(table.root / "orders"))
    assert opened.count() == len(old)

    table.write(LATER)
    table.refresh()
    table.refresher().recover(table.caller())

    assert table.workspaces() == []
    assert table.rows() != old
    assert sorted(map(tuple, opened.select("id", "p", "v").collect()), key=repr) == old
    assert read_independently(table.root / "orders", version) == old

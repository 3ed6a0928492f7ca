"""The order of an ingestion's steps, held against real runs over a real Kafka: the same durable writes, as ordered.

What a refresh writes about its own table only, such as its chunks or its fence, is left out here:
`test_differential.py` compares that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import crash_points
from tests.conftest import Clock, Crash
from tests.engine.ingesting import Topics
from tests.engine.streaming import row
from tests.model.ingestion import order
from tests.model.ingestion.stored import LEASE_MS, Stored, first_site
from tests.model.ingestion.world import IDLE, Design

pytestmark = [pytest.mark.slow, pytest.mark.in_test_all, pytest.mark.in_process]

# The steps that write, by the names of `runner/crash_points`.
WRITES = {
    **{"bind": "bind", "acquire": "acquire", "hand over": "hand_over", "stage": "staging", "seal": "seal"},
    **{"merge": "publish", "published": "published", "normal": "normal", "abandon": "normal"},
    **{"release": "release", "released": "released"},
}
# Where the first run dies: at the nth passing of a point.
DEATHS = [
    *("", "bind.after", "acquire.after", "staging.after", "seal.after", "acquire.after:2", "seal.before:2"),
    *("hand_over.after", "publish.before", "publish.after", "published.after", "normal.after", "publish.after:2"),
    *("release.before", "release.after", "released.after"),
]


@pytest.fixture
def shop(lake: Any, broker: Any, monkeypatch: pytest.MonkeyPatch) -> Topics:
    return Topics.of(lake, broker, monkeypatch)


@pytest.mark.sample(3)
@pytest.mark.parametrize("key", ["another", "a"], ids=["another caller", "a retry"])
@pytest.mark.parametrize("death", DEATHS)
def test_durable_writes_are_those_of_a_real_run(shop, death, key):
    shop.topics["twos"] = shop.topics["ones"]
    shop.register()
    shop.send("ones", row(1, "a"))
    shop.ingest()
    shop.send("ones", row(2, "b"))

    real = [*written(lambda: shop.ingest(shop.lake.caller("a")), death)]
    shop.let_leases_expire()
    real += written(lambda: shop.ingest(shop.lake.caller(key)), "")

    assert real == list(modelled(death, key))


def written(work: Any, death: str) -> Iterator[str]:
    """Yield the points that a real run has passed until it has died."""
    passed = list[str]()

    def reach(point: str) -> None:
        if point.partition(".")[0] in WRITES.values():
            passed.append(point)
            if is_reached(passed, death):
                raise Crash(point)

    crash_points.arm(reach)
    try:
        work()
    except Crash:
        pass
    finally:
        crash_points.arm(None)
    yield from passed


def is_reached(passed: list[str], death: str) -> bool:
    point, _, nth = death.partition(":")
    return passed[-1] == point and passed.count(point) == int(nth or 1)


def modelled(death: str, key: str) -> Iterator[str]:
    clock, engine = Clock(), open_engine("sqlite://")
    migrations.migrate(engine)
    site = first_site(Store(engine, clock.now), clock)
    for caller, dies_at in (("a", death), (key, "")):
        worker, passed = order.begun("run", 0), list[str]()
        while worker is not IDLE:
            write = WRITES.get(worker.at)
            if write is not None:
                passed.append(f"{write}.before")
                if is_reached(passed, dies_at):
                    break
            _, worker = order.step(Design(), Stored(Design(), site, caller), worker)
            if write is not None:
                passed.append(f"{write}.after")
                if is_reached(passed, dies_at):
                    break
        yield from passed
        clock.pass_ms(LEASE_MS + 1)
    engine.dispose()

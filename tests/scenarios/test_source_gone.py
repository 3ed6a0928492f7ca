"""A source cannot be opened when a dead owner's refresh is ended: what is sealed or in main needs it no more."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airflow_mv_provider import DeltaSource, Files, Function
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import MvError
from tests.conftest import Crash

pytestmark = pytest.mark.slow

MODULE = """
import os

def rows(spark):
    return spark.sql(os.environ["TEST_SOURCE_PASSWORD"])
"""
BEFORE, AFTER = "SELECT id, 'a' AS v FROM range(20)", "SELECT id, if(id % 5 = 0, 'b', 'a') AS v FROM range(22)"


@dataclass(frozen=True)
class Way:
    """One way in which a source is lost: how it is made, filled, lost and found again."""

    source: Callable[[Any], Any]
    fill: Callable[[Any, str], None]
    lose: Callable[[Any], None]
    mend: Callable[[Any], None]
    is_copied: bool = False


def _fill_delta(lake: Any, sql: str) -> None:
    lake.write(sql, str(lake.root.parent / "outside/orders"))


def _narrow_roots(lake: Any) -> None:
    lake.settings = replace(lake.settings, source_roots=())


def _widen_roots(lake: Any) -> None:
    lake.settings = replace(lake.settings, source_roots=(str(lake.root.parent / "outside"),))


def _linked(lake: Any, *, is_inside: bool) -> None:
    link = lake.root / "raw/link"
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(lake.root / "raw/real" if is_inside else lake.root.parent)


def _fill_linked(lake: Any, sql: str) -> None:
    _linked(lake, is_inside=True)
    lake.write(sql, "raw/real")


def _write_module(lake: Any) -> None:
    place = lake.root.parent / "modules"
    place.mkdir(exist_ok=True)
    (place / "orders_of_a_function.py").write_text(MODULE)
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))


def _remove_module(lake: Any) -> None:
    shutil.rmtree(lake.root.parent / "modules")
    sys.modules.pop("orders_of_a_function", None)


def _fill_function(lake: Any, sql: str) -> None:
    _write_module(lake)
    os.environ["TEST_SOURCE_PASSWORD"] = sql


def _forget_password(lake: Any) -> None:
    lake.password = os.environ.pop("TEST_SOURCE_PASSWORD")


def _remember_password(lake: Any) -> None:
    os.environ["TEST_SOURCE_PASSWORD"] = lake.password


def _fill_files(lake: Any, sql: str) -> None:
    lake.spark.sql(sql).write.mode("overwrite").json(str(lake.root / "raw/json"))


def _move(lake: Any, name: str, to: str) -> None:
    (lake.root / "raw" / name).rename(lake.root / "raw" / to)


FUNCTION = Function("orders_of_a_function:rows")
STRATEGIES = {
    "roots changed": Way(
        lambda lake: DeltaSource(str(lake.root.parent / "outside/orders")), _fill_delta, _narrow_roots, _widen_roots
    ),
    "link moved": Way(
        lambda lake: DeltaSource("raw/link"),
        _fill_linked,
        lambda lake: _linked(lake, is_inside=False),
        lambda lake: _linked(lake, is_inside=True),
    ),
    "module gone": Way(lambda lake: FUNCTION, _fill_function, _remove_module, _write_module, is_copied=True),
    "password gone": Way(lambda lake: FUNCTION, _fill_function, _forget_password, _remember_password, is_copied=True),
    "folder gone": Way(
        lambda lake: Files("raw/json", format="json", schema="id BIGINT, v STRING"),
        _fill_files,
        lambda lake: _move(lake, "json", "elsewhere"),
        lambda lake: _move(lake, "elsewhere", "json"),
        is_copied=True,
    ),
    "table gone": Way(
        lambda lake: DeltaSource("raw/real"),
        _fill_linked,
        lambda lake: _move(lake, "real", "elsewhere"),
        lambda lake: _move(lake, "elsewhere", "real"),
    ),
}
POINTS = ("acquire.after", "staging.after", "seal.after", "progress.after", "publish.after", "published.after")


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    os.environ.pop("TEST_SOURCE_PASSWORD", None)
    for name in set(sys.modules) - modules:
        if name == "orders_of_a_function":
            del sys.modules[name]


def die(lake: Any, crash_at: Callable[[str], None], way: Way, point: str) -> None:
    """Publish BEFORE, die at `point` on the way to AFTER, and lose the source."""
    _widen_roots(lake)
    way.fill(lake, BEFORE)
    lake.apply(source=way.source(lake))
    lake.refresh()
    way.fill(lake, AFTER)
    crash_at(point)
    with pytest.raises(Crash):
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    way.lose(lake)


@pytest.mark.sample(1)
@pytest.mark.parametrize("asked", ["recover", "abandon", "refresh", "drop"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", STRATEGIES)
def test_refresh_is_ended_without_its_source(lake, crash_at, way, point, asked):
    die(lake, crash_at, STRATEGIES[way], point)
    before, table = lake.rows(), lake.store.table("orders")
    is_in_main, is_sealed = point.startswith("publish"), point not in POINTS[:2]

    match asked:
        case "recover":
            # Spark's own failures may pass, so a seal whose rows are read again at their pin is tried five times.
            for _ in range(5 if way == "table gone" else 1):
                lake.refresher().recover(lake.caller())
        case "abandon":
            lake.refresher().abandon("orders", lake.caller(user="ann"))
        case "refresh":
            for _ in range(6 if way == "table gone" else 1):
                with pytest.raises(MvError):  # the new one needs it
                    lake.refresh()
        case "drop":
            lake.refresher().drop("orders", lake.caller())
            assert lake.store.tables() == ()

    if asked != "drop":
        ended = next(r for r in lake.store.history(table.id, 5) if r.attempts and len(r.attempts) > 1)
        assert lake.phase() == "NORMAL"
        may_go_on = is_sealed and asked != "abandon" and (point != "seal.after" or STRATEGIES[way].is_copied)
        assert (ended.outcome is Outcome.PUBLISHED) == (is_in_main or may_go_on)
        if ended.outcome is not Outcome.PUBLISHED:
            assert lake.rows() == before
    STRATEGIES[way].mend(lake)
    lake.apply(source=STRATEGIES[way].source(lake))
    lake.refresh()
    assert sorted(lake.rows()) == [(n, "b" if n % 5 == 0 else "a") for n in range(22)]
    assert lake.workspaces() == []
    assert lake.refresh().rows_inserted == 0


@pytest.mark.in_test_all
def test_other_tables_source_that_no_root_holds_any_more_stops_no_drop(lake):
    _widen_roots(lake)
    lake.write(BEFORE)
    _fill_delta(lake, BEFORE)
    lake.apply(name="other", source=DeltaSource(str(lake.root.parent / "outside/orders")))
    lake.apply()
    lake.refresh()
    _narrow_roots(lake)

    assert lake.refresher().drop("orders", lake.caller(), delete_main=True).is_main_deleted


def test_caller_whose_source_cannot_be_opened_waits_its_turn(lake, at_point):
    _widen_roots(lake)
    _fill_delta(lake, BEFORE)
    lake.apply(source=DeltaSource(str(lake.root.parent / "outside/orders")), concurrency="join")
    positions = []

    def come() -> None:
        _narrow_roots(lake)
        with pytest.raises(MvError) as caught:
            lake.refresh()
        positions.append(caught.value.facts.get("position"))

    at_point("staging.after", come)

    assert lake.refresh().outcome is Outcome.PUBLISHED
    assert positions == [1]

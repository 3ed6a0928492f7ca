"""A source cannot be opened when a dead owner's refresh is ended: what is sealed or in main needs it no more.

Of each way to lose a source one refresh is made; what lies in its warehouse and database at each point is copied, as
SIGKILL there would leave it. Cases of one way that lead to the same rows and files go on once.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider import DeltaSource, Files, Function
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import MvError
from airflow_mv_provider.runner import crash_points
from airflow_mv_provider.sources.jdbc.model import Jdbc
from tests.conftest import Clock, make_lake
from tests.scenarios.copies import Rows, copied, dump, put_back, standing

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
    importlib.invalidate_caches()  # Python remembers that the folder was not there


def _remove_module(lake: Any) -> None:
    shutil.rmtree(lake.root.parent / "modules")
    sys.modules.pop("orders_of_a_function", None)


def _fill_function(lake: Any, sql: str) -> None:
    _write_module(lake)
    os.environ["TEST_SOURCE_PASSWORD"] = sql


def _forget_password(lake: Any) -> None:
    del os.environ["TEST_SOURCE_PASSWORD"]


def _remember_password(lake: Any) -> None:
    _fill_function(lake, AFTER)


def _fill_files(lake: Any, sql: str) -> None:
    lake.spark.sql(sql).write.mode("overwrite").json(str(lake.root / "raw/json"))


def _move(lake: Any, name: str, to: str) -> None:
    if (lake.root / "raw" / name).exists():
        (lake.root / "raw" / name).rename(lake.root / "raw" / to)


def _shop(lake: Any) -> Path:
    return Path(lake.root.parent / "shop.db")


def _connect(lake: Any) -> None:
    os.environ["AIRFLOW_CONN_SHOP"] = f"sqlite:///{_shop(lake)}"


def _fill_shop(lake: Any, sql: str) -> None:
    _connect(lake)
    rows = [tuple(row) for row in lake.spark.sql(sql).collect()]
    with closing(sqlite3.connect(_shop(lake))) as file, file:
        file.executescript("DROP TABLE IF EXISTS orders; CREATE TABLE orders (id BIGINT PRIMARY KEY, v TEXT)")
        file.executemany("INSERT INTO orders VALUES (?, ?)", rows)


def _lose_shop(lake: Any) -> None:
    _shop(lake).rename(f"{_shop(lake)}.away")


def _find_shop(lake: Any) -> None:
    if not _shop(lake).exists():
        Path(f"{_shop(lake)}.away").rename(_shop(lake))
    _connect(lake)


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
    "module gone": Way(lambda lake: FUNCTION, _fill_function, _remove_module, _remember_password, is_copied=True),
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
    "connection gone": Way(
        lambda lake: Jdbc("shop", table="orders"),
        _fill_shop,
        lambda lake: os.environ.pop("AIRFLOW_CONN_SHOP"),
        _connect,
        is_copied=True,
    ),
    "database gone": Way(
        lambda lake: Jdbc("shop", table="orders"),
        _fill_shop,
        _lose_shop,
        _find_shop,
        is_copied=True,
    ),
}
OF_DATABASES = ("connection gone", "database gone")  # a Connect server of the tests has no drivers
POINTS = ("acquire.after", "staging.after", "seal.after", "publish.after", "published.after")


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    path = list(sys.path)
    yield
    crash_points.arm(None)
    sys.path[:] = path
    os.environ.pop("TEST_SOURCE_PASSWORD", None)
    os.environ.pop("AIRFLOW_CONN_SHOP", None)
    sys.modules.pop("orders_of_a_function", None)


@dataclass
class Died:
    """What refreshes that died at each point have left: the directory of a lake, and the rows of its database."""

    at: dict[str, tuple[Path, Rows]] = field(default_factory=dict)
    origin: Path = Path()

    def lake(self, spark: Any, place: Path, clock: Clock, way: Way, point: str) -> Any:
        """Return a lake whose refresh died at `point`, and whose source is lost."""
        files, rows = self.at[point]
        shutil.copytree(files, place, symlinks=True)
        lake = make_lake(spark, place, clock)
        put_back(lake, copied(rows, self.origin, place))
        way.mend(lake)
        _widen_roots(lake)
        way.lose(lake)
        return lake


def died(spark: Any, root: Path, way: Way) -> Died:
    """Publish BEFORE, and copy everything at each point on the way to AFTER."""
    lake = make_lake(spark, root / "lake", Clock())
    found = Died(origin=root / "lake")
    _widen_roots(lake)
    way.fill(lake, BEFORE)
    lake.apply(source=way.source(lake))
    lake.refresh()
    way.fill(lake, AFTER)

    def reach(point: str) -> None:
        if point in POINTS and point not in found.at:
            found.at[point] = (shutil.copytree(root / "lake", root / point, symlinks=True), dump(lake))

    crash_points.arm(reach)
    assert lake.refresh().outcome is Outcome.PUBLISHED
    crash_points.arm(None)
    lake.store.engine.dispose()
    way.lose(lake)  # nobody shall find it there
    assert set(found.at) == set(POINTS)
    return found


@pytest.fixture(scope="module")
def died_of(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Died]:
    """Give what died on each way; each is made once."""
    made: dict[str, Died] = {}

    def of(way: str) -> Died:
        if way not in made:
            made[way] = died(spark, tmp_path_factory.mktemp("died"), STRATEGIES[way])
        return made[way]

    return of


@pytest.fixture(scope="module")
def gone_on() -> set[tuple[str, str]]:
    """What earlier cases have gone on from: the way, and what `standing` returned."""
    return set()


@pytest.mark.sample(1)
@pytest.mark.parametrize("asked", ["recover", "abandon", "refresh", "drop"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=pytest.mark.in_process if way in OF_DATABASES else ()) for way in STRATEGIES],
)
def test_refresh_is_ended_without_its_source(died_of, gone_on, spark, tmp_path, clock, way, point, asked):
    lake = died_of(way).lake(spark, tmp_path / "lake", clock, STRATEGIES[way], point)
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
        # What is sealed needs no row of the source, but a source that is read at its pin is opened again.
        is_opened = way == "table gone" or STRATEGIES[way].is_copied
        may_go_on = is_sealed and asked != "abandon" and (point != "seal.after" or is_opened)
        assert (ended.outcome is Outcome.PUBLISHED) == (is_in_main or may_go_on)
        if ended.outcome is not Outcome.PUBLISHED:
            assert lake.rows() == before
    STRATEGIES[way].mend(lake)
    _widen_roots(lake)
    lake.apply(source=STRATEGIES[way].source(lake))
    if (reached := (way, standing(lake))) in gone_on:
        return
    gone_on.add(reached)
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


@pytest.mark.in_test_all
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

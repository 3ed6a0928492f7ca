"""One Spark session, one PostgreSQL server and one warehouse per test: real parts, built for small tables."""

from __future__ import annotations

import gc
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis
import pytest
from sqlalchemy import JSON, Connection, Engine, String, event, text

from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.request import parse_request
from airflow_mv_provider.core.state import Caller, RefreshState
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import database_now, open_engine
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import crash_points
from airflow_mv_provider.runner.settings import Settings
from tests.pgbouncer import pgbouncer
from tests.postgres import postgres
from tests.small_tables import SHORT_LIVED

__all__ = ["pgbouncer", "postgres"]
pytest_plugins = ("tests.connect", "tests.cpu", "tests.engines", "tests.kafka", "tests.record", "tests.sampling")

# The first draw of a fresh clone builds Unicode's tables, which a health check takes for a slow strategy; and a busy
# machine is no failure. In CI the examples are the same each time.
hypothesis.settings.register_profile(
    "here",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
hypothesis.settings.load_profile("here")

# Tests may not meet a developer's own settings.
for _name in [name for name in os.environ if name.startswith("AMV_")]:
    del os.environ[_name]


class _Compiled(dict[tuple[Any, ...], Any]):
    """Statements that SQLAlchemy has compiled, for all databases of one kind: each test has an engine of its own."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get((key[0].name, key[0].driver, *key[1:]), default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        super().__setitem__((key[0].name, key[0].driver, *key[1:]), compiled)


_COMPILED = _Compiled()


@event.listens_for(Engine, "engine_connect")
def _share_what_is_compiled(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)


@dataclass
class Clock:
    """The database's clock, moved forward by tests instead of waiting."""

    ahead_ms: int = 0

    def now(self, dialect: str) -> Any:
        return database_now(dialect) + self.ahead_ms

    def pass_ms(self, ms: int) -> None:
        self.ahead_ms += ms


def pytest_configure() -> None:
    """Set up the JVMs that tests start, and take Ctrl-C also in the background, where a shell starts without it."""
    # Thousands of tests are half a million objects, which Python would look through again and again: a fifth of the
    # time of tests that start nothing.
    gc.set_threshold(100_000, 20, 50)
    os.environ |= {name: f"{options} -Djava.io.tmpdir={temporary()}" for name, options in SHORT_LIVED.items()}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    shutil.rmtree(temporary(), ignore_errors=True)


@cache
def temporary() -> Path:
    """The directory of what a JVM that is killed would leave behind; removed at the end of the run."""
    return Path(tempfile.mkdtemp(prefix="mv-tests-"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@dataclass
class Lake:
    """A warehouse with its metadata database, and what a test does with them."""

    spark: Any
    root: Path
    store: Store
    settings: Settings
    clock: Clock
    _callers: int = field(default=0)

    def refresher(self, **more: Any) -> Any:
        """A runner as another process would have: its own Spark session and its own Store."""
        from airflow_mv_provider.runner.refresh import Refresher

        return Refresher(Store(self.store.engine, self.clock.now), self.settings, lambda: self.spark, **more)

    def caller(self, key: str | None = None, **more: Any) -> Caller:
        self._callers += 1
        return Caller(key or f"test:{self._callers}", f"host:{self._callers}", **more)

    def apply(self, **changes: Any) -> RefreshableTable:
        definition = a_table(**changes)
        self.refresher().apply(definition)
        return definition

    def refresh(self, name: str = "orders", **more: Any) -> Any:
        caller = more.pop("caller", None) or self.caller()
        return self.refresher().refresh(name, caller, parse_request(more))

    def write(self, sql_or_frame: Any, path: str = "raw/orders", *, mode: str = "overwrite") -> None:
        """Write a Delta source: a SELECT or a DataFrame."""
        frame = self.spark.sql(sql_or_frame) if isinstance(sql_or_frame, str) else sql_or_frame
        frame.write.format("delta").mode(mode).option("overwriteSchema", str(mode == "overwrite").lower()).save(
            str(self.root / path)
        )

    def sql(self, text: str, *, path: str = "orders") -> list[Any]:
        """Run SQL; {t} stands for the table at `path`."""
        return self.spark.sql(text.format(t=f"delta.`{self.root / path}`")).collect()

    def rows(self, path: str = "orders") -> list[tuple[Any, ...]]:
        """All rows of a Delta table, sorted, as an independent reader (delta-rs) sees them."""
        return read_independently(self.root / path)

    def phase(self, name: str = "orders") -> str:
        return str(self.store.state(self.store.table(name).id).phase)

    def versions(self, path: str = "orders") -> int:
        from deltalake import DeltaTable

        return DeltaTable(str(self.root / path)).version()

    def published(self, name: str = "orders") -> Any:
        """What the last publish left: main's totals, and those of its partitions; None if nothing is known."""
        table = self.store.table(name)
        found = self.store.state(table.id).published_totals
        return None if found is None else (found.totals, self.store.partition_totals(table.id))

    def workspaces(self) -> list[str]:
        """Whatever lies in the staging area, files only, apart from what the last publish has kept."""
        area = self.root / "_mv"
        kept = [
            area / table.uuid / "kept" / each.refresh_id / each.name
            for table in self.store.tables()
            if (found := self.store.state(table.id).published_totals)
            for each in found.kept
        ]
        files = (p for p in area.rglob("*") if p.is_file() and not any(k in p.parents for k in kept))
        return sorted(str(p.relative_to(area)) for p in files)


@cache
def migrated_database() -> Path:
    """A SQLite file at this package's version without rows, to be copied; a copy takes less time than migrations."""
    file = temporary() / "migrated.db"
    engine = open_engine(f"sqlite:///{file}")
    migrations.migrate(engine)
    engine.dispose()
    return file


def make_lake(spark: Any, root: Path, clock: Clock) -> Lake:
    """Open the lake at `root`: a warehouse and a SQLite database beside it, made where they are missing."""
    warehouse = root / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    if not (root / "mv.db").exists():
        shutil.copy(migrated_database(), root / "mv.db")
    engine = open_engine(f"sqlite:///{root / 'mv.db'}")
    # A lease so long that no heartbeat falls into a test: its end is what a test passes the clock for.
    settings = Settings(str(engine.url), str(warehouse), lease_ms=3_600_000)
    return Lake(spark, warehouse, Store(engine, clock.now), settings, clock)


@contextmanager
def large_tables(lake: Lake, *, is_large: bool = True) -> Iterator[Lake]:
    """Handle a lake's tables as if they had many rows: compared by fingerprints, and merged with a bitmap."""
    if not is_large:
        yield lake
        return
    with (
        patch.object(lake, "settings", replace(lake.settings, fingerprint_rows=0)),
        patch("airflow_mv_provider.runner.steps.rewriting.rewrite_obstacle", return_value="it counts as large"),
        patch("airflow_mv_provider.core.progress.publishing._MIN_ROWS_FOR_BITMAP", 0),
    ):
        yield lake


@pytest.fixture
def as_marked(request: pytest.FixtureRequest) -> Iterator[Callable[[Lake], Lake]]:
    """Handle a lake's tables as large ones if the test is marked so."""
    is_large = request.node.get_closest_marker("large_tables") is not None
    with ExitStack() as stack:
        yield lambda lake: stack.enter_context(large_tables(lake, is_large=is_large))


@pytest.fixture
def lake_factory(spark: Any, tmp_path: Path, clock: Clock, as_marked: Callable[[Lake], Lake]) -> Callable[[], Lake]:
    """Make lakes that know nothing of each other, under the settings that users have, or as `large_tables`."""

    def make() -> Lake:
        return as_marked(make_lake(spark, tmp_path / f"lake{len(list(tmp_path.glob('lake*')))}", clock))

    return make


@pytest.fixture
def lake(lake_factory: Callable[[], Lake]) -> Lake:
    return lake_factory()


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Lakes that were built once in this run, by name."""
    return {"": tmp_path_factory.mktemp("templates")}


@pytest.fixture
def prepared(
    spark: Any,
    tmp_path: Path,
    clock: Clock,
    templates: dict[str, Path],
    request: pytest.FixtureRequest,
    as_marked: Callable[[Lake], Lake],
) -> Callable[..., Lake]:
    """Give a copy of a lake that `build` prepares once a run: files and database alike, only at another place."""

    def copy(name: str, build: Callable[[Lake], None]) -> Lake:
        if request.node.get_closest_marker("large_tables"):
            name = f"{name}-large"
        if name not in templates:
            templates[name] = templates[""] / name
            original = as_marked(make_lake(spark, templates[name], Clock()))
            build(original)
            original.store.engine.dispose()
        place = tmp_path / f"{name}-{len(list(tmp_path.glob(f'{name}-*')))}"
        shutil.copytree(templates[name], place)
        lake = as_marked(make_lake(spark, place, clock))
        lake._callers = 100  # nobody who has built it calls again
        paths = {"old": str(templates[name]), "new": str(place)}
        texts = [
            each for table in Base.metadata.sorted_tables for each in table.c if isinstance(each.type, String | JSON)
        ]
        with lake.store.engine.begin() as db:
            for column in texts:
                change = f'UPDATE {column.table.name} SET "{column.name}" = replace("{column.name}", :old, :new)'
                db.execute(text(change), paths)
        return lake

    return copy


def a_table(**changes: Any) -> RefreshableTable:
    """A definition; a test spells out only what it is about."""
    values: dict[str, Any] = {"name": "orders", "source": DeltaSource("raw/orders"), "key": ["id"]}
    return RefreshableTable(**(values | changes))


def a_state(**changes: Any) -> RefreshState:
    """The state of a table that nobody refreshes, and that was never published."""
    of_nobody = ("refresh_id", "owner_key", "owner_process", "owned_since_ms")
    unpublished = ("published_version", "published_commit", "published_hash", "published_totals")
    free: dict[str, Any] = {
        **{"table_id": 1, "phase": Phase.NORMAL, "epoch": 3, "published_upper": 0, "covered": ()},
        **dict.fromkeys((*of_nobody, *unpublished)),
        **dict.fromkeys(("is_lease_live", "is_cancel_requested", "is_main_trusted"), False),
    }
    return RefreshState(**(free | changes))


def read_independently(
    location: Path | str, version: int | None = None, options: dict[str, str] | None = None
) -> list[tuple[Any, ...]]:
    """Read a whole Delta table without Spark: rows as tuples in the columns' order by name, sorted, NaN made equal."""
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(str(location), version=version, storage_options=options)
    table = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    names = sorted(table.schema.names)
    columns = [table.column(name).to_pylist() for name in names]
    rows = [tuple(plain(value) for value in row) for row in zip(*columns, strict=True)]
    return sorted(rows, key=repr)


def plain(value: Any) -> Any:
    """Return a value that equals itself and can be hashed: NaN as text, lists and mappings as tuples."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(plain(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, plain(v)) for k, v in sorted(value.items()))
    return value


class Crash(BaseException):
    """Stands for SIGKILL in tests that stay in one process: no handler of ours may catch it."""


@contextmanager
def dying_at(point: str, passed: set[str] | None = None) -> Iterator[None]:
    """Whoever comes to `point` dies there, and somebody has to; the points on the way are added to `passed`."""

    def reach(reached: str) -> None:
        if passed is not None:
            passed.add(reached)
        if reached == point:
            raise Crash(point)

    crash_points.arm(reach)
    try:
        with pytest.raises(Crash):
            yield
    finally:
        crash_points.arm(None)


@pytest.fixture
def at_point() -> Iterator[Callable[[str, Callable[[], None]], None]]:
    """Run an action once, in the middle of whatever refresh passes `point` first; ":2" at the second passing."""

    def arm(point: str, action: Callable[[], None]) -> None:
        name, _, nth = point.partition(":")
        left = [int(nth or 1)]

        def reach(reached: str) -> None:
            if reached == name:
                left[0] -= 1
                if left[0] == 0:
                    crash_points.arm(None)
                    action()

        crash_points.arm(reach)

    yield arm
    crash_points.arm(None)


@pytest.fixture
def crash_at(at_point: Callable[[str, Callable[[], None]], None]) -> Callable[[str], None]:
    """Arm one crash: `crash_at("publish.after")` kills the next refresh there, once; ":2" at the second passing."""

    def arm(point: str) -> None:
        def die() -> None:
            raise Crash(point)

        at_point(point, die)

    return arm

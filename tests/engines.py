"""The one Spark session of a test run: in this process, or with `--connect` on a real Spark Connect server.

    .venv/bin/pytest --connect tests/engine tests/scenarios

runs the tests of the engine once more, with a client that has no JVM of its own. Tests of what only a JVM in this
process has are marked `in_process` and left out then. `--server-of PYTHON` serves another interpreter's Spark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests import small_tables
from tests.connect import ConnectServer

# SQL that takes a good part of a second for each row
A_SLOW_NUMBER = "aggregate(sequence(1, 2000), 0L, (a, x) -> a + aggregate(sequence(1, 4000), x, (b, y) -> b + y))"

# What each of the two processes of `make test` begins with; both have a session then. All other files are given one by
# one to whoever is free, those that wait for servers early, those that need a session last: as many of them that both
# processes end at about the same time.
_FIRST = {
    "the engine": (*(f"tests/engine/test_{letter}" for letter in "abcdefghijk"), "tests/model/test_differential.py"),
    "airflow": ("tests/provider/", "tests/dags/"),
}
_EARLY = (
    *("tests/e2e/", "tests/engine/test_connect.py", "tests/cli/", "tests/browser/"),
    *("tests/scenarios/test_other_hands.py", "tests/scenarios/test_ways_to_publish.py"),  # the longest
    "tests/scenarios/test_crashes.py",
)
_LAST = ("tests/engine/", "tests/scenarios/", "tests/test_readme.py")
# One server is enough for each of these.
_TOGETHER = {
    "the page": ("tests/browser/",),
    "a Connect server": ("tests/engine/test_connect.py", "tests/scenarios/test_killed_processes.py"),
}

# Its tests take minutes each, and share nothing.
_SPLIT = ("tests/scenarios/test_other_hands.py",)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("engines")
    group.addoption("--connect", action="store_true", help="run the tests of the engine on a Spark Connect server")
    group.addoption("--server-of", default=sys.executable, help="the interpreter whose Spark --connect serves")
    group.addoption("--no-connectors", action="store_true", help="start Spark without its jars for Kafka and Avro")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "in_process: needs a JVM in this process; left out with --connect")


@pytest.hookimpl(tryfirst=True)  # a sample is drawn of what is left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes; the order of files is that of their turns
        items.sort(key=lambda item: _turn(item.nodeid.partition("::")[0]))
    if not config.getoption("--connect"):
        return
    left_out = [item for item in items if item.get_closest_marker("in_process")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process one of `_FIRST`, then file after file; no file is split but `_SPLIT`."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            if path in _SPLIT:
                return nodeid
            together = (name for name, paths in _TOGETHER.items() if path.startswith(paths))
            return _begins_with(path) or next(together, path)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def _begins_with(path: str) -> str | None:
    """Return which of `_FIRST` a file belongs to."""
    names = (name for name, paths in _FIRST.items() if path.startswith(paths) and not path.startswith(_EARLY))
    return next(names, None)


def _turn(path: str) -> int:
    """Return a file's place among all files; files of the same place stay in their order."""
    if (first := _begins_with(path)) is not None:
        return list(_FIRST).index(first)
    return 3 + (path.startswith(_LAST) - path.startswith(_EARLY))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one session of the run: two cores, few shuffle partitions; a suite that starts JVMs dies of old age."""
    if request.config.getoption("--connect"):
        yield from _on_a_server(tmp_path_factory, request.config.getoption("--server-of"))
    else:
        yield from _in_this_process(has_connectors=not request.config.getoption("--no-connectors"))


def _on_a_server(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[Any]:
    from airflow_mv_provider.spark.session import connect_session

    server = ConnectServer(tmp_path_factory.mktemp("connect"), python=python)
    try:
        server.wait()
        session = connect_session(server.url)
        yield session
        session.stop()  # at exit it would wait for a server that is gone
    finally:
        server.kill()


def _in_this_process(*, has_connectors: bool) -> Iterator[Any]:
    from airflow_mv_provider.spark.causes.databases import DRIVERS, connectors
    from airflow_mv_provider.spark.session import local_session, warm_start

    os.environ["AMV_SPARK_MASTER"] = "local[2]"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    confs = {name.replace(".", "_"): value for name, value in small_tables.CONFS.items()}
    # The archive of `make setup`, which has no drivers of databases: the classes that it has are the same.
    java_options = f"{small_tables.JAVA_OPTIONS} {warm_start().java_options()}"
    jars = (*DRIVERS.values(), *(connectors().values() if has_connectors else ()))
    os.environ["AMV_SPARK_PACKAGES"] = ",".join(jars)
    try:
        session = local_session("tests", driver_memory=small_tables.DRIVER_MEMORY, java_options=java_options, **confs)
    finally:
        del os.environ["AMV_SPARK_PACKAGES"]  # the processes that tests start need no drivers
    yield session
    session.stop()

"""Tables that tests of the engine begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import make_lake
from tests.engine.named import Catalog
from tests.engine.refusing import GOOD, csv
from tests.engine.versioned import GUARDS, STATES, put
from tests.metastore import hive_session


@pytest.fixture
def good(prepared: Callable[..., Any]) -> Any:
    """A table that was published once."""

    def build(lake: Any) -> None:
        lake.write(GOOD)
        lake.apply()
        lake.refresh()

    return prepared("good", build)


@pytest.fixture
def ten_rows(prepared: Callable[..., Any]) -> Any:
    """A table of ten rows that was published once."""

    def build(lake: Any) -> None:
        lake.write("SELECT id, 'a' AS v FROM range(10)")
        lake.apply()
        lake.refresh()

    return prepared("ten-rows", build)


@pytest.fixture
def good_csv(prepared: Callable[..., Any]) -> Any:
    """A table that was published once, from one CSV file."""

    def build(lake: Any) -> None:
        csv(lake, good="id,v\n1,a\n")
        lake.refresh()

    return prepared("good-csv", build)


@pytest.fixture
def kept(lake: Any) -> Any:
    """A table with a history, published once."""
    put(lake, STATES[0])
    lake.apply(history=True, guards=GUARDS)
    lake.refresh()
    return lake


@pytest.fixture(scope="session")
def hive(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A session of the same JVM with a Hive metastore on Derby: five seconds, once a run."""
    return hive_session(spark, tmp_path_factory.mktemp("metastore"))


@pytest.fixture
def catalog(hive: Any, tmp_path: Path, clock: Any) -> Iterator[Catalog]:
    """An empty schema of the metastore, and a lake whose Spark has it; managed tables lie in the lake, too."""
    lake, schema = make_lake(hive, tmp_path / "lake", clock), f"s{uuid4().hex[:12]}"
    hive.sql(f"CREATE DATABASE {schema} LOCATION '{lake.root}/managed'")
    yield Catalog(lake, schema)
    hive.sql(f"DROP DATABASE {schema} CASCADE")

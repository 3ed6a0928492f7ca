"""The engine's tests on other versions of Spark, in environments of their own: `make matrix`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.matrix.conftest import TOOLS, Versions, num_passed

pytestmark = [pytest.mark.slow, pytest.mark.matrix, pytest.mark.timeout(3600)]

# The newest is what `make test` runs, too. Kafka's and Avro's jars of old versions are not looked for.
VERSIONS = tuple(Versions("3.11", spark=each) for each in ("4.0.1", "4.1.1", "4.2.0"))
DEMANDED = ("sqlalchemy>=2,<3", "alembic", "pydantic>=2", "pyyaml", "click", "croniter", "jinja2", "psutil", "rich")
CORE = (
    *("refresh", "random_changes", "incremental", "changed_files", "small_tables", "evolution", "error_table"),
    *("sealed", "checks", "progressive", "rollback", "row_history"),
)
# What a client asks of a server: each sort of statement, and errors by their conditions.
ASKED = ("refresh", "incremental", "evolution", "error_table", "checks", "followed_queries")


@pytest.fixture(scope="module", params=VERSIONS, ids=str)
def python(request: pytest.FixtureRequest, install: Callable[..., Path]) -> Path:
    """The interpreter of an environment with a Spark: that of this process, if it has it."""
    versions: Versions = request.param
    if versions.spark == version("pyspark") and sys.version.startswith(f"{versions.python}."):
        return Path(sys.executable)
    spark = f"pyspark[connect]=={versions.spark}"
    place = install(versions.python, spark, "delta-spark>=4.4,!=4.4.1", *DEMANDED, *TOOLS, is_with_wheel=False)
    return place / "venv/bin/python"


def test_a_sample_of_the_engines_tests_passes(python):
    assert passed(python, ["--no-connectors", "--of-each-file", "3"], CORE) >= 30


def test_a_sample_of_them_passes_on_a_connect_server(python):
    assert passed(python, ["--connect", "--of-each-file", "2"], ASKED) >= 10


@pytest.mark.parametrize("python", VERSIONS[:-1], indirect=True, ids=str)
@pytest.mark.parametrize("newest", ["client", "server"])
def test_client_and_server_may_have_different_versions(python, newest):
    client, server = (sys.executable, python) if newest == "client" else (python, sys.executable)

    assert passed(client, ["--connect", "--server-of", str(server), "--of-each-file", "2"], ASKED) >= 10


def passed(python: str | Path, options: Sequence[str], names: Sequence[str]) -> int:
    """Run tests of the engine in an environment; return how many have passed, all of those that ran."""
    return num_passed(python, "-W", "default", *options, *(f"tests/engine/test_{name}.py" for name in names))

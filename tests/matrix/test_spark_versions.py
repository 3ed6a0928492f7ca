"""The engine's tests on other versions of Spark, in environments of their own: `make matrix`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.matrix.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.matrix, pytest.mark.timeout(3600)]

# By its pins; what `make test` runs is the newest. Kafka's and Avro's jars of old versions are not looked for.
VERSIONS = ("4.0.1", "4.1.1")
NEEDED = (
    *("sqlalchemy>=2,<3", "alembic", "pydantic>=2", "pyyaml", "click", "croniter", "jinja2", "psutil", "rich"),
    *("psycopg[binary]", "pymysql", "confluent-kafka[schema-registry]", "protobuf>=6.31", "fastavro", "deltalake"),
    *("pyarrow", "pandas<3", "pytest", "pytest-timeout", "hypothesis", "httpx", "jsonschema", "python-dotenv"),
    *("playwright", "axe-playwright-python"),
)
CORE = (
    *("refresh", "random_changes", "incremental", "changed_files", "small_tables", "joined_tables", "fingerprints"),
    *("evolution", "error_table", "sealed", "checks", "progressive", "rollback", "row_history"),
)


# What a client of one version asks of a server of another: each sort of statement, and errors by their conditions.
BETWEEN = ("refresh", "incremental", "evolution", "error_table", "checks", "followed_queries")


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest, install: Callable[..., Path]) -> Path:
    """The interpreter of an environment with another Spark."""
    spark = f"pyspark[connect]=={request.param}"
    place = install(f"spark-{request.param}", spark, "delta-spark>=4.4,!=4.4.1", *NEEDED, is_with_wheel=False)
    return place / "venv/bin/python"


@pytest.mark.parametrize("engine", ["in_process", "connect"])
def test_the_engines_core_tests_pass(python: Path, engine: str) -> None:
    assert passed(python, ["--connect"] if engine == "connect" else ["--no-connectors"], CORE) > 100


@pytest.mark.parametrize("newest", ["client", "server"])
def test_client_and_server_may_have_different_versions(python: Path, newest: str) -> None:
    client, server = (sys.executable, python) if newest == "client" else (python, sys.executable)

    assert passed(client, ["--connect", "--server-of", str(server)], BETWEEN) > 50


def passed(python: str | Path, options: Sequence[str], names: Sequence[str]) -> int:
    """Run the engine's tests of these names in an environment; return how many have passed, all of those that ran."""
    files = [f"tests/engine/test_{name}.py" for name in names]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default", *options, *files]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AMV_", "PYTEST_", "PYSPARK_"))}

    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-6000:]
    (num_passed,) = re.findall(r"(\d+) passed", done.stdout)
    return int(num_passed)

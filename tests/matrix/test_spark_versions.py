"""The engine's tests on other versions of Spark, in environments of their own: `make matrix`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
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


@pytest.mark.parametrize("engine", ["in_process", "connect"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_engines_core_tests_pass(install: Callable[..., Path], version: str, engine: str) -> None:
    place = install(
        f"spark-{version}", f"pyspark[connect]=={version}", "delta-spark>=4.4,!=4.4.1", *NEEDED, is_with_wheel=False
    )
    files = [f"tests/engine/test_{name}.py" for name in CORE]
    options = ["--connect"] if engine == "connect" else ["--no-connectors"]
    command = [
        place / "venv/bin/python",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "default",
        *options,
        *files,
    ]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AMV_", "PYTEST_", "PYSPARK_"))}

    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-6000:]
    (num_passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(num_passed) > 100

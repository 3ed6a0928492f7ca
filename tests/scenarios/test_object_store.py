"""Main, staging and a folder of files in an object store: real `amv` processes, killed at each durable write.

The server of the S3 protocol and hadoop-aws are real. One driver writes, which is what Delta's log store for S3 allows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_independently
from tests.connect import ConnectServer, serving
from tests.object_store import JARS, ObjectStore, served
from tests.scenarios.points import POINTS

pytestmark = [pytest.mark.slow, pytest.mark.in_process, pytest.mark.in_test_all]

AMV = Path(sys.executable).with_name("amv")
DYING = Path(__file__).parents[1] / "dying.py"
TABLE = """
tables:
  - name: orders
    source: {type: files, path: raw/orders/*.csv, format: csv, schema: "id INT, p INT, v STRING"}
    key: [id, p]
    partition_by: [p]
    chunk_rows: 20
    concurrency: queue
"""
FILES = 4
# A refresh whose predecessor published and cleaned up writes no fence of its own.
ONCE = [point for point in POINTS["atomic"] if ":" not in point and not point.startswith("fence")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with served(tmp_path_factory.mktemp("s3") / "data") as store:
        yield store


@pytest.fixture(scope="module")
def connect(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    yield from serving(tmp_path_factory.mktemp("connect"), jars=JARS, **store.confs)


class Lake:
    """One table of the object store, in a warehouse and with a database of its own."""

    def __init__(self, store: ObjectStore, remote: str, directory: Path, name: str) -> None:
        self.store, self.directory, self.name = store, directory, name
        self._environment = {
            "AMV_DATABASE_URL": f"sqlite:///{directory}/mv.db",
            "AMV_WAREHOUSE": f"{store.root}/{name}",
            "AMV_SPARK_REMOTE": remote,
            "AMV_S3_SINGLE_DRIVER": "true",
            "AMV_LEASE_S": "5",
        }
        self.source: dict[int, str] = {}

    def write(self, file: int, text: str) -> None:
        """Write one file of the source, with ten rows."""
        self.source[file] = text
        lines = ["id,p,v", *(f"{row},{file},{text}{row}" for row in range(10))]
        self.store.write(f"{self.name}/raw/orders/{file}.csv", "\n".join(lines) + "\n")

    def amv(self, *arguments: str, dies_at: str | None = None, **variables: str) -> tuple[int, dict[str, Any], str]:
        program = (str(AMV),) if dies_at is None else (sys.executable, str(DYING), dies_at, "amv")
        done = subprocess.run(
            [*program, *arguments, "--json"],
            env=os.environ | self._environment | variables,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows of main, read by delta-rs."""
        address = f"{self.store.root}/{self.name}/orders".replace("s3a://", "s3://")
        return read_independently(address, options=self.store.options)

    def wanted(self) -> list[tuple[Any, ...]]:
        found = [(row, file, f"{text}{row}") for file, text in self.source.items() for row in range(10)]
        return sorted(found, key=repr)


@pytest.fixture
def lake(store: ObjectStore, connect: ConnectServer, tmp_path: Path) -> Lake:
    lake = Lake(store, connect.url, tmp_path, tmp_path.name)
    (tmp_path / "tables.yaml").write_text(TABLE)
    for file in range(FILES):
        lake.write(file, "v")
    for command in (("apply", "tables.yaml"), ("refresh", "orders")):
        code, _, err = lake.amv(*command)
        assert code == 0, err
    assert lake.rows() == lake.wanted()
    return lake


@pytest.mark.parametrize("point", ONCE)
def test_killed_at_each_durable_write(lake, point):
    lake.write(1, "corrected")
    lake.write(FILES, "new")

    died, _, _ = lake.amv("refresh", "orders", dies_at=point)
    recovered, _, err = lake.amv("refresh", "orders")

    assert (died, recovered) == (-signal.SIGKILL, 0), err
    assert lake.rows() == lake.wanted()
    assert lake.amv("refresh", "orders")[1]["outcome"] == "nothing_to_do"
    staged = [name for name in lake.store.names(f"{lake.name}/_mv") if "/kept/" not in name]
    assert staged == []


def test_without_the_word_that_there_is_one_driver_main_is_refused(lake):
    lake.write(1, "corrected")

    code, answer, err = lake.amv("refresh", "orders", AMV_S3_SINGLE_DRIVER="false")

    assert (code, answer["error"]["code"]) == (1, "MV-MAIN-UNSUPPORTED"), err
    assert "S3DynamoDBLogStore" in answer["error"]["hint"]


def test_drop_removes_what_the_table_had(lake):
    code, _, err = lake.amv("drop", "orders", "--delete-main", "--yes")

    assert code == 0, err
    assert [name for name in lake.store.names(lake.name) if "/raw/" not in name] == []

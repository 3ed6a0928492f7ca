"""A database as source, from an empty directory: the error says what is missing and which setting brings it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

AMV = Path(sys.executable).parent / "amv"
_DEFINITION = """
tables:
  - name: notes
    source: {type: jdbc, conn_id: shop, table: notes}
    key: [id]
"""


@pytest.mark.slow
@pytest.mark.in_test_all
def test_missing_driver_names_the_setting_that_brings_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as file:
        file.executescript("CREATE TABLE notes (id INTEGER PRIMARY KEY, t TEXT); INSERT INTO notes VALUES (1, 'a')")
    (tmp_path / "tables.yaml").write_text(_DEFINITION)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AMV_S")}
    plain |= {"AMV_WAREHOUSE": str(tmp_path / "lake"), "AIRFLOW_HOME": str(tmp_path)}
    plain |= {"AIRFLOW_CONN_SHOP": f"sqlite:///{tmp_path}/shop.db"}

    def amv(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        words = [str(AMV), *arguments]
        return subprocess.run(words, env=plain | more, cwd=tmp_path, capture_output=True, text=True, check=False)

    amv("apply", "tables.yaml")
    without = amv("refresh", "notes")
    found = amv("refresh", "notes", AMV_SOURCE_DATABASES="sqlite")
    unknown = amv("refresh", "notes", AMV_SOURCE_DATABASES="oracle")

    assert without.returncode == 1
    assert "MV-DEPENDENCY" in without.stderr
    assert "AMV_SOURCE_DATABASES=sqlite" in without.stderr
    assert found.returncode == 0, found.stderr
    assert "AMV_SPARK_PACKAGES" in unknown.stderr

"""Every example is a DAG, and reading it costs no Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_mv_provider import definition_file

EXAMPLES = Path(__file__).parents[2] / "dags"
FILES = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.slow
def test_each_example_is_loaded_without_an_error(examples):
    known = {"audit_flights", "flights", "mv_maintenance", "refresh_on_demand", "shop", "why_row"}
    known |= {f"refresh_shop.{name}" for name in ("lines", "orders", "revenue_by_month")}
    assert examples.load_all() == known


@pytest.mark.slow
def test_parsing_the_examples_imports_neither_spark_nor_the_runner():
    code = (
        f"import runpy, sys; [runpy.run_path(each) for each in {[*map(str, FILES)]!r}];"
        "print([m for m in sys.modules if m.startswith(('pyspark', 'delta', 'airflow_mv_provider.'))])"
    )

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = re.findall(r"'([\w.]+)'", done.stdout.splitlines()[-1])

    rooms = {name.split(".")[1] for name in loaded if name.startswith("airflow_mv_provider.")}
    assert not [name for name in loaded if name.startswith(("pyspark", "delta"))]
    assert not {"runner", "spark"} & rooms
    assert not [name for name in loaded if name.startswith("airflow_mv_provider.sources.") and "reader" in name]
    assert "operators" in rooms


@pytest.mark.parametrize("file", sorted(EXAMPLES.iterdir()), ids=lambda file: file.name)
def test_no_example_is_named_like_a_library(file):
    """Airflow puts the folder on sys.path: delta.py there would hide the library."""
    assert file.stem not in sys.stdlib_module_names | {"airflow", "delta", "pyspark", "pydantic", "sqlalchemy", "py4j"}


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_each_definition_file_is_one(file):
    assert definition_file.load(file)

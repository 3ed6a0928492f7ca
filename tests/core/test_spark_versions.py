"""Which versions of Spark can be used, and which of its packages beside each other."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from airflow_mv_provider.core.spark_versions import REQUIRED, packages_problem, spark_problem

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["4.0.0", "4.1.1", "4.2.0", "4.2.1-amzn-0", "4.2", "another"])
def test_versions_that_work_have_no_problem(version):
    assert spark_problem(version) is None


@pytest.mark.parametrize("version", ["3.5.6", "4.3.0", "5.0.0", "3.10"])
def test_version_that_is_too_old_or_too_new_is_named_with_what_is_needed(version):
    assert spark_problem(version) == f"version {version}, and this package needs 4.0 to 4.2"


def test_range_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (demanded,) = (each for each in project["dependencies"] if each.startswith("pyspark["))

    assert demanded == REQUIRED
    assert spark_problem("4.2.99") is None
    assert spark_problem("4.3") is not None


def test_packages_of_two_versions_share_their_files():
    assert packages_problem("4.2.0", None) is None
    assert packages_problem("4.2.0", "4.2.0") is None
    assert packages_problem("4.2.0", "4.1.1") == (
        "pyspark 4.2.0 and pyspark-client 4.1.1 are installed, and each has overwritten files of the other"
    )

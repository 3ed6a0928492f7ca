"""A record says what ran and how it ended, a failed case too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

pytestmark = pytest.mark.victim("disk")


def test_one():
    pass


def test_several(cases):
    for number in range(3):
        with cases(f"number {number}"):
            assert number != 1


def test_not_set_up(nothing):
    pass
"""


def test_each_case_is_recorded_whatever_became_of_the_others(tmp_path):
    (tmp_path / "test_a.py").write_text(TESTS)
    record = tmp_path / "records/a.json"
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); import pytest; sys.exit(pytest.main())"
    options = ["-p", "tests.record", "-p", "no:cacheprovider", "-q", "--record", str(record), "test_a.py"]

    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT), *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(record.read_text())
    outcomes = {case["case"]: case["outcome"] for case in found["cases"]}
    assert outcomes == {
        "test_one": "passed",
        **{"test_several number 0": "passed", "test_several number 1": "failed", "test_several number 2": "passed"},
        "test_several": "failed",  # at its end
        "test_not_set_up": "failed",
    }
    assert found["victims"] == {"disk": {"passed": 3, "failed": 3}}
    assert found["versions"]["pyspark"]

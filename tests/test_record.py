"""A record says what ran and how it ended, a failed case too."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "in a process of its own"])
def test_each_case_is_recorded_whatever_became_of_the_others(tmp_path, processes):
    (tmp_path / "test_a.py").write_text(TESTS)
    record = tmp_path / "records/a.json"
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); import pytest; sys.exit(pytest.main())"
    options = ["-p", "tests.record", "-p", "no:cacheprovider", "-q", "--record", str(record), *processes, "test_a.py"]

    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT), *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
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
    assert found["files"]["test_a.py"]["outcomes"] == {"passed": 3, "failed": 3}
    assert found["versions"]["pyspark"]


INTERRUPTED = """
import os

import pytest


def test_one():
    with open("ran", "a") as ran:
        ran.write("one ")
    if os.path.exists("changes"):
        open("tests/test_a.py", "a").write("# changed")


def test_fails():
    with open("ran", "a") as ran:
        ran.write("fails ")
    assert os.path.exists("mended")


def test_three():
    with open("ran", "a") as ran:
        ran.write("three ")
    if not os.path.exists("mended"):
        raise KeyboardInterrupt
"""


Run = Callable[..., int]


def commit(place: Path, files: dict[str, str]) -> str:
    """Commit files in the repository of a test, which is made if there is none; returns the commit."""

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, cwd=place, capture_output=True, text=True, check=True).stdout.strip()

    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    git("init", "--quiet")
    git("add", "--force", *files)
    git("commit", "--quiet", "-m", "all")
    return git("rev-parse", "HEAD")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run tests in a repository of their own: what ran on changes that are not committed is run again."""
    record = (ROOT / "tests/record.py").read_text()
    commit(tmp_path, {"tests/record.py": record, "tests/test_a.py": INTERRUPTED, ".gitignore": "*"})
    options = ["-p", "tests.record", "-p", "no:cacheprovider", "-q", "--record", "a.json", "tests"]

    def run(*more: str) -> int:
        command = [sys.executable, "-m", "pytest", *options, *more]
        env = os.environ | {"PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False).returncode

    return run


def test_run_that_was_interrupted_goes_on_where_it_was(tmp_path, run):
    assert run() == pytest.ExitCode.INTERRUPTED
    assert not (tmp_path / "a.json").exists()
    (tmp_path / "mended").touch()

    assert run("-p", "xdist", "-n", "1") == pytest.ExitCode.OK

    assert (tmp_path / "ran").read_text().split() == ["one", "fails", "three", "fails", "three"]
    assert json.loads((tmp_path / "a.json").read_text())["outcomes"] == {"passed": 3}
    assert not list(tmp_path.glob("*.part"))


OTHER = """
def test_two():
    with open("ran", "a") as ran:
        ran.write("two ")
"""


@pytest.mark.parametrize(
    ("changed", "ran"),
    [
        ({"tests/records/b.json": "{}"}, "fails three"),
        ({"tests/test_0.py": OTHER + "    assert True\n"}, "two fails three"),
        (
            {"tests/test_b.py": "from tests.test_0 import test_two as _\n", "tests/test_0.py": OTHER + "\n"},
            "two one fails three",
        ),
        ({"README.md": "read me"}, "two one fails three"),
        ({"tests/helper.py": "x = 1"}, "two one fails three"),
        ({"package.py": "x = 1"}, "two one fails three"),
    ],
)
def test_after_a_commit_only_what_it_may_change_is_run_again(tmp_path, run, changed, ran):
    commit(tmp_path, {"tests/test_0.py": OTHER})
    assert run() == pytest.ExitCode.INTERRUPTED
    (tmp_path / "mended").touch()
    (tmp_path / "ran").unlink()
    commit(tmp_path, changed)

    assert run() == pytest.ExitCode.OK

    assert (tmp_path / "ran").read_text().split() == ran.split()
    assert json.loads((tmp_path / "a.json").read_text())["outcomes"] == {"passed": 4}


def test_what_passed_on_changes_that_were_not_committed_is_run_again(tmp_path, run):
    commit(tmp_path, {"package.py": "x = 1"})
    (tmp_path / "package.py").write_text("x = 2")
    assert run() == pytest.ExitCode.INTERRUPTED
    (tmp_path / "mended").touch()
    (tmp_path / "package.py").write_text("x = 1")

    assert run() == pytest.ExitCode.OK

    assert (tmp_path / "ran").read_text().split() == ["one", "fails", "three"] * 2


def test_another_record_that_is_not_committed_yet_is_no_change(tmp_path, run):
    (tmp_path / "mended").touch()
    commit(tmp_path, {"tests/records/b.json": "{}"})
    (tmp_path / "tests/records/b.json").write_text("{ }")

    assert run() == pytest.ExitCode.OK

    assert json.loads((tmp_path / "a.json").read_text())["is_changed_since"] is False


def test_run_in_which_a_test_failed_goes_on_with_that(tmp_path, run):
    assert run("-k", "one or fails") == pytest.ExitCode.TESTS_FAILED
    assert json.loads((tmp_path / "a.json").read_text())["outcomes"] == {"passed": 1, "failed": 1}
    (tmp_path / "mended").touch()

    assert run() == pytest.ExitCode.OK

    assert (tmp_path / "ran").read_text().split() == ["one", "fails", "fails", "three"]
    assert json.loads((tmp_path / "a.json").read_text())["outcomes"] == {"passed": 3}


def test_run_that_has_nothing_left_to_do_is_recorded(tmp_path, run):
    assert run() == pytest.ExitCode.INTERRUPTED

    assert run("-k", "one") == pytest.ExitCode.NO_TESTS_COLLECTED

    assert json.loads((tmp_path / "a.json").read_text())["outcomes"] == {"passed": 1}


def test_run_of_no_test_is_no_record(tmp_path, run):
    assert run("-k", "nothing") == pytest.ExitCode.NO_TESTS_COLLECTED

    assert not (tmp_path / "a.json").exists()


def test_code_that_changes_while_it_is_tested_is_noticed(tmp_path, run):
    (tmp_path / "mended").touch()
    (tmp_path / "changes").touch()

    assert run() == pytest.ExitCode.OK

    assert json.loads((tmp_path / "a.json").read_text())["is_changed_since"] is True


@pytest.fixture(scope="module")
def release_check() -> Any:
    spec = importlib.util.spec_from_file_location("mv_release_check", ROOT / "scripts/release_check.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


GOOD = {"is_changed_since": False, "outcomes": {"passed": 7}, "files": {}}


@pytest.mark.parametrize(
    ("record", "changes", "why"),
    [
        (GOOD, [], None),
        (GOOD, ["a", "b"], "is 2 commits of the protocol behind"),
        (GOOD | {"is_changed_since": True}, [], "ran with changes that were not committed"),
        (GOOD | {"outcomes": {"passed": 7, "failed": 1}}, [], "has 1 failed cases"),
        ({"is_changed_since": False, "outcomes": {"failed": 1}, "violation": None, "faults": {}}, [], None),
        (
            {"is_changed_since": False, "outcomes": {}, "violation": "a row is twice", "faults": {}},
            [],
            "found a violation: a row is twice",
        ),
        (None, [], "was never run to its end"),
    ],
)
def test_record_speaks_for_the_code_that_it_ran_on_alone(release_check, record, changes, why):
    assert release_check.obstacle(record, changes) == why


def test_only_changes_of_the_protocol_outdate_a_record(release_check, tmp_path):
    recorded = commit(tmp_path, {"airflow_mv_provider/runner/a.py": "x = 1"})
    commit(tmp_path, {"docs/a.md": "x"})
    assert release_check.changes_since(recorded, tmp_path) == []

    added = commit(tmp_path, {"airflow_mv_provider/core/a.py": "x = 1"})

    assert release_check.changes_since(recorded, tmp_path) == [added]
    assert release_check.changes_since("0" * 40, tmp_path) == [""]


@pytest.mark.parametrize(
    ("before", "after", "outdates"),
    [
        ("x = 1", "x = 2", True),
        ("x = 1", "x = 1  # a row", False),
        ("x: int = Field(default=1)", "x: int = Field(default=2)", True),
        ("x: int = Field(default=1, description='A row.')", "x: int = Field(default=1, examples=[2])", False),
        ("x: int", "x: int = Field(description='A row.')", False),
        ("x: int = 1", "x: int = Field(default=1, description='A row.')", False),
        ("x: int = 1", "x: int = Field(default=2)", True),
        ("def one():\n    return 1", "def one():\n    'One.'\n    return 1", False),
        ("def one():\n    'One.'\n    return 1", "def one():\n    'One.'\n    return 2", True),
        ("class One:\n    'One.'", "class One:\n    'Another.'", False),
        ("x = 'One.'", "x = 'Another.'", True),
        ("raise One('a', f'{x} is bad.')", "raise One('a', f'bad: {x}')", False),
        ("raise One('a', f'{x} is bad.')", "raise One('a', f'{y} is bad.')", True),
        ("raise One('a')", "raise Another('a')", True),
        ("x = OneError('a')", "x = OneError('b')", False),
        ("hint = 'Do this.'", "hint = 'Do that.'", False),
        ("one()", "one(hint='Do that.')", False),
        ("problem = f'{x} is bad.'", "problem = f'bad: {x}'", False),
        ("problem = f'{x} is bad.'", "problem = f'{y} is bad.'", True),
        ("problem = ''", "problem = 'It is bad.'", True),
        ("one(name='this')", "one(name='that')", True),
    ],
)
def test_words_that_only_people_read_outdate_no_record(release_check, tmp_path, before, after, outdates):
    recorded = commit(tmp_path, {"airflow_mv_provider/core/a.py": before})
    changed = commit(tmp_path, {"airflow_mv_provider/core/a.py": after})

    assert release_check.changes_since(recorded, tmp_path) == ([changed] if outdates else [])


def test_pages_tell_of_the_records_as_these_are(release_check):
    """`scripts/release_check.py --page` writes them."""
    for page, text in release_check.pages().items():
        assert page.read_text(encoding="utf-8") == text


REST = {"versions": {"python": "3.11.7", "apache-airflow": "3.3.2", "pyspark": "4.2.0"}}
CASES = [
    *(("test_a[Airflow-3.1.8 Spark-4.0.1 Python-3.11-slow]", "passed"), ("test_a[Spark-4.10.0 Python-3.11]", "passed")),
    *(("test_a[Python-3.12]", "passed"), ("test_b[Python-3.12]", "failed"), ("test_b[Python-3.13]", "skipped")),
]


def test_versions_are_those_of_environments_in_which_all_passed(release_check):
    matrix = {"cases": [{"case": case, "outcome": outcome} for case, outcome in CASES]}

    tried = release_check.versions(REST, matrix)

    assert tried == {"Python": ["3.11"], "Airflow": ["3.1.8", "3.3.2"], "Spark": ["4.0.1", "4.2.0", "4.10.0"]}
    assert "airflow-3.1%20to%203.3-blue" in release_check.badges(tried)
    assert "python-3.11-blue" in release_check.badges(tried)
    assert "| 3.11 | 3.1.8, 3.3.2 | 4.0.1, 4.2.0, 4.10.0 |" in release_check.versions_table(tried)


def test_without_a_record_of_the_matrix_only_what_all_tests_ran_on_is_claimed(release_check):
    assert release_check.versions(REST, None) == {"Python": ["3.11"], "Airflow": ["3.3.2"], "Spark": ["4.2.0"]}


def test_the_package_claims_the_pythons_that_were_tried(release_check):
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())

    records = {run.name: release_check.read(run) for run in release_check.RUNS}

    assert classifiers == release_check.versions(records["test-rest"], records["matrix"])["Python"]

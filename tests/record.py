"""Records of long runs: `--record FILE` writes what ran, when, on which versions, and how each case ended, as JSON.

    .venv/bin/pytest -n 2 --every-case -m victim --record=tests/records/crash-matrix.json

`@pytest.mark.victim("...")` says what dies in a test; a test that lets several die at once names each of its cases
with the fixture `cases`. These are recorded one by one, all other tests by file. Only a run that came to its end writes
a record. One that did not, or in which a test failed, leaves FILE.part: the same command goes on from there, without
the tests that have passed. Commits in between may change test files that no other file imports: their tests are run
again.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

_CASES = pytest.StashKey[list[dict[str, Any]]]()
_RECORDER = pytest.StashKey["_Recorder"]()
_PROPERTY = "recorded cases"
_PASSED = "passed before"
_KEPT_EVERY_S = 20
_PACKAGES = ("pyspark", "delta-spark", "apache-airflow", "sqlalchemy", "psycopg", "pytest")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("records")
    group.addoption("--record", metavar="FILE", default="", help="write what ran and how it ended, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "victim(name): a case of the crash matrix, by what dies in it")
    is_worker = hasattr(config, "workerinput")  # one of several processes: the one that started them writes
    if config.getoption("--record") and not is_worker:
        config.stash[_RECORDER] = _Recorder(Path(config.getoption("--record")))
        config.pluginmanager.register(config.stash[_RECORDER])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of the run which tests it need not run."""
    if (recorder := node.config.stash.get(_RECORDER, None)) is not None:
        node.workerinput[_PASSED] = sorted(recorder.passed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        passed = frozenset(config.workerinput.get(_PASSED, ()))
    else:
        passed = config.stash[_RECORDER].passed if _RECORDER in config.stash else frozenset()
    if left_out := [item for item in items if item.nodeid in passed]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in passed]


Case = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Iterator[Case]:
    """Count a test's cases one by one: `with cases("publish.after"): ...`; each runs, whatever became of others."""
    found: list[dict[str, Any]] = request.node.stash.setdefault(_CASES, [])
    failures = []

    @contextmanager
    def case(name: str) -> Iterator[None]:
        begun, outcome = time.monotonic(), "failed"
        try:
            yield
            outcome = "passed"
        except Exception as error:
            failures.append(f"{name}: {error!r}")
        finally:
            seconds = round(time.monotonic() - begun, 1)
            found.append({"case": f"{request.node.name} {name}", "outcome": outcome, "seconds": seconds})

    yield case
    assert not failures, "\n".join(failures)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Put a test's cases into its report, which reaches whoever records, in this process or in another."""
    report = yield
    if call.when == "call" or report.failed or report.skipped:
        marker = item.get_closest_marker("victim")
        one = {"case": item.name, "outcome": report.outcome, "seconds": round(call.duration, 1)}
        found = item.stash.get(_CASES, []) or [one]
        named = {"victim": marker.args[0] if marker else "", "test": item.nodeid.partition("::")[0]}
        report.user_properties.append((_PROPERTY, [named | each for each in found]))
        item.stash[_CASES] = []
    return report


def _is_named(case: dict[str, Any]) -> bool:
    """True if a record tells of a case by its name: which victim, which version, or what failed."""
    return bool(case["victim"]) or case["test"].startswith("tests/matrix/") or case["outcome"] == "failed"


class _Recorder:
    """Collects the cases of a run; one test is one case unless it has named its own.

    passed : the tests that passed before this run was interrupted
    """

    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        self._part = self._file.with_name(f"{file.name}.part")
        self._surroundings = surroundings()
        before = self._read_part()
        self._begun: str = before.get("begun", datetime.now(UTC).isoformat(timespec="seconds"))
        self._seconds_before: float = before.get("seconds", 0.0)
        self._started = self._kept = time.monotonic()
        self._cases: dict[str, list[dict[str, Any]]] = before.get("tests", {})
        self.passed = frozenset(self._cases)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found: Any = dict(report.user_properties).get(_PROPERTY, [])
        self._cases.setdefault(report.nodeid, []).extend(found)
        if time.monotonic() - self._kept > _KEPT_EVERY_S:
            self._keep_part()

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        had_none_left = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.passed
        self._keep_part()
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not had_none_left:
            return
        victims: dict[str, Counter[str]] = {}
        files: dict[str, dict[str, Any]] = {}
        every = [case for cases in self._cases.values() for case in cases]
        for case in every:
            of_file = files.setdefault(case["test"], {"outcomes": Counter(), "seconds": 0.0})
            of_file["outcomes"][case["outcome"]] += 1
            of_file["seconds"] = round(of_file["seconds"] + case["seconds"], 1)
            if case["victim"]:
                victims.setdefault(case["victim"], Counter())[case["outcome"]] += 1
        document = {
            "begun": self._begun,
            "minutes": round(self._seconds / 60, 1),
            **self._surroundings,
            "is_changed_since": self._surroundings["is_changed_since"] or self._has_changed(),
            "outcomes": Counter(case["outcome"] for case in every),
            "victims": victims,
            "files": dict(sorted(files.items())),
            "cases": [case for case in every if _is_named(case)],
        }
        write(self._file, document)
        if not document["outcomes"]["failed"]:
            self._part.unlink(missing_ok=True)

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._started

    def _has_changed(self) -> bool:
        """True if what is tested is no longer what it was when the run began."""
        return not code().items() <= self._surroundings.items()

    def _read_part(self) -> dict[str, Any]:
        if not self._part.exists():
            return {}
        found: dict[str, Any] = json.loads(self._part.read_text(encoding="utf-8"))
        then, now = found["surroundings"], self._surroundings
        is_committed = not then["is_changed_since"] and not now["is_changed_since"]
        if not is_committed or any(then[name] != now[name] for name in ("versions", "cores")):
            return {}
        changed = _changed_since(then["commit"])
        if changed is None or not all(map(_decides_of_itself, changed)):
            return {}
        same = {test: cases for test, cases in found["tests"].items() if test.partition("::")[0] not in changed}
        return found | {"tests": same}

    def _keep_part(self) -> None:
        """Keep what has passed; a test that failed, or one of whose cases did, is run again."""
        self._kept = time.monotonic()
        if self._has_changed():
            return
        good = {test: cases for test, cases in self._cases.items() if _has_passed(cases)}
        found = {"surroundings": self._surroundings, "begun": self._begun, "seconds": self._seconds, "tests": good}
        self._part.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._part.with_name(f"unfinished-{self._part.name}")
        unfinished.write_text(json.dumps(found), encoding="utf-8")
        unfinished.replace(self._part)  # whoever is killed while writing leaves the former one


def _changed_since(commit: str) -> list[str] | None:
    """Return the files that differ from those of a commit; None if it is not known."""
    done = _run_git("diff", "--name-only", "--no-renames", commit, "HEAD")
    return done.stdout.split() if done.returncode == 0 else None


def _decides_of_itself(path: str) -> bool:
    """True if a file decides of no other tests than its own whether they pass: a test file that no other imports."""
    if path.startswith("tests/records/") or path == "tests/record.py":
        return True
    folder, _, name = path.rpartition("/")
    if path.partition("/")[0] != "tests" or not name.startswith("test_"):
        return False
    module = f"{folder}/{name.removesuffix('.py')}".replace("/", ".")
    return not any(module in file.read_text(encoding="utf-8") for file in Path(__file__).parent.rglob("*.py"))


def _has_passed(cases: list[dict[str, Any]]) -> bool:
    return bool(cases) and all(case["outcome"] != "failed" for case in cases)


def code() -> dict[str, Any]:
    """Return the commit, and whether the files that it tracks are others."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "is_changed_since": bool(
            _git("status", "--porcelain", "--untracked-files=no", "--", ":(top,exclude)tests/records")
        ),
    }


def surroundings() -> dict[str, Any]:
    """Return the commit and the versions that a record is of."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return {
        **code(),
        "versions": {
            "python": platform.python_version(),
            "java": java.split('"')[1] if '"' in java else "",
            **{name: version(name) for name in _PACKAGES},
        },
        "cores": os.cpu_count(),
    }


def write(file: Path, document: dict[str, Any]) -> None:
    """Write a record, one case a line and one file a line."""
    lists = {name: document.pop(name, None) for name in ("files", "cases")}
    text = json.dumps(document, indent=2)[:-2]
    if lists["files"]:
        lines = ",\n".join(f"    {json.dumps(path)}: {json.dumps(of)}" for path, of in lists["files"].items())
        text += f',\n  "files": {{\n{lines}\n  }}'
    if lists["cases"]:
        lines = ",\n".join(f"    {json.dumps(case)}" for case in lists["cases"])
        text += f',\n  "cases": [\n{lines}\n  ]'
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n}\n", encoding="utf-8")


def _git(*arguments: str) -> str:
    return _run_git(*arguments).stdout.strip()


def _run_git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)

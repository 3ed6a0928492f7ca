"""Records of long runs: `--record FILE` writes what ran, when, on which versions, and how each case ended, as JSON.

    .venv/bin/pytest -n 2 --every-case -m victim --record tests/records/crash-matrix.json

`@pytest.mark.victim("...")` says what dies in a test; a test that lets several die at once names each of its cases
with the fixture `cases`. These are recorded one by one, all other tests by file. Only a run that was not interrupted
writes a record.
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
_PROPERTY = "recorded cases"
_PACKAGES = ("pyspark", "delta-spark", "apache-airflow", "sqlalchemy", "psycopg", "pytest")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("records")
    group.addoption("--record", metavar="FILE", default="", help="write what ran and how it ended, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "victim(name): a case of the crash matrix, by what dies in it")
    is_worker = hasattr(config, "workerinput")  # one of several processes: the one that started them writes
    if config.getoption("--record") and not is_worker:
        config.pluginmanager.register(_Recorder(Path(config.getoption("--record"))))


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


class _Recorder:
    """Collects the cases of a run; one test is one case unless it has named its own."""

    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        self._begun = datetime.now(UTC)
        self._cases: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._cases += dict(report.user_properties).get(_PROPERTY, [])

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        victims: dict[str, Counter[str]] = {}
        files: dict[str, dict[str, Any]] = {}
        for case in self._cases:
            of_file = files.setdefault(case["test"], {"outcomes": Counter(), "seconds": 0.0})
            of_file["outcomes"][case["outcome"]] += 1
            of_file["seconds"] = round(of_file["seconds"] + case["seconds"], 1)
            if case["victim"]:
                victims.setdefault(case["victim"], Counter())[case["outcome"]] += 1
        ended = datetime.now(UTC)
        document = {
            "begun": self._begun.isoformat(timespec="seconds"),
            "minutes": round((ended - self._begun).total_seconds() / 60, 1),
            **surroundings(),
            "outcomes": Counter(case["outcome"] for case in self._cases),
            "victims": victims,
            "files": dict(sorted(files.items())),
            "cases": [case for case in self._cases if case["victim"] or case["outcome"] == "failed"],
        }
        write(self._file, document)


def surroundings() -> dict[str, Any]:
    """Return the commit and the versions that a record is of."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return {
        "commit": _git("rev-parse", "HEAD"),
        "is_changed_since": bool(_git("status", "--porcelain", "--untracked-files=no", "--", ":!tests/records")),
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
    done = subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()

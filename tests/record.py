"""Records of long runs: `--record FILE` writes what ran, when, on which versions, and how each case ended, as JSON.

    .venv/bin/pytest --every-case -m victim --record tests/records/crash-matrix.json

`@pytest.mark.victim("...")` says what dies in a test; a test that lets several die at once names each of its cases
with the fixture `cases`. Only a run that was not interrupted writes a record.
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
_PACKAGES = ("pyspark", "delta-spark", "apache-airflow", "sqlalchemy", "psycopg", "pytest")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("records")
    group.addoption("--record", metavar="FILE", default="", help="write what ran and how it ended, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "victim(name): a case of the crash matrix, by what dies in it")
    if config.getoption("--record"):
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


class _Recorder:
    """Collects the cases of a run; one test is one case unless it has named its own."""

    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        self._begun = datetime.now(UTC)
        self._cases: list[dict[str, Any]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if call.when == "call" or report.failed:
            found = item.stash.get(_CASES, [])
            one = {"case": item.name, "outcome": report.outcome, "seconds": round(call.duration, 1)}
            marker = item.get_closest_marker("victim")
            victim = marker.args[0] if marker else ""
            of = item.nodeid.partition("::")[0]
            self._cases += [{"victim": victim, "test": of} | each for each in found or [one]]
            item.stash[_CASES] = []
        return report

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        by_victim: dict[str, Counter[str]] = {}
        for case in self._cases:
            by_victim.setdefault(case["victim"], Counter())[case["outcome"]] += 1
        ended = datetime.now(UTC)
        document = {
            "begun": self._begun.isoformat(timespec="seconds"),
            "minutes": round((ended - self._begun).total_seconds() / 60, 1),
            **surroundings(),
            "outcomes": Counter(case["outcome"] for case in self._cases),
            "victims": by_victim,
            "cases": self._cases,
        }
        write(self._file, document)


def surroundings() -> dict[str, Any]:
    """Return the commit and the versions that a record is of."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return {
        "commit": _git("rev-parse", "HEAD"),
        "is_changed_since": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "versions": {
            "python": platform.python_version(),
            "java": java.split('"')[1] if '"' in java else "",
            **{name: version(name) for name in _PACKAGES},
        },
        "cores": os.cpu_count(),
    }


def last_run(file: Path) -> str:
    """Return what docs/reliability.md says of a record."""
    if not file.exists():
        return f"`tests/records/{file.name}`: not run to its end yet."
    found = json.loads(file.read_text(encoding="utf-8"))
    what = ", ".join(f"{number} {outcome}" for outcome, number in found["outcomes"].items())
    return f"`tests/records/{file.name}`: {found['begun'][:10]}, commit {found['commit'][:7]}: {what}."


def write(file: Path, document: dict[str, Any]) -> None:
    """Write a record, one case a line."""
    cases = document.pop("cases", [])
    head = json.dumps(document, indent=2)
    lines = ",\n".join(f"    {json.dumps(case)}" for case in cases)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{head[:-2]},\n  "cases": [\n{lines}\n  ]\n}}\n', encoding="utf-8")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()

"""What each test costs: `--cpu FILE` writes the CPU seconds of each, and prints them by folder and by file.

    make test-cpu

Both cores are busy during all of `make test`, so CPU seconds decide how long it takes; unlike seconds by the clock
they can be compared where other work runs beside it. A test's seconds are those of its worker process and of all
processes below it: its JVM, and servers and commands that it starts. What a process does meanwhile for no test in
particular (the JVM's compiler, a server that idles) counts for the test that is running then.
"""

from __future__ import annotations

import csv
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

_LABEL = "cpu_s"
_FILES_SHOWN = 25


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cpu")
    group.addoption("--cpu", metavar="FILE", default="", help="write the CPU seconds of each test, as CSV")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--cpu"):
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(_Summary(Path(file).absolute()))
        config.pluginmanager.register(_Meter())


class _Meter:
    """Notes on each report what was spent since the one before, in the process that runs the tests."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._spent = self._until_now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[Any]:
        # A look at all processes takes longer than most tests that start none.
        if item.get_closest_marker("slow"):
            now = self._until_now()
            item.user_properties.append((_LABEL, max(0.0, now - self._spent)))
            self._spent = now
        return (yield)

    def _until_now(self) -> float:
        spent = 0.0
        for process in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.Error):
                spent += sum(process.cpu_times()[:4])  # user and system, its own and of children that have ended
        return spent


class _Summary:
    """Collects what the reports say, in the process that prints."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begun = time.monotonic()
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            spent = sum(float(str(value)) for name, value in report.user_properties if name == _LABEL)
            if spent:
                self._seconds[report.nodeid] = spent

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        by_spent = sorted(self._seconds.items(), key=lambda each: -each[1])
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("w", encoding="utf-8", newline="") as written:
            csv.writer(written).writerows((f"{spent:.2f}", test) for test, spent in by_spent)
        folders, files = defaultdict[str, float](float), defaultdict[str, float](float)
        for test, spent in by_spent:
            file = test.partition("::")[0].removeprefix("tests/")
            files[file] += spent
            folders[file.partition("/")[0]] += spent
        clock = time.monotonic() - self._begun
        terminalreporter.section(f"{sum(folders.values()):.0f} CPU seconds of slow tests in {clock:.0f} s")
        for title, found in (("folders", folders), ("files", files)):
            terminalreporter.write_line(f"{title}:")
            for name, spent in sorted(found.items(), key=lambda each: -each[1])[:_FILES_SHOWN]:
                terminalreporter.write_line(f"  {spent:7.1f}  {name}")

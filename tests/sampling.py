"""What `make test` runs of the long matrices: a fixed set of cases; `make test-all` (`--every-case`) runs all.

A refresh on real Spark takes seconds, and a matrix of crash points is dozens of them. `@pytest.mark.sample(n)` on a
parametrised test keeps n of its cases, or n of each group that `by` makes of their ids. `@pytest.mark.in_test_all`
leaves a whole test to `make test-all`: a promise of docs/reliability.md has a test without that mark. Which cases are
kept is drawn once for all; `sample("atomic-publish.after")` names the one that shows most for its time.
The set is fixed, so that a failure belongs to the change that caused it; `--seed` draws another sample. A test that is
asked for by name runs whole.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict

import pytest

_SEED = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sampling")
    group.addoption("--every-case", action="store_true", help="run every case of the long matrices, not a sample")
    group.addoption("--matrix", action="store_true", help="run the tests in environments of other versions, too")
    group.addoption("--of-each-file", type=int, metavar="N", help="run N tests of each file, always the same ones")
    group.addoption("--seed", default="0", help="draw the sample that this seed gives (default: 0)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "sample(n, by): a run keeps n of a test's cases, or n of each group that `by` makes of their ids; sample(id):"
        " this one",
    )
    config.addinivalue_line("markers", "in_test_all: `make test` leaves it to `make test-all`")
    config.stash[_SEED] = str(config.getoption("--seed"))


def pytest_report_header(config: pytest.Config) -> str:
    if _is_whole(config):
        return "long matrices: every case"
    return f"long matrices: a sample by --seed={config.stash[_SEED]}; --every-case runs all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--matrix"):
        _leave_out(config, items, [item for item in items if item.get_closest_marker("matrix")])
    if num_kept := config.getoption("--of-each-file"):
        files: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            files[item.nodeid.partition("::")[0]].append(item)
        _leave_out(config, items, [each for of in files.values() for each in _left_out(of, num_kept, "0")])
    if _is_whole(config):
        return
    groups: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    kept: dict[tuple[str, str], int | str] = {}
    for item in items:
        marker = item.get_closest_marker("sample")
        if marker is not None:
            test, _, case = item.nodeid.partition("[")
            by = marker.kwargs.get("by")
            group = (test, by(case[:-1]) if by else "")
            groups[group].append(item)
            kept[group] = marker.args[0]
    left_out = {item.nodeid for item in items if item.get_closest_marker("in_test_all")} | {
        item.nodeid for group, cases in groups.items() for item in _left_out(cases, kept[group], config.stash[_SEED])
    }
    _leave_out(config, items, [item for item in items if item.nodeid in left_out])


def _leave_out(config: pytest.Config, items: list[pytest.Item], left_out: list[pytest.Item]) -> None:
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = {item.nodeid for item in left_out}
        items[:] = [item for item in items if item.nodeid not in gone]


def _is_whole(config: pytest.Config) -> bool:
    is_named = any("::" in argument for argument in config.args) or bool(config.getoption("keyword"))
    return bool(config.getoption("--every-case") or config.getoption("--of-each-file")) or is_named


def _left_out(cases: list[pytest.Item], kept: int | str, seed: str) -> list[pytest.Item]:
    if isinstance(kept, int):
        return sorted(cases, key=lambda case: _drawn(seed, case.nodeid))[kept:]
    others = [case for case in cases if not case.nodeid.endswith(f"[{kept}]")]
    if len(others) == len(cases):
        raise pytest.UsageError(f"{cases[0].nodeid.partition('[')[0]} has no case {kept}.")
    return others


def _drawn(seed: str, case: str) -> bytes:
    return hashlib.sha256(f"{seed} {case}".encode()).digest()

"""Every test that docs/inputs.md names for a kind of bad input is there, down to the case."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from airflow_mv_provider import exceptions

TESTS = Path(__file__).parent
TEXT = (TESTS.parent / "docs/inputs.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)(?:\[([^\]]+)\])?`", TEXT)))
ROWS = [line for line in TEXT.splitlines() if line.startswith("|") and not re.match(r"\|(---|\s*input\s*\|)", line)]


@pytest.mark.parametrize(("file", "test", "case"), NAMED, ids=lambda part: part or None)
def test_named_test_is_there(file, test, case):
    found = functions(file).get(test)

    assert found is not None, f"{file} has no {test}"
    if case:
        assert case in ids_of(found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:60])
def test_each_row_names_a_test_and_its_errors_exist(row):
    _, given, gets, held_by, _ = re.split(r"(?<!\\)\|", row)

    assert given.strip()
    assert re.search(r"`[\w/]+\.py::\w+", held_by)
    for name in re.findall(r"`(\w+Error)`", gets):
        assert getattr(exceptions, name).hint


@cache
def functions(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def ids_of(function: ast.FunctionDef) -> set[str]:
    """Return the ids that a test's decorators give to its cases."""
    calls = (
        node for decorator in function.decorator_list for node in ast.walk(decorator) if isinstance(node, ast.Call)
    )
    return {
        keyword.value.value
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "id" and isinstance(keyword.value, ast.Constant)
    }

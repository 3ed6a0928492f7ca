"""What nobody may write into the package, and how the audit of its dependencies is understood."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "airflow_mv_provider").rglob("*.py"))
SCANNED = [*MODULES, *(path for part in ("dags", "scripts", "spark_apps") for path in (ROOT / part).glob("*.py"))]
# What turns data into code, or starts programs: JSON and safe YAML are all that is read.
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "subprocess", "pty", "ctypes", "xml"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "mktemp", "unsafe_load", "full_load"}


def test_nothing_that_is_read_becomes_code():
    unsafe = {}
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {alias.name.split(".")[0] for node in ast.walk(tree) for alias in _imports(node)}
        called = {_called(node) for node in ast.walk(tree) if isinstance(node, ast.Call)} - {"re.compile"}  # no code
        unsafe[path] = imported & UNSAFE_MODULES | called & (UNSAFE_CALLS | {f"os.{name}" for name in UNSAFE_CALLS})

    found = {str(path.relative_to(ROOT)): names for path, names in unsafe.items() if names}

    assert unsafe
    assert not found


def test_yaml_is_read_in_one_place_by_a_safe_loader():
    readers = [
        path.name for path in MODULES if re.search(r"^from yaml|yaml\.\w*(oad|scan|parse)", path.read_text(), re.M)
    ]

    text = (ROOT / "airflow_mv_provider/definition_file.py").read_text()

    assert readers == ["definition_file.py"]
    assert set(re.findall(r"yaml\.(\w*oad\w*)", text)) == {"SafeLoader"}
    assert "class _UniqueKeys(yaml.SafeLoader)" in text
    assert re.findall(r"(\w+)\(text\)$", text, re.M) == ["_UniqueKeys"]


def test_each_finding_that_is_set_aside_has_a_reason():
    marks = [
        (path.name, line.strip())
        for path in SCANNED
        for line in path.read_text(encoding="utf-8").splitlines()
        if "# nosec" in line
    ]

    assert marks, "the pattern finds none"
    assert [mark for mark in marks if not re.search(r"# nosec(?: B\d{3})+  # \w.{5,}", mark[1])] == []


def _imports(node: ast.AST) -> list[ast.alias]:
    if isinstance(node, ast.ImportFrom):
        return [ast.alias(node.module or "")]
    return node.names if isinstance(node, ast.Import) else []


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    is_plain = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    return f"{call.func.value.id}.{call.func.attr}" if is_plain else ""


# -- the audit of dependencies -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("mv_audit", ROOT / "scripts/audit.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VULNERABLE = {
    "name": "jinja2",
    "version": "2.10",
    "vulns": [{"id": "PYSEC-2019-217", "aliases": ["CVE-2019-10906"], "fix_versions": ["2.10.1"]}],
}
CLEAN = {"name": "click", "version": "8.5.1", "vulns": []}
SKIPPED = {"name": "rich", "skip_reason": "Dependency not found on PyPI and could not be audited: rich (15.0.0)"}


@pytest.mark.parametrize(
    ("packages", "accepted", "audited", "unknown", "problems"),
    [
        ([CLEAN], {}, 1, (), ()),
        ([CLEAN, VULNERABLE], {}, 2, (), ("jinja2 2.10: PYSEC-2019-217, fixed in 2.10.1",)),
        ([VULNERABLE], {"CVE-2019-10906": "a reason"}, 1, (), ()),
        ([CLEAN, SKIPPED], {}, 1, ("rich",), ()),
        ([SKIPPED], {}, 0, ("rich",), ()),  # a mirror: nothing was audited, whatever pip-audit makes of it
    ],
)
def test_package_that_no_service_knows_is_not_audited(audit, packages, accepted, audited, unknown, problems):
    found = audit.understood({"dependencies": packages, "fixes": []}, accepted)

    assert (found.audited, found.unknown, found.problems) == (audited, unknown, problems)

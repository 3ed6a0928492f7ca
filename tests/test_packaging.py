"""What the repository promises of itself: fixed names, and nothing of one machine or registry in any file."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent

# Names that the README, CI and users' habits rely on.
FIXED_NAMES = (
    ".airflow-registry.yaml",
    ".ci/run",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "airflow_mv_provider/__init__.py",
    "airflow_mv_provider/get_provider_info.py",
    "constraints.txt",
    "dags/flights.py",
    "dags/flights.yaml",
    "dags/refresh_on_demand.py",
    "docker-compose.yaml",
    "pyproject.toml",
    "scripts/setup.sh",
    "tests/test_packaging.py",
)

# Named by an entry point, not written yet. Take a module out when it arrives; this ends as an empty set.
PENDING_MODULES: set[str] = set()

# Where a machine keeps its own things. A container's /opt and /var are the same everywhere and may be named.
MACHINE_PATH = re.compile(r"(?<![\w.~}/-])/(?:work|root|home|Users|mnt|private)/[\w.]")

# An address or option that sends pip, uv, npm, Ivy or Maven to one registry.
REGISTRY = re.compile(
    r"--(?:extra-)?index-url|--find-links|--default-index"
    r"|(?:PIP|UV)_(?:EXTRA_|DEFAULT_)?INDEX(?:_URL)?\s*[=:]"
    r"|https?://(?:[\w.-]*\.)?(?:pypi\.org|pythonhosted\.org|npmjs\.org|repo1?\.maven\.(?:org|apache\.org)|maven\.org)"
)


def tracked_files() -> list[Path]:
    """List what git tracks and the tree still has; skip outside a checkout, such as an unpacked sdist."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked_files():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), start=1)
            if pattern.search(line)
        ]
    return found


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def exists(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def canonical(requirement: str) -> str:
    """Return the distribution's name in a requirement, in the form of PEP 503."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


@pytest.mark.parametrize(
    "line",
    [
        "cache = '/home/me/.ivy2'",
        "see /work/elsewhere for it",
        "path=/home/someone/x",
        "cd /Users/a/b",
    ],
)
def test_a_machine_path_is_recognised(line: str) -> None:
    assert MACHINE_PATH.search(line)


@pytest.mark.parametrize("line", ["raw/root/x", "~/work/x", "docs/home/index.md", "https://a.example/home/x"])
def test_an_innocent_path_is_not_taken_for_a_machine_path(line: str) -> None:
    assert not MACHINE_PATH.search(line)


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    assert lines_that_match(MACHINE_PATH) == []


def test_no_tracked_file_names_a_registry() -> None:
    assert lines_that_match(REGISTRY) == []


def test_no_tracked_file_keeps_the_marks_of_a_merge() -> None:
    assert lines_that_match(re.compile("^(<{7}|>{7})( |$)")) == []


def test_constraints_are_exact_pins_without_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()

    pins = [line for line in lines if line and not line.startswith("#")]

    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[\w.!+]+", pin)] == []


def test_constraints_pin_every_declared_dependency() -> None:
    metadata = project()["project"]
    pinned = {canonical(line) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}

    declared = [*metadata["dependencies"], *chain(*metadata["optional-dependencies"].values())]

    assert {canonical(requirement) for requirement in declared} - pinned == set()


def test_pyspark_and_its_client_are_pinned_to_one_version() -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())

    assert pins["pyspark"] == pins["pyspark-client"]


@pytest.mark.parametrize("name", FIXED_NAMES)
def test_git_tracks_the_fixed_names(name: str) -> None:
    assert ROOT / name in tracked_files()


@pytest.mark.parametrize("name", [".ci/run", "scripts/setup.sh", "docker/make-env.sh"])
def test_scripts_are_executable_in_git(name: str) -> None:
    tracked_files()
    entry = subprocess.run(["git", "ls-files", "-s", name], cwd=ROOT, check=True, capture_output=True, text=True)

    assert entry.stdout.startswith("100755 ")


def test_every_entry_point_names_a_module_that_exists() -> None:
    """Airflow imports each of its entry points at every command: one missing module breaks them all."""
    metadata = project()["project"]
    groups = [metadata["scripts"], *metadata.get("entry-points", {}).values()]

    modules = {target.partition(":")[0] for group in groups for target in group.values()}

    assert {module for module in modules if not exists(module)} <= PENDING_MODULES


def test_the_wheel_holds_every_file_of_the_package() -> None:
    """Templates, style sheet, script and log settings too: what only a checkout has is missed when it is too late."""
    from hatchling.builders.wheel import WheelBuilder

    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}

    ours = {
        str(file.relative_to(ROOT)) for file in tracked_files() if file.is_relative_to(ROOT / "airflow_mv_provider")
    }
    assert {Path(name).suffix for name in ours} >= {".py", ".html", ".css", ".js"}
    assert ours - packed == set()


def test_registry_file_lists_every_class_that_users_put_into_dags() -> None:
    listed = yaml.safe_load((ROOT / ".airflow-registry.yaml").read_text(encoding="utf-8"))

    classes = [entry["module"] for group in listed.values() if isinstance(group, list) for entry in group]

    assert listed["package-name"] == project()["project"]["name"]
    assert sorted(classes) == sorted(public_classes())


def public_classes() -> list[str]:
    """Return the operators, sensors, triggers, notifiers and hooks of the package, but not what others derive from."""
    package = ROOT / "airflow_mv_provider"
    files = [*(file for kind in ("operators", "sensors", "triggers", "hooks") for file in package.glob(f"{kind}/*.py"))]
    found = [
        f"{'.'.join(file.relative_to(ROOT).with_suffix('').parts)}.{node.name}"
        for file in [*files, package / "notifications.py"]
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        and re.fullmatch(r"[A-Z]\w*(Operator|Sensor|Trigger|Notifier|Hook)", node.name)
    ]
    return [name for name in found if not name.endswith(".task.MvOperator")]


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (".github/workflows/ci.yaml", "vendor.github-workflows"),
        (".github/workflows/release.yaml", "vendor.github-workflows"),
        (".github/dependabot.yml", "vendor.dependabot"),
    ],
)
def test_files_for_github_are_valid(file: str, kind: str) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", kind, file]

    run = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr


def test_importing_the_package_imports_nothing_heavy() -> None:
    """Provider discovery imports it while Airflow's configuration is still starting."""
    code = "import sys, airflow_mv_provider; print(sorted({m.partition('.')[0] for m in sys.modules}))"

    names = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert not {"airflow", "pyspark", "delta", "pydantic", "sqlalchemy"} & set(re.findall(r"\w+", names))


def test_ruff_bans_airflows_private_modules() -> None:
    banned = project()["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]

    expected = {"models", "utils.session", "settings", "decorators", "hooks", "sensors"}

    assert {name.removeprefix("airflow.") for name in banned} == expected
    assert all(entry["msg"] for entry in banned.values())

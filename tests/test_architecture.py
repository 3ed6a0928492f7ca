"""The rooms of the package: who may import whom."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from airflow_mv_provider.core import phase

PACKAGE = "airflow_mv_provider"
ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / PACKAGE).rglob("*.py"))

# A module's room is its first directory, or its own name where it lies at the top. A kind's model, frontier and entry,
# which are as pure as `core`, are a room of their own: the registry in `core/definition/kinds` finds them by name.
A_KIND = "sources/<kind>"
PURE_OF_A_KIND = {"model", "frontier", "kind"}
# What a room may import of ours:
BOTTOM = {
    "__init__": set(),
    "get_provider_info": set(),
    "exceptions": set(),
    "asset": set(),
    "compat": {"exceptions"},
    "postgres": set(),
    "core": {"exceptions"},
    "definition_file": {"core", "exceptions"},
    A_KIND: {"core", "exceptions"},
    "metadata": {"core", "exceptions", "postgres"},
    "spark": {"core", "exceptions"},
    "sources": {"core", "exceptions", "postgres", "spark", A_KIND},
    "report_text": {"core", "exceptions", "metadata"},
    "runner": {"core", "definition_file", "exceptions", "metadata", "report_text", "sources", "spark"},
}
# Airflow's rooms: parsing a DAG must not need PySpark, so what does is imported inside functions.
AIRFLOW = {"hooks", "operators", "sensors", "triggers", "decorators", "plugins", "api", "links", "notifications"} | {
    *("deadlines", "open_lineage")
}
AIRFLOW_AT_IMPORT = {
    "asset",
    "compat",
    "core",
    "exceptions",
    "metadata",
    "definition_file",
    "report_text",
    "__init__",
} | AIRFLOW
SURFACES = {"cli"}  # what a person starts: may import everything but Airflow's rooms
AIRFLOWS_OWN = {"cli/airflow_commands.py"}  # but this one lies there for what it has: the same commands
HEAVY = {"pyspark", "delta", "py4j", "pandas", "pyarrow"}
# Which libraries the lower rooms know; the standard library is everybody's.
LIBRARIES = {
    "__init__": set(),
    "get_provider_info": set(),
    "exceptions": set(),
    "asset": set(),
    "compat": {"airflow"},
    "postgres": {"psycopg"},
    "core": {"pydantic"},
    "definition_file": {"yaml", "croniter"},
    A_KIND: {"pydantic"},
    "metadata": {"sqlalchemy", "alembic", "psycopg"},
    "spark": {"pyspark", "delta", "py4j"},
    "sources": {"pyspark", "delta", "py4j", "psycopg", "pymysql", "confluent_kafka", "google", "sqlglot"},
    "report_text": {"rich"},
    "runner": {"pyspark", "delta", "py4j", "sqlalchemy", "click", "rich", "psutil"},
}
NO_NAMES = re.compile(r"util|helper|manager|misc|common", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target: `name` is absolute and dotted; `is_inner` if it runs inside a function."""

    line: int
    name: str
    is_inner: bool

    @property
    def library(self) -> str:
        return self.name.split(".")[0]

    @property
    def room(self) -> str | None:
        """The room of ours that is imported, or None for a library."""
        if self.library != PACKAGE:
            return None
        parts = self.name.split(".")
        return _room(parts[1:]) if len(parts) > 1 and _is_room(parts[1]) else "__init__"


def _is_room(name: str) -> bool:
    return (ROOT / PACKAGE / name).is_dir() or (ROOT / PACKAGE / f"{name}.py").is_file()


def _room(parts: Sequence[str]) -> str:
    """Return the room of a module, or of a name in it; `parts` is its path below the package."""
    return A_KIND if parts[0] == "sources" and len(parts) > 2 and parts[2] in PURE_OF_A_KIND else parts[0]


def short(path: Path) -> str:
    return path.relative_to(ROOT / PACKAGE).as_posix()


Check = Callable[[Path], None]


def for_each(paths: Sequence[Path]) -> Callable[[Check], Callable[[], None]]:
    """Make one test of a check of one module: it fails with what was found in all of them."""

    def decorate(check: Check) -> Callable[[], None]:
        def test() -> None:
            found = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    found.append(f"{short(path)}: {error}")
            assert not found, "\n".join(found)

        assert paths, "a check of no module cannot fail"
        test.__doc__ = check.__doc__
        return test

    return decorate


def room_of(path: Path) -> str:
    relative = path.relative_to(ROOT / PACKAGE)
    return "operators" if short(path) in AIRFLOWS_OWN else _room(relative.with_suffix("").parts)


@cache
def imports_of(path: Path) -> list[Import]:
    """Return what a module imports when it runs; what stands under TYPE_CHECKING is for type checkers alone."""
    package = [PACKAGE, *path.relative_to(ROOT / PACKAGE).parts[:-1]]
    return list(_imports(ast.parse(path.read_text(encoding="utf-8")), package, is_inner=False))


def _imports(node: ast.AST, package: list[str], *, is_inner: bool) -> Iterator[Import]:
    children = list(ast.iter_child_nodes(node))
    match node:
        case ast.Import():
            yield from (Import(node.lineno, alias.name, is_inner) for alias in node.names)
        case ast.ImportFrom():
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (Import(node.lineno, f"{name}.{alias.name}", is_inner) for alias in node.names)
        case ast.Call(func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"), args=[ast.Constant(name)]):
            yield Import(node.lineno, str(name), is_inner)
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            children = list(node.orelse)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            is_inner = True
    for child in children:
        yield from _imports(child, package, is_inner=is_inner)


def test_every_module_lies_in_a_room_that_has_rules():
    rooms = {room_of(path) for path in MODULES}

    unknown = rooms - set(BOTTOM) - AIRFLOW - SURFACES

    assert not unknown, f"say in {Path(__file__).name} what {sorted(unknown)} may import"


@for_each(MODULES)
def test_imports_run_one_way(path):
    room = room_of(path)

    for found in imports_of(path):
        if found.room is None or found.room == room:
            continue
        where = f"{short(path)}:{found.line} imports {found.name}"
        if room in BOTTOM:
            allowed = BOTTOM[room] | {"__init__"}
            if room == A_KIND and path.stem == "kind" and found.is_inner:
                allowed |= {"sources"}  # its reader, which needs PySpark
            assert found.room in allowed, f"{where}, but {room} may import {sorted(allowed)}"
        elif room in AIRFLOW:
            assert found.is_inner or found.room in AIRFLOW_AT_IMPORT, f"{where}; import it inside the function"
        else:
            assert found.room not in AIRFLOW, f"{where}; the command line works without Airflow"


@for_each([p for p in MODULES if not short(p).startswith("sources/")])
def test_only_sources_know_their_kinds(path):
    """All others ask for a capability (`RefreshableTable.source_kind`), so a new kind is one new folder."""
    kinds = {folder.name for folder in (ROOT / PACKAGE / "sources").iterdir() if folder.is_dir()}

    for found in imports_of(path):
        parts = found.name.split(".")
        assert parts[1:2] != ["sources"] or parts[2] not in kinds, (
            f"{short(path)}:{found.line} imports {found.name}; ask for what the kind can do (core/definition/kinds.py)"
        )
    text = path.read_text(encoding="utf-8")
    asks = "source.type" in text or re.search(r"source_kind\.name\s*(==|!=|in\b|not in\b)", text)
    assert not asks, f"{short(path)} asks which kind a source is"


@for_each([p for p in MODULES if room_of(p) == A_KIND])
def test_kinds_are_loaded_before_the_definition_that_lists_them(path):
    """`core.definition.table` imports every kind by its folder's name, which no import statement shows."""
    loaded, left = set[Path](), {path}
    while left:
        loaded |= left
        left = {file for each in left for file in _loaded_with(each)} - loaded

    assert ROOT / PACKAGE / "core/definition/table.py" not in loaded


def _loaded_with(path: Path) -> set[Path]:
    names = {found.name for found in imports_of(path) if not found.is_inner and found.library == PACKAGE}
    modules = names | {name.rpartition(".")[0] for name in names}
    return {file for name in modules if (file := ROOT / f"{name.replace('.', '/')}.py").is_file()}


def test_no_module_imports_itself_by_way_of_others():
    """Type-only imports and those inside functions included: who reads a file can read what it stands on first."""
    imports = {path: _ours_in(path) for path in MODULES}
    read = set[Path]()
    while ready := {path for path, below in imports.items() if path not in read and below <= read}:
        read |= ready

    left = sorted(short(path) for path in imports.keys() - read)

    assert not left, f"each of these imports itself by way of others, or one that does: {left}"


def _ours_in(path: Path) -> set[Path]:
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    files = ((ROOT / name.replace(".", "/")).with_suffix(".py") for name in names if name.startswith(f"{PACKAGE}."))
    return {file for file in files if file.is_file()} - {path}


@for_each([p for p in MODULES if room_of(p) in LIBRARIES])
def test_lower_rooms_know_only_their_libraries(path):
    room = room_of(path)
    allowed = LIBRARIES[room] | set(sys.stdlib_module_names) | {PACKAGE}

    for found in imports_of(path):
        assert found.library in allowed, (
            f"{short(path)}:{found.line} imports {found.name}; {room} may use the standard library"
            f" and {sorted(LIBRARIES[room])}"
        )


@for_each([p for p in MODULES if room_of(p) in AIRFLOW | SURFACES])
def test_surfaces_import_heavy_libraries_only_inside_functions(path):
    for found in imports_of(path):
        assert found.is_inner or found.library not in HEAVY, (
            f"{short(path)}:{found.line} imports {found.name}; parsing a DAG and `--help` must not need it"
        )


@for_each([p for p in MODULES if room_of(p) in ("api", "plugins")])
def test_the_page_needs_no_spark_whatever_it_is_asked(path):
    for found in imports_of(path):
        where = f"{short(path)}:{found.line} imports {found.name}"
        assert found.library not in HEAVY, where
        assert found.room not in ("spark", "sources"), where
        assert found.room != "runner" or found.name.startswith(f"{PACKAGE}.runner.local."), where


def test_import_rules_see_every_way_to_import(tmp_path):
    source = (
        "from __future__ import annotations\nimport a.b\nfrom c import d\nfrom . import e\nfrom ..spark import delta\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import hidden\nelse:\n    import seen\n"
        "try:\n    import f\nexcept ImportError:\n    import g\n"
        "def run():\n    import h\n    importlib.import_module('i')\n"
        "class C:\n    import j\n"
    )

    found = {(i.name, i.is_inner) for i in _imports(ast.parse(source), [PACKAGE, "sources"], is_inner=False)}

    assert found == {
        *(("__future__.annotations", False), ("a.b", False), ("c.d", False), ("typing.TYPE_CHECKING", False)),
        *((f"{PACKAGE}.sources.e", False), (f"{PACKAGE}.spark.delta", False), ("seen", False)),
        *(("f", False), ("g", False), ("h", True), ("i", True), ("j", False)),
    }


@pytest.mark.parametrize(
    "module",
    [
        "",
        ".get_provider_info",
        ".exceptions",
        ".core.definition.kinds",
        ".core.definition.table",
        ".definition_file",
        ".cli.main",
    ],
)
def test_light_modules_load_nothing_heavy(module):
    name = PACKAGE + module
    heavy = sorted(HEAVY | {"airflow", "sqlalchemy", "alembic", "jinja2", "fastapi"})

    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, {name}; print(*(m for m in {heavy} if m in sys.modules))"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout.split()

    assert loaded == [], f"importing {name} loads {loaded}"


def test_provider_info_loads_nothing_but_the_package():
    name = f"{PACKAGE}.get_provider_info"

    code = f"import sys; before = set(sys.modules); import {name}; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout.split()

    foreign = {m for m in loaded if m.split(".")[0] not in sys.stdlib_module_names | {PACKAGE}}
    assert not foreign, f"every `airflow` command would load {sorted(foreign)}"


# -- clocks: workers' may differ, so the database's alone decides ---------------------------------------------------

NOT_DECISIVE = {
    "cli/progress_bar.py": "the time of day beside a line of progress",
    "operators/task.py": "when Airflow looks again: early or late, it looks",
    "triggers/wait.py": "when a task has waited long enough",
    "sensors/freshness.py": "how old a person lets a table be, in hours",
    "sources/kafka/client.py": "when a topic was looked at, beside the day for which its brokers keep deletes",
    "sources/kafka/reader.py": "the same",
}


@for_each(MODULES)
def test_no_clock_of_a_worker_decides(path):
    wall_clocks = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    read = {ast.unparse(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)}
    found = {name for name in read if any(f".{name}".endswith(f".{clock}") for clock in wall_clocks)}

    assert bool(found) == (short(path) in NOT_DECISIVE), (
        f"{short(path)} asks this machine's clock: {found or 'no more'}"
    )


# -- addresses of Delta tables: a name of a catalog has to be taught to two modules only ----------------------------


@for_each(MODULES)
def test_only_two_modules_address_delta_tables(path):
    text = path.read_text(encoding="utf-8")

    assert 'format("delta")' not in text or short(path) == "spark/delta.py", "open it by a function of spark/delta"
    assert 'f"delta.{' not in text or short(path) == "core/location.py", "use TableRef.sql"


# -- shape -----------------------------------------------------------------------------------------------------------


def test_every_phase_has_its_next_ones():
    assert set(phase.NEXT) == set(phase.Phase)
    assert all(phase.NEXT.values()), "a phase that nothing follows is a trap"
    assert set().union(*phase.NEXT.values()) == set(phase.Phase), "a phase that nothing leads to"


@for_each(MODULES)
def test_file_is_named_for_its_noun_or_verb(path):
    assert not NO_NAMES.search(path.stem), f"{short(path)}: what is it about?"


# Files of one name in several folders are one idea on several floors. The idea of each name:
ONE_IDEA = {
    "audit": "whether main still has what was published: decided, and compared; a task that asks",
    "codec": "how records of a topic are decoded: in any format, and in Protobuf",
    "commits": "the commits of a Delta table that changed its data: found, and watched by a trigger",
    "freshness": "how old a table may become: defined, and waited for",
    "frontier": "what a source is now, of all kinds and of one",
    "health": "whether tables follow their sources: decided, and a sensor for it",
    "history": "the versions of a table's rows: defined, planned, written, and written with each refresh",
    "kind": "a kind of source",
    "merging": "the phase MERGING: its steps, and what the database records of them",
    "model": "what users write of a kind of source",
    "mv": "Airflow's hook and plugin of this provider",
    "phase": "the phases of a refresh, and a sensor for one",
    "queue": "who waits for a table: decided, and stored",
    "shared": "one state of a server for several sources: of any kind, and of one",
    "reader": "what reads: a kind of source, or the database",
    "refresh": "one refresh: the runner's facade, and its operators",
    "row_history": "what has happened to one row: decided, and followed through main's versions",
    "totals": "the totals of rows: as values, and computed in Spark",
    "samples": "some of the rows that a refresh changes: read from Delta, and stored",
}


def test_files_of_one_name_are_one_idea():
    names = [path.stem for path in MODULES if path.stem != "__init__"]

    twice = {name for name in names if names.count(name) > 1}

    assert not twice - set(ONE_IDEA), "two ideas of one name, or an idea to add to ONE_IDEA?"


@for_each(MODULES)
def test_module_says_what_it_is_about(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{short(path)} has no docstring"

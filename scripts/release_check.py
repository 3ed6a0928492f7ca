"""Whether the long runs belong to the code that is to be released: `make release-check`.

A record in tests/records belongs to a commit. It is current while no later commit changes what the rooms do that the
protocol lies in. `--run` runs what is not current and records it, which takes a night; else the missing commands are
printed. docs/reliability.md gets its table of records from here, and the README what versions have been tried.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess  # nosec B404  # git and make, without a shell
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE, README = ROOT / "docs/reliability.md", ROOT / "README.md"
BADGES = ("<!-- badges: written by `make release-check` -->\n\n", "\n<!-- end of badges -->\n")
VERSIONS = ("<!-- versions: written by `make release-check` -->\n\n", "\n<!-- end of versions -->\n")
RECORDS = ("<!-- records: written by `make release-check` -->\n\n", "\n<!-- end of records -->\n")
PROTOCOL = tuple(f"airflow_mv_provider/{room}" for room in ("core", "metadata", "runner", "spark"))
_OF_ALL_TESTS = {"Delta Lake": "4.4", "Java": "17"}


@dataclass(frozen=True)
class Run:
    """A long run: the make target, which is also its record's name, and what it shows."""

    name: str
    shows: str
    options: tuple[str, ...] = ()

    @property
    def record(self) -> Path:
        return ROOT / f"tests/records/{self.name}.json"

    @property
    def command(self) -> tuple[str, ...]:
        return ("make", self.name, *self.options, f"RECORD={self.record.relative_to(ROOT)}")


RUNS = (
    Run("crash-matrix", "a kill at every durable write"),
    Run("soak", "random faults", ("N=250",)),
    Run("soak-stream", "the same through Debezium and Kafka", ("N=100",)),
    Run("soak-hands", "what others do to sources and to the table"),
    Run("matrix", "other versions of Airflow, Spark and Python"),
    Run("test-rest", "every case of all other tests, tables on S3 included"),
)


def obstacle(record: dict[str, Any] | None, changes: Sequence[str]) -> str | None:
    """Return why a record does not speak for the present code, or None.

    Args:
        record: None if there is none.
        changes: The commits after the record's that change the protocol's rooms.
    """
    if record is None:
        return "was never run to its end"
    if record["is_changed_since"]:
        return "ran with changes that were not committed"
    if record.get("violation"):
        return f"found a violation: {record['violation']}"
    if "files" in record and record["outcomes"].get("failed"):  # of a soak, a refresh may fail: that is an outcome
        return f"has {record['outcomes']['failed']} failed cases"
    return f"is {len(changes)} commits of the protocol behind" if changes else None


def table(records: Sequence[tuple[Run, dict[str, Any] | None]]) -> str:
    """Return the page's table of records, in Markdown."""
    lines = ["| run | shows | commit | on | came to | minutes |", "|---|---|---|---|---|---|"]
    for run, record in records:
        found = ("", "", "not run to its end yet", "") if record is None else _figures(record)
        lines.append(f"| `make {run.name}` | {run.shows} | {' | '.join(found)} |")
    return "\n".join(lines) + "\n"


def _figures(record: dict[str, Any]) -> tuple[str, ...]:
    outcomes = ", ".join(f"{number:,} {outcome.replace('_', ' ')}" for outcome, number in record["outcomes"].items())
    if "faults" in record:
        faults = sum(number for fault, number in record["faults"].items() if fault != "none")
        violation = record["violation"] or "no violation"
        outcomes = f"{faults} faults in {sum(record['faults'].values())} rounds, {violation}"
    if tried := environments(record):
        outcomes += f", on {'; '.join(' '.join(each) for each in tried)}"
    return record["commit"][:7], record["begun"][:10], outcomes, f"{record['minutes']:.0f}"


def environments(record: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the environments of a record, as its cases name them, in which each case has passed: `Airflow-3.3.2`, …"""
    outcomes: dict[tuple[str, ...], set[str]] = {}
    for case in record.get("cases", ()):
        if named := tuple(re.findall(r"(?:Airflow|Spark|Python)-[\d.]+\d", case["case"])):
            outcomes.setdefault(named, set()).add(case["outcome"])
    return sorted(named for named, found in outcomes.items() if found == {"passed"})


def versions(rest: dict[str, Any], matrix: dict[str, Any] | None) -> dict[str, list[str]]:
    """Return what has been tried, oldest first: what all tests ran on, and what else the matrix did."""
    tried = {each.partition("-")[::2] for named in environments(matrix or {}) for each in named}
    used = {"Python": "python", "Airflow": "apache-airflow", "Spark": "pyspark"}
    tried |= {(name, rest["versions"][package]) for name, package in used.items()}
    found: dict[str, set[tuple[int, ...]]] = {name: set() for name in used}
    for name, version in tried:
        numbers = tuple(map(int, version.split(".")))
        found[name].add(numbers[:2] if name == "Python" else numbers)
    return {name: [".".join(map(str, each)) for each in sorted(numbers)] for name, numbers in found.items()}


def badges(tried: dict[str, list[str]]) -> str:
    """Return the README's badges, in Markdown: from the oldest to the newest that has been tried."""
    lines = ["![License](https://img.shields.io/badge/license-Apache--2.0-blue)"]
    for name, found in tried.items():
        ends = list(dict.fromkeys(".".join(each.split(".")[:2]) for each in (found[0], found[-1])))
        text = "%20to%20".join(ends)
        lines.append(f"![{name}](https://img.shields.io/badge/{name.lower()}-{text}-blue)")
    return "\n".join(lines) + "\n"


def versions_table(tried: dict[str, list[str]]) -> str:
    """Return the README's table of versions, in Markdown."""
    found = {**{name: ", ".join(numbers) for name, numbers in tried.items()}, **_OF_ALL_TESTS}
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (found, ["---"] * len(found), found.values())) + "\n"


def read(run: Run) -> dict[str, Any] | None:
    return json.loads(run.record.read_text(encoding="utf-8")) if run.record.exists() else None


def with_part(page: str, part: tuple[str, str], found: str) -> str:
    """Return a page with another text between two marks."""
    begin, end = part
    before, rest = page.split(begin)
    return f"{before}{begin}{found}{end}{rest.split(end)[1]}"


def pages() -> dict[Path, str]:
    """Return the pages that tell of records as these are now."""
    records = {run: read(run) for run in RUNS}
    of = {run.name: record for run, record in records.items()}
    tried = versions(of["test-rest"], of["matrix"])
    readme = with_part(README.read_text(encoding="utf-8"), BADGES, badges(tried))
    return {
        PAGE: with_part(PAGE.read_text(encoding="utf-8"), RECORDS, table([*records.items()])),
        README: with_part(readme, VERSIONS, versions_table(tried)),
    }


def write_pages() -> None:
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")


def changes_since(commit: str, root: Path = ROOT) -> list[str]:
    """Return the commits after `commit` if what the protocol's rooms do is no longer the same.

    Comments, docstrings, what the reference says of a field, and how an error is worded change nothing that a run has
    shown.

    Returns:
        The commits that touch these rooms, one without a name if `commit` is not known; none if all do what they did.
    """
    commits = _git(root, "rev-list", f"{commit}..HEAD", "--", *PROTOCOL)
    if commits is None:
        return [""]
    changed = _git(root, "diff", "--name-only", "--no-renames", commit, "HEAD", "--", *PROTOCOL) or ""
    is_same = all(_what_it_does(root, commit, path) == _what_it_does(root, "HEAD", path) for path in changed.split())
    return [] if is_same else commits.split()


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)  # nosec B603 B607  # our own words alone
    return done.stdout if done.returncode == 0 else None


def _what_it_does(root: Path, commit: str, path: str) -> str | None:
    """Return a file of a commit without what only people read; None if the commit lacks it."""
    text = _git(root, "show", f"{commit}:{path}")
    return ast.dump(_WithoutWords().visit(ast.parse(text))) if text is not None and path.endswith(".py") else text


class _WithoutWords(ast.NodeTransformer):
    """Drops docstrings, the words of pydantic's fields, and those of errors."""

    def visit(self, node: ast.AST) -> Any:
        found = super().visit(node)
        is_documented = isinstance(found, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if is_documented and ast.get_docstring(found) is not None:
            found.body = found.body[1:]
        return found

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "Field":
            node.keywords = [each for each in node.keywords if each.arg not in ("description", "examples")]
        node.keywords = [each for each in node.keywords if each.arg != "hint"]
        self.generic_visit(node)
        is_error = isinstance(node.func, ast.Name) and node.func.id.endswith("Error")
        return _Wordless().visit(node) if is_error else node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return _Wordless().visit(self.generic_visit(node))

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        match node.targets:
            case [ast.Name(id="hint")]:
                return None
            case [ast.Name(id="problem")]:
                return _Wordless().visit(self.generic_visit(node))
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Take a field of which only a default is left for what it is to pydantic: `x: int = 1`, or `x: int`."""
        self.generic_visit(node)
        match node.value:
            case ast.Call(func=ast.Name(id="Field"), args=[], keywords=[]):
                node.value = None
            case ast.Call(func=ast.Name(id="Field"), args=[], keywords=[ast.keyword(arg="default", value=default)]):
                node.value = default
        return node


class _Wordless(ast.NodeTransformer):
    """Leaves of each text only what is computed in it, and whether there is one."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("words") if node.value and isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        node.values = [each for each in node.values if isinstance(each, ast.FormattedValue)]
        return node


def main() -> int:
    """Print the state of each record; 1 if one does not speak for the present code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run what is not current, and record it: a night")
    parser.add_argument(
        "--page", action="store_true", help="only write the tables of docs/reliability.md and README.md"
    )
    asked = parser.parse_args()
    stale = [] if asked.page else [run for run in RUNS if _is_stale(run)]
    if asked.run:
        for run in stale:
            subprocess.run(run.command, cwd=ROOT, check=False)  # nosec B603  # its record says how it ended
        stale = [run for run in stale if _is_stale(run)]
    write_pages()
    if stale:
        print("Not ready for a release. Run, and commit the records (or `make release-check RUN=1`):", file=sys.stderr)
        print("\n".join(f"  {' '.join(run.command)}" for run in stale), file=sys.stderr)
    return 1 if stale else 0


def _is_stale(run: Run) -> bool:
    record = read(run)
    why = obstacle(record, changes_since(record["commit"]) if record else ())
    print(f"{'✗' if why else '✓'} {run.name:<14} {why or 'is of this code'}")
    return why is not None


if __name__ == "__main__":
    sys.exit(main())

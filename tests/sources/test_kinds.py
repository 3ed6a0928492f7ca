"""The registry of source kinds: what each announces is true, and a new folder is all that a new kind takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import airflow_mv_provider
from airflow_mv_provider.core.definition.kinds import SourceKind, kinds
from airflow_mv_provider.core.definition.source import Source
from tests.conftest import read_independently

PACKAGE = Path(airflow_mv_provider.__file__).parent
ROOT = PACKAGE.parent
CAPABILITIES = [field.name for field in fields(SourceKind) if field.type == "bool"]
SESSION = """
import json, sys
from click.testing import CliRunner
from airflow_mv_provider.cli.main import main

said = [CliRunner().invoke(main, arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in said]))
"""
TABLES = """
tables:
  - name: numbers
    source:
      type: numbers
      below: 5
      select: [id, id * id AS square]
    key: [id]
"""


def of(kind: SourceKind) -> str:
    return kind.name


def test_kinds_are_named_as_their_folders_and_in_a_fixed_order():
    assert [kind.name for kind in kinds()] == ["delta", "files", "query", "function", "jdbc", "kafka", "spark"]
    assert {kind.name for kind in kinds()} == {path.parent.name for path in (PACKAGE / "sources").glob("*/kind.py")}


@pytest.mark.parametrize("kind", kinds(), ids=of)
def test_a_kind_can_do_what_it_announces(kind):
    from airflow_mv_provider.sources.reader import FileReader, LogReader, SharingReader, SourceReader

    reader = kind.reader()

    assert issubclass(reader, SourceReader)
    assert kind.identifies_files is issubclass(reader, FileReader)
    assert kind.is_log is issubclass(reader, LogReader)
    assert (kind.shared is not None) is issubclass(reader, SharingReader)
    assert kind.is_log or (reader.changes is SourceReader.changes) is (reader.changed is SourceReader.changed)
    assert kind.is_repeatable or not kind.keeps_versions
    assert kind.has_triggers is False or kind.model.paths is not Source.paths


def test_frontiers_of_two_kinds_are_told_apart_where_they_are_stored():
    types = [kind.frontier.type for kind in kinds()]

    assert len(set(types)) == len(types)


def test_docs_list_what_each_kind_can_do():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    names, *_ = re.findall(r"^\| capability \|(.*)\| decides \|$", text, re.MULTILINE)
    listed = {
        (name, capability)
        for capability in CAPABILITIES
        for row in re.findall(rf"^\| `{capability}` \|(.*)\|[^|]*\|$", text, re.MULTILINE)
        for name, cell in zip(names.split("|"), row.split("|"), strict=True)
        if cell.strip() == "yes"
        for name in [name.strip()]
    }

    assert listed == {(kind.name, each) for kind in kinds() for each in CAPABILITIES if getattr(kind, each)}


@pytest.fixture
def amv(tmp_path):
    """`amv` of a copy of the package with one folder more, run in a process of its own."""
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(Path(__file__).with_name("numbers"), tmp_path / PACKAGE.name / "sources/numbers")
    (tmp_path / "tables.yaml").write_text(TABLES, encoding="utf-8")
    settings = {
        "PYTHONPATH": str(tmp_path),
        "AMV_DATABASE_URL": f"sqlite:///{tmp_path / 'mv.db'}",
        "AMV_WAREHOUSE": str(tmp_path / "warehouse"),
    }

    def run(*commands: list[str]) -> list[list[Any]]:
        words = [sys.executable, "-c", SESSION, json.dumps(commands)]
        done = subprocess.run(
            words, env=os.environ | settings, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
        return said

    return run


def test_a_new_kind_is_defined_like_the_others(amv, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(TABLES.replace("below:", "belwo:"), encoding="utf-8")

    (good, _, _), (bad, _, problem), (_, schema, _) = amv(["apply", "tables.yaml"], ["apply", str(wrong)], ["schema"])

    assert (good, bad) == (0, 1)
    assert "line 4, source.below: missing" in problem
    assert "line 6, source.belwo: unknown name (did you mean below?); known are select, watermark" in problem
    definitions = json.loads(schema)["$defs"]
    assert definitions["Numbers"]["properties"]["below"]["minimum"] == 0
    assert definitions["Numbers"]["required"] == ["below", "type"]
    mapping = definitions["RefreshableTable"]["properties"]["source"]["discriminator"]["mapping"]
    assert list(mapping) == ["delta", "files", "function", "jdbc", "kafka", "numbers", "query", "spark", "output"]


@pytest.mark.in_test_all
@pytest.mark.slow
def test_a_new_kind_is_refreshed_like_the_others(amv, tmp_path):
    refresh = ["refresh", "numbers", "--json"]

    (_, first, _), (_, again, _) = amv(["apply", "tables.yaml"], refresh, refresh)[1:]

    outcomes = [json.loads(said) for said in (first, again)]
    assert [(said["outcome"], said["rows_inserted"]) for said in outcomes] == [("published", 5), ("nothing_to_do", 0)]
    assert outcomes[1]["strategy"] == "skip"
    assert read_independently(tmp_path / "warehouse/numbers") == [(n, n * n) for n in range(5)]
    with sqlite3.connect(tmp_path / "mv.db") as db:
        ((stored,),) = db.execute("SELECT frontier FROM source_frontier")
    assert json.loads(stored) == {"type": "numbers", "below": 5}

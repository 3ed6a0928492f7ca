"""`amv` run in this process, against a database and a warehouse of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from airflow_mv_provider.cli.main import main
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.local import open_store
from airflow_mv_provider.runner.settings import Settings


@dataclass(frozen=True)
class Said:
    """What one `amv` command said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON object on stdout; anything beside it fails here."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@dataclass(frozen=True)
class Terminal:
    """Where a test types its commands."""

    root: Path
    url: str
    warehouse: Path

    def __call__(self, *arguments: str) -> Said:
        """Run one command; --database and --warehouse are added unless the test gives its own."""
        given = list(arguments)
        for option, value in (("--database", self.url), ("--warehouse", str(self.warehouse))):
            if option not in given:
                given += [option, value]
        return run(*given)

    @property
    def store(self) -> Store:
        return open_store(Settings(self.url))

    def file(self, text: str, name: str = "tables.yaml") -> str:
        path = self.root / name
        path.write_text(text, encoding="utf-8")
        return str(path)


def run(*arguments: str) -> Said:
    result = CliRunner().invoke(main, list(arguments))
    return Said(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def amv(tmp_path: Path) -> Terminal:
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    return Terminal(tmp_path, f"sqlite:///{tmp_path / 'mv.db'}", warehouse)


@pytest.fixture
def run_amv() -> Callable[..., Said]:
    """Run one command just as it is given."""
    return run

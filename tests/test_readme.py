"""The README's examples are run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.definition_file import parse

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def example(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    assert len(found) == 1
    return found[0]


@pytest.mark.slow
def test_definition_of_the_readme_is_refreshed(lake: Any) -> None:
    folder = lake.root / "raw/orders"
    folder.mkdir(parents=True)
    (folder / "2026.csv").write_text("order_id,ordered_on,customer,amount\n1,2026-01-15,ann,9.90\n2,2026-02-01,bob,5\n")
    (definition,) = parse(example("yaml"))
    lake.refresher().apply(definition)

    report = lake.refresh()

    assert (report.outcome, report.rows_inserted) == (Outcome.PUBLISHED, 2)
    assert [p.partition for p in report.partitions] == ['["2026-01-01"]', '["2026-02-01"]']


@pytest.mark.slow
def test_dag_of_the_readme_parses_without_pyspark(tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text(example("yaml"))
    (tmp_path / "orders_dag.py").write_text(example("python"))
    check = (
        "import sys, runpy; names = runpy.run_path('orders_dag.py')\n"
        "assert 'pyspark' not in sys.modules, 'parsing imported pyspark'\n"
        "assert names['customers'].name == 'customers'\n"
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "AIRFLOW_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }

    run = subprocess.run(
        [sys.executable, "-c", check], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stderr[-2000:]


def test_commands_of_the_readme_exist() -> None:
    from airflow_mv_provider.cli import main

    commands = set(re.findall(r"^    amv (\w+)", README, flags=re.MULTILINE))

    assert commands == {"apply", "refresh", "status", "history"}
    assert commands <= set(main.commands)
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)", README):
        assert re.search(rf"^{target}:", targets, flags=re.MULTILINE), target

"""The commands of docs/bad-file.md and docs/materialized-view.md, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tests.conftest import read_independently

pytestmark = [pytest.mark.slow, pytest.mark.in_test_all]

DOCS = Path(__file__).parents[2] / "docs"
COMPLETE = {1: "12.50", 2: "8.00", 3: "5.25", 4: "7.00", 5: "3.10", 6: "9.99"}


def blocks(page):
    return re.findall(r"```bash\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def bash(tmp_path):
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AMV_WAREHOUSE": str(tmp_path / "warehouse"),  # as the first block exports it
        "AMV_SPARK_MASTER": "local[2]",
    }

    def run(block):
        command = ["bash", "-euc", block]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    yield run
    run("amv server stop")


def test_a_bad_file_is_held_decided_taken_back_and_main_is_repaired(bash, tmp_path):
    def expect(changed=None):
        days = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3}
        amounts = COMPLETE | (changed or {})
        rows = [(Decimal(amounts[n]), date(2026, 3, days[n]), n) for n in amounts]
        assert read_independently(tmp_path / "warehouse/shop") == sorted(rows, key=repr)

    first, early, decided, taken_back, repaired = blocks("bad-file.md")

    assert "6 inserted" in bash(first)
    expect()
    said = bash(early)
    assert "exit code 75" in said
    assert "3 of the table's 6 rows would be deleted (50.0%; the guard allows 30.0%)" in said
    assert 'amount: "8.00" -> "8.50"' in said
    expect()
    said = bash(decided)
    assert "cancelled" in said
    assert said.count("kept       3 rows that the source no longer has") == 1, "status says so"
    assert "version    7" in said, "the next block goes back to it"
    expect({2: "8.50"})
    said = bash(taken_back)
    assert re.findall(r"^  rows +(.*)", said, re.MULTILINE) == [
        "0 inserted, 1 updated, 0 deleted, 5 unchanged",
        "0 inserted, 1 updated, 0 deleted, 5 unchanged",
        "0 inserted, 0 updated, 0 deleted, 6 unchanged",
    ]
    assert "until `amv resume shop`" in said
    changes = re.findall(r'amount: "(.*)" -> "(.*)"', said)
    assert changes == [("9.99", "999.00"), ("999.00", "9.99")], "what `amv why` tells of order 6"
    expect({2: "8.50"})
    said = bash(repaired)
    assert "exit code 1" in said
    assert 'amount: "0.00", expected "12.50"' in said
    assert "published in" in said
    expect({2: "8.50"})


def test_a_materialized_view_follows_its_inputs_and_writes_only_what_differs(bash, tmp_path):
    def expect(*rows):
        found = read_independently(tmp_path / "warehouse/sales")
        assert found == sorted([(Decimal(amount), country, orders) for country, orders, amount in rows], key=repr)

    first, corrected, unchanged, moved, why = blocks("materialized-view.md")

    bash(first)
    expect(("DE", 3, "37.50"), ("FR", 1, "7.25"))
    assert "0 inserted, 1 updated, 0 deleted, 1 unchanged" in bash(corrected).partition("sales: ")[2]
    expect(("DE", 3, "38.50"), ("FR", 1, "7.25"))
    _, compared, skipped = bash(unchanged).split("sales: ", 2)
    assert "0 inserted, 0 updated, 0 deleted, 2 unchanged" in compared
    assert "nothing to do" in skipped
    said = bash(moved)
    assert "1 of the table's 2 rows would be deleted (50.0%; the guard allows 30.0%)" in said
    assert "exit code 1" in said
    expect(("DE", 4, "45.75"))
    assert re.findall(r'amount: "(.*)" -> "(.*)"', bash(why)) == [("37.50", "38.50"), ("38.50", "45.75")]

"""The examples of the README and of the pages about sources are run as they stand."""

from __future__ import annotations

import ast
import gzip
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet
import pytest
from sqlalchemy import make_url

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.definition_file import parse
from airflow_mv_provider.sources.spark.model import option_obstacle

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


PAGES = ("sources", "files", "databases", "spark-sources")
SOURCES = "\n".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in PAGES)


def examples(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def example(language: str) -> str:
    (found,) = examples(language, README)
    return found


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


@pytest.mark.in_test_all
@pytest.mark.slow
def test_sources_of_the_documentation_are_refreshed(
    lake: Any, postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    erp = make_url(postgres.new_database())
    (grants,) = examples("sql", SOURCES)
    with psycopg.connect(erp.render_as_string(), autocommit=True) as owner:
        owner.execute("CREATE TABLE orders (id int, weight numeric)")
        owner.execute("INSERT INTO orders VALUES (1, 0.123456)")
        owner.execute(grants.replace("DATABASE erp", f"DATABASE {erp.database}").encode())
        owner.execute("CREATE TABLE customers (id int, updated_at timestamptz)")
        owner.execute("INSERT INTO customers VALUES (7, '2026-01-01Z')")
        owner.execute("GRANT SELECT ON customers TO reader")
    monkeypatch.setenv("AIRFLOW_CONN_ERP", erp.set(username="reader").render_as_string())
    (tmp_path / "my_sources.py").write_text("\n".join(examples("python", SOURCES)))
    monkeypatch.syspath_prepend(tmp_path)
    (lake.root / "raw/payments").mkdir(parents=True)
    (lake.root / "raw/payments/a.json.gz").write_bytes(
        gzip.compress(b'{"payment_id": 1, "paid_at": "2026-01-15T10:00:00+01:00", "amount": 9.90}\n')
    )
    (lake.root / "raw/clicks").mkdir()
    (lake.root / "raw/clicks/a.json").write_text('{"click_id": 1, "page": "/"}\n{"click_id": 2, "page"\n')
    (lake.root / "raw/shops/zip=01001").mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({"id": [1]}), lake.root / "raw/shops/zip=01001/a.parquet")
    (lake.root / "raw/prices").mkdir()
    (lake.root / "raw/prices/a.csv").write_text("sku,price\npen,1.00\npen,1.20\n")
    lake.write("SELECT 1 AS order_id, 9.90 AS amount, 7 AS customer")
    lake.write("SELECT 7 AS customer_id, 'ann' AS name", "raw/customers")

    lake.spark.sparkContext.addPyFile(str(tmp_path / "my_sources.py"))

    for definition in (each for text in examples("yaml", SOURCES) for each in parse(text)):
        lake.refresher().apply(definition)
        if any(path.startswith("raw/orders/") for path in definition.source.paths):  # another example's files
            shutil.rmtree(lake.root / "raw/orders")
            (lake.root / "raw/orders").mkdir()
            (lake.root / "raw/orders/a.csv").write_text("order_id,ordered_on,amount\n1,2026-01-15,9.90\n")
        if definition.name == "accounts":  # of a service that is not here
            assert option_obstacle(definition.source, "") is None
        else:
            lake.refresh(definition.name)

    assert lake.rows("payments") == [(Decimal("9.90"), None, datetime(2026, 1, 15, 9, tzinfo=UTC), 1)]
    assert lake.rows("sales") == [(Decimal("9.90"), "ann", 1)]
    assert lake.rows("prices") == [(Decimal("1.20"), "pen")]
    assert lake.rows("clicks") == [(1, "/")]
    assert [row.source_position for row in lake.sql("SELECT * FROM {t}", path="clicks__errors")] == [2]
    assert lake.rows("shops") == [(1, "01001")]
    assert lake.rows("erp_orders") == [(1, Decimal("0.123456"))]
    assert lake.rows("erp_customers") == [(7, datetime(2026, 1, 1, tzinfo=UTC))]
    assert lake.rows("quotes") == [("2026-01-01", 1.08)]
    assert lake.rows("rates") == [(date(2026, 1, 1), 1.08), (date(2026, 1, 2), 1.09)]


def test_commands_of_the_readme_exist() -> None:
    from airflow_mv_provider.cli.main import main

    commands = set(re.findall(r"(?:\$ |`)amv (\w+)", README))

    assert commands
    assert commands <= set(main.commands)
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z]+(?:-[a-z]+)?)", README + contributing):
        assert re.search(rf"^{target}:", targets, flags=re.MULTILINE), target


def test_every_promise_has_a_test_that_ci_runs() -> None:
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    promises = page.partition("## Promises")[2].partition("\n## ")[0]
    named = {*re.findall(r"`(\w+/test_\w+\.py)`", promises)}

    named.remove("e2e/test_end_to_end.py")  # too long; of a whole Airflow CI runs `make trial-install`
    left_out = {name for name in named if not _run_by_make_test(ROOT / "tests" / name)}

    assert len(named) > 10
    assert not left_out


def _run_by_make_test(path: Path) -> list[str]:
    """Return the tests of a file that `make test` does not leave to `make test-all`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    marks = [ast.unparse(each) for each in tree.body if isinstance(each, ast.Assign)]
    if any(each.startswith("pytestmark") and "in_test_all" in each for each in marks):
        return []
    tests = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]
    return [each.name for each in tests if not any("in_test_all" in ast.unparse(d) for d in each.decorator_list)]

"""`amv load` and `amv export`: what they print, and their exit codes; with the examples of docs/loading.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import read_independently

TEXT = (Path(__file__).parents[2] / "docs/loading.md").read_text(encoding="utf-8")
TABLES = """
tables:
  - name: shop
    source: {type: delta, path: raw/shop}
    key: [id]
"""


@pytest.mark.in_test_all
@pytest.mark.slow
def test_a_table_is_loaded_exported_and_brought_back(amv, spark):
    [source] = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)
    spark.sql("SELECT id, 'a' AS v FROM range(4)").write.format("delta").save(str(amv.warehouse / "raw/shop"))
    spark.sql("SELECT id, 'b' AS v FROM range(4)").write.parquet(str(amv.warehouse / "backfill/2026-03"))
    assert amv("apply", amv.file(TABLES)).code == 0
    assert amv("refresh", "shop").code == 0

    loaded = amv("load", "shop", "--from", amv.file(source, "lost-week.yaml"), "--note", "a lost week")

    assert loaded.code == 0
    assert "loaded from another source: a lost week" in loaded.out
    assert amv("history", "shop", "--json").document["refreshes"][0]["note"].endswith("a lost week")
    assert {row[1] for row in read_independently(amv.warehouse / "shop")} == {"b"}

    to = str(amv.root / "exports")
    first, again = amv("export", "shop", "--to", to), amv("export", "shop", "--to", to, "--json")

    version = again.document["version"]
    assert (first.code, f"version {version} exported: 4 rows in " in first.out) == (0, True)
    assert (again.code, again.document["is_new"], again.document["rows"]) == (0, False, 4)
    assert again.document["manifest"] == f"{to}/manifest/version={version}"

    assert amv("refresh", "shop").code == 0
    assert {row[1] for row in read_independently(amv.warehouse / "shop")} == {"a"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tables: []", "expected one key, `source`"),
        ("source: {}\nkey: [id]", "expected one key, `source`"),
        ("- 1", "expected one key, `source`"),
        ("source: [", "not YAML"),
    ],
)
def test_file_without_one_source_is_refused_before_spark_starts(amv, text, words):
    said = amv("load", "shop", "--from", amv.file(text, "other.yaml"))

    assert (said.code, words in said.err) == (1, True)


def test_what_contradicts_itself_is_refused(amv):
    both = amv("export", "shop", "--to", "x", "--version", "1", "--refresh", "abcdef")
    override = amv("load", "shop", "--from", amv.file("source: {}"), "--override", "max_deleted_fraction")

    assert (both.code, "both name a version" in both.err) == (2, True)
    assert (override.code, "needs a reason" in override.err) == (2, True)

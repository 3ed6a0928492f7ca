"""Main as files: exactly the rows of one version, once; and nothing that only looks like it, whatever dies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest

from airflow_mv_provider.exceptions import ArgumentError, SourceNotFoundError, UnsafeLocationError, VersionGoneError
from tests.conftest import Crash

pytestmark = pytest.mark.slow


@pytest.fixture
def table(lake, tmp_path):
    lake.write("SELECT id, id % 2 AS p, CAST(id AS DECIMAL(10,2)) AS v FROM range(10)")
    lake.apply(partition_by=["p"])
    lake.refresh()
    lake.first = (lake.versions(), lake.rows())
    lake.sql("DELETE FROM {t} WHERE id > 7", path="raw/orders")
    lake.refresh(overrides=["max_deleted_fraction"])
    lake.out = tmp_path / "an export"
    return lake


def export(lake, at=None, to=None):
    return lake.refresher().export("orders", str(to or lake.out), at)


def exported(manifest_directory):
    """Read as somebody who has nothing but the manifest: its one file, then the files that it names."""
    [file] = Path(manifest_directory).glob("*.json")
    manifest = json.loads(file.read_text())
    root = Path(manifest_directory).parent.parent
    rows = []
    for each in manifest["files"]:
        assert (root / each["path"]).stat().st_size == each["bytes"]
        read = pyarrow.parquet.read_table(root / each["path"])
        rows += [tuple(row[name] for name in sorted(row)) for row in read.to_pylist()]
    assert len(rows) == manifest["rows"]
    return manifest, sorted(rows, key=repr)


@pytest.mark.in_test_all
def test_version_is_exported_once_with_exactly_its_rows(table):
    found, again = export(table), export(table)
    version, rows = table.first
    earlier = export(table, str(version))

    manifest, now = exported(found.path)
    assert (found.is_new, again.is_new, again.manifest) == (True, False, found.manifest)
    assert (manifest["table"], manifest["version"]) == ("orders", table.store.state(1).published_version)
    assert manifest["columns"] == [
        {"name": "id", "type": "bigint"}, {"name": "p", "type": "bigint"}, {"name": "v", "type": "decimal(10,2)"},
    ]  # fmt: skip
    assert manifest["refresh_id"] == table.store.history(1)[0].refresh_id
    assert now == table.rows()
    assert exported(earlier.path)[1] == rows
    assert len(list(table.out.glob("rows-*"))) == 2


@pytest.mark.parametrize(
    "point", ["export_files.before", "export_files.after", "export_manifest.before", "export_manifest.after"]
)
@pytest.mark.sample(1)
def test_killed_export_leaves_no_manifest_or_a_whole_one(table, crash_at, point):
    crash_at(point)
    with pytest.raises(Crash):
        export(table)
    manifests = list((table.out / "manifest").glob("*/*.json"))
    assert bool(manifests) is (point == "export_manifest.after")

    found = export(table)

    assert found.is_new is not bool(manifests)
    assert exported(found.path)[1] == table.rows()


@pytest.mark.in_test_all
def test_what_a_killed_writer_left_of_a_manifest_is_no_manifest(table):
    """As Spark leaves it: a file under a name that it moves at the end."""
    left = table.out / "manifest" / f"version={table.store.state(1).published_version}" / "_temporary" / "0" / "part"
    left.parent.mkdir(parents=True)
    left.write_text('{"table": "orders", "ver')

    assert exported(export(table).path)[1] == table.rows()


@pytest.mark.in_test_all
def test_export_that_fails_removes_its_rows(table, at_point):
    def fail() -> None:
        raise RuntimeError("out of luck")

    at_point("export_manifest.before", fail)
    with pytest.raises(RuntimeError):
        export(table)

    assert list(table.out.rglob("*.parquet")) == []


@pytest.mark.in_test_all
def test_refresh_meanwhile_does_not_change_what_is_exported(table, at_point):
    before = table.rows()
    table.sql("DELETE FROM {t} WHERE id = 0", path="raw/orders")
    at_point("export_files.before", table.refresh)

    assert exported(export(table).path)[1] == before


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("at", "to", "error", "words"),
    [
        ("999", None, VersionGoneError, "999"),
        ("abcdef", None, ArgumentError, "names no published"),
        (None, "relative", UnsafeLocationError, "absolute"),
        (None, "{root}/orders/out", UnsafeLocationError, "share a directory"),
        (None, "{root}", UnsafeLocationError, "share a directory"),
        (None, "{root}/_mv/out", UnsafeLocationError, "share a directory"),
        (None, "/tmp/*", UnsafeLocationError, "pattern"),
        (None, "jdbc:x", UnsafeLocationError, "scheme"),
    ],
)
@pytest.mark.sample(3)
def test_what_cannot_be_exported_is_named(table, at, to, error, words):
    with pytest.raises(error, match=words):
        export(table, at, to and to.format(root=table.root))

    assert not table.out.exists()


@pytest.mark.in_test_all
def test_table_that_is_gone_has_to_be_refreshed_first(table):
    shutil.rmtree(table.root / "orders")

    with pytest.raises(SourceNotFoundError, match=r"there is no table at .*\. Refresh it first\."):
        export(table)


@pytest.mark.in_test_all
def test_other_table_needs_a_path_of_its_own(table):
    export(table)
    table.write("SELECT 1 AS id", path="raw/others")
    table.apply(name="others", source={"type": "delta", "path": "raw/others"})
    table.refresh("others")

    with pytest.raises(ArgumentError, match="another table, orders"):
        table.refresher().export("others", str(table.out))

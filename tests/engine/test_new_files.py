"""Changes that no source lists: they are found in new files, and the totals of all files show what is missing."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DuplicateKeyError, NullKeyError, StrategyError
from tests.conftest import Crash

pytestmark = pytest.mark.slow

FILES = {"type": "files", "path": "raw/in/*.csv", "format": "csv", "schema": "id BIGINT, p INT, v STRING"}
LOOSE = {"max_deleted_fraction": 1.0, "allow_empty": True}


@pytest.fixture(autouse=True)
def small_too(monkeypatch):
    """Take this way for the few rows of a test, too."""
    monkeypatch.setattr(strategy, "MIN_ROWS_FOR_NEW_FILES", 0)


def put(lake: Any, name: str, rows: dict[int, str]) -> None:
    path = lake.root / "raw/in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["id,p,v", *(f"{n},{n % 3},{v}" for n, v in rows.items())]) + "\n")


def holds(lake: Any, *files: dict[int, str]) -> None:
    """Main has these rows and no others, and a refresh that compares everything finds nothing to do."""
    expected = Counter((n, n % 3, v) for rows in files for n, v in rows.items())
    frame = lake.spark.read.format("delta").load(str(lake.root / "orders")).select("id", "p", "v")
    assert Counter(map(tuple, frame.collect())) == expected
    kept = lake.published()
    again = lake.refresh(force=True, strategy="corrections")
    assert (again.strategy, again.rows_inserted + again.rows_updated + again.rows_deleted) == ("corrections", 0)
    assert (lake.published(), lake.workspaces()) == (kept, [])


A, B = {n: f"v{n}" for n in range(40)}, {100: "x", 101: "y", 102: "z"}


@pytest.fixture
def folder(lake):
    """Published once, from two files; not copied from a prepared one, whose files are others."""
    put(lake, "a.csv", A)
    put(lake, "b.csv", B)
    lake.apply(source=FILES, guards=LOOSE)
    lake.refresh()
    return lake


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("b", "c", "counts"),
    [
        pytest.param(B | {101: "other"}, {}, (0, 1, 0), marks=pytest.mark.in_test_all),
        pytest.param({100: "x"}, {200: "new", 201: "newer"}, (2, 0, 2), marks=pytest.mark.in_test_all),
        pytest.param(None, {100: "moved", 300: "new"}, (1, 1, 2), id="removed"),
        pytest.param(None, {}, (0, 0, 3), id="removed alone", marks=pytest.mark.in_test_all),
    ],
)
def test_changed_and_removed_files_are_followed(folder, b, c, counts):
    if b is None:
        (folder.root / "raw/in/b.csv").unlink()
    else:
        put(folder, "b.csv", b)
    if c:
        put(folder, "c.csv", c)

    report = folder.refresh()

    assert report.strategy == "incremental", report.reason
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == counts
    holds(folder, A, b or {}, c)


@pytest.mark.parametrize(
    "b",
    [
        pytest.param(B | {7: "again"}, id="one more", marks=pytest.mark.in_test_all),
        pytest.param({7: "again", 100: "x", 101: "y"}, id="as many rows"),
    ],
)
def test_key_that_an_unchanged_file_has_too_is_found(folder, b):
    """The second case has as many rows as before: a row is gone, and a key is there twice."""
    before = folder.rows()
    put(folder, "b.csv", b)

    with pytest.raises(DuplicateKeyError):
        folder.refresh()

    assert (folder.rows(), folder.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(["500,2,a", "500,2,a"], id="equal", marks=pytest.mark.in_test_all),
        pytest.param(["500,2,a", "500,2,b"], id="different"),
    ],
)
@pytest.mark.parametrize("num_files", [1, pytest.param(2, marks=pytest.mark.in_test_all)])
def test_key_that_is_new_and_there_twice_is_found(folder, rows, num_files):
    """The sums would be those of the source: main would have the key twice as well."""
    before = folder.rows()
    (folder.root / "raw/in/b.csv").unlink()
    for number in range(num_files):
        some = rows[number : number + 2 // num_files]
        (folder.root / f"raw/in/c{number}.csv").write_text("\n".join(["id,p,v", *some]) + "\n")

    with pytest.raises(DuplicateKeyError):
        folder.refresh()

    assert (folder.rows(), folder.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
def test_new_rows_without_a_key_are_named(folder):
    before = folder.rows()
    (folder.root / "raw/in/b.csv").write_text("id,p,v\n,1,x\n,2,y\n")

    with pytest.raises(NullKeyError):
        folder.refresh()

    assert (folder.rows(), folder.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
@pytest.mark.parametrize("strategy", ["auto", "incremental"])
def test_strict_table_is_compared_unless_that_is_ruled_out(folder, strategy):
    """Of a folder that was emptied nothing is left to look in; `strict` forbids to read all of it by surprise."""
    folder.apply(source=FILES, guards=LOOSE, strict=True, strategy=strategy)
    for name in ("a.csv", "b.csv"):
        (folder.root / "raw/in" / name).unlink()

    if strategy == "incremental":
        with pytest.raises(StrategyError):
            folder.refresh()
    else:
        folder.refresh()
        assert folder.rows() == []


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["staging.after", "staging.before", "seal.after", "publish.after"])
def test_killed_anywhere_it_goes_on(folder, crash_at, point):
    put(folder, "b.csv", {100: "x", 101: "other"})
    crash_at(point)
    with pytest.raises(Crash):
        folder.refresh()
    folder.clock.pass_ms(folder.settings.lease_ms + 1)

    folder.refresh()

    holds(folder, A, {100: "x", 101: "other"})


@pytest.mark.in_test_all
def test_file_that_did_not_change_is_not_read_again(folder):
    """Its size and time are as before, so only a comparison that is asked for finds that its rows are others."""
    path = folder.root / "raw/in/a.csv"
    times = path.stat()
    path.write_text(path.read_text().replace("v11", "w11"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    put(folder, "b.csv", B | {101: "other"})
    put(folder, "c+d%20 ü.csv", {7000: "new"})

    report = folder.refresh()

    assert (report.strategy, report.rows_inserted, report.rows_updated) == ("incremental", 1, 1)
    expected = Counter((n, n % 3, v) for rows in (A, B | {101: "other"}, {7000: "new"}) for n, v in rows.items())
    assert Counter(folder.rows()) == expected
    compared = folder.refresh(force=True)
    assert (compared.strategy, compared.rows_updated) == ("corrections", 1)
    holds(folder, A | {11: "w11"}, B | {101: "other"}, {7000: "new"})


@pytest.mark.in_test_all
@pytest.mark.parametrize("content", [None, b"no Parquet"], ids=["gone", "bad"])
def test_sums_of_files_that_are_lost_are_made_again(folder, content):
    folder.refresh()
    sums = next((folder.root / "_mv").glob("*/kept/*/*-files"))
    if content is None:
        shutil.rmtree(sums)
    else:
        for file in sums.glob("*.parquet"):
            file.write_bytes(content)
            (sums / f".{file.name}.crc").unlink()
    put(folder, "b.csv", B | {101: "other"})

    compared = folder.refresh()
    put(folder, "b.csv", B | {101: "again"})
    incremental = folder.refresh()

    assert (compared.strategy, incremental.strategy) == ("corrections", "incremental")
    assert "the totals of the source's files are not kept" in compared.reason
    folder.refresher().recover(folder.caller())
    holds(folder, A, B | {101: "again"})


@pytest.mark.in_test_all
def test_rows_are_copied_only_if_some_have_changed(folder, at_point):
    staged: list[list[str]] = []

    at_point("staging.after", lambda: staged.append(folder.workspaces()))
    unchanged = folder.refresh(force=True)
    path = folder.root / "raw/in/b.csv"
    times = path.stat()
    path.write_text(path.read_text().replace("y", "w"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    at_point("staging.after", lambda: staged.append(folder.workspaces()))
    changed = folder.refresh(force=True)

    assert (unchanged.rows_updated, changed.rows_updated) == (0, 1)
    assert [any("/staging-" in file for file in files) for files in staged] == [False, True]
    holds(folder, A, B | {101: "w"})


@pytest.mark.in_test_all
def test_corrected_file_is_read_alone(folder):
    """What it has lost is found by the keys of all files."""
    put(folder, "b.csv", {100: "x", 101: "other"})
    report = folder.refresh()
    rest = {n: f"w{n}" for n in range(38)}
    put(folder, "a.csv", rest)
    folder.refresh()

    assert (report.strategy, report.rows_updated, report.rows_deleted) == ("incremental", 1, 1)
    holds(folder, rest, {100: "x", 101: "other"})


_FILE = st.dictionaries(st.integers(0, 8), st.sampled_from("abc"), min_size=1, max_size=5)


@pytest.mark.in_test_all
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(history=st.lists(st.tuples(_FILE, _FILE, _FILE), min_size=2, max_size=3), is_partitioned=st.booleans())
def test_any_history_of_files_leaves_what_comparing_would(
    lake_factory: Any, history: Any, is_partitioned: bool
) -> None:
    lake, files = lake_factory(), []
    lake.apply(source=FILES, partition_by=["p"] if is_partitioned else [], guards=LOOSE, strategy="incremental")
    put(lake, "0.csv", {})
    for contents in history:
        # Each file has keys of its own, all files the same keys in another step.
        files = [{key * 3 + number: value for key, value in rows.items()} for number, rows in enumerate(contents)]
        for number, rows in enumerate(files):
            put(lake, f"{number}.csv", rows)

        report = lake.refresh()

        assert report.outcome in {Outcome.PUBLISHED, Outcome.NOTHING_TO_DO}
    holds(lake, *files)

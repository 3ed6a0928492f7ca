"""Changes that cannot be read, or not to their end: all of the source is read, beside what was written until then."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.outcome import Outcome
from tests.engine.feeding import change, feed_off, with_feed

pytestmark = pytest.mark.slow

RAW = "raw/orders"
LARGE = pytest.param("large", marks=[pytest.mark.large_tables, pytest.mark.in_test_all])
REST = pytest.mark.in_test_all


def gone(files: list[Path]) -> None:
    for each in files:
        each.unlink()


def one_gone(files: list[Path]) -> None:
    """The tasks that read the others have written their rows when this one's fails."""
    files[-1].unlink()


def one_cut(files: list[Path]) -> None:
    """What a copy of a lake leaves that was broken off: the file is there, and half of it."""
    content = files[-1].read_bytes()
    files[-1].write_bytes(content[: len(content) // 2])
    (files[-1].parent / f".{files[-1].name}.crc").unlink(missing_ok=True)


HARMS: dict[str, Callable[[list[Path]], None]] = {"gone": gone, "one gone": one_gone, "one cut": one_cut}


@pytest.mark.in_test_all
@pytest.mark.parametrize("size", ["small", LARGE])
@pytest.mark.parametrize("partition_by", [[], pytest.param(["p"], marks=REST)], ids=["flat", "parts"])
@pytest.mark.parametrize("harm", ["one gone", pytest.param("gone", marks=REST), pytest.param("one cut", marks=REST)])
@pytest.mark.parametrize("way", ["feed", pytest.param("files of the log", marks=REST)])
def test_all_is_read_where_the_changes_cannot_be(lake, way, harm, partition_by, size, monkeypatch, caplog):
    monkeypatch.setattr(strategy, "MIN_ROWS_FOR_NEW_FILES", 0)
    with_feed(lake)
    if way != "feed":
        feed_off(lake)
    lake.apply(partition_by=partition_by)
    lake.refresh()
    published = set(DeltaTable(str(lake.root / RAW)).file_uris())
    change(lake, "UPDATE {t} SET v = 'late' WHERE id % 7 = 3")
    present = set(DeltaTable(str(lake.root / RAW)).file_uris())
    changed = (lake.root / RAW / "_change_data").glob("*.parquet") if way == "feed" else map(Path, published - present)
    files = sorted(changed)
    assert len(files) > 1
    HARMS[harm](files)

    with caplog.at_level(logging.WARNING):
        report = lake.refresh()

    assert (report.strategy, report.outcome, report.rows_updated) == ("corrections", Outcome.PUBLISHED, 9)
    assert "cannot be read" in report.reason
    assert "cannot be read" in caplog.text
    assert Counter(lake.rows("orders")) == Counter(lake.rows(RAW))
    assert lake.workspaces() == []
    change(lake, "DELETE FROM {t} WHERE id = 5")
    assert lake.refresh().strategy == "incremental"
    assert Counter(lake.rows("orders")) == Counter(lake.rows(RAW))

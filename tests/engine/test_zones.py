"""The time zone of Spark's JVM decides no value: it is UTC where this package starts it, and else asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from airflow_mv_provider import DeltaSource, Files, Query
from airflow_mv_provider.core.jvm_zone import IN_UTC
from airflow_mv_provider.exceptions import CorruptRecordError, SettingError, SourceFileError
from airflow_mv_provider.spark.connect_server import ConnectServer
from tests.engine.reading_in_a_zone import BY_SPARK_2, TIMES, expected, has_whole_second
from tests.engine.refusing import refused

pytestmark = pytest.mark.slow

ZONES = ["America/New_York", "Europe/Berlin", "Asia/Kolkata"]
WHOLE = [each for each in TIMES if each > "1583" and has_whole_second(each)]
NEW = [each for each in TIMES if each > "1901"]
# What no zone decides.
SAME = {
    "dates.orc": expected(WHOLE, "d"),
    "new-by-spark-2.parquet": expected(NEW),
    "times.csv": expected(columns="tdn"),
    "times.json": expected(columns="tdn"),
    "sqlite": expected(),
    "kafka": expected(),
}
BY_ZONE = {
    "times.orc": expected(WHOLE),
    "instants.orc": expected(WHOLE),
    "times.parquet": expected(columns="tdn"),
    "old-by-spark-2.parquet": expected(TIMES[3:5]),
    "int96.parquet": expected(TIMES[3:-1]),
    "avro": expected(),
    "delta": expected(),
}
OTHER_CALENDAR = ("old-date.orc", "old-time.orc")


def read(folder: Any, zone: str, *java_options: str) -> dict[str, Any]:
    """Read in a JVM of its own, on a machine in a zone."""
    command = [sys.executable, "-m", "tests.engine.reading_in_a_zone", str(folder), *java_options]
    env = os.environ | {"TZ": zone}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert "1970 with a fraction" in found.pop("fraction.orc")
    assert all("does not say in which calendar" in found.pop(name) for name in OTHER_CALENDAR)
    return found


@pytest.mark.in_process
@pytest.mark.in_test_all
@pytest.mark.parametrize("zone", ZONES)
def test_machine_in_a_zone_reads_what_any_other_reads(tmp_path, zone):
    assert read(tmp_path, zone) == SAME | BY_ZONE


@pytest.mark.in_test_all
@pytest.mark.in_process
@pytest.mark.parametrize("zone", ZONES)
def test_jvm_in_a_zone_reads_the_same_or_nothing(tmp_path, zone):
    found = read(tmp_path, "UTC", f"-Duser.timezone={zone}")

    refusals = {name: found.pop(name) for name in BY_ZONE}
    assert found == SAME
    assert all(f"time zone {zone}, which" in text for text in refusals.values()), refusals


@contextmanager
def jvm_in(spark: Any, zone: str) -> Iterator[None]:
    """A JVM that somebody else has started in another zone; in this process."""
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(zone))
    try:
        yield
    finally:
        zones.setDefault(before)


@pytest.mark.in_process
def test_orc_is_refused_in_a_jvm_of_another_zone(lake):
    lake.spark.sql("SELECT 1L AS id, array(struct(timestamp'2024-10-27 02:30:00' AS t)) AS v").write.orc(
        str(lake.root / "raw/orc")
    )
    lake.apply(source=Files("raw/orc", format="orc", schema="id BIGINT, v ARRAY<STRUCT<t: TIMESTAMP>>"))

    with jvm_in(lake.spark, "America/New_York"):
        refused(lake, SettingError, "America/New_York", *(f"--conf {name}={value}" for name, value in IN_UTC.items()))
    lake.refresh()

    (row,) = lake.sql("SELECT CAST(v[0].t AS STRING) FROM {t}")
    assert row[0] == "2024-10-27 02:30:00"


@pytest.mark.in_test_all
@pytest.mark.in_process
@pytest.mark.sample(1)
@pytest.mark.parametrize("errors", [None, {"max_rows": 1}])
def test_orc_without_a_calendar_is_refused_where_that_decides_a_day(lake, errors):
    def write(day: str) -> None:
        pyarrow.orc.write_table(pa.table({"id": [1], "v": pa.array([day]).cast(pa.date32())}), place / "a.orc")

    place = lake.root / "raw/orc"
    place.mkdir(parents=True)
    lake.apply(
        source=Files("raw/orc", format="orc", schema="id BIGINT, v DATE"), **({"errors": errors} if errors else {})
    )
    write("1582-10-10")
    refused(lake, SourceFileError, "a.orc", "does not say in which calendar")
    write("1582-10-15")
    lake.refresh()
    lake.spark.sql("SELECT 2L AS id, date'0001-01-01' AS v").write.mode("append").orc(str(place))
    lake.refresh()

    assert [tuple(map(str, row)) for row in lake.rows()] == [("1", "1582-10-15"), ("2", "0001-01-01")]


@pytest.mark.in_test_all
@pytest.mark.in_process
@pytest.mark.sample(1)
@pytest.mark.parametrize("is_nested", [False, True])
def test_times_in_maps_of_orc_are_asked_for_as_all_others(lake, is_nested):
    """A map is no column of a table, but `select` takes values from it."""
    place = lake.root / "raw/orc"
    place.mkdir(parents=True)
    schema, value = "id BIGINT, m MAP<STRING, TIMESTAMP>", "m['a']"
    if is_nested:
        schema, value = "id BIGINT, m ARRAY<STRUCT<n: MAP<STRING, TIMESTAMP>>>", "m[0].n['a']"
    lake.apply(source=Files("raw/orc", format="orc", schema=schema, select=["id", f"CAST({value} AS DATE) AS v"]))

    def write(text: str) -> None:
        times = pa.map_(pa.string(), pa.timestamp("us"))
        kind = pa.list_(pa.struct({"n": times})) if is_nested else times
        found: Any = [("a", datetime.fromisoformat(text))]
        found = [{"n": found}] if is_nested else found
        pyarrow.orc.write_table(pa.table({"id": [1], "m": pa.array([found], kind)}), place / "a.orc")

    write("1582-10-10")
    refused(lake, SourceFileError, "a.orc", "does not say in which calendar")
    write("2024-10-27")
    with jvm_in(lake.spark, "America/New_York"):
        refused(lake, SettingError, "America/New_York")
    lake.refresh()

    assert [tuple(map(str, row)) for row in lake.rows()] == [("1", "2024-10-27")]


@pytest.mark.in_process
def test_times_in_keys_of_maps_are_asked_for_as_all_others(lake):
    place = lake.root / "raw/parquet"
    place.mkdir(parents=True)
    keys = pa.array([[(datetime(1850, 1, 1), "a")]], pa.map_(pa.timestamp("us"), pa.string()))
    rows = pa.table({"id": [1], "m": keys})
    pyarrow.parquet.write_table(rows, place / "a.parquet", use_deprecated_int96_timestamps=True)
    lake.apply(source=Files("raw/parquet", format="parquet", select=["id", "map_keys(m)[0] AS v"]))

    with jvm_in(lake.spark, "America/New_York"):
        refused(lake, SettingError, "America/New_York")


@pytest.mark.in_test_all
@pytest.mark.in_process
@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["delta", "query"])
def test_old_times_of_a_delta_table_that_spark_2_wrote_are_not_shifted(lake, kind):
    """A table's files may be older than Delta's log of it: Spark reads each file by what its footer says."""
    place = lake.root / "raw/old"
    place.mkdir(parents=True)
    times = pa.array([datetime(1850, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    rows = pa.table({"id": pa.array([1], pa.int64()), "v": times}).replace_schema_metadata(BY_SPARK_2)
    pyarrow.parquet.write_table(rows, place / "a.parquet", use_deprecated_int96_timestamps=True)
    lake.spark.sql(f"CONVERT TO DELTA parquet.`{place}`")
    lake.apply(source=DeltaSource("raw/old") if kind == "delta" else Query("SELECT * FROM o", inputs={"o": "raw/old"}))

    with jvm_in(lake.spark, "America/New_York"):
        refused(lake, SettingError, "America/New_York", *(f"--conf {name}={value}" for name, value in IN_UTC.items()))
    lake.refresh()

    (row,) = lake.sql("SELECT CAST(v AS STRING) FROM {t}")
    assert row[0] == "1850-01-01 00:00:00"


def test_fraction_before_1970_by_arrow_is_named(lake):
    place = lake.root / "raw/orc"
    place.mkdir(parents=True)
    times = pa.array(["1969-12-31 23:59:58.5"]).cast(pa.timestamp("us"))
    pyarrow.orc.write_table(pa.table({"id": [1], "v": times}), place / "a.orc")
    lake.apply(source=Files("raw/orc", format="orc", schema="id BIGINT, v TIMESTAMP"))

    refused(lake, CorruptRecordError, "a.orc", "before 1970", "as Parquet")


def test_server_that_we_start_is_in_utc_and_speaks_english():
    command = ConnectServer("127.0.0.1", 15002, "local[1]", "1g").command()

    assert all(f"{name}={value} -Duser.language=en" in command for name, value in IN_UTC.items())

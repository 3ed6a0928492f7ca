"""Read the same times from sources of all kinds in a new JVM, and print them as JSON: `python -m … FOLDER JAVA_OPTION`.

    {"orc": {"0": ["2024-03-10 02:30:00", ...]}, "old.orc": "[MV-SOURCE-FILE] ...", ...}

The files are written by Arrow, fastavro, delta-rs and SQLite, which have no JVM.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# In the hour that a zone skips (New York, Berlin, Kolkata), in one that it has twice, before zones had whole hours.
TIMES = (
    *("0001-01-01 00:00:00", "1500-02-28 12:00:00", "1582-10-10 12:00:00.5", "1700-01-01 00:00:00"),
    *("1883-11-18 12:01:00", "1893-04-01 00:03:00", "1905-12-31 23:30:00", "1941-10-01 00:30:00"),
    *("1969-12-31 23:59:58", "1969-12-31 23:59:58.75", "2024-03-10 02:30:00.123456", "2024-03-31 02:30:00"),
    *("2024-10-27 02:30:00", "2024-11-03 01:30:00", "9999-12-31 23:59:59.999999"),
)
SCHEMA = "id BIGINT, t TIMESTAMP, d DATE"
NTZ = f"{SCHEMA}, n TIMESTAMP_NTZ"
BY_SPARK_2 = {"org.apache.spark.version": "2.4.8"}
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
    ],
}


def expected(times: Iterable[str] = TIMES, columns: str = "td") -> dict[str, list[str]]:
    """What has to be read of these times, by their places in TIMES."""
    return {str(TIMES.index(each)): [each[:10] if name == "d" else each for name in columns] for each in times}


def has_whole_second(time: str) -> bool:
    return time > "1970" or "." not in time


def write(folder: Path) -> None:
    import deltalake
    import fastavro
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import orc

    def arrow(times: Iterable[str], columns: str = "td", **metadata: str) -> Any:
        at = {TIMES.index(each): datetime.fromisoformat(each) for each in times}
        found = {
            "t": pa.array([each.replace(tzinfo=UTC) for each in at.values()], pa.timestamp("us", "UTC")),
            "d": pa.array([each.date() for each in at.values()], pa.date32()),
            "n": pa.array(at.values(), pa.timestamp("us")),
        }
        table = pa.table({"id": pa.array(at, pa.int64()), **{name: found[name] for name in columns}})
        return table.replace_schema_metadata(metadata) if metadata else table

    whole = [each for each in TIMES if each > "1583" and has_whole_second(each)]
    plain = arrow(whole, "n").rename_columns(["id", "t"])
    orc.write_table(plain.append_column("d", arrow(whole, "d").column("d")), folder / "times.orc")
    orc.write_table(arrow(whole), folder / "instants.orc")
    orc.write_table(arrow(whole, "d"), folder / "dates.orc")
    orc.write_table(arrow(TIMES[:1], "d"), folder / "old-date.orc")
    orc.write_table(arrow(TIMES[1:2], "t"), folder / "old-time.orc")
    orc.write_table(arrow(TIMES[9:10], "t"), folder / "fraction.orc")
    pq.write_table(arrow(TIMES, "tdn"), folder / "times.parquet")
    new = [each for each in TIMES if each > "1901"]
    pq.write_table(arrow(new, **BY_SPARK_2), folder / "new-by-spark-2.parquet")
    pq.write_table(arrow(TIMES[3:5], **BY_SPARK_2), folder / "old-by-spark-2.parquet")
    pq.write_table(arrow(TIMES[3:-1]), folder / "int96.parquet", use_deprecated_int96_timestamps=True)
    lines = [f"{i},{each.replace(' ', 'T')}Z,{each[:10]},{each}\n" for i, each in enumerate(TIMES)]
    (folder / "times.csv").write_text("id,t,d,n\n" + "".join(lines))
    values = [{"id": i, "t": each.replace(" ", "T") + "Z", "d": each[:10], "n": each} for i, each in enumerate(TIMES)]
    (folder / "times.json").write_text("".join(json.dumps(each) + "\n" for each in values))
    deltalake.write_deltalake(str(folder / "delta"), arrow(TIMES))
    with (folder / "times.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(AVRO), arrow(TIMES).to_pylist())
    with closing(sqlite3.connect(folder / "times.db")) as file:
        file.execute("CREATE TABLE times (id INTEGER PRIMARY KEY, t, d)")
        file.executemany("INSERT INTO times VALUES (?, ?, ?)", [(i, each, each[:10]) for i, each in enumerate(TIMES)])
        file.commit()


def read(folder: Path, java_options: str) -> dict[str, Any]:
    from airflow_mv_provider import DeltaSource, Files
    from airflow_mv_provider.exceptions import MvError
    from airflow_mv_provider.sources.jdbc.model import Jdbc
    from airflow_mv_provider.sources.kafka.avro import AvroCodec
    from airflow_mv_provider.sources.spark.model import SparkSource
    from airflow_mv_provider.sources.table_source import open_source
    from airflow_mv_provider.spark.causes.databases import DRIVERS, connectors
    from airflow_mv_provider.spark.errors import translated
    from airflow_mv_provider.spark.session import isolated, local_session
    from tests.conftest import a_table
    from tests.small_tables import CONFS

    os.environ["AMV_SPARK_PACKAGES"] = ",".join((*DRIVERS.values(), *connectors().values()))
    os.environ["AMV_SPARK_MASTER"] = "local[1]"
    os.environ["AIRFLOW_CONN_TIMES"] = f"sqlite:///{folder}/times.db"
    spark = isolated(local_session(java_options=java_options, **{n.replace(".", "_"): v for n, v in CONFS.items()}))
    files = {
        "times.orc": SCHEMA,
        "instants.orc": SCHEMA,
        "dates.orc": "id BIGINT, d DATE",
        "old-date.orc": "id BIGINT, d DATE",
        "old-time.orc": "id BIGINT, t TIMESTAMP",
        "fraction.orc": "id BIGINT, t TIMESTAMP",
        "times.parquet": NTZ,
        "new-by-spark-2.parquet": SCHEMA,
        "old-by-spark-2.parquet": SCHEMA,
        "int96.parquet": SCHEMA,
        "times.csv": NTZ,
        "times.json": NTZ,
    }
    sources: dict[str, Any] = {
        name: Files(name, format=name.rpartition(".")[2], schema=schema)  # type: ignore[arg-type]
        for name, schema in files.items()
    }
    sources["delta"] = DeltaSource("delta")
    sources["avro"] = SparkSource("avro", path="times.avro")
    sources["sqlite"] = Jdbc("times", table="times", columns={"t": "TIMESTAMP", "d": "DATE"})

    def texts(rows: Any) -> dict[str, list[str]]:
        names = [name for name in rows.columns if name != "id"]
        found = rows.selectExpr("id", *(f"CAST({name} AS STRING)" for name in sorted(names, key="tdn".index)))
        return {str(row[0]): list(row[1:]) for row in found.collect()}

    result: dict[str, Any] = {}
    for name, source in sources.items():
        try:
            reader = open_source(spark, a_table(source=source), str(folder)).reader
            with translated("source"):
                result[name] = texts(reader.read(reader.probe()))
        except MvError as error:
            result[name] = str(error)
    records = [(bytearray(each),) for each in as_records()]
    parsed = AvroCodec.of(spark, json.dumps(AVRO)).parsed
    with translated("source"):
        frame = spark.createDataFrame(records, "content BINARY")
        result["kafka"] = texts(parsed(frame, frame["content"], "value").selectExpr("value.id", "value.t", "value.d"))
    return result


def as_records() -> Iterable[bytes]:
    import fastavro

    for i, each in enumerate(TIMES):
        content, at = io.BytesIO(), datetime.fromisoformat(each).replace(tzinfo=UTC)
        fastavro.schemaless_writer(content, AVRO, {"id": i, "t": at, "d": at.date()})
        yield content.getvalue()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    write(place)
    print(json.dumps(read(place, " ".join(sys.argv[2:]))))

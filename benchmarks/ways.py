"""One table in a warehouse of its own, its source, and the ways to bring a main up to that source."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from sqlalchemy import event

from airflow_mv_provider import DeltaSource, Files
from airflow_mv_provider.core.definition.guards import Guards
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.runner import crash_points
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.spark.session import is_remote
from benchmarks.data import FILE_CASES, NUM_FILES, TABLES, Table, correct_a_file, rows, statements

STRATEGIES = ("read", "overwrite", "merge", "merge_if", "refresh")
PROTOCOL = {"acquire", "create_main", "fence", "seal", "progress", "published", "staging_delete", "normal"}
FEED = "'delta.enableChangeDataFeed' = 'true'"
VECTORS = "'delta.enableDeletionVectors' = 'true'"


@dataclass(frozen=True)
class Setting:
    """One table in one layout: everything that is the same for all cases of it.

    has_vectors : the source marks changed rows in deletion vectors, so that its other rows stay in their files
    """

    table: str
    layout: str = "none"
    publish: str = "atomic"
    has_feed: bool = False
    has_vectors: bool = False
    source: str = "delta"

    def describe(self) -> str:
        return ", ".join(
            filter(
                None,
                (
                    self.table,
                    {"none": "", "months": "natural partitions"}[self.layout],
                    "" if self.publish == "atomic" else self.publish,
                    "change data feed" if self.has_feed else "",
                    "deletion vectors" if self.has_vectors else "",
                    "" if self.source == "delta" else f"{NUM_FILES} {self.source} files",
                ),
            )
        )


@dataclass
class Bench:
    """One warehouse with a source, and a main for each way."""

    root: Path
    setting: Setting
    scale: float
    spark: Any
    ways: Sequence[str] = STRATEGIES
    protocol_seconds: float = 0.0
    num_transactions: int = 0
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        self.table = TABLES[self.setting.table]
        columns = "*" if self.setting.layout != "months" else f"*, {self.table.month} AS part"
        found = rows(self.spark, self.table, self.scale, self.root / "tpch").selectExpr(*columns.split(", ", 1))
        self.schema = found.schema
        if self.setting.source == "delta":
            found.write.format("delta").save(str(self.root / "raw/source"))
        else:
            found.repartition(NUM_FILES).write.format(self.setting.source).save(str(self.root / "raw/source"))
        for is_wanted, feature in ((self.setting.has_feed, FEED), (self.setting.has_vectors, VECTORS)):
            if is_wanted:
                self.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({feature})", "raw/source")
        settings = Settings(f"sqlite:///{self.root / 'mv.db'}", str(self.root))
        store = open_store(settings)
        event.listen(store.engine, "begin", self._count_transaction)
        self.refresher = Refresher(store, settings, lambda: self.spark)
        self.refresher.apply(
            RefreshableTable(
                name="refreshed",
                source=self._declared(),
                key=self.table.key,
                partition_by=self._partition_by,
                publish=self.setting.publish,
                chunk_rows=1_000_000 if self.setting.publish == "progressive" else 50_000_000,
                guards=Guards(max_deleted_fraction=1.0),
            )
        )
        partitioned = f"PARTITIONED BY ({self._partition_by[0]})" if self._partition_by else ""
        for way in {"overwrite", "merge", "merge_if"} & set(self.ways):
            self.sql(
                f"CREATE TABLE {{t}} USING delta {partitioned} TBLPROPERTIES ({VECTORS}) "
                f"AS SELECT * FROM {self._view()}",
                way,
            )
        self.first = timed(lambda: self.refresher.refresh("refreshed", command_line_caller()))[0]

    @property
    def _partition_by(self) -> tuple[str, ...]:
        return ("part",) if self.setting.layout == "months" else ()

    def _declared(self) -> DeltaSource | Files:
        if self.setting.source == "delta":
            return DeltaSource("raw/source")
        schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in self.schema.fields)
        options = {"header": "false"} if self.setting.source == "csv" else {}
        return Files(
            f"raw/source/*.{self.setting.source}",
            format=self.setting.source,
            schema=schema,
            options=options,
        )

    def change(self, case: str, number: int) -> None:
        """Bring a case about in the source; each run changes other rows or files, or the same ones again."""
        if case in FILE_CASES:
            file = sorted((self.root / "raw/source").glob(f"*.{self.setting.source}"))[number % NUM_FILES]
            correct_a_file(self._source(str(file)), self.table, case, file)
            return
        for statement in statements(self.table, case, number):
            self.sql(statement, "raw/source")

    def at(self, place: str) -> str:
        return f"delta.`{self.root / place}`"

    def sql(self, text: str, place: str) -> None:
        self.spark.sql(text.format(t=self.at(place))).collect()

    def read(self) -> None:
        if self.setting.has_vectors:  # Delta cannot write such a table to nowhere: its snapshot is not pinned then
            self._source().selectExpr("bit_xor(xxhash64(*))").collect()
            return
        self._source().write.format("noop").mode("overwrite").save()

    def overwrite(self) -> None:
        self._source().write.format("delta").mode("overwrite").save(str(self.root / "overwrite"))

    def merge(self) -> None:
        self._merge("merge", "")

    def merge_if(self) -> None:
        """MERGE what differs in a hash of the row, as dbt's check strategy does."""
        names = self._source().columns
        old, new = (f"xxhash64({', '.join(f'{side}.{name}' for name in names)})" for side in "ts")
        self._merge("merge_if", f" AND {old} <> {new}")

    def refresh(self, request: Request) -> dict[str, Any]:
        with self._protocol_timed():
            report = self.refresher.refresh("refreshed", command_line_caller(), request)
        return report.to_json()

    def next_job(self) -> int:
        """Return the number of the next Spark job; 0 on a server, whose jobs a client cannot count."""
        return 0 if is_remote(self.spark) else int(self.spark.sparkContext._jsc.sc().dagScheduler().nextJobId())

    def _count_transaction(self, _connection: Any) -> None:
        self.num_transactions += 1

    def added(self, way: str, since: int) -> tuple[int, int]:
        """Return the bytes and the number of data files and deletion vectors that commits after `since` added."""
        place = "refreshed" if way == "refresh" else way
        log = self.root / place / "_delta_log"
        names = (log / f"{version:020}.json" for version in range(since + 1, self.version(way) + 1))
        sizes = []
        for line in (line for name in names for line in name.read_text().splitlines()):
            if add := json.loads(line).get("add"):
                vector = add.get("deletionVector")
                sizes.append(vector["sizeInBytes"] if vector else add["size"])
        return sum(sizes), len(sizes)

    def version(self, way: str) -> int:
        place = "refreshed" if way == "refresh" else way
        return int(self.spark.sql(f"DESCRIBE HISTORY {self.at(place)} LIMIT 1").collect()[0].version)

    def check_equal(self, ways: Sequence[str]) -> None:
        """A fast way that is wrong is not measured: all mains must hold the source's rows."""
        hashed = "SELECT count(*) AS n, bit_xor(xxhash64(*)) AS x FROM "
        wanted = self.spark.sql(hashed + self._view()).collect()
        for place in ("refreshed" if way == "refresh" else way for way in ways if way != "read"):
            assert self.spark.sql(hashed + self.at(place)).collect() == wanted, place

    def _source(self, path: str | None = None) -> Any:
        reader = self.spark.read.format(self.setting.source)
        if self.setting.source == "csv":
            reader = reader.schema(self.schema)
        return reader.load(path or str(self.root / "raw/source"))

    def _view(self) -> str:
        self._source().createOrReplaceTempView("bench_source")
        return "bench_source"

    def _merge(self, way: str, condition: str) -> None:
        match = " AND ".join(f"t.{column} = s.{column}" for column in self.table.key)
        self.sql(
            f"MERGE INTO {{t}} t USING {self._view()} s ON {match} WHEN MATCHED{condition} THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE",
            way,
        )

    @contextmanager
    def _protocol_timed(self) -> Iterator[None]:
        """Add up the time spent inside the durable writes that carry no rows: state writes and the fence."""
        began: dict[str, float] = {}
        self.protocol_seconds = 0.0

        def reach(point: str) -> None:
            write, when = point.split(".")
            if when == "before":
                began[write] = time.monotonic()
            elif write in PROTOCOL:
                self.protocol_seconds += time.monotonic() - began[write]

        crash_points.arm(reach)
        try:
            yield
        finally:
            crash_points.arm(None)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    result = work()
    return time.monotonic() - began, result

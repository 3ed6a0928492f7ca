"""Main as a Delta table: its identity, its log, its versions, and the fence.

The log is read through SQL only; this module opens no file. The note in userMetadata identifies this package's commits.
Once a newer epoch has written its fence, Delta drops or refuses commits of older epochs by their transaction version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from airflow_mv_provider.core.commits import FEED_PROPERTY, UNNAMED
from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import literal, quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.fence import Commit, CommitNote, app_id, parse_note
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.exceptions import MainUnsupportedError, MvError
from airflow_mv_provider.spark.errors import (
    FROM_SPARK,
    condition_of,
    damage_of_log,
    first_line,
    translate,
    translated,
)
from airflow_mv_provider.spark.layout import Layout, sql_of
from airflow_mv_provider.spark.refusal import writing_to

UUID_PROPERTY = "mv.table_uuid"
NAME_PROPERTY = "mv.catalog_name"
_WIDENING = {"delta.enableTypeWidening": "true"}
_MAPPING = {"delta.columnMapping.mode": "name"}
_PROTOCOL = "delta.minReaderVersion"  # every Delta table shows it among its properties
_TXN_CONFS = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
)
_MISSING = (
    *("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "PATH_NOT_FOUND"),
    *("DELTA_PATH_EXISTS", "DELTA_TABLE_ONLY_OPERATION", "TABLE_OR_VIEW_NOT_FOUND", "DELTA_EMPTY_DIRECTORY"),
)
_TOO_NEW = ("DELTA_UNSUPPORTED_FEATURES_FOR_READ", "DELTA_INVALID_PROTOCOL_VERSION")


@dataclass(frozen=True, slots=True)
class Detail:
    """The metadata that DESCRIBE DETAIL returns. `delta_id` changes when the table is dropped and created again."""

    delta_id: str
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    num_bytes: int


def _understood(table: TableRef) -> AbstractContextManager[None]:
    """As `errors.translated`, for reads of a table that a later Delta may have written, or whose log may be damaged."""
    return translated(str(table), lambda error: _of_table(error, table))


def _of_table(error: BaseException, table: TableRef) -> MvError:
    if condition_of(error) in _TOO_NEW:
        problem = f"this Delta cannot read it: {first_line(str(error))}."
        return MainUnsupportedError(str(table), problem, hint="Upgrade Delta, or drop the feature from the table.")
    if (damage := damage_of_log(error)) is not None:
        log = f"{table.location}/_delta_log"
        hint = f"Restore {log} from a backup; or move the table away, and the next refresh creates it again."
        return MainUnsupportedError(str(table), f"its Delta log is damaged: {damage}.", hint=hint)
    return translate(error, str(table))


def detail(spark: SparkSession, table: TableRef) -> Detail | None:
    """Return the table's metadata, or None if no table is there.

    raises : MainUnsupportedError, when something other than a Delta table is there
    """
    try:
        row = spark.sql(f"DESCRIBE DETAIL {table.sql}").collect()[0]
    except FROM_SPARK as error:
        if condition_of(error).startswith(_MISSING):
            return None
        with _understood(table):
            raise
    if row.format != "delta" or row.id is None:
        raise MainUnsupportedError(str(table), f"the table is {row.format}, not Delta.")
    return Detail(row.id, tuple(row.partitionColumns), dict(row.properties), row.sizeInBytes)


def history(spark: SparkSession, table: TableRef, limit: int | None = None) -> list[Row]:
    """Return the rows of DESCRIBE HISTORY, newest first."""
    last = "" if limit is None else f" LIMIT {int(limit)}"
    with _understood(table):
        return spark.sql(f"DESCRIBE HISTORY {table.sql}{last}").collect()


def properties(spark: SparkSession, table: TableRef) -> dict[str, str]:
    """Return a table's properties; cheaper than `detail`, which counts the table's files."""
    with _understood(table):
        return {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.sql}").collect()}


def read(spark: SparkSession, table: TableRef, version: int) -> DataFrame:
    """Return the table as it was at `version`."""
    with _understood(table):
        return _opened(spark, table, versionAsOf=version)


def newest(spark: SparkSession, table: TableRef) -> DataFrame:
    """Return the table as it is when its rows are read."""
    with _understood(table):
        return _opened(spark, table)


def schema_of(spark: SparkSession, table: TableRef) -> StructType:
    """Return the table's present columns."""
    return _opened(spark, table).schema


def change_feed(spark: SparkSession, table: TableRef, first: int, last: int) -> DataFrame:
    """Return the change data feed of the commits from version `first` to `last`, both included."""
    return _opened(spark, table, readChangeFeed=True, startingVersion=first, endingVersion=last)


def _opened(spark: SparkSession, table: TableRef, **options: int) -> DataFrame:
    """Open a table for reading; the only place that does, as `Main._save` is the only one for writing."""
    return spark.read.format("delta").options(**options).load(table.location)


def tracking(definition: RefreshableTable) -> Mapping[str, str]:
    """Return the table properties with which main keeps a change data feed, if the definition wants one."""
    return {FEED_PROPERTY: "true"} if definition.track_changes else {}


def features_for(layout: Layout, *, is_rewritten: bool) -> Mapping[str, str]:
    """Return the table properties that main needs for a layout's columns; some readers cannot read such a table.

    is_rewritten : the commit rewrites all of main including its schema, so no existing column's type is widened
    """
    widening = _WIDENING if layout.widened and not is_rewritten else {}
    return widening | (_MAPPING if schema.are_mapped(layout.added) else {})


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return an empty DataFrame with these columns; unlike `createDataFrame([])`, it starts no Python workers."""
    return spark.range(0).select(*(F.lit(None).cast(sql_of(f.dataType)).alias(f.name) for f in schema.fields))


@dataclass(frozen=True, slots=True)
class Main:
    """The main table of one refreshable table, accessed through a session that no other writer uses."""

    spark: SparkSession
    ref: TableRef
    table_uuid: str

    def detail(self) -> Detail | None:
        """Return main's metadata, or None before its first refresh.

        cost   : Delta counts main's files after each new commit: 0.4 s for a few hundred files
        raises : MainUnsupportedError, when a transaction retention is set or the location holds something else
        """
        found = detail(self.spark, self.ref)
        self._check_memory(found.properties if found else {})
        return found

    def properties(self) -> Mapping[str, str] | None:
        """Return main's properties, or None before its first refresh; as `detail`, for a twentieth of its cost."""
        try:
            found = properties(self.spark, self.ref)
        except MvError:
            found = {}
        if _PROTOCOL not in found:  # not a Delta table, or not created yet: `detail` distinguishes them
            seen = self.detail()
            return seen.properties if seen else None
        self._check_memory(found)
        return found

    def _check_memory(self, properties: Mapping[str, str]) -> None:
        if "delta.setTransactionRetentionDuration" in properties:
            raise MainUnsupportedError(
                str(self.ref),
                "with delta.setTransactionRetentionDuration its log forgets which process may write.",
                hint="Unset this table property.",
            )

    def create(self, kind: StructType, partition_by: Sequence[str], more: Mapping[str, str] | None = None) -> Detail:
        """Create main, empty, with its table UUID; idempotent: concurrent creators create the same table.

        more : further table properties
        """
        columns = ", ".join(f"{quoted(f.name)} {sql_of(f.dataType)}" for f in kind.fields)
        partitions = f" PARTITIONED BY ({', '.join(map(quoted, partition_by))})" if partition_by else ""
        mapping = _MAPPING if schema.are_mapped(schema.columns_of(kind.jsonValue())) else {}
        features = {"delta.enableDeletionVectors": "true"} | mapping | dict(more or {})
        properties = {UUID_PROPERTY: self.table_uuid, **features}
        create = f"CREATE TABLE IF NOT EXISTS {self.ref.sql} ({columns}) USING delta{partitions} "
        with self._or_created():
            self.spark.sql(f"{create} {_tblproperties(properties)}")
        if (found := detail(self.spark, self.ref)) is not None:
            return found
        # A creator that died left a log without a commit. CREATE treats that as an existing table, a write does not.
        writer = no_rows(self.spark, kind).write.mode("ignore").partitionBy(*partition_by)
        with self._or_created():
            self._save(writer.options(userMetadata=self._claim, **features))
        if self.is_claimed:  # otherwise another process created it meanwhile, with this UUID or as a foreign table
            self.adopt()
        found = detail(self.spark, self.ref)
        if found is None:
            raise MainUnsupportedError(str(self.ref), "the table cannot be created, although no Delta table is there.")
        return found

    @contextmanager
    def _or_created(self) -> Iterator[None]:
        """Ignore a failed creation if the table exists afterwards: of two concurrent creators, one gets an error."""
        try:
            yield
        except PySparkException as error:
            if detail(self.spark, self.ref) is None:
                with writing_to(str(self.ref)):
                    raise error

    @property
    def is_ours(self) -> bool:
        """True if there is a Delta table with this identity."""
        return self.has({UUID_PROPERTY: self.table_uuid})

    def takes(self, properties: Mapping[str, str]) -> bool:
        """True if the table with these properties has this identity; it gets it now if its creator died before that."""
        carried = properties.get(UUID_PROPERTY)
        if carried is None and self.is_claimed:
            self.adopt()
            return True
        return carried == self.table_uuid

    @property
    def is_claimed(self) -> bool:
        """True if a creator of this table died before it wrote the table UUID into the table's properties."""
        commits = history(self.spark, self.ref, 20)
        return bool(commits[-1].version == 0 and commits[-1].userMetadata == self._claim)

    @property
    def _claim(self) -> str:
        return f"{UUID_PROPERTY}={self.table_uuid}"

    def adopt(self) -> None:
        """Write the table UUID into an existing table's properties; done once, before the first fence."""
        self.enable({UUID_PROPERTY: self.table_uuid})

    def has(self, wanted: Mapping[str, str]) -> bool:
        """True if main has these properties."""
        return wanted.items() <= (self.properties() or {}).items()

    def enable(self, properties: Mapping[str, str]) -> None:
        """Set table properties of main; its rows and columns stay unchanged."""
        with writing_to(str(self.ref)):
            self.spark.sql(f"ALTER TABLE {self.ref.sql} SET {_tblproperties(properties)}")

    def log(self, since: int | None = None) -> list[Commit]:
        """Return main's newest commits, newest first.

        since   : the oldest version that must be covered
        returns : includes at least one commit of this package at or before `since`, if main's log still holds one
        cost    : about 0.1 s; one more read for each tenfold increase in foreign commits since then
        """
        return self.log_until(lambda commits: any(c.note and (since is None or c.version <= since) for c in commits))

    def log_until(self, is_far_enough: Callable[[Sequence[Commit]], bool]) -> list[Commit]:
        """Return main's newest commits, newest first, as many as `is_far_enough` asks for, or all; cost as of `log`."""
        limit = 20
        while True:
            commits = [self._commit(row) for row in history(self.spark, self.ref, limit)]
            if len(commits) < limit or is_far_enough(commits):
                return commits
            limit *= 10

    def fence(self, note: CommitNote) -> None:
        """Commit an empty append under the note's transaction; Delta drops it silently if the log has a later one."""
        with writing_to(str(self.ref)):
            kind = schema_of(self.spark, self.ref)
            self._save(self._under(no_rows(self.spark, kind).write, note).mode("append"))

    def overwrite(self, rows: DataFrame, note: CommitNote, *, new_partitions: Sequence[str] | None = None) -> None:
        """Replace all rows under the note's transaction; Delta drops it silently if the log has a later one.

        new_partitions : main gets exactly the columns of `rows` and these partition columns; None keeps both unchanged
        """
        writer = self._under(rows.write, note).mode("overwrite").option("partitionOverwriteMode", "static")
        if new_partitions is not None:
            writer = writer.option("overwriteSchema", "true").partitionBy(*new_partitions)
        with writing_to(str(self.ref)):
            self._save(writer)

    def _under(self, writer: DataFrameWriter, note: CommitNote) -> DataFrameWriter:
        return (
            writer.option("txnAppId", app_id(self.table_uuid))
            .option("txnVersion", note.txn_version)
            .option("userMetadata", note.to_json())
        )

    def _save(self, writer: DataFrameWriter) -> None:
        writer.format("delta").save(self.ref.location)

    @contextmanager
    def transaction(self, note: CommitNote) -> Iterator[None]:
        """Make the one SQL statement inside the block commit under the note's transaction."""
        for name, value in zip(
            _TXN_CONFS, (app_id(self.table_uuid), str(note.txn_version), note.to_json()), strict=True
        ):
            self.spark.conf.set(name, value)
        try:
            with writing_to(str(self.ref)):
                yield
        finally:
            for name in _TXN_CONFS:
                self.spark.conf.unset(name)

    @contextmanager
    def noted(self, note: CommitNote) -> Iterator[None]:
        """Make the one SQL statement inside the block carry a note without a transaction: it fences nobody out."""
        self.spark.conf.set(_TXN_CONFS[-1], note.to_json())
        try:
            with writing_to(str(self.ref)):
                yield
        finally:
            self.spark.conf.unset(_TXN_CONFS[-1])

    def _commit(self, row: Row) -> Commit:
        note = parse_note(row.userMetadata, self.table_uuid)
        return Commit(
            *(row.version, row.operation or UNNAMED, row.readVersion, note, dict(row.operationMetrics or {})),
            at_ms=None if row.timestamp is None else round(row.timestamp.timestamp() * 1000),
            parameters=dict(row.operationParameters or {}),
        )


def _tblproperties(properties: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
    return f"TBLPROPERTIES ({pairs})"

"""Collect the source's records that cannot be rows of main beside staging, and publish them.

    marked rows ──▶ good ──▶ main
                └─▶ bad  ──▶ errors-<epoch> ──▶ seal ──▶ <main>__errors, one overwrite for each refresh

A record is bad if it could not be decoded (see `marking`), if `select` cannot be computed of it, if its key has a
NULL, or if it breaks a check of severity `quarantine`. The error table holds the records that the published snapshot
lacks, so each refresh that publishes replaces its rows. Its former rows are in its older versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.fence import CommitNote
from airflow_mv_provider.core.progress.seal import Rejected
from airflow_mv_provider.exceptions import SealBrokenError, TooManyErrorsError
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.delta import Main, no_rows, read
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import any_null, columns, struct_type
from airflow_mv_provider.spark.marking import KEY_NULL, NOT_COMPUTABLE, NOTHING, ORIGIN, plain_path
from airflow_mv_provider.spark.quality import evaluation
from airflow_mv_provider.spark.quality.failing import is_computable

# The columns of collected records; the error table puts the refresh's columns before them.
_COLLECTED = (
    schema.Column("source_file", "string"),
    schema.Column("source_position", "long"),
    schema.Column("record", "string"),
    schema.Column("rule", "string"),
    schema.Column("reason", "string"),
)
_UNPLACED = (
    *(schema.Column("file", "string"), schema.Column("block", "long"), schema.Column("number", "long")),
    *(schema.Column(name, "string") for name in ("rule", "reason", "record")),
)
_OF_REFRESH = (schema.Column("refresh_id", "string"), schema.Column("batch", "long"))
_NUM_SAMPLES = 3


def columns_of(table: RefreshableTable) -> tuple[schema.Column, ...]:
    """Return the columns of a table's error table."""
    return *_OF_REFRESH, *_collected(table)


def _collected(table: RefreshableTable) -> tuple[schema.Column, ...]:
    """Return the columns of collected records; those of a log's events name the key that main lacks for them."""
    return (*_COLLECTED, schema.Column("key", "string")) if table.source_kind.is_log else _COLLECTED


def keyed(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the rows whose key has no NULL."""
    return rows.where(~any_null(_present(rows, key)))


@dataclass(frozen=True, slots=True)
class RejectedRecords:
    """Records that cannot be rows of main, and the row numbers that give their positions; lazy.

    found   : (file, block, number, rule, reason, record)
    numbers : (file, block, number) of all of the source's records
    """

    found: DataFrame
    numbers: DataFrame


def not_computable(rows: DataFrame, expressions: Sequence[str]) -> DataFrame:
    """Return the rows for which an expression of the projection raises, with those that do as the reason.

    rows    : before the projection, decoded, still marked
    returns : (_mv_origin)
    """
    problems = (F.when(~is_computable([each]), F.lit(f"{each} cannot be computed")) for each in expressions)
    found = rows.where(~is_computable(expressions)).select(
        F.col(ORIGIN)
        .withField("rule", F.lit(NOT_COMPUTABLE))
        .withField("reason", F.array_join(F.array_compact(F.array(*problems)), "; "))
        .withField("record", _as_record([name for name in rows.columns if name != ORIGIN]))
    )
    return found.toDF(ORIGIN)


def rejected_records(
    marked: DataFrame, projected: DataFrame, table: RefreshableTable, failed: DataFrame | None = None
) -> RejectedRecords:
    """Return the records that cannot be rows of main.

    marked    : all records of the source, numbered
    projected : the decoded ones that the definition's projection can be computed of, after it, still marked
    failed    : the others of these, as `not_computable` returns them; None if there can be none
    """
    undecoded = marked.where(F.col(f"{ORIGIN}.rule") != NOTHING).select(ORIGIN)
    if failed is not None:
        undecoded = undecoded.unionAll(failed)
    names = [name for name in projected.columns if name != ORIGIN]
    present = _present(projected, table.key)
    null = F.array_compact(F.array(*(F.when(F.col(quoted(k)).isNull(), F.lit(k)) for k in present)))
    without_key = projected.where(any_null(present)).select(
        F.col(ORIGIN)
        .withField("rule", F.lit(KEY_NULL))
        .withField("reason", F.concat(F.array_join(null, ", "), F.lit(" is NULL")))
        .withField("record", _as_record(names))
    )
    found = undecoded.unionAll(without_key.toDF(ORIGIN))
    if table.quarantining:
        found = found.unionAll(_quarantined(projected.where(~any_null(present)), names, table).toDF(ORIGIN))
    found = found.select(f"{ORIGIN}.*")
    return RejectedRecords(found, marked.select(*(F.col(f"{ORIGIN}.{name}") for name in ("file", "block", "number"))))


def _quarantined(rows: DataFrame, names: Sequence[str], table: RefreshableTable) -> DataFrame:
    """Return the rows that break a check, under the first one's name, with all that they break as the reason."""
    evaluation.check_valid(rows.select(*columns(names)), table.name, table.quarantining)
    broken = [(check, evaluation.is_broken(check)) for check in table.quarantining]
    rules = F.array_compact(F.array(*(F.when(is_broken, F.lit(check.title)) for check, is_broken in broken)))
    reasons = F.array_compact(F.array(*(F.when(is_broken, F.lit(f"not: {check.text}")) for check, is_broken in broken)))
    return rows.where(F.size(rules) > 0).select(
        F.col(ORIGIN)
        .withField("rule", F.element_at(rules, 1))
        .withField("reason", F.array_join(reasons, "; "))
        .withField("record", _as_record(names))
    )


def num_broken(spark: SparkSession, table: RefreshableTable, collected: Rejected) -> dict[str, int]:
    """Return for each rule how many collected records break it first; cost: a scan of them."""
    if collected.path is None:
        return {}
    with translated(table.name):
        rows = _read(spark, table, collected.path).groupBy("rule").agg(F.count(F.lit(1))).collect()
    return dict(map(tuple, rows))


def _as_record(names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*columns(names)), {"ignoreNullFields": "false"})


def collect(found: RejectedRecords, table: RefreshableTable, path: str) -> Rejected:
    """Write the rejected records at `path`, with their positions.

    cost   : two scans of the source; if a record is rejected, a third one that reads no columns
    raises : TooManyErrorsError, with up to three samples
    """
    assert table.errors is not None
    spark, most, unplaced = found.found.sparkSession, table.errors.max_rows, f"{path}-unplaced"
    with translated(table.name):
        storage.write(found.found.limit(most + 1), unplaced)
        rows = storage.read(spark, table.name, unplaced, _UNPLACED)
        num_rows = rows.count()
        if not num_rows:
            return Rejected()
        if num_rows > most:
            raise _too_many(table, rows.select(plain_path(F.col("file")), "reason"))
        storage.write(_placed(rows, found.numbers), path)
        return Rejected(path, *_measured(_read(spark, table, path), table))


def former_events(errors: Main, version: int, table: RefreshableTable) -> DataFrame:
    """Return the records of a log that the error table had at a version, as `LogReader.rejected` takes them; lazy."""
    return read(errors.spark, errors.ref, version).select(*(column.name for column in _collected(table)))


def keep_events(found: DataFrame, table: RefreshableTable, path: str) -> Rejected:
    """Write at `path` what `LogReader.rejected` returned.

    raises : TooManyErrorsError, with up to three samples
    """
    assert table.errors is not None
    spark, most = found.sparkSession, table.errors.max_rows
    with translated(table.name):
        storage.write(found.limit(most + 1), path)
        num_rows, digest = _measured(_read(spark, table, path), table)
        if num_rows > most:
            place = F.concat_ws("/", F.col("source_file"), F.col("source_position"))
            raise _too_many(table, _read(spark, table, path).select(place, "reason"))
    return Rejected(path, num_rows, digest) if num_rows else Rejected()


def _too_many(table: RefreshableTable, found: DataFrame) -> TooManyErrorsError:
    assert table.errors is not None
    shown = [_shown(row) for row in found.limit(_NUM_SAMPLES).collect()]
    problem = f"more than {table.errors.max_rows:,} records of the source cannot be rows of the table"
    return TooManyErrorsError(table.name, f"{problem}: {'; '.join(shown)}.", samples=shown)


def _placed(rows: DataFrame, numbers: DataFrame) -> DataFrame:
    """Return rejected records as they are published, with their position in their file.

    Rows are numbered per task. Several tasks read a file, and each reads one block of it from the block's start.
    """
    blocks = numbers.groupBy("file", "block").agg(F.min("number").alias("first"), F.count(F.lit(1)).alias("rows"))
    earlier = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    before = F.coalesce(F.sum("rows").over(earlier), F.lit(0))
    starts = blocks.select("file", "block", "first", before.alias("before"))
    position = F.col("before") + F.col("number") - F.col("first") + 1
    return rows.join(starts, ["file", "block"], "left").select(
        plain_path(F.col("file")).alias("source_file"),
        position.alias("source_position"),
        F.make_valid_utf8("record").alias("record"),  # other Parquet readers refuse invalid UTF-8, which Spark accepts
        "rule",
        "reason",
    )


def collect_former(errors: Main, version: int, table: RefreshableTable, path: str) -> Rejected:
    """Write at `path` the records that the error table had at a version.

    cost : a scan of them
    """
    spark = errors.spark
    with translated(table.name):
        storage.write(read(spark, errors.ref, version).select(*(c.name for c in _collected(table))), path)
        num_rows, digest = _measured(_read(spark, table, path), table)
    return Rejected(path, num_rows, digest) if num_rows else Rejected()


def check_collected(spark: SparkSession, table: RefreshableTable, collected: Rejected) -> None:
    """Check that the collected records still read back as sealed.

    raises : SealBrokenError
    """
    if collected.path is None:
        return
    with translated(table.name):
        if _measured(_read(spark, table, collected.path), table) != (collected.num_rows, collected.digest):
            raise SealBrokenError(table.name, f"the records at {collected.path} are not what was sealed.")


def publish(errors: Main, table: RefreshableTable, collected: Rejected, note: CommitNote) -> None:
    """Overwrite the error table with the sealed records; Delta drops it silently if the log has a later epoch.

    errors : the error table
    """
    spark = errors.spark
    with errors.transaction(note):
        if collected.path is None:
            rows = no_rows(spark, struct_type(columns_of(table)))
        else:
            rows = _read(spark, table, collected.path).select(
                F.lit(note.refresh_id).alias("refresh_id"), F.lit(note.upper).cast("bigint").alias("batch"), "*"
            )
        view = f"mv_errors_{note.refresh_id}"
        rows.createOrReplaceTempView(view)
        try:
            spark.sql(f"INSERT OVERWRITE {errors.ref.sql} SELECT * FROM {quoted(view)}").collect()  # nosec B608  # quoted
        finally:
            spark.catalog.dropTempView(view)


def _read(spark: SparkSession, table: RefreshableTable, path: str) -> DataFrame:
    return storage.read(spark, table.name, path, _collected(table))


def _measured(rows: DataFrame, table: RefreshableTable) -> tuple[int, int]:
    hashed = F.xxhash64(*(F.col(c.name) for c in _collected(table)))
    num_rows, digest = rows.agg(F.count(F.lit(1)), F.coalesce(F.bit_xor(hashed), F.lit(0))).collect()[0]
    return num_rows, digest


def _present(rows: DataFrame, key: Sequence[str]) -> list[str]:
    """Return the key's columns that the rows have; a missing key column is reported elsewhere."""
    return [name for name in key if name in rows.columns]


def _shown(row: Row) -> str:
    path, reason = row
    return f"{path or 'a row'} ({reason})"

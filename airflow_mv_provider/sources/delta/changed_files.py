"""Read the rows in which two versions of a Delta table differ from the data files that came and went, and no others.

    the log's commits ──▶ parts of data files ──▶ their rows, with a sign

Delta reads a version of a table as a whole: a filter on the names of files does not keep it from opening all of them.
So these files are read as Parquet, and rows that a deletion vector names by their position in the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.exceptions import SourceChangedError
from airflow_mv_provider.sources.delta import deletion_vectors
from airflow_mv_provider.sources.delta.deletion_vectors import Blocks
from airflow_mv_provider.sources.delta.file_actions import (
    MOVES_ROWS,
    Action,
    DataFile,
    Part,
    VectorPlace,
    partition_values,
    parts_between,
    unfollowed,
)
from airflow_mv_provider.sources.place import literal_path
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.compare.corrections import SIGN
from airflow_mv_provider.spark.errors import UNKNOWN_FILE

MAX_COMMITS = 1_000
MAX_FILES = 1_000
MAX_POSITIONS = 1_000_000  # rows that deletion vectors name; they are held in this process, and by each executor
_MAX_VECTOR_BYTES = 64 << 20
_VECTOR = "STRUCT<storageType STRING, pathOrInlineDv STRING, `offset` INT, sizeInBytes INT, cardinality BIGINT>"
_FILE = f"STRUCT<path STRING, partitionValues MAP<STRING, STRING>, deletionVector {_VECTOR}"
_ACTIONS = (
    "commitInfo STRUCT<operation STRING>, metaData STRUCT<id STRING>, "
    f"add {_FILE}>, remove {_FILE}, extendedFileMetadata BOOLEAN>"
)
_PARTS = f"ARRAY<STRUCT<number: BIGINT, {SIGN}: INT, positions: ARRAY<BIGINT>>>"
_FILES = f"ARRAY<STRUCT<name: STRING, number: BIGINT, {SIGN}: INT, values: MAP<STRING, STRING>>>"
_NAME, _INDEX, _KNOWN, _POSITION = "_mv_name", "_mv_index", "_mv_known", "_mv_position"
_PER_FILE = 1 << 40  # more rows than a data file has


def actions(spark: SparkSession, table: TableRef, since: int, until: int) -> list[Action]:
    """Return what the commits between two versions did to the table's data files.

    since  : exclusive
    cost   : one job, over a file for each commit
    raises : SourceChangedError, if that does not show which rows differ, or too many files do
    """
    if until - since > MAX_COMMITS:
        raise SourceChangedError("source", f"the source has more than {MAX_COMMITS:,} commits since the last publish.")
    commits = [f"{table.location}/_delta_log/{version:020d}.json" for version in range(since + 1, until + 1)]
    read = spark.read.schema(_ACTIONS).option("mode", "FAILFAST").json([literal_path(each) for each in commits])
    version = F.regexp_extract(read.metadataColumn("_metadata").getField("file_name"), r"^(\d+)", 1).cast("bigint")
    some = read.where(" OR ".join(f"{name} IS NOT NULL" for name in ("commitInfo", "metaData", "add", "remove")))
    rows = some.select(version.alias("version"), "*").limit(2 * (len(commits) + MAX_FILES) + 1).collect()
    if len(rows) > 2 * (len(commits) + MAX_FILES):
        raise SourceChangedError("source", f"more than {MAX_FILES:,} of its files came or went.")
    operations = {row.version: row.commitInfo.operation or "" for row in rows if row.commitInfo is not None}
    if set(operations) != set(range(since + 1, until + 1)):
        raise SourceChangedError("source", "its log does not name the operation of each commit.")
    if (operation := unfollowed(operations.values())) is not None:
        raise SourceChangedError("source", f"its log does not show which rows {operation} has changed.")
    # A commit that writes rows and metadata may have changed which columns are in the files.
    if any(row.metaData is not None and operations[row.version] in MOVES_ROWS for row in rows):
        raise SourceChangedError("source", "its columns or partitions were replaced.")
    return [_action(row, operations[row.version]) for row in rows if row.add is not None or row.remove is not None]


def _action(row: Row, operation: str) -> Action:
    found = row.remove if row.add is None else row.add
    if row.add is None and not found.extendedFileMetadata:
        raise SourceChangedError("source", "its log does not describe the files that were removed.")
    vector = None
    if (seen := found.deletionVector) is not None:
        place = (seen.storageType, seen.pathOrInlineDv, seen.offset or 0)
        vector = VectorPlace(*place, num_bytes=seen.sizeInBytes, num_deleted=seen.cardinality)
    file = DataFile(found.path, partition_values(found.partitionValues), vector)
    return Action(row.version, operation, row.add is not None, file)


def rows_between(spark: SparkSession, table: TableRef, since: int, until: int, schema: StructType) -> DataFrame:
    """Return the rows in which two versions differ, and rows that were only written again, once with each sign.

    schema  : the table's columns, the same in both versions, and named in the files as in the table
    returns : (*columns, _mv_sign int): -1 for a row that only the older version has; lazy
    cost    : reading the files that came and went, and those with another deletion vector, once each
    raises  : SourceChangedError, if the files do not show which rows differ, or there are too many
    """
    parts = list(parts_between(actions(spark, table, since, until)))
    files = {each.file.path: each.file for each in parts}
    _check_names(files.values())
    numbers = {path: number for number, path in enumerate(files)}
    partition_by = _partition_columns(files.values(), schema)
    reading = _Reading(spark, table, schema, partition_by, numbers, _vectors(spark, table, parts))
    found = delta.no_rows(spark, StructType([*schema.fields, StructField(SIGN, IntegerType())]))
    if whole := [each for each in parts if each.only is None]:
        found = found.unionByName(reading.whole(whole))
    if some := [each for each in parts if each.only is not None]:
        found = found.unionByName(reading.some(some))
    return found


def _check_names(files: Iterable[DataFile]) -> None:
    twice = [name for name, count in Counter(each.name for each in files).items() if count > 1]
    if twice:  # Spark names the file of a row; its path is spelled differently in the log
        raise SourceChangedError("source", f"two of its files are named {twice[0]}.")


def _partition_columns(files: Iterable[DataFile], schema: StructType) -> Sequence[str]:
    """Return the columns whose values are in the log and not in the files.

    files : in both versions together; the log leaves out a NULL of a file that was removed
    """
    found = {name for each in files for name, _ in each.values}
    if not found <= set(schema.names):
        raise SourceChangedError("source", "its partition columns have other names in its log.")
    return sorted(found)


def _vectors(spark: SparkSession, table: TableRef, parts: Sequence[Part]) -> dict[VectorPlace, Blocks]:
    """Read and decode the deletion vectors of some parts."""
    vectors = {vector for part in parts for vector in (part.deleted, part.only) if vector is not None}
    if sum(vector.num_bytes for vector in vectors) > _MAX_VECTOR_BYTES:
        raise SourceChangedError("source", f"its deletion vectors have more than {_MAX_VECTOR_BYTES >> 20} MiB.")
    try:
        places = {vector: deletion_vectors.file_of(vector, table.location) for vector in vectors}
        paths = sorted({literal_path(path) for path in places.values() if path is not None})
        read = spark.read.format("binaryFile").load(paths).select("path", "content").collect() if paths else []
        contents = {_last(row.path): bytes(row.content) for row in read}
        return {
            vector: deletion_vectors.decoded(vector, contents[_last(path)] if path else b"")
            for vector, path in places.items()
        }
    except ValueError as error:
        raise SourceChangedError("source", f"{error}.") from error


def _last(path: str) -> str:
    return path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads parts of data files.

    numbers : a number for each file, by its path; rows are known by it and their position in the file
    """

    spark: SparkSession
    table: TableRef
    schema: StructType
    partition_by: Sequence[str]
    numbers: Mapping[str, int]
    blocks: Mapping[VectorPlace, Blocks]

    def whole(self, parts: Sequence[Part]) -> DataFrame:
        """Return the rows of data files, except deleted ones: (*columns, _mv_sign int)."""
        rows = self._opened(parts).withColumn(SIGN, F.col(f"{_KNOWN}.{SIGN}"))
        if any(each.deleted for each in parts):
            rows = rows.join(self._positions(parts).drop(SIGN), _POSITION, "left_anti")
        return self._columns(rows)

    def some(self, parts: Sequence[Part]) -> DataFrame:
        """Return the rows of data files that deletion vectors name: (*columns, _mv_sign int)."""
        return self._columns(self._opened(parts).join(self._positions(parts), _POSITION))

    def _columns(self, rows: DataFrame) -> DataFrame:
        return rows.select(*map(quoted, self.schema.names), SIGN)

    def _opened(self, parts: Sequence[Part]) -> DataFrame:
        """Return all rows of the parts' files: (*columns, _mv_known struct, _mv_position bigint)."""
        by_name = {part.file.name: part for part in parts}
        in_files = StructType([field for field in self.schema.fields if field.name not in self.partition_by])
        paths = {literal_path(part.file.location(self.table.location)) for part in parts}
        rows = self.spark.read.schema(in_files).parquet(*sorted(paths))
        known = []
        for uri in rows.inputFiles():
            part = by_name[unquote(_last(uri))]
            facts = {"number": self.numbers[part.file.path], SIGN: part.sign, "values": dict(part.file.values)}
            known += [{"name": name, **facts} for name in {_last(uri), unquote(_last(uri))}]
        metadata = rows.metadataColumn("_metadata")  # a column of this name may be the table's own
        placed = rows.select(
            "*", metadata.getField("file_name").alias(_NAME), metadata.getField("row_index").alias(_INDEX)
        )
        files = self._table(known, _FILES).select(F.col("name").alias(_NAME), F.struct("*").alias(_KNOWN))
        values = {
            field.name: F.col(f"{_KNOWN}.values")[field.name].cast(field.dataType)
            for field in self.schema.fields
            if field.name in self.partition_by
        }
        joined = placed.join(F.broadcast(files), _NAME, "left")
        # If Spark spelled a file's name differently, its rows must not be lost.
        checked = joined.withColumn(_KNOWN, F.coalesce(_KNOWN, F.raise_error(F.lit(UNKNOWN_FILE))))
        position = F.col(f"{_KNOWN}.number") * _PER_FILE + F.col(_INDEX)
        return checked.withColumns({_POSITION: position, **values})

    def _positions(self, parts: Sequence[Part]) -> DataFrame:
        """Return the rows that deletion vectors name in each part: (_mv_position bigint, _mv_sign int)."""
        found, num_positions = [], 0
        for part in parts:
            of, without = (part.deleted, None) if part.only is None else (part.only, part.deleted)
            if of is not None:
                named = deletion_vectors.positions(self.blocks[of], self.blocks[without] if without else {})
                at = list(islice(named, MAX_POSITIONS + 1 - num_positions))
                found.append({"number": self.numbers[part.file.path], SIGN: part.sign, "positions": at})
                num_positions += len(at)
            if num_positions > MAX_POSITIONS:
                raise SourceChangedError("source", f"its deletion vectors name more than {MAX_POSITIONS:,} rows.")
        rows = self._table(found, _PARTS)
        each = rows.select("number", SIGN, F.explode("positions").alias(_INDEX))
        return F.broadcast(each.select((F.col("number") * _PER_FILE + F.col(_INDEX)).alias(_POSITION), SIGN))

    def _table(self, rows: Sequence[Mapping[str, Any]], kind: str) -> DataFrame:
        """Return rows as a DataFrame; unlike `createDataFrame` it starts no Python workers."""
        array = F.from_json(F.lit(json.dumps(rows)), kind)
        return self.spark.range(1).select(F.inline(array))

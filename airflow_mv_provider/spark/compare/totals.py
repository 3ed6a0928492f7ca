"""The totals of rows (`core.progress.totals`): of those that pass, by partition, by file, and of what corrections add.

Those of a source's files are kept for the next refresh, which reads only files that are not known. A file is known by
its identity, which its reader defines: one with the same identity has the same rows. The totals never decide alone what
main gets: main with the corrections must have exactly them, otherwise everything is compared.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.totals import Totals
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError
from airflow_mv_provider.spark import marking, partitions, storage
from airflow_mv_provider.spark.compare.corrections import NEW_HASH, OLD_HASH, OP
from airflow_mv_provider.spark.compare.hashing import HASH, mixed
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import any_null, struct_type

log = logging.getLogger(__name__)

_ROWS, _DIGEST, _MIXED, _NULL_KEYS = "num_rows", "digest", "mixed", "null_keys"
IN_FILE = schema.Column(marking.IN_FILE, "string")
_OF_FILE = (schema.Column("file", "string"), *(schema.Column(name, "long") for name in (_ROWS, _DIGEST, _MIXED)))


def measure() -> tuple[Column, Column, Column]:
    """Return the aggregates of hashed rows (`_mv_hash`) that make their totals."""
    zero = F.lit(0)
    return (
        F.count(F.lit(1)).alias(_ROWS),
        F.coalesce(F.bit_xor(HASH), zero).alias(_DIGEST),
        F.coalesce(F.sum(mixed(F.col(HASH))), zero).alias(_MIXED),
    )


def null_keys(table: RefreshableTable) -> Column:
    """Return the aggregate of rows that counts those with a NULL key."""
    return F.count_if(any_null(table.key)).alias(_NULL_KEYS)


def observed(seen: Observation) -> tuple[Totals, int]:
    """Return the totals of rows that were observed by `measure`, after the job, and the number of their NULL keys."""
    try:
        found = seen.get
        return Totals(found[_ROWS], found[_DIGEST], found[_MIXED]), found.get(_NULL_KEYS, 0)
    except (Py4JError, PySparkException, KeyError):
        return Totals(), 0  # Spark found the input empty and optimised the observation away


def by_partition(rows: DataFrame, table: RefreshableTable) -> tuple[dict[str, Totals], int]:
    """Return the totals of each partition, and the number of NULL keys.

    rows    : (*group_by, _mv_hash bigint)
    returns : a table without partition columns is one partition, also if it is empty
    cost    : one scan
    """
    names = partitions.names(table)
    with translated(table.name):
        found = rows.groupBy(*names).agg(*measure(), null_keys(table)).collect()
    parts = {partitions.name(row[: len(names)]): Totals(*row[len(names) : -1]) for row in found}
    return dict(sorted(parts.items())), sum(row[-1] for row in found)


def by_file(rows: DataFrame, ids: Mapping[str, str]) -> dict[str, Totals]:
    """Return the totals of each file's rows, by the file's identity.

    rows : (_mv_file string, _mv_hash bigint)
    ids  : the identities of the files, by path
    cost : one scan of two columns
    """
    grouped = rows.groupBy(marking.IN_FILE).agg(*measure())
    plain = marking.plain_path(grouped[marking.IN_FILE]).alias("path")
    rows_of = grouped.select(plain, "num_rows", "digest", "mixed").collect()
    found = {path: Totals(*sums) for path, *sums in rows_of}
    return {identity: found.get(path, Totals()) for path, identity in ids.items()}


def write_files(spark: SparkSession, files: Mapping[str, Totals], path: str) -> None:
    """Write the totals of files at `path`, as one file; as a text in the plan they start no Python workers."""
    text = json.dumps(
        [
            {"file": identity, "num_rows": each.num_rows, "digest": each.digest, "mixed": each.mixed}
            for identity, each in files.items()
        ]
    )
    rows = spark.range(1, numPartitions=1).select(F.inline(F.from_json(F.lit(text), ArrayType(struct_type(_OF_FILE)))))
    storage.write(rows, path)


def read_files(spark: SparkSession, where: str, path: str) -> dict[str, Totals]:
    """Return what `write_files` wrote at `path`; nothing if it is gone or cannot be read: then files are read again."""
    try:
        with translated(where):
            rows = storage.read(spark, where, path, _OF_FILE).collect()
    except InterruptedRefreshError:
        raise
    except MvError as error:
        log.info("%s: the totals of the source's files are not used: %s", where, error.problem)
        return {}
    return {file: Totals(*sums) for file, *sums in rows}


def added() -> tuple[Column, Column, Column]:
    """Return the aggregates of corrections that make what I, U and D add to the totals of main's rows."""
    old, new, zero, op = F.col(OLD_HASH), F.col(NEW_HASH), F.lit(0).cast("bigint"), F.col(OP)
    gained, lost = (F.when(each.isNotNull(), mixed(each)).otherwise(zero) for each in (new, old))
    return (
        F.sum(F.when(op == "I", 1).when(op == "D", -1).otherwise(0)).alias(_ROWS),
        F.bit_xor(F.coalesce(old, zero).bitwiseXOR(F.coalesce(new, zero))).alias(_DIGEST),
        F.sum(gained - lost).alias(_MIXED),
    )

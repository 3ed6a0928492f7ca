"""The sums of a source's rows by file, kept beside the digests of main: a file whose sums are known is not read again.

    sums of the files that did not change ──┐
                                            ├─▶ the sums that main must have
    rows of new files ──▶ their sums ───────┘

A file is known by its identity, which its reader defines: one with the same identity has the same rows. The sums never
decide alone what main gets: main with the corrections must have exactly them, otherwise everything is compared.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError
from airflow_mv_provider.spark import marking, storage
from airflow_mv_provider.spark.compare import hashing
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import struct_type

log = logging.getLogger(__name__)

Sums = tuple[int, int, int]
"""Count, xor and mixed sum of the hashes of some rows, as `hashing.measure` computes them."""
IN_FILE = schema.Column(marking.IN_FILE, "string")
_COLUMNS = (schema.Column("file", "string"), *(schema.Column(n, "long") for n in ("num_rows", "digest", "mixed")))


def measured(rows: DataFrame, ids: Mapping[str, str]) -> dict[str, Sums]:
    """Return the sums of each file's rows, by the file's identity.

    rows : (_mv_file string, _mv_hash bigint)
    ids  : the identities of the files, by path; a file without rows has sums of 0
    cost : one scan of two columns
    """
    by_file = rows.groupBy(marking.IN_FILE).agg(*hashing.measure())
    plain = marking.plain_path(by_file[marking.IN_FILE])
    found = {path: (n, x, m) for path, n, x, m in by_file.select(plain, "num_rows", "digest", "mixed").collect()}
    return {identity: found.get(path, (0, 0, 0)) for path, identity in ids.items()}


def total(sums: Iterable[Sums]) -> Sums:
    """Return the sums of all rows of several files."""
    return reduce(lambda one, other: (one[0] + other[0], one[1] ^ other[1], one[2] + other[2]), sums, (0, 0, 0))


def write(spark: SparkSession, sums: Mapping[str, Sums], path: str) -> None:
    """Write sums at `path`, as one file; as a text in the plan they start no Python workers, as a list they would."""
    names = [column.name for column in _COLUMNS]
    text = json.dumps([dict(zip(names, (file, *each), strict=True)) for file, each in sums.items()])
    rows = spark.range(1, numPartitions=1).select(F.inline(F.from_json(F.lit(text), ArrayType(struct_type(_COLUMNS)))))
    storage.write(rows, path)


def read(spark: SparkSession, where: str, path: str) -> dict[str, Sums]:
    """Return what `write` wrote at `path`; nothing if it is gone or cannot be read: then files are read again."""
    try:
        with translated(where):
            rows = storage.read(spark, where, path, _COLUMNS).collect()
    except InterruptedRefreshError:
        raise
    except MvError as error:
        log.info("%s: the sums of the source's files are not used: %s", where, error.problem)
        return {}
    return {row.file: (row.num_rows, row.digest, row.mixed) for row in rows}

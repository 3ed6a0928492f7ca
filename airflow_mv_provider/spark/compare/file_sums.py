"""The totals of a source's rows by file, kept for the next refresh: a file whose totals are known is not read again.

    totals of the files that did not change ──┐
                                              ├─▶ the totals that main must have
    rows of new files ──▶ their totals ───────┘

A file is known by its identity, which its reader defines: one with the same identity has the same rows. The totals
never decide alone what main gets: main with the corrections must have exactly them, otherwise everything is compared.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.progress.totals import Totals
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError
from airflow_mv_provider.spark import marking, storage
from airflow_mv_provider.spark.compare import totals
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import struct_type

log = logging.getLogger(__name__)

IN_FILE = schema.Column(marking.IN_FILE, "string")
_COLUMNS = (
    schema.Column("file", "string"),
    *(schema.Column(name, "long") for name in ("num_rows", "digest", "mixed")),
)


def measured(rows: DataFrame, ids: Mapping[str, str]) -> dict[str, Totals]:
    """Return the totals of each file's rows, by the file's identity.

    rows : (_mv_file string, _mv_hash bigint)
    ids  : the identities of the files, by path
    cost : one scan of two columns
    """
    by_file = rows.groupBy(marking.IN_FILE).agg(*totals.measure())
    plain = marking.plain_path(by_file[marking.IN_FILE]).alias("path")
    rows_of = by_file.select(plain, "num_rows", "digest", "mixed").collect()
    found = {path: Totals(*sums) for path, *sums in rows_of}
    return {identity: found.get(path, Totals()) for path, identity in ids.items()}


def write(spark: SparkSession, files: Mapping[str, Totals], path: str) -> None:
    """Write the totals of files at `path`, as one file; as a text in the plan they start no Python workers."""
    text = json.dumps(
        [
            {"file": identity, "num_rows": each.num_rows, "digest": each.digest, "mixed": each.mixed}
            for identity, each in files.items()
        ]
    )
    rows = spark.range(1, numPartitions=1).select(F.inline(F.from_json(F.lit(text), ArrayType(struct_type(_COLUMNS)))))
    storage.write(rows, path)


def read(spark: SparkSession, where: str, path: str) -> dict[str, Totals]:
    """Return what `write` wrote at `path`; nothing if it is gone or cannot be read: then files are read again."""
    try:
        with translated(where):
            rows = storage.read(spark, where, path, _COLUMNS).collect()
    except InterruptedRefreshError:
        raise
    except MvError as error:
        log.info("%s: the totals of the source's files are not used: %s", where, error.problem)
        return {}
    return {file: Totals(*sums) for file, *sums in rows}

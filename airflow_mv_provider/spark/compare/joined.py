"""Compare the source with main by one join of both, and write the corrections: no digests, no second read.

    source, main ──▶ both sides by key ──▶ corrections, written once ──▶ seal

The rows of main must be those of the last publish. Its totals and the corrections must add up to the rows that were
read. If they do not, or a key is NULL or there twice, nothing is sealed, and the comparison by digests finds the error.
"""

from __future__ import annotations

import logging
from functools import reduce
from operator import xor

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from airflow_mv_provider.core.progress.digests import PublishedDigests, bucket_count
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.compare import corrections, digest_algebra, hashing, recorded_changes
from airflow_mv_provider.spark.compare.corrections import OP
from airflow_mv_provider.spark.compare.digest_algebra import DIGEST, MIXED
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, any_null, columns

log = logging.getLogger(__name__)


def sealed(
    desired: DataFrame, main: DataFrame, layout: Layout, published: PublishedDigests, path: str, copy: str | None
) -> Seal | None:
    """Write the corrections that turn main into the source at `path`, and return the seal of the source's rows.

    desired   : all rows of the source, (*columns, _mv_hash bigint)
    main      : main's rows as of the last publish
    published : their totals
    copy      : where the desired rows were copied to, if they were
    returns   : None if a key of the source is NULL or there twice, or the totals do not agree
    cost      : a scan of both sides, one shuffle of them on the key; a scan of the corrections
    raises    : EngineError, and any other error of reading the source
    """
    table, spark, seen = layout.table, desired.sparkSession, Observation()
    null_keys = F.count_if(any_null(table.key)).alias("null_keys")
    counts = F.count(F.lit(1)).alias("num_rows"), *digest_algebra.hash_changes(), null_keys
    with translated(table.name):
        existing = hashing.aligned(layout.shaped(main), layout).select(*columns(table.group_by), hashing.HASH)
        desired = desired.observe(seen, *hashing.measure())
        storage.write(corrections.of_both(desired, existing, layout), path)
        found = recorded_changes.read(spark, layout, path).groupBy(OP).agg(*counts).collect()
    if any(row[OP] == "?" or row.null_keys for row in found):
        return None
    ops = {row[OP]: row.num_rows for row in found}
    num_rows = published.num_rows + ops.get("I", 0) - ops.get("D", 0)
    digest = reduce(xor, (row[DIGEST] for row in found), published.digest)
    mixed = published.mixed + sum(row[MIXED] for row in found)
    if (num_rows, digest, mixed) != hashing.measured(seen):
        log.warning("%s: its rows and the changes do not add up to the rows of the source", table.name)
        return None
    parts = (SealedPartition(WHOLE_TABLE, num_rows, digest),)
    num_bytes = sum(storage.num_bytes(spark, each) for each in (copy, path) if each is not None)
    if not ops:  # main's digests, if it has any, are kept
        return Seal(
            *(copy, published.path, published.num_buckets, num_bytes, parts, layout.columns),
            mixed=mixed,
            below=published.below,
        )
    num_buckets = bucket_count(num_rows)
    return Seal(copy, None, num_buckets, num_bytes, parts, layout.columns, changes=path, mixed=mixed)

"""Check, every so often, that reading only changes has led to all of the source's rows: `verify_every`.

The totals that main would have are compared with those of all the source's rows, which costs a read of it and no join.
If they differ, main stays as it is, and the error names the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.progress.totals import Totals, with_added
from airflow_mv_provider.exceptions import ChangesWrongError
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark.compare import corrections, hashing, keys, recorded_changes, totals
from airflow_mv_provider.spark.compare.recorded_changes import Written
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import columns

log = logging.getLogger(__name__)


def check_changes(work: Work, main: DataFrame, after: Mapping[str, Totals], written: Written) -> None:
    """Check that main would have all of the source's rows, and no others.

    main    : before the refresh
    after   : the totals of main's rows once it is published
    written : the corrections that were found in the source's changes
    cost    : a read of all of the source; a join with main only if something is wrong
    raises  : ChangesWrongError
    """
    layout, name = work.layout, work.table.name
    desired = hashing.aligned(work.source_rows(), layout)
    found, _ = totals.by_partition(desired, work.definition)
    if with_added({}, found) == with_added({}, after):
        log.info("%s: its changes lead to all of the source's rows, as `verify_every` asks to check", name)
        return
    by = columns(work.definition.group_by)
    changes = recorded_changes.read(work.spark, layout, written.path)
    new = changes.where(corrections.brings_row())
    kept = hashing.aligned(layout.shaped(main), layout).select(*by, hashing.HASH)
    kept = keys.missing(kept, changes, work.definition)
    expected = kept.unionByName(new.select(*by, F.col(corrections.NEW_HASH).alias(hashing.HASH)))
    with translated(name):
        wrong = corrections.keys_between(desired, expected, layout)
        samples, num_wrong = keys.samples(wrong, work.definition.key), wrong.count()
    shown = f": {', '.join(samples)}" if samples else ""
    raise ChangesWrongError(
        name, f"what changed in the source does not lead to its rows: {num_wrong:,} keys would differ{shown}."
    )

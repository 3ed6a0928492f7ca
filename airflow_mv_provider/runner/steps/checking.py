"""Evaluate the definition's checks over what was staged; the seal records their results, by which MERGING judges."""

from __future__ import annotations

from dataclasses import replace

from airflow_mv_provider.core.approval.check import ALL, CHANGED, PART
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark import rejected, storage
from airflow_mv_provider.spark.compare import changes
from airflow_mv_provider.spark.quality import evaluation


def check_valid(work: Work) -> None:
    """Check, before anything is read, that the checks can be evaluated.

    raises : CheckInvalidError
    """
    if work.definition.checks:
        evaluation.check_valid(work.layout.shaped(work.whole_source), work.table.name, work.definition.checks)


def checked(work: Work, seal: Seal) -> Seal:
    """Return the seal with the results of all checks, over exactly the rows that it seals.

    cost   : as `spark.evaluation.evaluated`; reads the staged copy, the source at its pin, or the staged changes
    raises : CheckInvalidError
    """
    table, layout, spark = work.definition, work.layout, work.spark
    if not table.checks:
        return seal
    if seal.changes is not None:
        return replace(seal, checks=evaluation.evaluated(changes.new_rows(spark, layout, seal.changes), table, CHANGED))
    rows = storage.desired_rows(spark, seal, work.source_rows, layout)
    found = evaluation.evaluated(rows, table, ALL if layout.is_whole else PART)
    if table.quarantining:
        broken = rejected.num_broken(spark, table, seal.rejected)
        found = tuple(
            replace(each, num_failed=broken.get(each.name, 0)) if each.severity == "quarantine" else each
            for each in found
        )
    return replace(seal, checks=found)

"""Evaluate the definition's checks over what was staged, and count a guard's NULLs; MERGING judges by the seal's."""

from __future__ import annotations

from dataclasses import replace

from airflow_mv_provider.core.approval.check import ALL, CHANGED, PART
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark import rejected, storage
from airflow_mv_provider.spark.compare import changes
from airflow_mv_provider.spark.quality import evaluation


def check_valid(work: Work) -> None:
    """Check, before anything is read, that the checks can be evaluated, and the NULLs of guarded columns counted.

    raises : CheckInvalidError; DefinitionError
    """
    if is_needed(work.definition):
        rows = work.layout.shaped(work.whole_source)
        evaluation.check_valid(rows, work.table.name, work.definition.checks)
        evaluation.check_guarded(rows, work.definition)


def is_needed(table: RefreshableTable) -> bool:
    """True if rows have to be looked at once more before they are sealed."""
    return bool(table.checks or table.guards.max_null_fraction)


def checked(work: Work, seal: Seal) -> Seal:
    """Return the seal with the results of all checks and the NULLs of guarded columns, over exactly its rows.

    cost   : as `spark.evaluation.evaluated`; reads the staged copy, the source at its pin, or the staged changes
    raises : CheckInvalidError; DefinitionError
    """
    table, layout, spark = work.definition, work.layout, work.spark
    if not is_needed(table):
        return seal
    if seal.changes is not None:
        new = changes.new_rows(spark, layout, seal.changes)
        return replace(seal, checks=evaluation.evaluated(new, table, CHANGED).checks)
    rows = storage.desired_rows(spark, seal, work.source_rows, layout)
    evaluated = evaluation.evaluated(rows, table, ALL if layout.is_whole else PART)
    found = evaluated.checks
    if table.quarantining:
        broken = rejected.num_broken(spark, table, seal.rejected)
        found = tuple(
            replace(each, num_failed=broken.get(each.name, 0)) if each.severity == "quarantine" else each
            for each in found
        )
    return replace(seal, checks=found, nulls=evaluated.nulls)

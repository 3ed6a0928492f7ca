"""Evaluate the definition's checks over what was staged, and count a guard's NULLs; MERGING judges by the seal's."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from airflow_mv_provider.core.approval.check import ALL, CHANGED, PART
from airflow_mv_provider.core.definition.checks import Check
from airflow_mv_provider.core.definition.problems import nearest
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.exceptions import CheckInvalidError, MvError
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark import delta, rejected, storage
from airflow_mv_provider.spark.compare import recorded_changes
from airflow_mv_provider.spark.errors import is_gone, translated
from airflow_mv_provider.spark.layout import struct_type
from airflow_mv_provider.spark.quality import evaluation
from airflow_mv_provider.spark.quality.evaluation import Referenced


def check_valid(work: Work) -> None:
    """Check, before anything is read, that the checks can be evaluated, and the NULLs of guarded columns counted.

    raises : CheckInvalidError; DefinitionError
    """
    if is_needed(work.definition):
        rows = work.layout.shaped(work.unread_source)
        others = referenced(work.store, work.spark, work.definition)
        evaluation.check_valid(rows, work.table.name, work.definition.checks, others)
        evaluation.check_guarded(rows, work.definition)


def referenced(store: Reader, spark: SparkSession, table: RefreshableTable) -> dict[str, Referenced]:
    """Return the tables that a definition's checks reference, by name, as they were published last.

    cost   : Delta opens each of them; reads no row
    raises : CheckInvalidError, if one is not registered, was never published or cannot be opened
    """
    found: dict[str, Referenced] = {}
    looking: dict[str, Check] = {}
    for check in table.checks:
        if check.references is not None:
            looking.setdefault(check.references.table, check)
    known = {each.name: each for each in store.tables()} if looking else {}
    for name, check in looking.items():
        of = f"check {check.title}: table {name!r}"
        if name not in known:
            raise CheckInvalidError(table.name, f"{of} is not registered{nearest(name, known)}.")
        version = store.state(known[name].id).published_version
        if version is None:
            raise CheckInvalidError(table.name, f"{of} was never published.", hint="Refresh it first.")
        try:
            rows = delta.read(spark, known[name].main, version)
            with translated(table.name):
                rows.schema  # noqa: B018  # a Connect client opens it only now
            found[name] = Referenced(rows, version, known[name].location)
        except MvError as error:
            if not is_gone(error):
                raise
            problem = f"{of} cannot be read at version {version}: {error.problem}"
            raise CheckInvalidError(table.name, problem, hint="Refresh that table.") from error
    return found


def is_needed(table: RefreshableTable) -> bool:
    """True if rows have to be looked at once more before they are sealed."""
    return bool(table.checks or table.guards.max_null_fraction)


def checked(work: Work, seal: Seal) -> Seal:
    """Return the seal with the results of all checks and the NULLs of guarded columns, over exactly its rows.

    cost   : as `spark.quality.evaluation.evaluated`; reads the staged copy, the source at its pin or staged changes
    raises : CheckInvalidError; DefinitionError
    """
    table, layout, spark = work.definition, work.layout, work.spark
    if not is_needed(table):
        return seal
    others = referenced(work.store, spark, table)
    if seal.strategy == "incremental":
        none = delta.no_rows(spark, struct_type(layout.columns))
        new = none if seal.changes is None else recorded_changes.new_rows(spark, layout, seal.changes)
        return replace(seal, checks=evaluation.evaluated(new, table, CHANGED, others).checks)
    rows = storage.desired_rows(spark, seal, work.source_rows, layout)
    evaluated = evaluation.evaluated(rows, table, ALL if layout.is_whole else PART, others)
    found = evaluated.checks
    if table.quarantining:
        broken = rejected.num_broken(spark, table, seal.rejected)
        found = tuple(
            replace(each, num_failed=broken.get(each.name, 0)) if each.severity == "quarantine" else each
            for each in found
        )
    return replace(seal, checks=found, nulls=evaluated.nulls)

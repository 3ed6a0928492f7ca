"""The lineage of one refresh in OpenLineage's own classes. Imported when Airflow's integration asks an operator.

inputs     each table, folder, topic or database table: version; rows; results of the definition's checks
outputs    main, if it was published: version; rows and bytes written; column lineage; its registered name.
           The error table, if it has records
run        mv_refresh: the refresh's id, strategy and why, outcome, rows by what happened to them
"""

from __future__ import annotations

import attr
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    symlinks_dataset,
)

from airflow_mv_provider.asset import asset_uri
from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.open_lineage.columns import columns_of
from airflow_mv_provider.open_lineage.gathering import Gathered

_PRODUCER = "https://airflow-mv-provider.readthedocs.io"


@attr.define
class RefreshRunFacet(RunFacet):
    """What a refresh did."""

    refreshId: str  # as OpenLineage writes names
    table: str
    outcome: str
    strategy: str | None
    reason: str | None
    trigger: str | None
    scope: str | None
    source: str | None
    rowsInserted: int
    rowsUpdated: int
    rowsDeleted: int
    rowsUnchanged: int
    rowsRejected: int

    @staticmethod
    def _get_schema() -> str:
        return f"{_PRODUCER}/RefreshRunFacet.json"


def lineage_of(found: Gathered) -> OperatorLineage[Dataset, RunFacet]:
    """Return the lineage of a refresh; without outputs, unless main has it."""
    report = found.report
    is_published = report.outcome is Outcome.PUBLISHED or report.phase is Phase.CLEANUP
    outputs: list[Dataset] = [_main(found)] if is_published else []
    if is_published and report.rows_rejected:
        outputs.append(_errors(found))
    return OperatorLineage(
        inputs=[_input(found, name) for name in found.inputs],
        outputs=outputs,
        run_facets={"mv_refresh": _run_facet(report)},
    )


def _input(found: Gathered, name: str) -> InputDataset:
    place, report = found.inputs[name], found.report
    facets: dict[str, DatasetFacet] = {}
    if name in found.versions:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(found.versions[name])
    of_input: dict[str, InputDatasetFacet] = {}
    is_only_one = len(found.inputs) == 1  # a check is about the rows of a query, not about those of its inputs
    if report.checks and is_only_one:
        assertions = [_assertion(check) for check in report.checks if check.skipped is None]
        facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=assertions)
        of_input["dataQualityAssertions"] = facet
    if is_only_one and report.is_whole and report.outcome is Outcome.PUBLISHED:
        num_rows = report.rows_inserted + report.rows_updated + report.rows_unchanged
        facet_of_rows = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=num_rows)
        of_input["inputStatistics"] = facet_of_rows
    return InputDataset(place.namespace, place.name, facets=facets, inputFacets=of_input)


def _main(found: Gathered) -> OutputDataset:
    report = found.report
    named = symlinks_dataset.Identifier(namespace="mv", name=asset_uri(report.table), type="TABLE")
    facets: dict[str, DatasetFacet] = {"symlinks": symlinks_dataset.SymlinksDatasetFacet([named])}
    if report.main_version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(report.main_version))
    if columns := _columns(found):
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(columns)
    of_output = {"outputStatistics": _written(report)}
    return OutputDataset(found.main.namespace, found.main.name, facets=facets, outputFacets=of_output)


def _errors(found: Gathered) -> OutputDataset:
    written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(found.report.rows_rejected)
    return OutputDataset(found.errors.namespace, found.errors.name, outputFacets={"outputStatistics": written})


def _columns(found: Gathered) -> dict[str, column_lineage_dataset.Fields]:
    fields = {}
    for column, read in columns_of(found.definition).items():
        places = [(found.inputs[name], field) for name, field in read if name in found.inputs]
        if places:
            inputs = [column_lineage_dataset.InputField(p.namespace, p.name, field) for p, field in places]
            fields[column] = column_lineage_dataset.Fields(inputs)
    return fields


def _written(report: RefreshReport) -> OutputDatasetFacet:
    changed = report.rows_inserted + report.rows_updated + report.rows_deleted
    return output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(changed, report.bytes_main)


def _assertion(check: CheckResult) -> data_quality_assertions_dataset.Assertion:
    return data_quality_assertions_dataset.Assertion(
        assertion=check.rule,
        success=check.is_passed,
        severity="error" if check.severity == "fail" else check.severity,
        name=check.name,
        description=check.text,
        actual=check.sentence,
    )


def _run_facet(report: RefreshReport) -> RefreshRunFacet:
    return RefreshRunFacet(
        refreshId=report.refresh_id or "",
        table=report.table,
        outcome=str(report.outcome),
        strategy=report.strategy,
        reason=report.reason,
        trigger=report.trigger,
        scope=report.scope,
        source=report.source,
        rowsInserted=report.rows_inserted,
        rowsUpdated=report.rows_updated,
        rowsDeleted=report.rows_deleted,
        rowsUnchanged=report.rows_unchanged,
        rowsRejected=report.rows_rejected,
    )

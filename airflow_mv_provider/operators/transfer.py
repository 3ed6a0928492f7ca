"""Operators that load a table from another source once, and export its rows as files; both need Spark.

LoadTableOperator     one refresh from another source; the next one brings back what the table's own source holds
ExportTableOperator   the rows of one version as Parquet files, with a manifest named by version
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_mv_provider import definition_file as definitions
from airflow_mv_provider.core.definition.source import Source
from airflow_mv_provider.core.scope.request import Request, check_note
from airflow_mv_provider.exceptions import ArgumentError
from airflow_mv_provider.operators.task import RunnerTask, with_asset

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher


class LoadTableOperator(RunnerTask):
    """Load a table once from another source, and push the refresh id.

    Args:
        table: Name of a registered table.
        source: A source, as an object or as the mapping of a definition.
        source_file: Instead of it, a YAML file with one key, `source`, relative to the DAG's file.
        overrides: Names of guards to override, for which `note` has to give the reason.
        hold: Wait for a person's decision before the table is changed.
        note: Why, for the history.

    A retry continues the load. If it is held, the task waits for the decision, as a refresh does.
    """

    reports_lineage = True
    template_fields: Sequence[str] = ("table", "note")

    def __init__(
        self,
        *,
        table: str,
        source: Source | Mapping[str, Any] | None = None,
        source_file: str | None = None,
        overrides: Sequence[str] = (),
        hold: bool = False,
        note: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs["outlets"] = with_asset(kwargs.get("outlets"), table)
        super().__init__(**kwargs)
        self.table = table
        self.source = source
        self.source_file = source_file
        self.overrides, self.hold, self.note = overrides, hold, note

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Load the table.

        Raises:
            ArgumentError, and every error of a refresh.
        """
        request = Request(overrides=tuple(self.overrides), hold=self.hold, note=self.note or None)
        check_note(request)
        self.linked_table = str(self.table)
        report = refresher.load(str(self.table), self._source(), self.caller(context), request)
        self.log_refresh(report)
        self.announce(report, context)
        return report.refresh_id

    def _source(self) -> object:
        if (self.source is None) == (self.source_file is None):
            raise ArgumentError(self.task_id, "the task needs either `source` or `source_file`.")
        if self.source_file is not None:
            return definitions.load_source(Path(self.dag.fileloc).parent / self.source_file)
        if isinstance(self.source, Source):
            return self.source.model_dump(mode="json", by_alias=True)
        return self.source


class ExportTableOperator(RunnerTask):
    """Export the rows of a table as Parquet files, and push where they are.

    Args:
        table: Name of a registered table.
        to: An absolute path, for this table alone; see `amv export`.
        at: A version of the table, a refresh's id, or a time; by default what was published last.

    A retry finds what is there and writes it once.
    """

    template_fields: Sequence[str] = ("table", "to", "at")

    def __init__(self, *, table: str, to: str, at: str | int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.to = to
        self.at = at

    def work(self, refresher: Refresher, context: Context) -> Any:
        """Export the table; return the version, the manifest's directory and the number of rows.

        Raises:
            DefinitionError
            VersionGoneError
            EngineError
        """
        self.linked_table = str(self.table)
        at = None if self.at in (None, "", "None") else str(self.at)
        found = refresher.export(str(self.table), str(self.to), at)
        manifest = found.manifest
        self.log.info("%s: version %d, %d rows: %s", self.table, manifest.version, manifest.rows, found.path)
        return {
            "table": manifest.table,
            "version": manifest.version,
            "rows": manifest.rows,
            "root": found.root,
            "manifest": found.path,
        }

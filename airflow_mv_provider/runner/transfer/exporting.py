"""Export main as files: the rows of one of its versions, then a manifest of that version.

    export_files      the rows, into a directory of this attempt alone; counted against main
    export_manifest   one small file, which makes these rows the export of this version

Delta keeps the version readable, so no table is acquired and refreshes go on. If the manifest is there, all is done. An
attempt that dies before that leaves rows that no manifest names.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from airflow_mv_provider.core.approval.target import version_of
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.core.transfer.export import ExportPlace, Manifest, already_exported, export_root
from airflow_mv_provider.exceptions import EngineError, MainNotOursError, NotPublishedError, SourceNotFoundError
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.review.rollback import HISTORY, check_files
from airflow_mv_provider.spark import delta, export_files, storage
from airflow_mv_provider.spark.delta import UUID_PROPERTY, Main
from airflow_mv_provider.spark.errors import translated

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Exported:
    """An export that is there.

    path   : the directory of its manifest
    is_new : False if it was there before
    """

    manifest: Manifest
    root: str
    path: str
    is_new: bool


def export(context: Context, name: str, to: str, at: str | None = None) -> Exported:
    """Write the rows of main at a version as Parquet files under `to`, with a manifest.

    to     : an absolute path, outside of all tables; for one table
    at     : the version as `core.approval.target.version_of` reads it; None for the one that was published last
    cost   : reads and writes all rows once, and reads the footers of both sides' files
    raises : NotPublishedError, ArgumentError, UnsafeLocationError, VersionGoneError, EngineError
    """
    store = context.store
    table, history = store.table(name), store.history(store.table(name).id, HISTORY)
    version = store.state(table.id).published_version if at is None else version_of(name, at, history)
    if version is None:
        raise NotPublishedError(name, "the table was never published.")
    mains = [ref.location for each in store.tables() for ref in (each.main, each.main.errors, each.main.history)]
    place = ExportPlace(export_root(to, table.warehouse, mains), version, uuid.uuid4().hex[:12])
    known = already_exported(export_files.manifests(context.spark, place), table.uuid, version)
    if known is not None:
        log.info("%s: version %d was exported to %s before.", name, version, place.root)
        return Exported(known, place.root, place.manifest, is_new=False)
    main = _main(context, table, version)
    refresh_id = next((each.refresh_id for each in history if each.main_version == version), None)
    with _removed_on_error(context, place):
        manifest = _written(context, table, main, place, refresh_id)
    return Exported(manifest, place.root, place.manifest, is_new=True)


def _main(context: Context, table: TableRecord, version: int) -> Main:
    main = Main(context.spark, table.main, table.uuid)
    properties = main.properties()
    if properties is None:
        raise SourceNotFoundError(table.name, f"there is no table at {table.main}.", hint="Refresh it first.")
    if properties.get(UUID_PROPERTY) != table.uuid:
        raise MainNotOursError(table.name, f"{table.main} is another table than the registered one.")
    check_files(main, table.name, version)
    return main


def _written(context: Context, table: TableRecord, main: Main, place: ExportPlace, refresh_id: str | None) -> Manifest:
    spark = context.spark
    rows = delta.read(spark, main.ref, place.version)
    with durable(Write.EXPORT_FILES):
        export_files.write_rows(rows, place)
    with translated(table.name):
        expected, columns = rows.count(), tuple((each.name, each.dataType.simpleString()) for each in rows.schema)
    found = export_files.num_rows(spark, place)
    if found != expected:
        raise EngineError(table.name, f"the export has {found:,} rows instead of {expected:,}.", hint="Export again.")
    manifest = Manifest(
        *(table.name, table.uuid, place.version, refresh_id, found, columns), export_files.files(spark, place)
    )
    with durable(Write.EXPORT_MANIFEST):
        export_files.write_manifest(spark, place, manifest)
    return manifest


@contextmanager
def _removed_on_error(context: Context, place: ExportPlace) -> Iterator[None]:
    try:
        yield
    except Exception:
        with suppress(Exception):  # the first error is the one to report; what is left, no manifest names
            if not any(each.is_of(place) for each in export_files.manifests(context.spark, place)):
                storage.remove_export(context.spark, place)
        raise

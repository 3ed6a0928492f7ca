"""The sums of a source's rows by file, kept beside the digests of main: a file whose sums are known is not read again.

    sums of the files that did not change ──┐
                                            ├─▶ the sums that main must have
    rows of new files ──▶ their sums ───────┘

A file is known by its identity, which its reader defines: one with the same identity has the same rows. The sums never
decide alone what main gets: main with the corrections must have exactly them, otherwise everything is compared. They
also verify the copies of rows that are kept by file, which `core.progress.file_rows` describes.
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
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.progress.file_rows import FileRows, KeptCopy
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError
from airflow_mv_provider.spark import marking, storage
from airflow_mv_provider.spark.compare import hashing
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns, struct_type

log = logging.getLogger(__name__)

IN_FILE = schema.Column(marking.IN_FILE, "string")
_COLUMNS = (
    *(schema.Column(name, "string") for name in ("file", "uri", "copy")),
    *(schema.Column(name, "long") for name in ("num_rows", "digest", "mixed", "copy_rows", "copy_bytes")),
)


def measured(rows: DataFrame, ids: Mapping[str, str]) -> dict[str, FileRows]:
    """Return what is known of each file's rows, by the file's identity; no copy.

    rows : (_mv_file string, _mv_hash bigint)
    ids  : the identities of the files, by path; a file without rows has sums of 0
    cost : one scan of two columns
    """
    by_file = rows.groupBy(marking.IN_FILE).agg(*hashing.measure())
    plain = marking.plain_path(by_file[marking.IN_FILE]).alias("path")
    found = {
        row.path: FileRows((row.num_rows, row.digest, row.mixed), row[marking.IN_FILE])
        for row in by_file.select(plain, marking.IN_FILE, "num_rows", "digest", "mixed").collect()
    }
    return {identity: found.get(path, FileRows((0, 0, 0))) for path, identity in ids.items()}


def kept_in(spark: SparkSession, files: Mapping[str, FileRows], workspace: Workspace, name: str) -> dict[str, FileRows]:
    """Return the same files, with the rows of all of them in one copy."""
    num_rows = sum(each.sums[0] for each in files.values())
    copy = KeptCopy(name, num_rows, storage.num_bytes(spark, workspace.copy_of(name)))
    return {identity: FileRows(each.sums, each.uri, copy) for identity, each in files.items()}


def rows_of(spark: SparkSession, files: Iterable[FileRows], layout: Layout, workspace: Workspace) -> DataFrame | None:
    """Return the kept rows of some files; lazy. None if these files have no rows.

    files   : all of them kept, or without rows
    returns : (*columns, _mv_hash bigint, _mv_file string), unverified: the caller knows their sums
    cost    : when read, the row groups of the copies that may hold rows of these files
    raises  : SealBrokenError, when a copy is gone
    """
    by_copy: dict[str, list[str]] = {}
    for each in files:
        if each.copy is not None and each.uri is not None:
            by_copy.setdefault(each.copy.name, []).append(each.uri)
    kind = [*layout.columns, hashing.HASHED, IN_FILE]
    parts = [
        storage.read(spark, layout.table.name, workspace.copy_of(name), kind).where(F.col(IN_FILE.name).isin(uris))
        for name, uris in by_copy.items()
    ]
    return reduce(DataFrame.unionByName, parts) if parts else None


def joined(spark: SparkSession, files: Mapping[str, FileRows], layout: Layout, place: Workspace, name: str) -> None:
    """Copy the kept rows of these files together, to the copy `name`.

    cost : a scan of all copies, and a write of these rows
    """
    rows = rows_of(spark, files.values(), layout, place)
    assert rows is not None
    with translated(layout.table.name):
        storage.write(rows.select(*columns(layout.names), hashing.HASH, marking.IN_FILE), place.copy_of(name))


def write(spark: SparkSession, files: Mapping[str, FileRows], path: str) -> None:
    """Write what is known of files at `path`, as one file; as a text in the plan they start no Python workers."""
    text = json.dumps([_stored(identity, each) for identity, each in files.items()])
    rows = spark.range(1, numPartitions=1).select(F.inline(F.from_json(F.lit(text), ArrayType(struct_type(_COLUMNS)))))
    storage.write(rows, path)


def read(spark: SparkSession, where: str, path: str) -> dict[str, FileRows]:
    """Return what `write` wrote at `path`; nothing if it is gone or cannot be read: then files are read again.

    path : may be a glob; then what any of the matching places holds
    """
    try:
        with translated(where):
            rows = storage.read(spark, where, path, _COLUMNS).collect()
    except InterruptedRefreshError:
        raise
    except MvError as error:
        log.info("%s: the sums of the source's files are not used: %s", where, error.problem)
        return {}
    return {
        row.file: FileRows(
            (row.num_rows, row.digest, row.mixed),
            row.uri,
            None if row.copy is None else KeptCopy(row.copy, row.copy_rows, row.copy_bytes),
        )
        for row in rows
    }


def _stored(identity: str, found: FileRows) -> dict[str, str | int | None]:
    (num_rows, digest, mixed), copy = found.sums, found.copy
    stored = {"file": identity, "uri": found.uri, "num_rows": num_rows, "digest": digest, "mixed": mixed}
    if copy is None:
        return stored
    return stored | {"copy": copy.name, "copy_rows": copy.num_rows, "copy_bytes": copy.num_bytes}

"""Files as source, pinned by a listing with sizes and times, and read strictly.

Spark reads a short CSV line as NULLs, cuts a long one off, decodes bytes of another encoding into replacement
characters, and makes NULLs of a column that an ORC or Parquet file has under another name or type, all in silence. Here
each of them is an error, and where a file is to blame it is named. What JSON needs is in `json_lines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import assert_never
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from airflow_mv_provider.core import schema
from airflow_mv_provider.core.frontier import FilesFrontier, Frontier, added_files, listing
from airflow_mv_provider.core.identifier import quoted
from airflow_mv_provider.core.source import Files
from airflow_mv_provider.core.strategy import Determinism, SourceChanges
from airflow_mv_provider.exceptions import (
    DefinitionError,
    InterruptedRefreshError,
    MvError,
    SchemaMismatchError,
    SourceChangedError,
    SourceFileError,
    SourceNotFoundError,
)
from airflow_mv_provider.sources import json_lines
from airflow_mv_provider.sources.place import check_link, confined
from airflow_mv_provider.sources.projection import MORE_THAN_ROWS, projected, projected_determinism, projected_with
from airflow_mv_provider.spark import diff, rejected
from airflow_mv_provider.spark.errors import BAD_ENCODING, condition_of, translated
from airflow_mv_provider.spark.layout import sql_of

_STRICT_CSV = {
    "mode": "FAILFAST",
    "enforceSchema": "false",  # the header's names must be the schema's, in its order
    "columnPruning": "false",  # a pruned reader does not see that a line is too short or too long
    "header": "true",
}
_REPLACEMENT = "\ufffd"
_CORRUPT = "_mv_corrupt"


class FilesReader:
    """Reads csv, json, orc or parquet files under one path or glob."""

    def __init__(self, spark: SparkSession, source: Files, warehouse: str, roots: Sequence[str]) -> None:
        self._spark = spark
        self._source = source
        self._roots = (warehouse, roots)
        self._checked: Frontier | None = None
        self._location = confined(source.path, warehouse, roots)
        self.locations = (self._location,)

    def probe(self) -> FilesFrontier:
        """List the files with sizes and times; see `SourceReader`."""
        found = self._list([self._location])
        if not found.files:
            raise SourceNotFoundError("source", f"{self._location} holds no files.")
        for file in found.files:
            if "://" not in file.path:
                check_link(file.path, *self._roots)
        return found

    def read(self, frontier: Frontier) -> DataFrame:
        """Return the rows of exactly the pinned files; see `SourceReader`."""
        with _gone_if_missing(), translated("source"):
            rows = self._rows(self._pinned(frontier))
            _ = rows.schema  # over Spark Connect nothing is looked at before
        return projected(rows, self._source.select)

    def changes(self, since: Frontier, until: Frontier) -> SourceChanges | None:
        """Say whether files were only added; see `SourceReader`. What was in a changed file nobody knows any more."""
        assert isinstance(until, FilesFrontier)
        if not isinstance(since, FilesFrontier):
            return SourceChanges(None, "the source is not the one that it was", is_another=True)
        added = added_files(since, until)
        if added is None:
            return SourceChanges(None, "files were changed or removed, not only added")
        if not self.determinism(until).is_by_row:
            return SourceChanges(None, MORE_THAN_ROWS)
        return SourceChanges(None if added else 0, None)

    def feed(self, since: Frontier, until: Frontier) -> DataFrame:
        """Return the rows of the files that were added; see `TableSource.feed`."""
        assert isinstance(since, FilesFrontier)
        assert isinstance(until, FilesFrontier)
        added = [_literal_path(file.path) for file in added_files(since, until) or ()]
        with _gone_if_missing(), translated("source"):
            self._check(added)
            rows, all_rows = (self._rows(paths) for paths in (added, [_literal_path(f.path) for f in until.files]))
            if rows.schema != all_rows.schema:
                raise SchemaMismatchError("source", "the columns of its new files are not those of the others.")
        return projected_with(rows.withColumn(diff.SIGN, F.lit(1)), self._source.select, diff.SIGN)

    def determinism(self, frontier: Frontier) -> Determinism:
        """Ask Spark of the projection; see `SourceReader`.

        cost : opens one file, of parquet without a schema
        """
        assert isinstance(frontier, FilesFrontier)
        if self._source.select is None:
            return Determinism()
        with _gone_if_missing(), translated("source"):
            fields = self._rows([_literal_path(frontier.files[0].path)]).schema.fields
        nothing = ", ".join(f"CAST(NULL AS {sql_of(field.dataType)}) AS {quoted(field.name)}" for field in fields)
        try:
            return projected_determinism(self._spark, self._source.select, f"(SELECT {nothing})")
        except DefinitionError:
            # What only files have (_metadata) is not there; and of what is nowhere reading tells.
            return Determinism("nobody can say whether the projection is deterministic", is_by_row=False)

    def marked(self, frontier: Frontier, *, is_numbered: bool) -> DataFrame:
        """Return the rows before the projection, those that cannot be decoded included; see `rejected`.

        is_numbered : say where in its file each of them is
        """
        with _gone_if_missing(), translated("source"):
            return self._marked_rows(self._pinned(frontier), is_numbered=is_numbered)

    def _pinned(self, frontier: Frontier) -> list[str]:
        """Return the paths of the pinned files, looked at once."""
        assert isinstance(frontier, FilesFrontier)
        paths = [_literal_path(file.path) for file in frontier.files]
        if self._checked != frontier:
            self._check(paths)
            self._checked = frontier
        return paths

    def num_bytes(self, frontier: Frontier) -> int | None:
        """Return the size of the pinned files; see `SourceReader`."""
        assert isinstance(frontier, FilesFrontier)
        return sum(file.num_bytes for file in frontier.files)

    def verify(self, frontier: Frontier) -> None:
        """List the pinned files again; see `SourceReader`."""
        assert isinstance(frontier, FilesFrontier)
        with _gone_if_missing():
            now = self._list([_literal_path(file.path) for file in frontier.files])
        if now != frontier:
            changed = sorted({f.path for f in set(now.files) ^ set(frontier.files)})
            raise SourceChangedError("source", f"{changed[0]} was changed or removed while it was read.")

    def _check(self, paths: list[str]) -> None:
        """Refuse what the reader of this format would pass over in silence; before the rows are read, once a pin."""
        if self._source.format in ("orc", "parquet") and self._source.schema_:
            self._check_columns(paths)
        if self._source.format == "json" and self._is_multi_line:
            json_lines.check_whole(self._spark, paths, self._source.options)

    def _rows(self, paths: list[str]) -> DataFrame:
        options = self._source.options
        reader = self._spark.read
        if self._source.schema_:
            reader = reader.schema(self._source.schema_)
        match self._source.format:
            case "csv":
                return _checked_encoding(reader.options(**(_STRICT_CSV | options)).csv(paths))
            case "json" if self._is_multi_line:
                return reader.options(**(options | {"mode": "FAILFAST"})).json(paths)
            case "json":
                return json_lines.read(self._spark, paths, self._declared, options)
            case "orc" | "parquet":
                return reader.format(self._source.format).load(paths)
            case _:
                assert_never(self._source.format)

    def _marked_rows(self, paths: list[str], *, is_numbered: bool) -> DataFrame:
        options, number = self._source.options, F.monotonically_increasing_id()
        at = {"block": F.col(rejected.BLOCK), "number": number} if is_numbered else {}
        if self._source.format == "json" and not self._is_multi_line:
            return json_lines.marked(self._spark, paths, self._declared, options, is_numbered=is_numbered)
        file = F.col("_metadata.file_path")
        if self._source.format != "csv":
            return self._rows(paths).select("*", rejected.origin(file=file, **at))
        reader = self._spark.read.schema(StructType([*self._declared.fields, StructField(_CORRUPT, StringType())]))
        lenient = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        rows = reader.options(**(_STRICT_CSV | options | lenient)).csv(paths)
        names = [quoted(field.name) for field in self._declared.fields]
        # Spark answers no query for the corrupt record alone, so every column is asked for.
        text = F.concat_ws("", *(F.col(name).cast("string") for name in names))
        is_corrupt, is_garbled = F.col(_CORRUPT).isNotNull(), text.contains(_REPLACEMENT)
        rule = F.when(is_corrupt, rejected.CORRUPT_RECORD).when(is_garbled, rejected.ENCODING)
        reason = F.when(is_corrupt, "it does not fit the schema").when(
            is_garbled, "bytes that are not in the declared encoding"
        )
        record = F.coalesce(F.col(_CORRUPT), F.to_json(F.struct(*(F.col(name) for name in names))))
        return rows.select(
            *(F.col(name) for name in names),
            rejected.origin(file=file, rule=rule, reason=reason, record=record, **at),
        )

    @property
    def _is_multi_line(self) -> bool:
        return self._source.options.get("multiLine", "").lower() == "true"

    def _check_columns(self, paths: list[str]) -> None:
        """Refuse files whose columns are not the schema's; what one of them lacks and another has is NULL."""
        try:
            with translated("source"):
                merged = self._spark.read.format(self._source.format).option("mergeSchema", "true").load(paths).schema
        except (SchemaMismatchError, InterruptedRefreshError):
            raise
        except MvError:
            return  # a file that cannot be read: reading names it, merging does not
        found, declared = (schema.columns_of(s.jsonValue()) for s in (merged, self._declared))
        schema.check_same("source", found, declared, names=("a file", "the schema"))

    @cached_property
    def _declared(self) -> StructType:
        """The schema as Spark understands it; asked of `from_json`, which runs nothing and opens no file."""
        parsed = self._spark.range(0).select(F.from_json(F.lit("{}"), self._source.schema_ or ""))
        declared = parsed.schema.fields[0].dataType
        assert isinstance(declared, StructType)
        return declared

    def _list(self, paths: list[str]) -> FilesFrontier:
        try:
            files = self._spark.read.format("binaryFile").load(paths)
            names = files.inputFiles()
            rows = files.select("path", "length", "modificationTime").collect()
        except PySparkException as error:
            if condition_of(error).startswith("PATH_NOT_FOUND"):
                raise SourceNotFoundError("source", f"{self._location} does not exist.") from error
            with translated("source"):
                raise
        # Spark passes over files of no bytes: half an upload would look like rows that are gone.
        if empty := sorted({_plain(unquote(name)) for name in names} - {_plain(row.path) for row in rows}):
            raise SourceFileError("source", f"{empty[0]} is empty.")
        return listing([(_plain(row.path), row.length, row.modificationTime) for row in rows])


@contextmanager
def _gone_if_missing() -> Iterator[None]:
    """Say of a file that is not there what is true of a pinned one: it was there, and the next pin will know better."""
    try:
        yield
    except SourceNotFoundError as error:
        raise SourceChangedError(error.where, error.problem) from error


def _checked_encoding(rows: DataFrame) -> DataFrame:
    """Refuse replacement characters, which stand where bytes could not be decoded."""
    message = F.concat(F.lit(f"{BAD_ENCODING} "), F.input_file_name())

    def checked(name: str) -> Column:
        column = F.col(quoted(name))
        return (
            F.when(column.contains(_REPLACEMENT), F.raise_error(message).cast("string")).otherwise(column).alias(name)
        )

    fields = rows.schema.fields
    return rows.select(
        *(checked(f.name) if isinstance(f.dataType, StringType) else F.col(quoted(f.name)) for f in fields)
    )


def _literal_path(path: str) -> str:
    """Escape what a path's own characters would mean in a glob."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def _plain(path: str) -> str:
    return re.sub(r"^file:/+", "/", path)

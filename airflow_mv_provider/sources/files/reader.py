"""Files as source, pinned by a listing with sizes and times, and read strictly.

If an ORC or Parquet file has a column under another name or type, Spark silently reads NULLs. Here that is an error,
which names the file if one file causes it. `csv_lines` and `json_lines` do the same for text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from typing import assert_never

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from airflow_mv_provider.core.changeset import Changeset, SignedRows, Upserts, Whole
from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import (
    DefinitionError,
    SchemaMismatchError,
    SourceChangedError,
    SourceFileError,
    SourceNotFoundError,
)
from airflow_mv_provider.sources.declared import declared
from airflow_mv_provider.sources.files import csv_lines, csv_text, json_lines, parquet_footers, positions, row_lines
from airflow_mv_provider.sources.files.frontier import FilesFrontier, SourceFile, added_files
from airflow_mv_provider.sources.files.hidden_files import folder_columns, ignored_text, value_of_folder
from airflow_mv_provider.sources.files.listing import listed, listed_again, shown, with_checksums
from airflow_mv_provider.sources.files.model import Files
from airflow_mv_provider.sources.files.orc_calendar import check_calendar
from airflow_mv_provider.sources.files.table_logs import check_no_table
from airflow_mv_provider.sources.place import check_link, literal_path
from airflow_mv_provider.sources.projection import MORE_THAN_ROWS, projected, projected_determinism, with_more
from airflow_mv_provider.sources.reader import FileReader, FoundLines
from airflow_mv_provider.spark import delta, marking
from airflow_mv_provider.spark.compare import corrections
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import sql_of
from airflow_mv_provider.spark.zone import in_utc

log = logging.getLogger(__name__)


class FilesReader(FileReader[Files, FilesFrontier]):
    """A reader of csv, json, orc or parquet files under one path or glob."""

    def __init__(self, spark: SparkSession, source: Files, warehouse: str, roots: Sequence[str]) -> None:
        super().__init__(spark, source, warehouse, roots)
        (self._location,) = self.locations
        self._checked: FilesFrontier | None = None

    def probe(self) -> FilesFrontier:
        """List the files with sizes and times; see `SourceReader`.

        raises : also SourceFileError, for an empty file of a format whose files cannot be empty; DefinitionError, for
                 files of a table whose log decides which of them count
        """
        found = listed(self._spark, self._location)
        warehouse, roots = self._roots
        check_no_table(self._spark, self._location, (warehouse, *roots), found.all_paths)
        self.note = ignored_text(found.hidden_files) if found.hidden_files else ""
        if self.note:
            log.warning("%s: %s", self._location, self.note)
        for file in found.frontier.files:
            if "://" not in file.path:
                check_link(file.path, *self._roots)
            if not file.num_bytes and not self._source.may_have_no_bytes:
                raise SourceFileError("source", f"{file.path} is empty.")  # Spark would silently skip it
        return self._fingerprinted(found.frontier)

    def check_not_empty(self, frontier: FilesFrontier) -> None:
        """See `FileReader`."""
        if not frontier.files:
            problem = f"there is no file at {self._location}" + (f"; {self.note}" if self.note else "")
            hint = "Check the path. With `allow_empty`, a folder without files is a source without rows."
            raise SourceNotFoundError("source", f"{problem}.", hint=hint)
        if empty := next((file.path for file in frontier.files if not file.num_bytes), None):
            hint = "Repair or remove it. With `allow_empty`, it is a file without rows."
            raise SourceFileError("source", f"{empty} is empty.", hint=hint)

    def time_ms(self, frontier: FilesFrontier) -> int | None:
        """Return the time of the newest file; None if there is none with a time; see `SourceReader`."""
        return max((file.modified_ms for file in frontier.files), default=0) or None

    def knows_columns(self, frontier: FilesFrontier) -> bool:
        """True if the columns are known, from a schema or from a file."""
        return bool(self._source.schema_ or frontier.files)

    def read(self, frontier: FilesFrontier, extra: Sequence[str] = ()) -> DataFrame:
        """Return the rows of exactly the pinned files; see `SourceReader`."""
        with _gone_if_missing(), translated("source"):
            rows = self._rows(self._pinned(frontier), extra)
            _ = rows.schema  # over Spark Connect this is the first analysis
        return self.project(rows, extra)

    def project(self, rows: DataFrame, extra: Sequence[str] = (), *more: str) -> DataFrame:
        """Return rows after the definition's projection; a `*` in it does not include the columns of `positions`.

        more : additional columns that are kept unchanged
        """
        return projected(rows, with_more(rows, self._source.select, more, self._named(extra)), extra)

    def changes(self, since: Frontier, until: FilesFrontier) -> Changeset:
        """Return whether files were only added; see `SourceReader`. The former content of a changed file is unknown."""
        if not isinstance(since, FilesFrontier):
            return Whole("the source was replaced by another one", is_another=True)
        if not self.determinism(until).is_by_row:
            return Whole(MORE_THAN_ROWS)
        added = added_files(since, until)
        if added is not None:
            return SignedRows(None if added else 0)
        new, all_bytes = set(until.files) - set(since.files), sum(file.num_bytes for file in until.files)
        return Upserts(in_files=sum(file.num_bytes for file in new) / max(all_bytes, 1))

    def changed(self, since: FilesFrontier, until: FilesFrontier, main: DataFrame) -> DataFrame:
        """Return the rows of the files that were added, or of all that are new; see `SourceReader`."""
        added, known = added_files(since, until), set(since.files)
        if added is None:
            new = [file.path for file in until.files if file not in known]
            return self.of_files(until, new).drop(marking.IN_FILE)
        found = self.of_files(until, [file.path for file in added])
        return found.drop(marking.IN_FILE).withColumn(corrections.SIGN, F.lit(1))

    def file_ids(self, frontier: FilesFrontier) -> dict[str, str]:
        """Return the facts of each file's listing as its identity; see `SourceReader`."""
        return {file.path: file.identity for file in frontier.files}

    def of_files(self, frontier: FilesFrontier, paths: Sequence[str] | None = None) -> DataFrame:
        """Return the rows of some pinned files; see `SourceReader`."""
        file = F.col(marking.FILE).alias(marking.IN_FILE)
        with _gone_if_missing(), translated("source"):
            if paths is None:
                rows = self._rows(self._pinned(frontier), (), file)
            else:
                some, everything = ([literal_path(path) for path in each] for each in (paths, self.file_ids(frontier)))
                wanted = set(paths)
                self._check([each for each in frontier.files if each.path in wanted])
                rows = self._rows(some, (), file)
                if rows.schema != self._rows(everything, (), file).schema:
                    raise SchemaMismatchError("source", "its new files have other columns than the older ones.")
        return self.project(rows, (), marking.IN_FILE)

    def lines_of(
        self, frontier: FilesFrontier, path: str, condition: Column, names: Sequence[str], at_most: int
    ) -> FoundLines:
        """Return the lines of a file whose row fulfils a condition, if it is as it was read; see `SourceReader`."""
        [file] = [each for each in frontier.files if each.path == path]
        obstacle = row_lines.obstacle(self._source) or self._change_of(file)
        if obstacle is None and file.num_bytes > row_lines.MAX_BYTES:
            obstacle = f"the file is larger than {row_lines.MAX_BYTES >> 30} GiB"
        if obstacle is not None:
            return FoundLines(obstacle=obstacle)

        def project(rows: DataFrame, more: Sequence[str]) -> DataFrame:
            return self.project(self._with_names(rows, ()), (), *more)

        with translated("source"):
            asked = (self._place(()), project, condition, names, at_most)
            found = row_lines.found(self._spark, self._source, self._declared, path, *asked)
        obstacle = "its lines could not be counted" if found is None else self._change_of(file)
        return FoundLines(obstacle=obstacle) if found is None or obstacle is not None else FoundLines(tuple(found))

    def _change_of(self, file: SourceFile) -> str | None:
        """Return in words that a file is not as it was listed; None if it is."""
        try:
            now = self._fingerprinted(listed_again(self._spark, [file.path]))
        except SourceNotFoundError:
            return "the file has been removed since it was read"
        return None if now.files == (file,) else "the file has changed since it was read"

    def determinism(self, frontier: FilesFrontier) -> Determinism:
        """Return whether Spark finds the projection deterministic; see `SourceReader`.

        cost : opens one file of ORC or Parquet without a schema; all of them if the projection needs columns of others
        """
        if self._source.select is None or not self.knows_columns(frontier):
            return Determinism()
        paths = [literal_path(file.path) for file in frontier.files]
        for some in (paths[:1], paths):
            with _gone_if_missing(), translated("source"):
                fields = self._rows(some).schema.fields
            nothing = ", ".join(f"CAST(NULL AS {sql_of(field.dataType)}) AS {quoted(field.name)}" for field in fields)
            with suppress(DefinitionError):
                return projected_determinism(self._spark, self._source.select, f"(SELECT {nothing})")
        # Not analysable here: the columns that only files have (_metadata), and missing ones, for which `read` raises.
        return Determinism("Spark cannot determine whether the projection is deterministic", is_by_row=False)

    def marked(self, frontier: FilesFrontier, extra: Sequence[str] = (), *, is_numbered: bool) -> DataFrame:
        """Return the rows before the projection, including those that cannot be decoded; see `rejected`.

        is_numbered : add each record's position in its file
        """
        with _gone_if_missing(), translated("source"):
            paths, place = self._pinned(frontier, is_marked=True), self._place(extra)
            return self._with_names(self._marked_rows(paths, place, is_numbered=is_numbered), extra)

    def _pinned(self, frontier: FilesFrontier, *, is_marked: bool = False) -> list[str]:
        """Return the paths of the pinned files, after checking their content once.

        is_marked : records that cannot be decoded are marked while they are read
        """
        paths = [literal_path(file.path) for file in frontier.files]
        if paths and self._checked != frontier:
            self._check(frontier.files, is_marked=is_marked)
            self._checked = frontier
        return paths

    def num_bytes(self, frontier: FilesFrontier) -> int | None:
        """Return the size of the pinned files; see `SourceReader`."""
        return sum(file.num_bytes for file in frontier.files)

    def verify(self, frontier: FilesFrontier) -> None:
        """List the pinned files again; see `SourceReader`."""
        with _gone_if_missing():
            now = self._fingerprinted(listed_again(self._spark, [file.path for file in frontier.files]))
        if now != frontier:
            changed = sorted({f.path for f in set(now.files) ^ set(frontier.files)})
            raise SourceChangedError("source", f"{changed[0]} was changed or removed while it was read.")

    def _fingerprinted(self, files: FilesFrontier) -> FilesFrontier:
        """Return a listing with checksums if the definition's `fingerprint` is "checksum", else as it is."""
        return with_checksums(self._spark, files) if self._source.fingerprint == "checksum" else files

    def _check(self, files: Sequence[SourceFile], *, is_marked: bool = False) -> None:
        """Refuse what Spark's reader of this format would silently skip; called once per frontier, before reading."""
        paths = [literal_path(file.path) for file in files]
        self._check_folders(paths)
        if self._source.format in ("orc", "parquet") and (merged := self._merged(tuple(paths))) is not None:
            self._check_columns(files, merged)
        if self._source.format == "orc":
            check_calendar(self._spark, paths, self._declared)
        if self._source.format == "csv" and not is_marked:
            csv_text.check(self._spark, paths, self._source.options)

    def _check_folders(self, paths: list[str]) -> None:
        """Refuse values that only the names of folders have, unless the projection takes them or leaves them out."""
        select = self._source.select or ["*"]
        of_path = [text for text in select if positions.named_in([text])]
        names = folder_columns(self._location, map(shown, paths))
        names = [name for name in names if not any(f"{re.escape(name)}=" in text for text in of_path)]
        if not names:
            return
        columns = self._merged(tuple(paths)) if self._source.format in ("orc", "parquet") else self._declared
        if columns is None:
            return  # a file cannot be read, which its own error says
        # A field that no record of JSON has is NULL, so there the schema does not show that the files have it.
        known = set() if self._source.format == "json" else {name.lower() for name in columns.names}
        wanted = [name for name in names if any(re.search(rf"^\s*\*|\b{re.escape(name)}\b", text) for text in select)]
        if lacking := [name for name in wanted if name.lower() not in known]:
            taken = ", ".join(f'"{value_of_folder(name)} AS {quoted(name)}"' for name in lacking)
            problem = f"the names of its folders have values of {', '.join(lacking)}, which are not read from there."
            hint = f'With `select: ["*", {taken}]`, without them in `schema`, the table has them as texts; CAST them'
            raise DefinitionError(
                "source", problem, hint=f"{hint} to other types. To leave them out, list the other columns in `select`."
            )

    def _named(self, extra: Sequence[str] = ()) -> set[str]:
        """Return the names of `positions` that the definition uses, except those that the declared schema has."""
        own = self._declared.fieldNames() if self._source.schema_ else ()
        return positions.named_in((*(self._source.select or ()), *extra)) - set(own)

    def _place(self, extra: Sequence[str]) -> list[Column]:
        return [positions.place(self._source.format)] if self._named(extra) else []

    def _with_names(self, rows: DataFrame, extra: Sequence[str]) -> DataFrame:
        names = self._named(extra)
        return positions.with_names(rows, names, self._named()) if names else rows

    def _rows(self, paths: list[str], extra: Sequence[str] = (), *more: Column) -> DataFrame:
        return self._with_names(self._placed(paths, [*self._place(extra), *more]), extra)

    def _placed(self, paths: list[str], place: list[Column]) -> DataFrame:
        options = self._source.options
        reader = self._spark.read
        if not paths:
            return self._no_rows(*(positions.nowhere() for _ in place))
        if self._source.schema_:
            reader = reader.schema(self._source.schema_)
        match self._source.format:
            case "csv":
                return csv_lines.read(self._spark, paths, self._declared, options, place)
            case "json":
                return json_lines.read(self._spark, paths, self._declared, options, place)
            case "orc" | "parquet":
                if not self._source.schema_ and (merged := self._merged(tuple(paths))) is not None:
                    reader = reader.schema(merged)  # Spark infers from one file and would lose the others' columns
                rows = reader.format(self._source.format).load(paths)
                columns = in_utc(self._spark, rows.schema, is_of_any_time=self._source.format == "orc")
                return rows.select(*columns, *place)
            case _:
                assert_never(self._source.format)

    def _marked_rows(self, paths: list[str], place: list[Column], *, is_numbered: bool) -> DataFrame:
        if not paths:
            return self._no_rows(*(positions.nowhere() for _ in place), marking.origin())
        options = self._source.options
        if self._source.format == "json":
            return json_lines.marked(self._spark, paths, self._declared, options, place, is_numbered=is_numbered)
        if self._source.format == "csv":
            undecoded = self._undecoded(tuple(paths))
            return csv_lines.marked(
                self._spark, paths, self._declared, options, undecoded, place, is_numbered=is_numbered
            )
        at = marking.numbers(is_numbered=is_numbered)
        return self._placed(paths, [*place, marking.origin(file=F.col(marking.FILE), **at)])

    @lru_cache(maxsize=1)  # noqa: B019  # as above
    def _undecoded(self, paths: tuple[str, ...]) -> list[str] | None:
        return csv_text.check_marked(self._spark, paths, self._source.options)

    def _no_rows(self, *extra: Column) -> DataFrame:
        if not self._source.schema_:
            problem = f"there is no file at {self._location}, so its columns are unknown."
            raise DefinitionError("source", problem, hint="Give it a `schema`, or refresh first when it has a file.")
        return delta.no_rows(self._spark, self._declared).select("*", *extra)

    def _check_columns(self, files: Sequence[SourceFile], merged: StructType) -> None:
        """Refuse files whose columns are not the schema's; a column that only some files lack is read as NULL."""
        if self._source.format == "parquet":
            parquet_footers.check_names(self._spark, files)
        if self._source.schema_:
            found, wanted = (schema.columns_of(s.jsonValue()) for s in (merged, self._declared))
            schema.check_same("source", found, wanted, names=("a file", "the schema"))

    @lru_cache(maxsize=2)  # noqa: B019  # a reader lives as long as its refresh
    def _merged(self, paths: tuple[str, ...]) -> StructType | None:
        """Return the union of the files' columns; None if one of them is damaged, so that reading them raises.

        cost   : reads the footer of every file
        raises : SchemaMismatchError, if a column has two types; whatever else keeps Spark from reading the footers
        """
        try:
            with translated("source"):
                merged = self._spark.read.format(self._source.format).option("mergeSchema", "true")
                return merged.load(list(paths)).schema
        except SourceFileError:
            return None  # the error of reading names the file, the error of merging does not

    @cached_property
    def _declared(self) -> StructType:
        return declared(self._spark, self._source.schema_ or "")


@contextmanager
def _gone_if_missing() -> Iterator[None]:
    """Raise SourceChangedError instead of SourceNotFoundError: a pinned file existed, and a new listing omits it."""
    try:
        yield
    except SourceNotFoundError as error:
        raise SourceChangedError(error.where, error.problem) from error

"""List a source's path: files with sizes and times, and the files beside them that Spark does not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.exceptions import SourceNotFoundError
from airflow_mv_provider.sources.files import hidden_files as listing
from airflow_mv_provider.sources.files.frontier import FilesFrontier, SourceFile
from airflow_mv_provider.sources.place import literal_path
from airflow_mv_provider.spark.errors import condition_of, translated
from airflow_mv_provider.spark.session import is_remote

_MAX_WHOLE_BYTES = 256 << 20  # size limit of a file that is hashed as one value
_MAX_FOLDERS = 100  # partition folders that are searched for hidden names: in an object store each listing is slow
_NO_BYTES_MS = 0  # Spark gives no time for empty files, and their content does not depend on it


@dataclass(frozen=True, slots=True)
class Listed:
    """The result of a listing.

    hidden_files : files that Spark does not read although their names or places suggest that it does
    """

    frontier: FilesFrontier
    hidden_files: tuple[str, ...] = ()

    @property
    def all_paths(self) -> tuple[str, ...]:
        """Those of both."""
        return (*(file.path for file in self.frontier.files), *self.hidden_files)


def listed(spark: SparkSession, location: str) -> Listed:
    """List the files that a path or glob stands for.

    raises : SourceNotFoundError, if there is no such folder, or if the path names hidden files; a folder without files
             is no error here
    cost   : a recursive listing; in a process with a JVM also a listing of the folder itself and of up to 100 of its
             partition folders
    """
    frontier, beside, folders = FilesFrontier(()), list[str](), list[str]()
    try:
        found = _files(spark, [location], is_recursive=listing.has_one_depth(location))
    except SourceNotFoundError:
        if not listing.is_glob(location):
            raise
        _files(spark, [listing.folder_of(location)], is_recursive=True)  # raises if the folder does not exist
    else:
        paths, beside = listing.divided(location, [file.path for file in found])
        meant, folders = set(paths), listing.partition_folders(location, paths)
        frontier = FilesFrontier(tuple(file for file in found if file.path in meant))
    if not frontier.files and listing.names_hidden(location):
        raise SourceNotFoundError(
            "source",
            f"{location} has only hidden files, which Spark ignores: names begin with _ or . or end in ._COPYING_.",
            hint="Rename them: Spark does not read files with such names.",
        )
    return Listed(frontier, tuple(sorted({*beside, *_hidden(spark, location, folders[:_MAX_FOLDERS])})))


def listed_again(spark: SparkSession, paths: Sequence[str]) -> FilesFrontier:
    """List files that were listed before.

    raises : SourceNotFoundError
    """
    escaped = [literal_path(path) for path in paths]
    return FilesFrontier(_files(spark, escaped, is_recursive=True) if paths else ())


def with_checksums(spark: SparkSession, files: FilesFrontier) -> FilesFrontier:
    """Return a listing with a checksum of each file's bytes.

    For a file over 256 MiB, which may not fit into a task's memory, the checksum combines hashes of its lines
    independently of their order, because Spark splits the file.

    cost : reads all bytes
    """
    small = [file.path for file in files.files if file.num_bytes <= _MAX_WHOLE_BYTES]
    large = [file.path for file in files.files if file.num_bytes > _MAX_WHOLE_BYTES]
    found = dict[str, str]()
    with translated("source"):
        if small:
            whole = _reader(spark, "binaryFile").load([literal_path(path) for path in small])
            hashed = whole.select("path", F.sha2("content", 256).alias("checksum"))
            found |= {_plain(row.path): row.checksum for row in hashed.collect()}
        if large:
            lines = _reader(spark, "text").option("lineSep", "\n").load([literal_path(path) for path in large])
            line = F.xxhash64("value")
            sums = (F.count("*"), F.bit_xor(line), F.sum(line.cast("decimal(38,0)")))
            text = F.concat_ws(" ", *(each.cast("string") for each in sums)).alias("checksum")
            summed = lines.groupBy(F.col("_metadata.file_path").alias("path")).agg(text)
            found |= {_plain(unquote(row.path)): row.checksum for row in summed.collect()}
    return FilesFrontier(tuple(replace(file, checksum=found.get(file.path, "")) for file in files.files))


def without(paths: Sequence[str], uris: Iterable[str]) -> list[str]:
    """Return the paths that are not among Spark's URIs, without the escapes of `literal_path` that `paths` have."""
    found = {_plain(unquote(uri)) for uri in uris}
    return [path for path in map(shown, paths) if path not in found]


def _files(spark: SparkSession, paths: Sequence[str], *, is_recursive: bool) -> tuple[SourceFile, ...]:
    """Return the files below `paths`. Without `is_recursive` Spark infers partitions, and refuses inconsistent ones.

    raises : SourceNotFoundError
    """
    try:
        files = _reader(spark, "binaryFile", is_recursive=is_recursive).load(list(paths))
        names = files.inputFiles()
        rows = files.select("path", "length", "modificationTime").collect()
    except PySparkException as error:
        if condition_of(error).startswith("PATH_NOT_FOUND"):
            raise SourceNotFoundError("source", f"{shown(paths[0])} does not exist.") from error
        with translated("source"):
            raise
    found = FilesFrontier.of([(_plain(row.path), row.length, row.modificationTime) for row in rows]).files
    empty = {_plain(unquote(name)) for name in names} - {file.path for file in found}
    nothing = (SourceFile(path, 0, _NO_BYTES_MS) for path in empty)
    return tuple(sorted((*found, *nothing), key=lambda file: file.path))


def _reader(spark: SparkSession, format_: str, *, is_recursive: bool = True) -> DataFrameReader:
    return spark.read.format(format_).option("recursiveFileLookup", str(is_recursive).lower())


def _hidden(spark: SparkSession, location: str, folders: Sequence[str]) -> list[str]:
    """Return the hidden files and folders at the places that a path stands for; a Connect client cannot list them.

    folders : its partition folders
    """
    if is_remote(spark):
        return []
    jvm = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    parent, _, name = location.rstrip("/").rpartition("/")
    with translated("source"):
        system = jvm.Path(location).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

        def hidden_in(folder: str) -> list[Any]:
            patterns = (jvm.Path(f"{folder}/{pattern}") for pattern in ("[_.]*", "*._COPYING_"))
            statuses = (status for pattern in patterns for status in system.globStatus(pattern) or ())
            return [status for status in statuses if listing.is_hidden(status.getPath().getName())]

        beside = [status for folder in (location, *map(literal_path, folders)) for status in hidden_in(folder)]
        if listing.is_glob(name):  # Spark reads a folder that a glob matches, whatever its name
            wanted, files = jvm.GlobFilter(name), (each for each in hidden_in(parent) if not each.isDirectory())
            beside += (status for status in files if wanted.accept(status.getPath()))
        return [_plain(status.getPath().toString()) for status in beside]


def shown(path: str) -> str:
    """Return a path without the escapes of `literal_path`."""
    return re.sub(r"\\(.)", r"\1", path)


def _plain(path: str) -> str:
    return re.sub(r"^file:/+", "/", path)

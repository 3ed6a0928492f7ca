"""Find the file of a source that a row of main came from, and its line, as main was published last.

    all files, if they are not too large ──▶ the file ──▶ if it is as it was read: its lines with the key

Nothing is guessed: lines are named only if the file's reader finds as many rows with the key as lines have it, and one
of them is main's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.approval import row_history as core
from airflow_mv_provider.core.approval.audit import source_obstacle
from airflow_mv_provider.core.approval.row_history import Row, SourcePlaces
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError, SourceChangedError
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.sources.table_source import TableSource
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.review.one_row import OneRow

_MAX_TEXT_BYTES = 256 << 20  # to be parsed
_MAX_BYTES = 64 << 30  # of files in columns: only the key is read
_MAX_FILES = 5


def places_of(context: Context, table: TableRecord, one: OneRow, rows: Sequence[Row]) -> SourcePlaces | None:
    """Return the file and lines that a row came from; None if its source has no files of its own.

    rows : main's, as they were published last
    cost : a scan of all files, of at most 256 MiB of text or of 64 GiB in columns; three of the file, if it is of text
           and has at most 1 GiB
    """
    store, state = context.store, context.store.state(table.id)
    publish = store.publish_of(state)
    definition = table.definition if publish is None else publish.definition
    if not definition.source_kind.identifies_files:
        return None
    pin = store.binding(table.id, state.published_upper)
    obstacle = source_obstacle(publish, has_pin=pin is not None)
    if publish is None or pin is None or obstacle is not None:
        return SourcePlaces(no_file=obstacle)
    if not publish.scope.is_everything:
        return SourcePlaces(no_file="the last refresh has read only some partitions")
    try:
        with closing(context.source_of(table, definition)) as source, translated(table.name):
            search = _Search(source, pin.frontier, one)
            return _found(search, rows)
    except InterruptedRefreshError:
        raise
    except SourceChangedError:
        return SourcePlaces(no_file="files of the source have changed since they were read")
    except MvError as error:
        return SourcePlaces(no_file=f"the source cannot be searched: {error.problem}")


@dataclass(frozen=True, slots=True)
class _Search:
    """What a row is searched for in: the source as it was when main was published last."""

    source: TableSource
    pin: Frontier
    one: OneRow


def _found(search: _Search, rows: Sequence[Row]) -> SourcePlaces:
    source, pin, condition = search.source, search.pin, search.one.condition
    files = source.files
    assert files is not None
    if (obstacle := _search_obstacle(source, pin)) is not None:
        return SourcePlaces(no_file=obstacle)
    files.verify(pin)
    in_files = _by_file(files.of_files(pin).where(condition))
    files.verify(pin)
    if not in_files:
        return SourcePlaces(no_file="no file of the source has its key")
    if len(in_files) > _MAX_FILES:
        return SourcePlaces(no_file=f"more than {_MAX_FILES} files of the source have its key")
    places = []
    for file, num_rows in sorted(in_files.items()):
        found = files.lines_of(pin, file, condition, list(rows[0]), core.MAX_LINES + 1)
        place = core.place_of(file, num_rows, found.lines, found.obstacle)
        places.append((place, [row for _, row in found.lines]))
    return core.came_from(rows, places)


def _search_obstacle(source: TableSource, pin: Frontier) -> str | None:
    """Return why all files are not searched for a row; None if they are."""
    limit = _MAX_TEXT_BYTES if source.table.source.is_text else _MAX_BYTES
    if (source.reader.num_bytes(pin) or 0) > limit:
        return f"its files are larger than {limit >> 20:,} MiB together"
    if source.table.errors is not None:
        return "the table has an error table"
    if not source.reader.determinism(pin).is_row_for_row:
        return "its rows are not computed each from one record"
    return None


def _by_file(rows: DataFrame) -> dict[str, int]:
    """Return the files of rows, and how many each has; one more than are shown at most."""
    with translated("source"):
        path = marking.plain_path(F.col(marking.IN_FILE)).alias("path")
        found = rows.groupBy(path).agg(F.count("*").alias("n")).limit(_MAX_FILES + 1).collect()
    return {row.path: row.n for row in found}

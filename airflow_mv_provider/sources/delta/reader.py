"""A Delta table as source, pinned by its version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.changeset import Changeset, SignedRows, Whole
from airflow_mv_provider.core.commits import FEED_PROPERTY, LOG, UNNAMED
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import (
    InterruptedRefreshError,
    MvError,
    SchemaMismatchError,
    SourceChangedError,
    SourceNotFoundError,
)
from airflow_mv_provider.sources.delta.changed_files import rows_between
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from airflow_mv_provider.sources.delta.log import Entry, changes_in, may_be_mapped
from airflow_mv_provider.sources.delta.model import DeltaSource
from airflow_mv_provider.sources.place import confined, literal_path
from airflow_mv_provider.sources.projection import (
    MORE_THAN_ROWS,
    projected,
    projected_determinism,
    projected_with,
    with_more,
)
from airflow_mv_provider.sources.reader import SourceReader
from airflow_mv_provider.spark import delta, marking
from airflow_mv_provider.spark.catalog import names
from airflow_mv_provider.spark.compare import corrections
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.zone import check_no_old_times

_MAX_COMMITS = 10_000  # commits that are read one by one; with more of them, reading the source is cheaper
_MARGIN = 10  # commits that the probe reads; also the extra commits read for those made after the probe
_OTHER_COLUMNS = "its columns have changed since the last publish"
_FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_STAND_INS = {"string": "\ufffd", "date": "1582-10-15"}  # what a feed shows for other values, by type


class DeltaReader(SourceReader[DeltaSource, DeltaFrontier]):
    """A reader of a Delta table at a version; a version stays readable as long as VACUUM keeps its files."""

    def __init__(self, spark: SparkSession, source: DeltaSource, warehouse: str, roots: Sequence[str]) -> None:
        super().__init__(spark, source, warehouse, roots)
        self._table = TableRef(self.locations[0]) if self.locations else None
        self._judged: tuple[DeltaFrontier, Determinism] | None = None
        self._seen: tuple[Sequence[Row], delta.Detail] | None = None  # the probe's newest commits, and what it saw
        self._found: tuple[DeltaFrontier, DeltaFrontier, SignedRows | Whole] | None = None  # what the log showed last

    def probe(self) -> DeltaFrontier:
        """Return the table's id and newest version; see `SourceReader`.

        raises : also SettingError, if the time zone of a JVM would shift times of files that Spark 2 has written
        """
        table = self._table or self._named()
        found = delta.detail(self._spark, table)
        if found is None:
            raise SourceNotFoundError("source", f"{table} is not a Delta table.")
        commits = delta.history(self._spark, table, _MARGIN)
        self._seen, self._found = (commits, found), None
        version = commits[0].version
        commit = commit_at(self._spark, table, version)
        if commit is None:
            raise SourceChangedError("source", f"the log of {table} has lost the file of its newest version.")
        with translated("source"):
            check_no_old_times(self._spark, lambda: delta.read(self._spark, table, version))
        return DeltaFrontier(found.delta_id, version, None if self._table else table.location, commit)

    def table_at(self, frontier: DeltaFrontier) -> TableRef:
        """Return the table that a frontier is of; a name is not asked for again: it may lead elsewhere by now."""
        return self._table or TableRef(confined(frontier.location or "", *self._roots))

    def _named(self) -> TableRef:
        """Return the table that the definition's name leads to.

        raises : SourceNotFoundError, DefinitionError, UnsafeLocationError
        """
        (name,) = self._source.names
        found = names.entry(self._spark, name)
        if found is None:
            hint = "If it was renamed, change `table` in the definition."
            raise SourceNotFoundError("source", f"the catalog has no table {name}.", hint=hint)
        if not found.is_delta or found.location is None:
            raise SourceNotFoundError(
                "source", f"{name} is {found.describe()}, expected a Delta table.", hint="Check the name."
            )
        self.locations = (confined(found.location, *self._roots),)
        return TableRef(self.locations[0])

    def read(self, frontier: DeltaFrontier, extra: Sequence[str] = ()) -> DataFrame:
        """Return the rows at the pinned version; see `SourceReader`."""
        return self.project(self._rows(frontier), extra)

    def marked(self, frontier: DeltaFrontier, extra: Sequence[str] = (), *, is_numbered: bool) -> DataFrame:
        """Return the rows before the projection; all of them are decoded; see `SourceReader`."""
        return self._rows(frontier).select("*", marking.origin())

    def project(self, rows: DataFrame, extra: Sequence[str] = (), *more: str) -> DataFrame:
        """Return rows after the definition's projection; see `SourceReader`."""
        return projected(rows, with_more(rows, self._source.select, more), extra)

    def _rows(self, frontier: DeltaFrontier) -> DataFrame:
        return delta.read(self._spark, self.table_at(frontier), frontier.version)

    def changes(self, since: Frontier, until: DeltaFrontier) -> Changeset:
        """Return what the table's log shows of the commits after `since`; see `SourceReader`."""
        if not isinstance(since, DeltaFrontier) or since.table_id != until.table_id or since.version > until.version:
            return Whole("the source was replaced by another table", is_another=True)
        if since.location != until.location:
            return Whole("the source's name leads to another place", is_another=True)
        if (obstacle := self._obstacle_at(since)) is not None:
            return Whole(obstacle, is_another=True)
        if (num_commits := until.version - since.version) > _MAX_COMMITS:
            return Whole(f"the source has {num_commits:,} commits since the last publish")
        found = self._in_log(since, until)
        if found.at_most == 0 and not self._is_known_to_have_same_columns(since, until):
            return Whole(_OTHER_COLUMNS)  # an append without rows can add a column
        if isinstance(found, SignedRows) and not self.determinism(until).is_by_row:
            return Whole(MORE_THAN_ROWS, found.at_most)
        return found

    def _obstacle_at(self, since: DeltaFrontier) -> str | None:
        """Return why the table's log does not continue the state that was read; None if it does."""
        found = commit_at(self._spark, self.table_at(since), since.version)
        if found is None:
            return f"the source's log no longer has version {since.version}, the last that was read"
        return None if found == since.commit else f"version {since.version} of the source is not the one that was read"

    def _in_log(self, since: DeltaFrontier, until: DeltaFrontier) -> SignedRows | Whole:
        if self._found is None or self._found[:2] != (since, until):
            self._found = since, until, self._read_log(since, until)
        return self._found[2]

    def _read_log(self, since: DeltaFrontier, until: DeltaFrontier) -> SignedRows | Whole:
        table, (commits, seen) = self.table_at(until), self._seen or ((), None)
        asked = set(range(since.version + 1, until.version + 1))
        if not asked <= {row.version for row in commits}:  # reading the log costs 0.1 s
            commits = delta.history(self._spark, table, until.version - since.version + _MARGIN)
        if (seen := seen or delta.detail(self._spark, table)) is None:
            raise SourceNotFoundError("source", f"{table} is not a Delta table.")
        entries = [
            Entry(
                *(row.version, row.operation or UNNAMED),
                *(dict(row.operationParameters or {}), dict(row.operationMetrics or {})),
            )
            for row in commits
        ]
        return changes_in(
            *(entries, since.version, until.version),
            has_feed=seen.properties.get(FEED_PROPERTY, "").lower() == "true",
            num_bytes=seen.num_bytes,
            is_mapped=may_be_mapped(entries, until.version, seen.properties),
        )

    def changed(self, since: DeltaFrontier, until: DeltaFrontier, main: DataFrame) -> DataFrame:
        """Return the rows that commits removed and added; see `SourceReader`.

        Without a change data feed that reaches back they are those of the files that came and went, also the rows of
        these that were only written again.
        """
        if not self._has_same_columns(since, until):
            raise SchemaMismatchError("source", f"{_OTHER_COLUMNS}.")
        table, found = self.table_at(until), self._in_log(since, until)
        if isinstance(found, Whole):
            raise SourceChangedError("source", f"{found.reason}.")
        with _gone_if_missing(), translated("source"):
            if found.in_files is not None:
                schema = delta.read(self._spark, table, until.version).schema
                signed = rows_between(self._spark, table, since.version, until.version, schema)
            else:
                rows = _checked(delta.change_feed(self._spark, table, since.version + 1, until.version))
                is_gone = F.col("_change_type").isin("delete", "update_preimage")
                signed = rows.withColumn(corrections.SIGN, F.when(is_gone, -1).otherwise(1)).drop(*_FEED_COLUMNS)
        return projected_with(signed, self._source.select, corrections.SIGN)

    def determinism(self, frontier: DeltaFrontier) -> Determinism:
        """Return whether Spark finds the projection deterministic; see `SourceReader`."""
        if self._judged is None or self._judged[0] != frontier:
            pinned = f"{self.table_at(frontier).sql} VERSION AS OF {frontier.version}"
            self._judged = frontier, projected_determinism(self._spark, self._source.select, pinned)
        return self._judged[1]

    def _is_known_to_have_same_columns(self, since: DeltaFrontier, until: DeltaFrontier) -> bool:
        """True if both versions have the same columns; False also if the older version's log is gone."""
        try:
            return self._has_same_columns(since, until)
        except InterruptedRefreshError:
            raise
        except MvError:
            return False

    def _has_same_columns(self, since: DeltaFrontier, until: DeltaFrontier) -> bool:
        with translated("source"):  # over Spark Connect the log is first read for the schema
            before, after = (delta.read(self._spark, self.table_at(at), at.version).schema for at in (since, until))
        return before == after

    def num_bytes(self, frontier: DeltaFrontier) -> int | None:
        """Return the size of the newest version, as an estimate for every version; see `SourceReader`."""
        found = self._seen[1] if self._seen else delta.detail(self._spark, self.table_at(frontier))
        return found.num_bytes if found else None

    def time_ms(self, frontier: DeltaFrontier) -> int | None:
        """Return the time of the version's commit; see `SourceReader`."""
        commits, _ = self._seen or ((), None)
        return next((round(c.timestamp.timestamp() * 1000) for c in commits if c.version == frontier.version), None)

    def verify(self, frontier: DeltaFrontier) -> None:
        """Check that the version is still the one that was pinned; see `SourceReader`."""
        table = self.table_at(frontier)
        if frontier.commit:
            is_same = commit_at(self._spark, table, frontier.version) == frontier.commit
        else:  # main at an older version, for a rollback: nobody has read it before
            found = delta.detail(self._spark, table)
            is_same = found is not None and found.delta_id == frontier.table_id
        if not is_same:
            problem = f"version {frontier.version} of {table} is not the one that was pinned"
            raise SourceChangedError("source", f"{problem}: it was dropped, replaced, or put back from a backup.")


def commit_at(spark: SparkSession, table: TableRef, version: int) -> str | None:
    """Return a digest of a version's file in the log, which no other commit has; None if the log no longer has it.

    A version number alone does not identify a state: a folder that was put back from a backup and written again comes
    to the same number with other rows.

    Cost:
        One job of one task.
    """
    path = literal_path(f"{table.location}/{LOG}/{version:020d}.json")
    try:
        with translated("source"):
            rows = spark.read.option("wholetext", True).text(path).select(F.sha2("value", 256)).collect()
    except SourceNotFoundError:
        return None
    return str(rows[0][0])[:32] if rows else ""


def _checked(rows: DataFrame) -> DataFrame:
    """Return rows of a change data feed; reading them fails where one may have had another value.

    Delta makes Java's older objects of them: U+FFFD stands for bytes that are no UTF-8, and the first day of the
    Gregorian calendar for the ten before it, which that class lacks. The table keeps both.
    """
    doubtful = [
        F.col(quoted(c.name)).cast("string").contains(value)
        for c in rows.schema
        for kind, value in _STAND_INS.items()
        if kind in c.dataType.simpleString() and c.name not in _FEED_COLUMNS
    ]
    if not doubtful:
        return rows
    values = "U+FFFD, which may stand for bytes that are no UTF-8, or 1582-10-15, which may stand for a day before it"
    raised = F.raise_error(F.lit(f"its change data feed has {values}"))
    return rows.where(F.when(reduce(Column.__or__, doubtful), raised.cast("boolean")).otherwise(F.lit(True)))


@contextmanager
def _gone_if_missing() -> Iterator[None]:
    """A file that the log names and that is gone was removed by VACUUM; the table itself is still there."""
    try:
        yield
    except SourceNotFoundError as error:
        raise SourceChangedError("source", f"{error.problem} VACUUM may have removed it.") from error

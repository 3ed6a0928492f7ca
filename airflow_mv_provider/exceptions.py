"""Every error that this package raises, in one tree.

    MvError
    ├── TransientError                 a retry may succeed (exit code 75)
    │   ├── RefreshInProgressError     another owner's lease on the table is live, or another caller's turn comes first
    │   │   └── RefreshHeldError       the refresh waits for a person's decision
    │   ├── LeaseLostError             this process no longer owns the refresh
    │   │   └── FencedError            a newer epoch has written its fence into the table's log
    │   ├── MainMovedError             other writers kept changing the table, round after round
    │   ├── OvertakenError             the table's log shows later refreshes that the metadata database does not have
    │   ├── SourceChangedError         the source no longer matches its pin
    │   ├── SourceUnavailableError     the source's server does not answer, or another session locks the table
    │   ├── SnapshotLostError          the connection that holds the source's snapshot was ended
    │   ├── SealBrokenError            sealed or recorded data does not read back as it was recorded
    │   ├── EngineError                Spark or Delta failed for another reason
    │   │   └── DiskFullError          a disk that Spark writes to is full
    │   ├── CommitUnknownError         a commit's response was lost and the table's log could not be read
    │   ├── CatalogUnavailableError    Spark's catalog, or the metastore behind it, does not answer
    │   ├── InterruptedRefreshError    this process was interrupted (Ctrl-C), or its Spark job was cancelled
    │   └── MetadataUnavailableError   the metadata database does not answer
    └── TerminalError                  a person must act (exit code 1)
        ├── ArgumentError              an argument of a command, task or call is wrong (exit code 2)
        ├── SettingError               a setting is wrong: AMV_*, `[mv]`, the metadata database's address
        ├── DependencyError            a program, driver or jar is missing
        ├── DefinitionError            the definition is wrong
        │   ├── CheckInvalidError      a check cannot be evaluated: a column, or its SQL
        │   ├── InvalidIdentifierError a table or column name is not a valid identifier
        │   ├── UnsafeLocationError    a path leaves its root or uses a scheme that is not allowed
        │   ├── UnpinnedTableError     a query reads a table that is not among its inputs
        │   ├── SourceFunctionError    a source's function cannot be imported, fails, or returns no DataFrame
        │   └── ConnectionUnknownError the source's connection does not exist, or cannot be used
        ├── TableNotFoundError         no refreshable table has this name
        ├── NotPublishedError          the table was never published, and what is asked for needs its rows
        ├── TableConflictError         the location belongs to, or overlaps with, another refreshable table
        ├── NameGoneError              the catalog no longer has the table's name: it was dropped or renamed
        ├── NameTakenError             the table's name in the catalog leads to another object
        ├── MainUnsupportedError       the table is a view, not Delta, unreadable, or has a transaction retention
        ├── MainRefusedError           the table refuses the write: a constraint, a table property, a permission
        ├── MainNotOursError           the table exists, and the definition does not set `adopt`
        ├── AdoptionError              the table cannot be adopted: it has a duplicate or NULL key
        ├── HistoryError               the history of the table's rows cannot be kept
        ├── EpochRegressionError       the table's log refuses the metadata database's epoch as outdated
        ├── SourceNotFoundError        the source's path or table does not exist
        ├── SourceDeniedError          the source's server refuses the login, or the login may not read the table
        ├── SourceReplacedError        another source answers at the same place: a topic was made again
        ├── SourceRegressedError       the source ends before the last publish
        ├── StreamGoneError            records of a topic were removed before they were read
        ├── StreamReloadError          a topic can only be continued, and the table has to start over
        ├── StreamRestartedError       a change stream began again: what was deleted in between is unknown
        ├── EventError                 a record of a topic cannot be read; the message names its offset
        │   ├── EventIncompleteError   a change event lacks a value, and nothing earlier has it
        │   └── EventSchemaError       the schema of a record is unknown, or has more than the reader's
        ├── SourceFileError            a file cannot be read; the message names it
        │   ├── CorruptRecordError     a record does not fit the schema
        │   └── FileEncodingError      text is not in the declared encoding
        ├── SchemaMismatchError        the source's columns do not match the table's or the schema
        │   ├── NotComparableError     a column's type cannot be compared (map, variant)
        │   └── InexactColumnError     Spark would change a column's values: round, cut or replace them
        ├── KeyColumnError             the key names a missing or unusable column
        ├── DuplicateKeyError          two rows of the source share a key
        ├── NullKeyError               a key is NULL
        ├── TooManyErrorsError         more rejected records than the definition's error table allows
        ├── PartitionValueError        Delta cannot store a partition value unchanged
        ├── KeyMovedError              a row changed its partition in a refresh that commits some partitions only
        ├── FrozenPartitionError       a partition older than `frozen_before` was requested
        ├── CheckFailedError           the source's rows break a check of the definition
        ├── GuardRefusedError          a guard refused the exact counts of the changes
        ├── StrategyError              the strategy that a strict definition requires is not possible
        ├── RefreshCancelledError      the refresh was cancelled on request
        ├── HoldExpiredError           nobody decided in time about a refresh that awaited approval
        ├── NotHeldError               a decision fits nothing that awaits approval, or was made already
        ├── VersionGoneError           a version of the table to go back to cannot be read any more
        ├── ChangesWrongError          what changed in the source does not lead to its rows
        ├── DriftError                 an audit has found other rows in the table than were published
        ├── RefreshFinishedError       the refresh that this task belongs to has ended
        ├── RefreshPausedError         the table is paused
        ├── MetadataDeniedError        the metadata database refuses what its user may not do
        └── DatabaseVersionError       the metadata database is older or newer than this package

Every class has a stable `code`. A message has three parts: where, what was expected and found, what to do next. Names
and values in it may come from outside, so it is one line of limited length without control characters.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

_MAX_WHERE, _MAX_PROBLEM = 300, 3000
_RELOAD = "`amv refresh --reload` reads the topic from its start, if it is `complete` from there."


class MvError(Exception):
    """The root of the tree. Keyword arguments are kept in `facts` and survive pickling."""

    code: ClassVar[str] = "MV-ERROR"
    hint: ClassVar[str] = ""
    is_transient: ClassVar[bool] = False

    def __init__(self, where: str, problem: str, *, hint: str | None = None, **facts: Any) -> None:
        self.where = where = one_line(where, _MAX_WHERE)
        self.problem = problem = one_line(problem, _MAX_PROBLEM)
        self.advice = type(self).hint if hint is None else hint
        self.facts = facts
        super().__init__(f"[{self.code}] {where}: {problem} {self.advice}".rstrip())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.where, self.problem, self.advice, self.facts)

    def advising(self, hint: str) -> Self:
        """Return the same error with another hint."""
        return type(self)(self.where, self.problem, hint=hint, **self.facts)

    @property
    def message(self) -> str:
        """Location and problem, without the code and the hint."""
        return f"{self.where}: {self.problem}"


def one_line(text: str, most: int) -> str:
    """Return a text on one line, cut to `most` characters, with unprintable characters escaped."""
    text = text if len(text) <= most else text[: most - 3] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _rebuild(cls: type[MvError], where: str, problem: str, advice: str, facts: dict[str, Any]) -> MvError:
    return cls(where, problem, hint=advice, **facts)


class TransientError(MvError):
    """A retry may succeed."""

    code = "MV-TRANSIENT"
    hint = "Try again."
    is_transient = True


class TerminalError(MvError):
    """A person must act."""

    code = "MV-TERMINAL"


class RefreshInProgressError(TransientError):
    """Another owner's lease on the table is live, or another caller's turn comes first."""

    code = "MV-REFRESH-IN-PROGRESS"
    hint = "Wait for it, or stop it with `amv cancel`."


class RefreshHeldError(RefreshInProgressError):
    """The refresh waits for a person's decision."""

    code = "MV-HELD"
    hint = "See it with `amv diff`, then decide with `amv approve` or `amv reject`."


class LeaseLostError(TransientError):
    """This process no longer owns the refresh."""

    code = "MV-LEASE-LOST"
    hint = "Another process continues the refresh; see `amv status`."


class FencedError(LeaseLostError):
    """A newer epoch has written its fence into the table's log."""

    code = "MV-FENCED"


class MainMovedError(TransientError):
    """Other writers kept changing the table, round after round."""

    code = "MV-MAIN-MOVED"
    hint = "Stop the other writer of this table, then refresh again."


class OvertakenError(TransientError):
    """The table's log shows later refreshes that the metadata database does not have."""

    code = "MV-OVERTAKEN"
    hint = (
        "Check whether the metadata database was restored from a backup or a second one is in use, then refresh again."
    )


class SourceChangedError(TransientError):
    """The source no longer matches its pin."""

    code = "MV-SOURCE-CHANGED"
    hint = "Refresh again: the next refresh pins the source's current version."


class SourceUnavailableError(TransientError):
    """The source's server does not answer, or another session locks the table."""

    code = "MV-SOURCE-UNAVAILABLE"
    hint = "Check that the server runs and that host and port of the connection are correct, then refresh again."


class SnapshotLostError(TransientError):
    """The connection that holds the source's snapshot was ended."""

    code = "MV-SNAPSHOT-LOST"
    hint = "Refresh again: the next refresh takes a new snapshot. None of these rows were merged."


class SealBrokenError(TransientError):
    """Sealed or recorded data does not read back as it was recorded."""

    code = "MV-SEAL-BROKEN"
    hint = "Refresh again: none of these rows were merged."


class EngineError(TransientError):
    """Spark or Delta failed for another reason."""

    code = "MV-ENGINE"
    hint = "See the Spark log of this refresh, then refresh again."


class DiskFullError(EngineError):
    """A disk that Spark writes to is full."""

    code = "MV-DISK-FULL"
    hint = "Free space, then refresh again: recorded progress is kept."


class CommitUnknownError(TransientError):
    """A commit's response was lost and the table's log could not be read."""

    code = "MV-COMMIT-UNKNOWN"
    hint = "Refresh again, or run `amv recover`: the table's log then shows whether the commit succeeded."


class CatalogUnavailableError(TransientError):
    """Spark's catalog, or the metastore behind it, does not answer."""

    code = "MV-CATALOG-UNAVAILABLE"
    hint = "Check that the metastore runs and that Spark's settings lead to it (hive-site.xml), then try again."


class InterruptedRefreshError(TransientError):
    """This process was interrupted (Ctrl-C), or its Spark job was cancelled."""

    code = "MV-INTERRUPTED"
    hint = "Run it again: the next refresh continues from the last durable step."


class MetadataUnavailableError(TransientError):
    """The metadata database does not answer."""

    code = "MV-DATABASE-UNAVAILABLE"
    hint = "Check that the database runs and that its address and password are correct, then try again."


class ArgumentError(TerminalError):
    """An argument of a command, task or call is wrong."""

    code = "MV-ARGUMENT"
    hint = "Correct the argument."


class SettingError(TerminalError):
    """A setting is wrong: an environment variable, an option of `[mv]`, the metadata database's address."""

    code = "MV-SETTING"
    hint = "Correct the setting: `AMV_*` in the environment, or `[mv]` in Airflow's configuration."


class DependencyError(TerminalError):
    """A program, driver or jar is missing."""

    code = "MV-DEPENDENCY"
    hint = "Install what is missing."


class DefinitionError(TerminalError):
    """The definition is wrong."""

    code = "MV-DEFINITION"
    hint = "Correct the definition."


class CheckInvalidError(DefinitionError):
    """A check cannot be evaluated: a column, or its SQL."""

    code = "MV-CHECK-INVALID"
    hint = "Correct the check in the table's definition: its columns, or its SQL."


class InvalidIdentifierError(DefinitionError):
    """A table or column name is not a valid identifier."""

    code = "MV-IDENTIFIER"
    hint = "Use letters, digits and underscores; at most three parts joined by dots."


class UnsafeLocationError(DefinitionError):
    """A path leaves its root or uses a scheme that is not allowed."""

    code = "MV-LOCATION"
    hint = "Use a path under the warehouse, or add its root to AMV_SOURCE_ROOTS."


class UnpinnedTableError(DefinitionError):
    """A query reads a table that is not among its inputs."""

    code = "MV-QUERY-UNPINNED"
    hint = "Add the table with its path to the query's `inputs`: only inputs are pinned."


class SourceFunctionError(DefinitionError):
    """A source's function cannot be imported, fails, or returns no DataFrame."""

    code = "MV-FUNCTION"
    hint = "Correct the function: it takes the Spark session and returns a DataFrame."


class ConnectionUnknownError(DefinitionError):
    """The source's connection does not exist, or cannot be used."""

    code = "MV-CONNECTION"
    hint = "Create the Airflow connection, or set AIRFLOW_CONN_<ID> to it, as a URI or as JSON."


class TableNotFoundError(TerminalError):
    """No refreshable table has this name."""

    code = "MV-TABLE-UNKNOWN"
    hint = "Register it with `amv apply FILE.yaml`; `amv status` lists the registered tables."

    @classmethod
    def of(cls, name: str) -> TableNotFoundError:
        """Return the error for a name, which a user may have written: its first 60 characters."""
        return cls(name[:60], "no refreshable table has this name.")


class NotPublishedError(TerminalError):
    """The table was never published, and what is asked for needs its rows."""

    code = "MV-NOT-PUBLISHED"
    hint = "Refresh it first."


class TableConflictError(TerminalError):
    """The location belongs to, or overlaps with, another refreshable table."""

    code = "MV-TABLE-CONFLICT"
    hint = "One location holds one refreshable table: choose another name."


class NameGoneError(TerminalError):
    """The catalog no longer has the table's name: it was dropped or renamed."""

    code = "MV-NAME-GONE"
    hint = "Register the table again, or change `catalog_name` in the definition."


class NameTakenError(TerminalError):
    """The table's name in the catalog leads to another object."""

    code = "MV-NAME-TAKEN"
    hint = "Nothing was written there. Rename or drop what has the name, or change `catalog_name` in the definition."


class MainUnsupportedError(TerminalError):
    """Main is a view, not Delta, unreadable, or has a transaction retention."""

    code = "MV-MAIN-UNSUPPORTED"
    hint = "Choose another name, or move the existing data away."


class MainRefusedError(TerminalError):
    """Main refuses the write: a constraint, a table property, a permission."""

    code = "MV-MAIN-REFUSED"
    hint = "Correct the source's rows, or the table's constraints, properties or permissions, then refresh again."


class MainNotOursError(TerminalError):
    """Main exists, and the definition does not set `adopt`."""

    code = "MV-MAIN-NOT-OURS"
    hint = "Choose another name, or set `adopt: true` to take the existing table over."


class AdoptionError(TerminalError):
    """Main cannot be adopted: it has a duplicate or NULL key."""

    code = "MV-ADOPTION"
    hint = "Repair the table, then refresh again."


class HistoryError(TerminalError):
    """The history of the table's rows cannot be kept: it is gone or another table, or a row has no time."""

    code = "MV-HISTORY"
    hint = "Change `history` in the definition, or leave it out."


class EpochRegressionError(TerminalError):
    """The table's log refuses the metadata database's epoch as outdated."""

    code = "MV-EPOCH-REGRESSION"
    hint = "If the metadata database was restored from a backup, run `amv recover`, then refresh again."


class SourceNotFoundError(TerminalError):
    """The source's path or table does not exist."""

    code = "MV-SOURCE-MISSING"
    hint = "Check the source's path."


class SourceDeniedError(TerminalError):
    """The source's server refuses the login, or the login may not read the table."""

    code = "MV-SOURCE-DENIED"
    hint = "Correct the connection's login and password, or grant the login SELECT on the table."


class SourceReplacedError(TerminalError):
    """Another source answers at the same place: a topic was made again."""

    code = "MV-SOURCE-REPLACED"
    hint = f"If that is intended: {_RELOAD}"


class SourceRegressedError(TerminalError):
    """The source ends before the last publish."""

    code = "MV-SOURCE-REGRESSED"
    hint = f"Check whether it was restored from a backup, or lost records. {_RELOAD}"


class StreamGoneError(TerminalError):
    """Records of a topic were removed before they were read."""

    code = "MV-STREAM-GONE"
    hint = f"Refresh more often than records are kept, or keep them longer. {_RELOAD}"


class StreamReloadError(TerminalError):
    """A topic can only be continued, and the table has to start over."""

    code = "MV-STREAM-NEEDS-RELOAD"
    hint = _RELOAD


class StreamRestartedError(TerminalError):
    """A change stream began again: what was deleted in between is unknown."""

    code = "MV-STREAM-RESTARTED"
    hint = f"Delete the topic's records from before the new snapshot: they have rows that are gone. Then {_RELOAD}"


class EventError(TerminalError):
    """A record of a topic cannot be read; the message names its offset."""

    code = "MV-EVENT-MALFORMED"
    hint = "Correct `schema`, `record_key` or `envelope`, or the producer."


class EventIncompleteError(EventError):
    """A change event lacks a value, and nothing earlier has it."""

    code = "MV-EVENT-INCOMPLETE"
    hint = "ALTER TABLE ... REPLICA IDENTITY FULL in the database makes events complete."


class EventSchemaError(EventError):
    """The schema of a record is unknown, or has more than the reader's."""

    code = "MV-EVENT-SCHEMA"
    hint = "See which registry the producers use, and which fields `schema_file` lacks; then refresh again."


class SourceFileError(TerminalError):
    """A file cannot be read; the message names it."""

    code = "MV-FILE-UNREADABLE"
    hint = "Repair or remove the file, then refresh again."


class CorruptRecordError(SourceFileError):
    """A record does not fit the schema."""

    code = "MV-FILE-CORRUPT"
    hint = "Correct the record or the schema, then refresh again."


class FileEncodingError(SourceFileError):
    """Text is not in the declared encoding."""

    code = "MV-FILE-ENCODING"
    hint = (
        "Set the source's `encoding` option to the file's, or convert the file to UTF-8. UTF-16 and UTF-32 also need"
        " `multiLine: true`."
    )


class SchemaMismatchError(TerminalError):
    """The source's columns do not match the table's or the schema."""

    code = "MV-SCHEMA"
    hint = "Change the source or its `select` so that the columns match the table's."


class NotComparableError(SchemaMismatchError):
    """A column's type cannot be compared (map, variant)."""

    code = "MV-NOT-COMPARABLE"
    hint = "Leave the column out, or convert it to a comparable type in `select` (to_json, map_entries, a cast)."


class InexactColumnError(SchemaMismatchError):
    """Spark would change a column's values: round, cut or replace them."""

    code = "MV-COLUMN-INEXACT"
    hint = (
        "Give it another type in the source's `columns`: STRING takes every number, date and text exactly. Or convert"
        " the column in a `query`."
    )


class KeyColumnError(TerminalError):
    """The key names a missing or unusable column."""

    code = "MV-KEY-COLUMN"
    hint = "Choose columns of the source whose values identify a row."


class DuplicateKeyError(TerminalError):
    """Two rows of the source share a key."""

    code = "MV-KEY-DUPLICATE"
    hint = "Add a column that distinguishes these rows to `key`, or remove the duplicates from the source."


class NullKeyError(TerminalError):
    """A key is NULL."""

    code = "MV-KEY-NULL"
    hint = "Filter these rows in the source, or give the key a value in `select`."


class TooManyErrorsError(TerminalError):
    """More rejected records than the definition's error table allows."""

    code = "MV-ERRORS-TOO-MANY"
    hint = "Correct the source, or raise `errors: {max_rows: ...}`."


class PartitionValueError(TerminalError):
    """Delta cannot store a partition value unchanged."""

    code = "MV-PARTITION-VALUE"
    hint = "Map the value to a storable one in `select`."


class KeyMovedError(TerminalError):
    """A row changed its partition in a refresh that commits some partitions only."""

    code = "MV-KEY-MOVED"
    hint = "Refresh the whole table with `publish: atomic`, or add the partition columns to `key`."


class FrozenPartitionError(TerminalError):
    """A partition older than `frozen_before` was requested."""

    code = "MV-FROZEN"
    hint = "Ask for later partitions, or change `frozen_before` in the definition."


class GuardRefusedError(TerminalError):
    """A guard refused the exact counts of the changes."""

    code = "MV-GUARD"
    hint = "If the difference is correct, refresh once with `--override`, the guard's name, and the reason in `--note`."


class CheckFailedError(TerminalError):
    """The source's rows break a check of the definition."""

    code = "MV-CHECK"
    hint = "Correct the source, or the check in the definition; severity `hold` lets a person decide, `warn` publishes."


class StrategyError(TerminalError):
    """The strategy that a strict definition requires is not possible."""

    code = "MV-STRATEGY"
    hint = "Compare everything once with `--force`, or let the table fall back with `strict: false`."


class RefreshCancelledError(TerminalError):
    """The refresh was cancelled on request."""

    code = "MV-CANCELLED"
    hint = (
        "Refresh again at any time. The table is unchanged, except for parts that a progressive refresh has published."
    )


class HoldExpiredError(TerminalError):
    """Nobody decided in time about a refresh that awaited approval."""

    code = "MV-HOLD-EXPIRED"
    hint = "Refresh again; `hold_for` in the definition sets how long a refresh waits for approval."


class NotHeldError(TerminalError):
    """A decision fits nothing that awaits approval, or was made already."""

    code = "MV-NOT-HELD"
    hint = "See what awaits approval with `amv status` and `amv diff`."


class VersionGoneError(TerminalError):
    """A version of the table to go back to cannot be read any more."""

    code = "MV-VERSION-GONE"
    hint = "Choose a later version (`amv history`), or restore the table's files from a backup."


class ChangesWrongError(TerminalError):
    """What changed in the source, as it was read, does not lead to the source's rows; `verify_every` looks for that."""

    code = "MV-CHANGES-WRONG"
    hint = (
        "The table is as it was, and the next refresh compares everything. If the source is healthy (its change feed is"
        " complete, and a sum of DOUBLE is a sum of DECIMAL), report this with the definition."
    )


class DriftError(TerminalError):
    """An audit has found other rows in the table than were published."""

    code = "MV-DRIFT"
    hint = "`amv audit --repair` refreshes the table, within its guards."


class RefreshFinishedError(TerminalError):
    """The refresh that this task belongs to has ended."""

    code = "MV-REFRESH-FINISHED"
    hint = "Clear the run from its first task on, so that a new refresh begins."


class RefreshPausedError(TerminalError):
    """The table is paused."""

    code = "MV-PAUSED"
    hint = "Resume it with `amv resume`."


class MetadataDeniedError(TerminalError):
    """The metadata database refuses what its user may not do."""

    code = "MV-DATABASE-DENIED"
    hint = "Grant the user the rights that it lacks."


class DatabaseVersionError(TerminalError):
    """The metadata database is older or newer than this package."""

    code = "MV-DATABASE-VERSION"
    hint = "Run `amv db migrate`."

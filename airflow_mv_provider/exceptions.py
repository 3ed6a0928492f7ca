"""Every error that this package raises, in one tree.

    MvError
    ├── TransientError                 a retry may succeed (exit code 75)
    │   ├── RefreshInProgressError     another owner's lease on the table is live, or another caller's turn comes first
    │   │   └── RefreshHeldError       the refresh waits for a person's decision
    │   ├── LeaseLostError             this process no longer owns the refresh
    │   │   └── FencedError            a newer epoch has written its fence into main's log
    │   ├── MainMovedError             other writers kept changing main, round after round
    │   ├── OvertakenError             main's log shows later refreshes that the metadata database does not have
    │   ├── SourceChangedError         the source no longer matches its pin
    │   ├── SourceUnavailableError     the source's server does not answer, or another session locks the table
    │   ├── SnapshotLostError          the connection that holds the source's snapshot was ended
    │   ├── SealBrokenError            sealed or recorded data does not read back as it was recorded
    │   ├── EngineError                Spark or Delta failed for another reason
    │   │   └── DiskFullError          a disk that Spark writes to is full
    │   ├── CommitUnknownError         a commit's response was lost and main's log could not be read
    │   ├── CatalogUnavailableError    Spark's catalog, or the metastore behind it, does not answer
    │   ├── InterruptedRefreshError    this process was interrupted (Ctrl-C), or its Spark job was cancelled
    │   └── MetadataUnavailableError   the metadata database does not answer
    └── TerminalError                  a person must act (exit code 1)
        ├── DefinitionError            the definition is wrong
        │   ├── CheckInvalidError      a check cannot be evaluated: a column, or its SQL
        │   ├── InvalidIdentifierError a table or column name is not a valid identifier
        │   ├── UnsafeLocationError    a path leaves its root or uses a scheme that is not allowed
        │   ├── UnpinnedTableError     a query reads a table that is not among its inputs
        │   ├── SourceFunctionError    a source's function cannot be imported, fails, or returns no DataFrame
        │   └── ConnectionUnknownError the source's connection does not exist, or cannot be used
        ├── TableNotFoundError         no refreshable table has this name
        ├── TableConflictError         the location belongs to, or overlaps with, another refreshable table
        ├── NameGoneError              the catalog has main's name no longer: it was dropped or renamed
        ├── NameTakenError             main's name in the catalog leads to something else than main
        ├── MainUnsupportedError       main is a view, not Delta, unreadable, or has a transaction retention
        ├── MainRefusedError           main refuses the write: a constraint, a table property, a permission
        ├── MainNotOursError           main exists, and the definition does not set `adopt`
        ├── AdoptionError              main cannot be adopted: it has a duplicate or NULL key
        ├── EpochRegressionError       main's log refuses the metadata database's epoch as outdated
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
        ├── SchemaMismatchError        the source's columns do not match main's or the schema
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
        ├── HoldExpiredError           a held refresh was not decided in time
        ├── NotHeldError               a decision does not fit: nothing is held, or something else, or it was decided
        ├── VersionGoneError           a version of main to go back to cannot be read any more
        ├── DriftError                 an audit has found other rows in main than were published
        ├── RefreshFinishedError       the refresh that this task belongs to has ended
        ├── RefreshPausedError         the table is paused
        └── DatabaseVersionError       the metadata database is older or newer than this package

Every class has a stable `code`. A message has three parts: where, what was expected and found, what to do next. Names
and values in it may come from outside, so it is one line of limited length without control characters.
"""

from __future__ import annotations

from airflow_mv_provider.error import MvError as MvError  # noqa: PLC0414
from airflow_mv_provider.error import TerminalError as TerminalError  # noqa: PLC0414
from airflow_mv_provider.error import TransientError as TransientError  # noqa: PLC0414
from airflow_mv_provider.error import one_line as one_line  # noqa: PLC0414
from airflow_mv_provider.stream_errors import EventError as EventError  # noqa: PLC0414
from airflow_mv_provider.stream_errors import EventIncompleteError as EventIncompleteError  # noqa: PLC0414
from airflow_mv_provider.stream_errors import EventSchemaError as EventSchemaError  # noqa: PLC0414
from airflow_mv_provider.stream_errors import SourceRegressedError as SourceRegressedError  # noqa: PLC0414
from airflow_mv_provider.stream_errors import SourceReplacedError as SourceReplacedError  # noqa: PLC0414
from airflow_mv_provider.stream_errors import StreamGoneError as StreamGoneError  # noqa: PLC0414
from airflow_mv_provider.stream_errors import StreamReloadError as StreamReloadError  # noqa: PLC0414
from airflow_mv_provider.stream_errors import StreamRestartedError as StreamRestartedError  # noqa: PLC0414


class RefreshInProgressError(TransientError):
    code = "MV-REFRESH-IN-PROGRESS"
    hint = "Wait for it, or stop it with `amv cancel`."


class RefreshHeldError(RefreshInProgressError):
    code = "MV-HELD"
    hint = "See it with `amv diff`, then decide with `amv approve` or `amv reject`."


class LeaseLostError(TransientError):
    code = "MV-LEASE-LOST"
    hint = "Another process continues the refresh; see `amv status`."


class FencedError(LeaseLostError):
    code = "MV-FENCED"


class MainMovedError(TransientError):
    code = "MV-MAIN-MOVED"
    hint = "Stop the other writer of this table, then refresh again."


class OvertakenError(TransientError):
    code = "MV-OVERTAKEN"
    hint = (
        "Check whether the metadata database was restored from a backup or a second one is in use, then refresh again."
    )


class SourceChangedError(TransientError):
    code = "MV-SOURCE-CHANGED"
    hint = "Refresh again: the next refresh pins the source's current version."


class SourceUnavailableError(TransientError):
    code = "MV-SOURCE-UNAVAILABLE"
    hint = "Check that the server runs and that host and port of the connection are correct, then refresh again."


class SnapshotLostError(TransientError):
    code = "MV-SNAPSHOT-LOST"
    hint = "Refresh again: the next refresh takes a new snapshot. None of these rows were merged."


class SealBrokenError(TransientError):
    code = "MV-SEAL-BROKEN"
    hint = "Refresh again: none of these rows were merged."


class EngineError(TransientError):
    code = "MV-ENGINE"
    hint = "See the Spark log of this refresh, then refresh again."


class DiskFullError(EngineError):
    code = "MV-DISK-FULL"
    hint = "Free space, then refresh again: recorded progress is kept."


class CommitUnknownError(TransientError):
    code = "MV-COMMIT-UNKNOWN"
    hint = "Refresh again, or run `amv recover`: the table's log then shows whether the commit succeeded."


class CatalogUnavailableError(TransientError):
    code = "MV-CATALOG-UNAVAILABLE"
    hint = "Check that the metastore runs and that Spark's settings lead to it (hive-site.xml), then try again."


class InterruptedRefreshError(TransientError):
    code = "MV-INTERRUPTED"
    hint = "Run it again: the next refresh continues from the last durable step."


class MetadataUnavailableError(TransientError):
    code = "MV-DATABASE-UNAVAILABLE"
    hint = "Check that the database runs and that its address and password are correct, then try again."


class DefinitionError(TerminalError):
    code = "MV-DEFINITION"
    hint = "Correct the definition."


class CheckInvalidError(DefinitionError):
    code = "MV-CHECK-INVALID"
    hint = "Correct the check in the table's definition: its columns, or its SQL."


class InvalidIdentifierError(DefinitionError):
    code = "MV-IDENTIFIER"
    hint = "Use letters, digits and underscores; at most three parts joined by dots."


class UnsafeLocationError(DefinitionError):
    code = "MV-LOCATION"
    hint = "Use a path under the warehouse, or add its root to AMV_SOURCE_ROOTS."


class UnpinnedTableError(DefinitionError):
    code = "MV-QUERY-UNPINNED"
    hint = "Add the table with its path to the query's `inputs`: only inputs are pinned."


class SourceFunctionError(DefinitionError):
    code = "MV-FUNCTION"
    hint = "Correct the function: it takes the Spark session and returns a DataFrame."


class ConnectionUnknownError(DefinitionError):
    code = "MV-CONNECTION"
    hint = "Create the Airflow connection, or set AIRFLOW_CONN_<ID> to it, as a URI or as JSON."


class TableNotFoundError(TerminalError):
    code = "MV-TABLE-UNKNOWN"
    hint = "Register it with `amv apply FILE.yaml`; `amv status` lists the registered tables."


class TableConflictError(TerminalError):
    code = "MV-TABLE-CONFLICT"
    hint = "One location holds one refreshable table: choose another name."


class NameGoneError(TerminalError):
    code = "MV-NAME-GONE"
    hint = "Register the table again, or change `catalog_name` in the definition."


class NameTakenError(TerminalError):
    code = "MV-NAME-TAKEN"
    hint = "Nothing was written there. Rename or drop what has the name, or change `catalog_name` in the definition."


class MainUnsupportedError(TerminalError):
    code = "MV-MAIN-UNSUPPORTED"
    hint = "Choose another name, or move the existing data away."


class MainRefusedError(TerminalError):
    code = "MV-MAIN-REFUSED"
    hint = "Correct the source's rows, or the table's constraints, properties or permissions, then refresh again."


class MainNotOursError(TerminalError):
    code = "MV-MAIN-NOT-OURS"
    hint = "Choose another name, or set `adopt: true` to take the existing table over."


class AdoptionError(TerminalError):
    code = "MV-ADOPTION"
    hint = "Repair the table, then refresh again."


class EpochRegressionError(TerminalError):
    code = "MV-EPOCH-REGRESSION"
    hint = "If the metadata database was restored from a backup, run `amv recover`, then refresh again."


class SourceNotFoundError(TerminalError):
    code = "MV-SOURCE-MISSING"
    hint = "Check the source's path."


class SourceDeniedError(TerminalError):
    code = "MV-SOURCE-DENIED"
    hint = "Correct the connection's login and password, or grant the login SELECT on the table."


class SourceFileError(TerminalError):
    code = "MV-FILE-UNREADABLE"
    hint = "Repair or remove the file, then refresh again."


class CorruptRecordError(SourceFileError):
    code = "MV-FILE-CORRUPT"
    hint = "Correct the record or the schema, then refresh again."


class FileEncodingError(SourceFileError):
    code = "MV-FILE-ENCODING"
    hint = (
        "Set the source's `encoding` option to the file's, or convert the file to UTF-8. UTF-16 and UTF-32 also need"
        " `multiLine: true`."
    )


class SchemaMismatchError(TerminalError):
    code = "MV-SCHEMA"
    hint = "Change the source or its `select` so that the columns match the table's."


class NotComparableError(SchemaMismatchError):
    code = "MV-NOT-COMPARABLE"
    hint = "Leave the column out, or convert it to a comparable type in `select` (to_json, map_entries, a cast)."


class InexactColumnError(SchemaMismatchError):
    code = "MV-COLUMN-INEXACT"
    hint = (
        "Give it another type in the source's `columns`: STRING takes every number, date and text exactly. Or convert"
        " the column in a `query`."
    )


class KeyColumnError(TerminalError):
    code = "MV-KEY-COLUMN"
    hint = "Choose columns of the source whose values identify a row."


class DuplicateKeyError(TerminalError):
    code = "MV-KEY-DUPLICATE"
    hint = "Add a column that distinguishes these rows to `key`, or remove the duplicates from the source."


class NullKeyError(TerminalError):
    code = "MV-KEY-NULL"
    hint = "Filter these rows in the source, or give the key a value in `select`."


class TooManyErrorsError(TerminalError):
    code = "MV-ERRORS-TOO-MANY"
    hint = "Correct the source, or raise `errors: {max_rows: ...}`."


class PartitionValueError(TerminalError):
    code = "MV-PARTITION-VALUE"
    hint = "Map the value to a storable one in `select`."


class KeyMovedError(TerminalError):
    code = "MV-KEY-MOVED"
    hint = "Refresh the whole table with `publish: atomic`, or add the partition columns to `key`."


class FrozenPartitionError(TerminalError):
    code = "MV-FROZEN"
    hint = "Ask for later partitions, or change `frozen_before` in the definition."


class GuardRefusedError(TerminalError):
    code = "MV-GUARD"
    hint = "If the difference is correct, refresh once with `--override`, the guard's name, and the reason in `--note`."


class CheckFailedError(TerminalError):
    code = "MV-CHECK"
    hint = "Correct the source, or the check in the definition; severity `hold` lets a person decide, `warn` publishes."


class StrategyError(TerminalError):
    code = "MV-STRATEGY"
    hint = "Compare everything once with `--force`, or let the table fall back with `strict: false`."


class RefreshCancelledError(TerminalError):
    code = "MV-CANCELLED"
    hint = (
        "Refresh again at any time. The table is unchanged, except for parts that a progressive refresh has published."
    )


class HoldExpiredError(TerminalError):
    code = "MV-HOLD-EXPIRED"
    hint = "Refresh again; `hold_for` in the definition sets how long a refresh is held."


class NotHeldError(TerminalError):
    code = "MV-NOT-HELD"
    hint = "See what is held with `amv status` and `amv diff`."


class VersionGoneError(TerminalError):
    code = "MV-VERSION-GONE"
    hint = "Choose a later version (`amv history`), or restore the table's files from a backup."


class DriftError(TerminalError):
    code = "MV-DRIFT"
    hint = "`amv audit --repair` refreshes the table, within its guards."


class RefreshFinishedError(TerminalError):
    code = "MV-REFRESH-FINISHED"
    hint = "Clear the run from its first task on, so that a new refresh begins."


class RefreshPausedError(TerminalError):
    code = "MV-PAUSED"
    hint = "Resume it with `amv resume`."


class DatabaseVersionError(TerminalError):
    code = "MV-DATABASE-VERSION"
    hint = "Run `amv db migrate`."

"""The errors of sources that are logs; `exceptions` has them all in one tree."""

from __future__ import annotations

from airflow_mv_provider.error import TerminalError

_RELOAD = "`amv refresh --reload` reads the topic from its start, if it is `complete` from there."


class SourceReplacedError(TerminalError):
    code = "MV-SOURCE-REPLACED"
    hint = f"If that is intended: {_RELOAD}"


class SourceRegressedError(TerminalError):
    code = "MV-SOURCE-REGRESSED"
    hint = f"Check whether it was restored from a backup, or lost records. {_RELOAD}"


class StreamGoneError(TerminalError):
    code = "MV-STREAM-GONE"
    hint = f"Refresh more often than records are kept, or keep them longer. {_RELOAD}"


class StreamReloadError(TerminalError):
    code = "MV-STREAM-NEEDS-RELOAD"
    hint = _RELOAD


class StreamRestartedError(TerminalError):
    code = "MV-STREAM-RESTARTED"
    hint = f"Delete the topic's records from before the new snapshot: they have rows that are gone. Then {_RELOAD}"


class EventError(TerminalError):
    code = "MV-EVENT-MALFORMED"
    hint = "Correct `schema`, `record_key` or `envelope`, or the producer."


class EventIncompleteError(EventError):
    code = "MV-EVENT-INCOMPLETE"
    hint = "ALTER TABLE ... REPLICA IDENTITY FULL in the database makes events complete."


class EventSchemaError(EventError):
    code = "MV-EVENT-SCHEMA"
    hint = "See which registry the producers use, and which fields `schema_file` lacks; then refresh again."

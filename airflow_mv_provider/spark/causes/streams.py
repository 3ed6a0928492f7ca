"""Translate the messages of Kafka's client inside Spark's errors, and what this package's SQL raises about a record."""

from __future__ import annotations

import re

from airflow_mv_provider.exceptions import (
    DependencyError,
    EventError,
    EventIncompleteError,
    EventSchemaError,
    MvError,
    SourceDeniedError,
    SourceUnavailableError,
    StreamGoneError,
    StreamRestartedError,
)

BAD_EVENT = "MV-BAD-EVENT"
BAD_SCHEMA = "MV-BAD-EVENT-SCHEMA"
UNFILLED_EVENT = "MV-UNFILLED-EVENT"
RESTARTED = "MV-RESTARTED-STREAM"
"""Each begins the message of an error that this package's SQL raises: then topic/partition/offset, and a detail."""
_RAISED = {
    BAD_SCHEMA: EventSchemaError,
    BAD_EVENT: EventError,
    UNFILLED_EVENT: EventIncompleteError,
    RESTARTED: StreamRestartedError,
}
_GONE = ("KAFKA_DATA_LOSS", "Some data may have been lost", "OffsetOutOfRangeException", "data may have been aged out")
_DENIED = ("SaslAuthenticationException", "AuthorizationException", "SslAuthenticationException")
_AWAY = (
    *("org.apache.kafka.common.errors.TimeoutException", "Failed to create new KafkaAdminClient"),
    *("DisconnectException", "No resolvable bootstrap urls", "Failed to construct kafka consumer"),
)
_NUM_SHOWN = 200


def of_stream(text: str, where: str) -> MvError | None:
    """Return the error that a topic, its cluster or one of its records has caused; None if none has."""
    if found := re.search(rf"({'|'.join(_RAISED)}) (\S+)/(\d+)/(\d+) (.*?)(?:\"?\n|'\)|'? SQLSTATE|\"?$)", text):
        what, topic, partition, offset, detail = found.groups()
        problem = f"{topic}, partition {partition}, offset {offset}: {detail.strip()[:_NUM_SHOWN]}."
        return _RAISED[what](where, problem)
    if re.search(r"ModuleNotFoundError: No module named 'google(\.protobuf\b.*)?'", text):
        hint = "Where its executors run: pip install protobuf."
        return DependencyError(where, "Spark's Python has no library for Protobuf.", hint=hint)
    if "kafka" not in text.lower():
        return None
    if any(words in text for words in _GONE):
        return StreamGoneError(where, "records of the topic were removed while, or before, they were read.")
    if any(words in text for words in _DENIED):
        hint = "Correct the connection's login, or grant it Read on the topic."
        return SourceDeniedError(where, "the cluster refuses to let the topic be read.", hint=hint)
    if any(words in text for words in _AWAY) or re.search(r"Cannot fetch record for offset", text):
        return SourceUnavailableError(where, "a broker does not answer within `read_timeout`.")
    return None

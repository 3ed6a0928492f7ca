"""Ask a cluster what a topic is now: its identity, and where its partitions begin and end. Reads no record.

Every question has a timeout. The end is the last stable offset, so no transaction is cut that is still open.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    MvError,
    SourceDeniedError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from airflow_mv_provider.sources.kafka.cluster import Cluster
from airflow_mv_provider.sources.kafka.frontier import KafkaFrontier

_T = TypeVar("_T")
_CONNECT_S = 10.0
_DENIED = ("AUTHORIZATION_FAILED", "AUTHENTICATION", "_SSL")


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as it is now.

    lows : by partition, the lowest offset that is still there
    """

    frontier: KafkaFrontier
    lows: tuple[int, ...]


def look(cluster: Cluster, topic: str, timeout_s: float) -> Found:
    """Return what a topic is now.

    timeout_s : for each question; a cluster that cannot be reached at all is given up after ten seconds
    cost      : four round trips
    raises    : SourceUnavailableError, SourceDeniedError, SourceNotFoundError; ConnectionUnknownError, where the client
                is not installed
    """
    try:
        from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
    except ImportError as error:
        hint = "pip install 'airflow-mv-provider[kafka]'"
        raise ConnectionUnknownError("source", "Python has no client for Kafka.", hint=hint) from error
    reported: list[Any] = []
    settings: Any = {
        **cluster.client,
        "log_level": 0,
        "error_cb": reported.append,
        "socket.timeout.ms": round(timeout_s * 1000),
    }
    admin = AdminClient(settings)
    try:
        connect_s = min(timeout_s, _CONNECT_S)
        admin.list_topics(timeout=connect_s)
        identity = _answer(admin.describe_cluster(request_timeout=timeout_s), timeout_s)
        described = _answer(
            admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic], timeout_s
        )
        parts = [TopicPartition(topic, each) for each in range(len(described.partitions))]
        # The ends last: what is there at the end was there at the beginning, or is found to be gone before it is read.
        first: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        last: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        stable, limit = IsolationLevel.READ_COMMITTED, {"request_timeout": timeout_s}
        low = _by_partition(admin.list_offsets(dict.fromkeys(parts, first), **limit).items(), timeout_s)
        ends = admin.list_offsets(dict.fromkeys(parts, last), isolation_level=stable, **limit)
        end = _by_partition(ends.items(), timeout_s)
    except NoAnswerError as error:
        raise SourceUnavailableError(
            "source", f"{topic}: the cluster does not answer within {timeout_s:g} s."
        ) from error
    except KafkaException as error:
        admin.poll(0)  # brings what the client has noticed meanwhile, such as a login that was refused
        raise _translated(error.args[0], reported, topic, cluster) from None  # its text may quote settings
    return Found(KafkaFrontier(str(identity.cluster_id), topic, str(described.topic_id), end), low)


def _answer(future: Future[_T], timeout_s: float) -> _T:
    return future.result(timeout_s + 1)  # the client's own timeout has the better message


def _by_partition(futures: Iterable[tuple[Any, Future[Any]]], timeout_s: float) -> tuple[int, ...]:
    found = {part.partition: int(_answer(each, timeout_s).offset) for part, each in futures}
    return tuple(found[partition] for partition in sorted(found))


def _translated(error: Any, reported: list[Any], topic: str, cluster: Cluster) -> MvError:
    """Return the error for one of the client's: its code decides, no text of it is kept that might have a setting."""
    names = [each.name() for each in (error, *reported) if hasattr(each, "name")]
    if any(word in name for name in names for word in _DENIED):
        name = next(name for name in names if any(word in name for word in _DENIED))
        hint = "Correct login, password, mechanism and authority of the connection, or grant it Describe and Read."
        return SourceDeniedError("source", f"{topic}: the cluster refuses: {name.lstrip('_')}.", hint=hint)
    if "UNKNOWN_TOPIC_OR_PART" in names or "TOPIC_EXCEPTION" in names:
        return SourceNotFoundError("source", f"there is no topic {topic!r}.", hint="Check the topic's name.")
    problem = f"{topic}: no broker answers at {cluster.servers}" if "_TRANSPORT" in names else f"{topic}: {names[0]}"
    return SourceUnavailableError("source", f"{problem}.")

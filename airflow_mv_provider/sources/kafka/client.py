"""Ask a cluster what a topic is now: its identity, and where its partitions begin and end. Reads no record.

`commit` is the only write: how far an ingestion is, for people and for other programs.

Every question has a timeout. The end is the last stable offset, so no transaction is cut that is still open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    DependencyError,
    MvError,
    SourceDeniedError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from airflow_mv_provider.sources.kafka.bound import bounded_end, last_moment
from airflow_mv_provider.sources.kafka.cluster import Cluster
from airflow_mv_provider.sources.kafka.frontier import KafkaFrontier

_T = TypeVar("_T")
_CONNECT_S = 10.0
_LOOKS_EVERY_S = 0.1
# A group has no broker yet: the first one of a cluster, or one whose broker has just come back.
_NO_COORDINATOR = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
_DENIED = ("AUTHORIZATION_FAILED", "AUTHENTICATION", "_SSL")


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as it is now.

    lows : by partition, the lowest offset that is still there
    """

    frontier: KafkaFrontier
    lows: tuple[int, ...]


def inspect(cluster: Cluster, topic: str, timeout_s: float) -> Found:
    """Return what a topic is now.

    timeout_s : for each question; a cluster that cannot be reached at all is given up after ten seconds
    cost      : four round trips
    raises    : SourceUnavailableError, SourceDeniedError, SourceNotFoundError; DependencyError, where the client
                is not installed; ConnectionUnknownError for a broker that gives topics no ids
    """
    with _asking(cluster, topic, timeout_s) as admin:
        from confluent_kafka import TopicCollection, Uuid
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        identity = _answer(admin.describe_cluster(request_timeout=timeout_s), timeout_s)
        described = _answer(
            admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic], timeout_s
        )
        if str(described.topic_id) == str(Uuid(0, 0)):
            problem = f"its cluster gives {topic} no id, so that nothing would show that the topic was made again."
            raise ConnectionUnknownError("source", problem, hint="Topics have ids since Kafka 2.8.")
        num, at_ms = len(described.partitions), round(time.time() * 1000)
        # The ends last: what is there at the end was there at the beginning, or is found to be gone before it is read.
        first: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        last: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        low = _offsets(_listed(admin, topic, num, first, timeout_s, is_stable=False))
        end = _offsets(_listed(admin, topic, num, last, timeout_s))
    return Found(KafkaFrontier(str(identity.cluster_id), topic, str(described.topic_id), end, at_ms=at_ms), low)


def bounded(
    cluster: Cluster, topic: str, since: Sequence[int], until: Sequence[int], max_records: int, timeout_s: float
) -> tuple[int, ...]:
    """Return the offsets up to which a refresh reads that may not take everything; see `bound.bounded_end`.

    cost   : about 40 round trips, if there is more than may be taken
    raises : as `inspect`
    """
    with _asking(cluster, topic, timeout_s) as admin:
        first_at = _first_at(admin, topic, until, timeout_s)
        newest = max(int(each.timestamp) for each in _newest(admin, topic, len(until), timeout_s))
        return bounded_end(since, until, max_records, first_at, newest)


def offsets_at(cluster: Cluster, topic: str, moment_ms: int, until: Sequence[int], timeout_s: float) -> tuple[int, ...]:
    """Return, by partition, the first offset of a record of this time or a later one; `until` if there is none.

    cost   : two round trips
    raises : as `inspect`
    """
    with _asking(cluster, topic, timeout_s) as admin:
        return _first_at(admin, topic, until, timeout_s)(moment_ms)


def deletes_kept_ms(cluster: Cluster, topic: str, timeout_s: float) -> int | None:
    """Return for how long a compacted topic keeps records that delete; None if it is not, or nobody may know.

    cost   : two round trips
    raises : as `inspect`
    """
    with _asking(cluster, topic, timeout_s) as admin:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

        asked = ConfigResource(ResourceType.TOPIC, topic)
        try:
            found = _answer(admin.describe_configs([asked], request_timeout=timeout_s)[asked], timeout_s)
        except KafkaException as error:
            if "AUTHORIZATION_FAILED" in error.args[0].name():
                return None
            raise
    if "compact" not in found["cleanup.policy"].value:
        return None
    return int(found["delete.retention.ms"].value)


def commit(cluster: Cluster, group: str, offsets: Mapping[str, Sequence[int]], timeout_s: float) -> None:
    """Write offsets of topics into a consumer group; whatever it had for these partitions is replaced.

    offsets : by topic, and there by partition
    cost    : two round trips, more while the group has no coordinator
    raises  : as `inspect`; SourceDeniedError also if a consumer is a member of the group
    """
    with _asking(cluster, f"group {group}", timeout_s) as admin:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        wanted = [TopicPartition(topic, p, at) for topic, ends in offsets.items() for p, at in enumerate(ends)]
        asked = [ConsumerGroupTopicPartitions(group, wanted)]
        until = time.monotonic() + timeout_s
        while (refused := _refused(admin, asked, timeout_s)) is not None and refused.name() in _NO_COORDINATOR:
            if time.monotonic() > until:
                break
            time.sleep(_LOOKS_EVERY_S)
    if refused is None:
        return
    if refused.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP", "GROUP_SUBSCRIBED_TO_TOPIC"):
        hint = "Give the ingestion a group that no consumer uses."
        raise SourceDeniedError("source", f"the group {group!r} has members, which commit for themselves.", hint=hint)
    raise _translated(refused, [], f"group {group}", cluster)


def _refused(admin: Any, asked: list[Any], timeout_s: float) -> Any:
    """Write offsets, and return the error that kept the cluster from it, None if there was none."""
    from confluent_kafka import KafkaException

    try:
        answer = _answer(
            admin.alter_consumer_group_offsets(asked, request_timeout=timeout_s)[asked[0].group_id], timeout_s
        )
    except KafkaException as error:
        if error.args[0].name() in _NO_COORDINATOR:
            return error.args[0]
        raise
    # A group with a member is no exception: the client reports it for each partition.
    return next((each.error for each in answer.topic_partitions if each.error is not None), None)


def last_time_ms(cluster: Cluster, topic: str, ends: Sequence[int], timeout_s: float) -> int | None:
    """Return the latest time of a record below these ends of the partitions; None if there is none.

    cost   : a round trip; about 40 if the topic goes on beyond the ends
    raises : as `inspect`
    """
    with _asking(cluster, topic, timeout_s) as admin:
        found = _newest(admin, topic, len(ends), timeout_s)
        times = [int(each.timestamp) for each in found if each.offset >= 0]
        if not times or not any(ends):
            return None
        if all(each.offset < end for each, end in zip(found, ends, strict=True)):
            return max(times)
        return last_moment(ends, _first_at(admin, topic, ends, timeout_s), max(times)) or None


def _newest(admin: Any, topic: str, num: int, timeout_s: float) -> list[Any]:
    """Return the record with the latest time, of each partition; its offset is -1 if there is none."""
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    latest: Any = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    return _listed(admin, topic, num, latest, timeout_s)


def _first_at(admin: Any, topic: str, until: Sequence[int], timeout_s: float) -> Callable[[int], tuple[int, ...]]:
    """Return the function that `bounded_end` asks."""
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    def first_at(moment: int) -> tuple[int, ...]:
        spec: Any = OffsetSpec.for_timestamp(moment)
        found = _offsets(_listed(admin, topic, len(until), spec, timeout_s))
        return tuple(end if at < 0 else at for at, end in zip(found, until, strict=True))  # -1: all are older

    return first_at


@contextmanager
def _asking(cluster: Cluster, topic: str, timeout_s: float) -> Iterator[Any]:
    """Yield a client that has reached the cluster, and translate what goes wrong in the block. See `inspect`."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        hint = "pip install confluent-kafka"
        raise DependencyError("source", "Python has no client for Kafka.", hint=hint) from error
    reported: list[Any] = []
    settings: Any = {
        **cluster.client,
        "log_level": 0,
        "error_cb": reported.append,
        "socket.timeout.ms": round(timeout_s * 1000),
    }
    admin = AdminClient(settings)
    try:
        admin.list_topics(timeout=min(timeout_s, _CONNECT_S))
        yield admin
    except NoAnswerError as error:
        raise SourceUnavailableError(
            "source", f"{topic}: the cluster does not answer within {timeout_s:g} s."
        ) from error
    except KafkaException as error:
        admin.poll(0)  # brings what the client has noticed meanwhile, such as a login that was refused
        raise _translated(error.args[0], reported, topic, cluster) from None  # its text may quote settings


def _listed(admin: Any, topic: str, num: int, spec: Any, timeout_s: float, *, is_stable: bool = True) -> list[Any]:
    """Return what is found at a place of each partition, in their order.

    is_stable : up to the last stable offset
    """
    from confluent_kafka import IsolationLevel, TopicPartition

    level = {"isolation_level": IsolationLevel.READ_COMMITTED} if is_stable else {}
    asked = {TopicPartition(topic, each): spec for each in range(num)}
    futures = admin.list_offsets(asked, request_timeout=timeout_s, **level)
    found = {part.partition: _answer(each, timeout_s) for part, each in futures.items()}
    return [found[partition] for partition in sorted(found)]


def _offsets(listed: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(each.offset) for each in listed)


def _answer(future: Future[_T], timeout_s: float) -> _T:
    return future.result(timeout_s + 1)  # the client's own timeout has the better message


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

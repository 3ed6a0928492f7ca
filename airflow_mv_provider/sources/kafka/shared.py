"""The topics of one cluster up to where they ended at one time, and the group to which is published what was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.exceptions import MvError, SourceNotFoundError, SourceUnavailableError
from airflow_mv_provider.sources.credentials import Credentials
from airflow_mv_provider.sources.kafka.client import Found, commit, inspect
from airflow_mv_provider.sources.kafka.cluster import cluster_of
from airflow_mv_provider.sources.kafka.frontier import KafkaFrontier, least
from airflow_mv_provider.sources.kafka.model import Kafka
from airflow_mv_provider.sources.shared import SharedState


def releasable(topics: Mapping[str, str], published: Mapping[str, Frontier | None]) -> dict[str, tuple[int, ...]]:
    """Return, for each topic, how far all of its tables are published; see `SharedTopics.release`.

    topics : of each table
    """
    offsets = {}
    for topic in dict.fromkeys(topics.values()):
        of_topic = [published.get(name) for name, each in topics.items() if each == topic]
        known = [each for each in of_topic if isinstance(each, KafkaFrontier)]
        if len(known) == len(of_topic) and len({(each.cluster, each.topic_id) for each in known}) == 1:
            offsets[topic] = least(known)
    return offsets


class SharedTopics(SharedState[Kafka]):
    """Each topic's ends, asked for once: anybody can read up to them later, so there is nothing to hold."""

    def __init__(self, sources: Mapping[str, Kafka], credentials: Credentials) -> None:
        super().__init__(sources, credentials)
        self._cluster = cluster_of(credentials)
        self._found: dict[str, Found] = {}

    def hold(self) -> None:
        """Ask where the topics end, one after the other; see `SharedState`. A cluster that is away is asked once."""
        for topic in dict.fromkeys(source.topic for source in self.sources.values()):
            try:
                self._found[topic] = inspect(self._cluster, topic, self._timeout_s)
            except SourceUnavailableError:
                raise
            except MvError as error:
                self.errors |= {name: error for name, source in self.sources.items() if source.topic == topic}

    def found(self, topic: str) -> Found | None:
        """Return a topic as `hold` has found it."""
        return self._found.get(topic)

    def describe(self) -> str:
        """See `SharedState`."""
        return "; ".join(found.frontier.describe() for found in self._found.values())

    def holds(self, table: str, frontier: Frontier) -> bool:
        """See `SharedState`."""
        found = self.found(self.sources[table].topic)
        if found is None or not isinstance(frontier, KafkaFrontier):
            return False
        now = found.frontier
        return (now.cluster, now.topic_id, now.offsets) == (frontier.cluster, frontier.topic_id, frontier.offsets)

    def release(self, group: str, published: Mapping[str, Frontier | None]) -> dict[str, Any]:
        """Commit to the group, for each topic, the least offsets up to which its tables are published.

        A topic is left out while one of its tables was never published, or has read another topic of the name: one that
        was deleted since, or is another cluster's.
        """
        offsets = {
            topic: each
            for topic, each in releasable(
                {name: source.topic for name, source in self.sources.items()}, published
            ).items()
            if self._is_same(topic, published)
        }
        if offsets:
            commit(self._cluster, group, offsets, self._timeout_s)
        return {topic: list(each) for topic, each in offsets.items()}

    def _is_same(self, topic: str, published: Mapping[str, Frontier | None]) -> bool:
        """True if what has a topic's name now is the topic that its tables have read: offsets are committed by name."""
        try:
            now = inspect(self._cluster, topic, self._timeout_s).frontier
        except SourceNotFoundError:
            return False
        read = [published[name] for name, source in self.sources.items() if source.topic == topic]
        return all(
            isinstance(each, KafkaFrontier) and (each.cluster, each.topic_id) == (now.cluster, now.topic_id)
            for each in read
        )

    @property
    def _timeout_s(self) -> float:
        return max(source.read_timeout for source in self.sources.values())

"""What a topic of Kafka can do as source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.kinds import SourceKind
from airflow_mv_provider.sources.kafka.frontier import KafkaFrontier
from airflow_mv_provider.sources.kafka.model import Kafka

if TYPE_CHECKING:
    from airflow_mv_provider.sources.kafka.reader import KafkaReader
    from airflow_mv_provider.sources.kafka.shared import SharedTopics


def _reader() -> type[KafkaReader]:
    from airflow_mv_provider.sources.kafka.reader import KafkaReader

    return KafkaReader


def _shared() -> type[SharedTopics]:
    from airflow_mv_provider.sources.kafka.shared import SharedTopics

    return SharedTopics


KIND = SourceKind(
    model=Kafka, frontier=KafkaFrontier, reader=_reader, shared=_shared, is_log=True, needs_credentials=True
)

"""Sealed partitions that tests of chunks and seals begin with."""

from __future__ import annotations

from airflow_mv_provider.core.progress.partition import partition_name
from airflow_mv_provider.core.progress.seal import SealedPartition


def sealed(*rows: int) -> list[SealedPartition]:
    return [SealedPartition(partition_name([f"p{i:03}"]), n, i) for i, n in enumerate(rows)]

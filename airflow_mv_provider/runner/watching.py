"""What a watcher of a refresh is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_mv_provider.core.phase import Phase


@dataclass(frozen=True, slots=True)
class Progress:
    """What a watcher is told before each step: how many of the refresh's chunks are compared."""

    table: str
    refresh_id: str
    phase: Phase
    message: str
    done: int = 0
    total: int = 0


Watcher = Callable[[Progress], None]

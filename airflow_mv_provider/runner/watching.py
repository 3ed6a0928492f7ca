"""The progress of a refresh, as passed to its watcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_mv_provider.core.phase import Phase


@dataclass(frozen=True, slots=True)
class Progress:
    """The step that is about to begin, and how many of the refresh's chunks are compared.

    done, total : chunks; 0 before the seal
    """

    table: str
    refresh_id: str
    phase: Phase
    message: str
    done: int = 0
    total: int = 0


Watcher = Callable[[Progress], None]

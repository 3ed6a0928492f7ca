"""What is durable in a simulation: the real `Store`, a simulated Delta, a source, and files in workspaces."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.metadata.store import Store
from tests.model.beside import HistoryWrite, SimulatedHistory
from tests.model.delta import Rows, SimulatedDelta, Transaction

LEASE_MS, HANDOVER_MS = 60_000, 3_600_000


@dataclass
class World:
    """What is durable, and what is on its way.

    source  : the rows of each of its versions
    files   : what lies in workspaces, by refresh and name
    history : beside main, if there is one
    orphans : MERGEs that Spark goes on with, though nobody waits for them
    """

    store: Store
    table: TableRecord
    partitions: tuple[int, ...]
    delta: SimulatedDelta = field(default_factory=SimulatedDelta)
    source: list[Rows] = field(default_factory=lambda: [()])
    files: dict[tuple[str, str], object] = field(default_factory=dict)
    history: SimulatedHistory | None = None
    orphans: list[Transaction | HistoryWrite] = field(default_factory=list)
    refreshes: list[str] = field(default_factory=list)

    @property
    def is_progressive(self) -> bool:
        return self.table.definition.publish == "progressive"

    def go_on(self, orphan: Transaction | HistoryWrite) -> None:
        """Commit what nobody waits for. Raises as a commit does."""
        if isinstance(orphan, Transaction):
            self.delta.commit(orphan)
        else:
            assert self.history is not None
            self.history.commit(orphan)

    def remove(self, refresh_id: str) -> None:
        self.files = {path: held for path, held in self.files.items() if path[0] != refresh_id}

    def sweep(self, *, knows_all: bool = True) -> None:
        """Remove what ended refreshes have left; what is of unknown ones `core.leftover` judges, after a day."""
        for refresh_id in {path[0] for path in self.files}:
            found = self.store.refresh(refresh_id)
            if found.is_ended if found is not None else not knows_all:
                self.remove(refresh_id)

"""Ways through the model, taken on the real `Store` as well: after each step both say the same of every table.

What differs is a fault of the model's small values, and everything that was found with them is in doubt.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from tests.conftest import Clock
from tests.model.decisions import as_state
from tests.model.ingestion import order
from tests.model.ingestion.checker import Bounds, successors
from tests.model.ingestion.process import is_waiting
from tests.model.ingestion.stored import LEASE_MS, Site, Stored, first_site
from tests.model.ingestion.world import FOREIGN, IDLE, OUTPUTS, Design, Faults, State, Topic, Worker, first_state

KINDS = {
    "a run and a refresh alone": (("alone", 0), ("alone", 1)),
    "two runs": (("run", 0),),
}
EVERYTHING = Faults(2, 2, 1, 1, 1, 1, 1, 1, 0, 1, 1, begun=4)
NUM_STEPS = 60


@pytest.fixture(scope="module")
def start() -> Iterator[tuple[Site, bytes]]:
    """Where the model starts, and the database as it is there."""
    clock, engine = Clock(), open_engine("sqlite://")
    migrations.migrate(engine)
    site = first_site(Store(engine, clock.now), clock)
    yield site, _raw(site).serialize()
    engine.dispose()


@pytest.fixture
def site(start: tuple[Site, bytes]) -> Site:
    first, database = start
    _raw(first).deserialize(database)
    return deepcopy(first, {id(first.store): first.store, id(first.clock): first.clock})


def _raw(site: Site) -> Any:
    with site.store.engine.connect() as connection:
        return connection.connection.driver_connection


class Replay:
    """A state of the model, the real database beside it, and processes that have come equally far in both."""

    def __init__(self, site: Site, bounds: Bounds) -> None:
        self.site, self.bounds, self.state = site, bounds, first_state()
        self.workers = [IDLE, IDLE]
        self.way = list[str]()

    def take(self, number: int | None, said: str, after: State) -> None:
        self.way.append(f"{'world' if number is None else number}: {said}")
        before, self.state = self.state, after
        if number is None:
            self._happen(said.partition("output ")[0].strip(), int(said[-1]) if "output" in said else 0)
        else:
            self._step(number, said, before.workers[number])
        self.compare()

    def _step(self, number: int, said: str, before: Worker) -> None:
        site, worker = self.site, self.workers[number]
        if said == "dies":
            self.workers[number] = IDLE
        elif said == "needs a decision":
            self.workers[number] = worker._replace(at="hold")
        elif said.startswith("is refused by a guard"):
            self.workers[number] = order.refused(worker)[1]
        elif before is IDLE:
            after = self.state.workers[number]
            self.workers[number] = order.begun(after.what, after.output)
        else:
            told = list[str]()
            while not told or worker.at in self.bounds.eager:
                one, worker = order.step(Design(), Stored(Design(), site, self.bounds.keys[number]), worker)
                told.append(one)
            self.workers[number] = worker
            assert "; ".join(told) == said, self.way

    def _happen(self, what: str, output: int) -> None:
        site = self.site
        happens: dict[str, Callable[[], Any]] = {
            "a record is sent": lambda: self._topic(site.topic._replace(end=site.topic.end + 1)),
            "the topic is made again": self._make_again,
            "retention removes what was released": lambda: self._topic(site.topic._replace(low=site.group)),
            "all leases run out": lambda: site.clock.pass_ms(LEASE_MS + 1),
            "others write to": lambda: self._write(output),
            "somebody pauses": lambda: site.store.pause(site.table(output).id, "ann"),
            "somebody resumes": lambda: site.store.resume(site.table(output).id),
            "somebody approves": lambda: site.decide(output, Decision.APPROVED),
            "somebody rejects": lambda: site.decide(output, Decision.REJECTED),
            "somebody drops": lambda: site.drop(output),
            "somebody registers": lambda: site.register(output, since=self.state.outputs[output].row.epoch),
        }
        happens[what]()

    def _topic(self, topic: Topic) -> None:
        self.site.topic = topic

    def _make_again(self) -> None:
        self.site.topic, self.site.group = Topic(self.site.topic.generation + 1, 1), 0

    def _write(self, output: int) -> None:
        main = self.site.mains[output]
        self.site.mains[output] = main._replace(rows=(*main.rows, FOREIGN), is_touched=True)

    def compare(self) -> None:
        site, state = self.site, self.state
        assert (site.topic, site.group) == (state.topic, state.group), self.way
        for output in OUTPUTS:
            assert self._real(output) == self._modelled(output), self.way
        for real, small in zip(self.workers, state.workers, strict=True):
            assert (real.at, real.output, real.found) == (small.at, small.output, small.found), self.way

    def _real(self, output: int) -> Any:
        site, table = self.site, self.site.tables[output]
        if table is None:
            return None
        seen = site.store.state(table.id)
        refresh = site.store.refresh(seen.refresh_id) if seen.refresh_id else None
        return (
            *(
                seen.phase,
                seen.epoch + site.since[output],
                seen.owner_key,
                seen.is_lease_live,
                seen.is_cancel_requested,
            ),
            *(seen.published_upper, seen.paused_since_ms is not None, seen.is_held),
            Stored(Design(), site, "looks").position(output),
            None if refresh is None else (refresh.frontier, refresh.batch and refresh.batch.upper),
            *(site.mains[output].rows, site.mains[output].is_touched, site.published[output]),
        )

    def _modelled(self, output: int) -> Any:
        found = self.state.outputs[output]
        if not found.is_registered:
            return None
        row, refresh = as_state(found.row), found.refresh
        return (
            *(row.phase, row.epoch, row.owner_key, row.is_lease_live, row.is_cancel_requested),
            *(row.published_upper, found.is_paused, is_waiting(found)),
            found.frontier,
            None if refresh is None else (refresh.pin, refresh.upper),
            *(found.main.rows, found.main.is_touched, found.published),
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_real_store_goes_the_same_way(site, kind, seed):
    drawn = random.Random(f"{kind} {seed}")
    replay = Replay(site, Bounds(EVERYTHING, 6, KINDS[kind]))
    replay.compare()
    for _ in range(NUM_STEPS):
        steps = list(successors(Design(), replay.bounds, replay.state))
        work = [each for each in steps if each[0] is not None and each[1] != "dies"]
        if not steps:
            break
        replay.take(*drawn.choice(work if work and drawn.random() < 0.85 else steps))

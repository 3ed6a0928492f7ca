"""An asset watcher's trigger on a real Delta table: it reads the log by itself, and has no Spark."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from airflow_mv_provider.exceptions import ArgumentError

pytestmark = pytest.mark.slow


class Memory:
    """Stands for Airflow's asset state store, which only a triggerer has."""

    def __init__(self) -> None:
        self.kept = {}

    async def aget(self, key, default=None):
        return self.kept.get(key, default)

    async def aset(self, key, value, **_):
        self.kept[key] = value


def trigger(memory=None, **arguments):
    from airflow_mv_provider.triggers.commits import DeltaCommitTrigger

    found = DeltaCommitTrigger("raw/orders", **arguments)
    found.poke_interval = 0.05  # real ones are told to be patient
    found.sent_within_s = 0.0
    found.asset_state_store = memory
    return found


async def events(of, until=None):
    """Run a trigger to its end; `until` is done beside it once it has looked for the first time."""
    found = []

    async def run():
        async for event in of.run():
            found.append(event.payload)

    running = asyncio.create_task(run())
    if until is not None:
        while "delta_version" not in of.asset_state_store.kept:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(until)
    await asyncio.wait_for(running, 60)
    return found


def test_only_commits_with_data_are_events_and_each_is_one(home, airflow):
    memory = Memory()

    def others_write():
        home.sql("ALTER TABLE {t} SET TBLPROPERTIES ('x' = '1')", path="raw/orders")
        home.sql("OPTIMIZE {t}", path="raw/orders")
        home.write("SELECT 9L AS id, 'v9' AS v", mode="append")

    [first] = asyncio.run(events(trigger(memory), others_write))
    seen = memory.kept["delta_version"]
    home.sql("DELETE FROM {t} WHERE id = 9", path="raw/orders")
    [second] = asyncio.run(events(trigger(memory)))  # Airflow starts it again after each event

    assert (first["operations"], second["operations"]) == (["WRITE"], ["DELETE"])
    assert (second["since"], second["changed"]) == (seen, [home.versions("raw/orders")])
    assert memory.kept["delta_version"] == home.versions("raw/orders")


def test_a_triggerer_that_ends_before_the_event_is_stored_sends_it_again(home, airflow):
    """Airflow takes it into memory, and stores it at its next turn."""
    memory = Memory()
    memory.kept["delta_version"] = home.versions("raw/orders")
    home.write("SELECT 9L AS id, 'v9' AS v", mode="append")

    async def ended_meanwhile():
        interrupted = trigger(memory)
        interrupted.sent_within_s = 60.0
        running = interrupted.run()
        event = await anext(running)
        rest = asyncio.ensure_future(anext(running))
        await asyncio.sleep(0)
        rest.cancel()
        return event.payload

    first = asyncio.run(ended_meanwhile())
    [second] = asyncio.run(events(trigger(memory)))

    assert first == second


def test_without_a_store_the_first_check_is_an_event_and_the_trigger_goes_on(home, airflow):
    async def first_two():
        found = []
        async for event in trigger(None).run():
            found.append(event.payload)
            if len(found) == 2:
                return found
            await asyncio.to_thread(home.write, "SELECT 9L AS id, 'v9' AS v", mode="append")

    before = home.versions("raw/orders")
    [first, second] = asyncio.run(asyncio.wait_for(first_two(), 60))

    assert (first["since"], first["version"]) == (None, before)
    assert (second["since"], second["version"]) == (before, before + 1)


def test_a_table_that_is_not_there_yet_is_waited_for(home, airflow):
    import shutil

    shutil.rmtree(home.root / "raw/orders")

    [event] = asyncio.run(events(trigger(Memory()), lambda: home.write("SELECT 1 AS id, 'v' AS v")))

    assert (event["version"], event["since"]) == (0, -1)


def test_it_is_rebuilt_from_what_it_serialises(airflow):
    from airflow_mv_provider.triggers.commits import DeltaCommitTrigger

    path, values = DeltaCommitTrigger("raw/orders", 30.0, "store", "mine").serialize()

    assert path == "airflow_mv_provider.triggers.commits.DeltaCommitTrigger"
    assert DeltaCommitTrigger(**values).serialize() == (path, values)


def test_a_hasty_trigger_is_refused_where_the_dag_is_written(airflow):
    from airflow_mv_provider.triggers.commits import delta_asset

    with pytest.raises(ArgumentError, match="below 10 s"):
        delta_asset("raw/orders", poke_interval=1)


def test_a_look_needs_no_spark(home, airflow):
    code = "import sys; from airflow_mv_provider.triggers.commits import new_commits_since;"
    place = str(home.root / "raw/orders")
    code += f"print(new_commits_since({place!r}, -1).has_data, [m for m in sys.modules if m in ('pyspark', 'py4j')])"

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "True []"

"""Which table lies where: registered once, changed in place, refused when it is another's."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from sqlalchemy import insert, select

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import TableConflictError, TableNotFoundError
from airflow_mv_provider.metadata.models import RefreshableTableRow, RefreshChunkRow, RefreshRow
from airflow_mv_provider.metadata.store import Store
from tests.conftest import a_state, a_table
from tests.metadata.rows import LEASE_MS, acquired, dump, registered, walk

OTHER_UUID = "6a1f6a7e-6d7a-4a0b-9f5e-0d6c1c5a3b11"


def test_new_table_has_its_definition_and_was_never_refreshed(store):
    definition = a_table(name="gold.orders", partition_by=["p"])

    table = store.registry.register(definition, warehouse="/wh", location="/wh/gold/orders")

    assert table == store.table("gold.orders")
    assert (table.name, table.warehouse, table.location) == ("gold.orders", "/wh", "/wh/gold/orders")
    assert table.definition == definition
    assert store.state(table.id) == a_state(table_id=table.id, epoch=0)


def test_registering_again_changes_the_definition_alone(store):
    before = registered(store)
    own = acquired(store, before)

    after = registered(store, partition_by=["p"])

    assert (after.id, after.uuid, after.location) == (before.id, before.uuid, before.location)
    assert after.definition.partition_by == ("p",)
    assert store.refresh(own.refresh_id).definition == before.definition, "a refresh under way keeps its definition"


def test_tables_are_listed_by_name(store):
    for name in ("b", "a", "c"):
        registered(store, name)

    assert [t.name for t in store.tables()] == ["a", "b", "c"]
    assert len({t.uuid for t in store.tables()}) == 3


def test_unknown_table_is_named_but_not_at_length(store):
    with pytest.raises(TableNotFoundError) as caught:
        store.table("x" * 300)

    assert caught.value.message == "x" * 60 + ": no refreshable table has this name."


def test_location_of_another_table_is_refused(store):
    registered(store)
    before = dump(store.engine)

    with pytest.raises(TableConflictError, match=r"gold: /wh/orders holds another refreshable table\."):
        store.registry.register(a_table(name="gold"), warehouse="/wh", location="/wh/orders")

    assert dump(store.engine) == before


@pytest.mark.parametrize(("first", "second"), [("/wh/gold", "/wh/gold/orders"), ("/wh/gold/orders", "/wh/gold")])
def test_main_inside_another_main_is_refused(store, first, second):
    store.registry.register(a_table(name="one"), warehouse="/wh", location=first)
    before = dump(store.engine)

    with pytest.raises(TableConflictError, match="the location of one overlap"):
        store.registry.register(a_table(name="two"), warehouse="/wh", location=second)

    assert dump(store.engine) == before


def test_names_that_begin_alike_are_no_conflict(store):
    store.registry.register(a_table(name="a_b"), warehouse="/wh", location="/wh/a_b")

    store.registry.register(a_table(name="axb"), warehouse="/wh", location="/wh/axb/c")

    assert [t.name for t in store.tables()] == ["a_b", "axb"]


def test_table_does_not_move(store):
    registered(store)
    before = dump(store.engine)

    with pytest.raises(TableConflictError, match=r"the table is registered at /wh/orders, not /elsewhere/orders\."):
        store.registry.register(a_table(chunk_rows=1), warehouse="/elsewhere", location="/elsewhere/orders")

    assert dump(store.engine) == before


def place(table, where: str):
    return replace(table, warehouse=where, location=f"{where}/{table.name}")


def test_table_that_a_person_moves_has_its_new_place_and_a_later_epoch(store):
    table = registered(store)
    seen = store.state(table.id)

    assert store.registry.relocate(seen, place(table, "/elsewhere"))

    assert store.table("orders") == place(table, "/elsewhere")
    assert store.state(table.id).epoch == seen.epoch + 1
    assert not store.registry.relocate(seen, table)
    assert store.table("orders") == place(table, "/elsewhere")


def test_table_that_is_being_dropped_is_not_moved(store):
    table = registered(store)
    seen = store.state(table.id)
    assert store.registry.begin_drop(seen)

    assert not store.registry.relocate(seen, place(table, "/elsewhere"))

    assert store.table("orders") == table


@pytest.mark.parametrize("other", ["/elsewhere/orders", "/elsewhere", "/elsewhere/orders/more"])
def test_table_is_not_moved_to_into_or_around_another_one(store, other):
    table = registered(store)
    store.registry.register(a_table(name="other"), warehouse="/", location=other)
    before = dump(store.engine)

    with pytest.raises(TableConflictError):
        store.registry.relocate(store.state(table.id), place(table, "/elsewhere"))

    assert dump(store.engine) == before


@pytest.mark.parametrize("phase", [Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP])
def test_table_at_work_is_moved_from_a_dead_owner_only_and_with_the_paths_of_its_refresh(store, clock, phase):
    table = registered(store)
    own = acquired(store, table)
    walk(store, own, phase)
    there = place(table, "/elsewhere")
    assert not store.registry.relocate(store.state(table.id), there), "its owner is alive"
    assert store.table("orders") == table
    clock.pass_ms(LEASE_MS + 1)
    before = paths_of(store, own)

    assert store.registry.relocate(store.state(table.id), there)

    assert store.table("orders") == there
    assert paths_of(store, own) == [path.replace("/wh/", "/elsewhere/", 1) for path in before]
    assert (store.state(table.id).phase, store.state(table.id).epoch) == (phase, own.epoch + 1)


def paths_of(store, own):
    with store.engine.connect() as db:
        seal = db.scalar(select(RefreshRow.seal).where(RefreshRow.id == own.refresh_id)) or {}
        chunks = db.scalars(select(RefreshChunkRow.path).where(RefreshChunkRow.refresh_id == own.refresh_id))
        found = [seal.get("rows"), seal.get("changes"), *chunks]
    return [path for path in found if path]


def test_uuid_that_lives_in_main_is_adopted(store):
    table = registered(store)

    store.registry.adopt_uuid(table, OTHER_UUID)

    assert store.table("orders").uuid == OTHER_UUID


def test_uuid_of_another_registered_table_is_not_adopted(store):
    one, two = registered(store, "one"), registered(store, "two")
    before = dump(store.engine)

    with pytest.raises(TableConflictError, match="of another registered table") as caught:
        store.registry.adopt_uuid(one, two.uuid)

    assert "is a copy" in caught.value.advice
    assert dump(store.engine) == before


def test_outdated_belief_about_the_uuid_changes_nothing(store):
    table = registered(store)
    store.registry.adopt_uuid(table, OTHER_UUID)

    store.registry.adopt_uuid(table, OTHER_UUID.replace("6", "7"))

    assert store.table("orders").uuid == OTHER_UUID


def test_many_who_register_one_table_at_once_agree(store):
    barrier, answers = threading.Barrier(4), []

    def register() -> None:
        mine = Store(store.engine)
        barrier.wait()
        try:
            answers.append(registered(mine).uuid)
        except TableConflictError as error:
            answers.append(error)

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [store.table("orders").uuid] * 4


@pytest.mark.parametrize("address", [pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_table_that_somebody_registers_in_the_same_moment_is_no_conflict(store, monkeypatch):
    """PostgreSQL lets both look before either writes; SQLite lets one begin."""
    looked = threading.Event()
    original = Store._now

    def now(self: Store):  # asked for after the look and before the insert
        if not looked.is_set():
            looked.set()
            rival.start()
            rival.join()
        return original(self)

    rival = threading.Thread(target=lambda: registered(Store(store.engine)))
    monkeypatch.setattr(Store, "_now", now)

    table = registered(store)

    assert store.tables() == (table,)


def test_long_names_and_paths_fit(store):
    name = ".".join(["x" * 128] * 3)

    table = store.registry.register(a_table(name=name), warehouse="/" + "w" * 5000, location="/" + "l" * 2000)

    assert store.table(name) == table


def test_database_itself_refuses_two_tables_at_one_place(store):
    registered(store)
    with store.engine.begin() as db:
        row = dict(db.execute(select(RefreshableTableRow.__table__)).one()._mapping)

    with pytest.raises(Exception, match=r"(?i)unique"), store.engine.begin() as db:
        db.execute(insert(RefreshableTableRow).values(row | {"id": 99, "name": "other", "uuid": OTHER_UUID}))

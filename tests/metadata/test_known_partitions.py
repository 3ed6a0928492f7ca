"""What the history says of each partition, in one query, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import event

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.exceptions import TableNotFoundError
from tests.metadata.rows import GONE, P1, P2, P3, a_caller, a_refresh, acquired, registered, walk

pytestmark = pytest.mark.slow


def test_partitions_of_a_table_are_those_of_its_published_refreshes(store, clock):
    table = registered(store, partition_by=["p"], key=["id", "p"], frozen_before="0")
    walk(store, acquired(store, table), Phase.NORMAL)
    clock.pass_ms(10)
    store.record(a_refresh(table, id="f" * 32, scope=Scope((P2,))), a_caller(), Outcome.FAILED)
    store.record(a_refresh(table, id="d" * 32, scope=Scope((P3,))), a_caller(), Outcome.DIFFERENCES)
    walk(store, acquired(store, registered(store, "others")), Phase.NORMAL)

    found = store.known_partitions("orders")

    assert (found.table, found.partition_by, found.frozen_before, found.kind) == ("orders", ("p",), "0", None)
    assert (found.phase, found.is_paused, found.is_dropping, found.now_ms > 0) == (Phase.NORMAL, False, False, True)
    assert [(each.outcome, each.scope.partitions) for each in found.history] == [
        *((Outcome.FAILED, (P2,)), (Outcome.PUBLISHED, ())),
    ]
    [published] = found.published
    assert {each.partition: each.rows_inserted for each in published.partitions} == {P1: 2, P2: 0, P3: 30, GONE: 0}
    assert published.at == found.history[1].at


def test_table_without_a_refresh_has_no_partition_and_one_that_is_not_there_is_an_error(store):
    registered(store)

    found = store.known_partitions("orders")

    assert (found.partition_by, found.frozen_before, found.history, found.published) == ((), None, (), ())
    with pytest.raises(TableNotFoundError):
        store.known_partitions("not_there")


def test_few_reports_are_read_of_many_and_one_query_is_made(store):
    table = registered(store)
    for _ in range(4):
        walk(store, acquired(store, table), Phase.NORMAL)
    statements = []
    event.listen(store.engine, "before_cursor_execute", lambda *found: statements.append(found[2]))

    found = store.known_partitions("orders", num_reports=2)

    assert [each.refresh_id for each in found.published] == [r.refresh_id for r in store.history(table.id)[:2]]
    assert len([each for each in statements if "refresh_state" in each]) == 1

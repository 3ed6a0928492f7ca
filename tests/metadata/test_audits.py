"""The newest audit of a table is kept, and nothing that a refresh reads changes by it."""

from __future__ import annotations

from dataclasses import replace

from airflow_mv_provider.core.approval.audit import Against, Audit, Compared, Finding, Write
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import MAX_PARTITIONS_IN_HISTORY
from airflow_mv_provider.core.progress.recorded import PartitionCounts
from airflow_mv_provider.metadata.rows import most_changed
from tests.metadata.rows import dump, registered

SIDE = Compared(Against.SOURCE, Finding.DRIFT, "the source", "every row was compared", rows_extra=2)
AUDIT = Audit(
    "a" * 32, "orders", "2023-11-14T22:13:20.000+00:00", "ann", 3, "partitions x", (Write(3, "UPDATE"),), (SIDE,)
)
AT_MS = 1_700_000_000_000


def test_the_newest_is_kept(store, engine):
    table = registered(store)
    before = dump(engine)
    assert store.last_audit(table.id) is None

    store.audits.keep(table.id, AUDIT, AT_MS)
    store.audits.keep(table.id, replace(AUDIT, id="b" * 32), AT_MS)
    store.audits.repaired(table.id, "a" * 32, "r1")

    assert store.last_audit(table.id) == replace(AUDIT, id="b" * 32, table=table.name)
    store.audits.repaired(table.id, "b" * 32, "r1")
    assert store.last_audit(table.id).repaired_by == "r1"
    after = dump(engine)
    assert {name for name in after if after[name] != before[name]} == {"table_audit"}


def test_it_goes_with_its_table(store):
    table = registered(store)
    store.audits.keep(table.id, AUDIT, AT_MS)

    store.registry.begin_drop(store.state(table.id))

    assert store.registry.forget(table.id)
    assert store.tables() == ()


def test_partitions_that_differ_are_kept_before_all_others():
    same = [PartitionCounts(f'["{i:04}"]', Counts(1, 1)) for i in range(MAX_PARTITIONS_IN_HISTORY)]
    differs = PartitionCounts('["z"]', Counts(1, 1, updated=1))

    kept = most_changed([*same, differs])

    assert kept == [*same[:-1], differs]

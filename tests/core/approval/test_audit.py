"""What an audit decides before it reads a row, and how it says what it has found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.approval.audit import (
    Against,
    Audit,
    Compared,
    DriftedRow,
    Finding,
    PartitionDrift,
    Write,
    audited_version,
    check_repairable,
    compared,
    drift_error,
    drift_text,
    part_at_pin,
    published_obstacle,
    published_text,
    repair_request,
    sides_of,
    source_obstacle,
    stored,
    writes_since,
)
from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.fence import Commit, CommitNote
from airflow_mv_provider.core.outcome import PartitionReport, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.scope.scope import EVERYTHING, Scope
from airflow_mv_provider.core.state import RefreshRecord, TableRecord
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.exceptions import ArgumentError, RefreshPausedError
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.conftest import a_state, a_table

STATE = a_state(
    epoch=1, published_upper=1, published_version=2, published_commit="r1:7", published_hash="h", is_main_trusted=True
)
ONE, TWO = Scope(partitions=('["1"]',)), Scope(partitions=('["1"]', '["2"]'))


def ours(version, refresh_id="r1", step="publish", txn=7):
    return Commit(version, "MERGE", None, CommitNote("u", refresh_id, 1, step, txn))


def theirs(version, operation="UPDATE"):
    return Commit(version, operation, None, None)


LOG = (theirs(3), ours(2), ours(1, step="fence", txn=6), theirs(0, "CREATE TABLE"))


def a_side(finding=Finding.DRIFT, **more):
    return Compared(Against.PUBLISHED, finding, "the table at version 2", "every row was compared", **more)


def an_audit(*sides):
    return Audit("a" * 32, "orders", "2026-01-01T00:00:00+00:00", "ann", 3, None, (Write(3, "UPDATE"),), sides)


def a_publish(**more):
    record = RefreshRecord("r1", 1, a_table(), (), None, DeltaFrontier("t", 1), Choice("corrections", ""))
    return replace(record, **more)


def test_the_newest_version_is_looked_at():
    assert audited_version(STATE, LOG) == 3


def test_what_a_refresh_under_way_has_committed_is_left_out():
    merging = replace(STATE, phase=Phase.MERGING, refresh_id="r2")
    log = (ours(6, "r2"), theirs(5), ours(4, "r2", "fence"), *LOG)

    assert audited_version(merging, log) == 5
    assert audited_version(replace(STATE, phase=Phase.MERGING, refresh_id="r2"), LOG) == 3


def test_writes_are_those_since_the_publish_that_may_have_changed_rows():
    log = (theirs(6), theirs(5, "OPTIMIZE"), ours(4, "r2", "fence"), *LOG)

    assert writes_since(STATE, log, 6) == (Write(3, "UPDATE"), Write(6, "UPDATE"))
    assert writes_since(STATE, log, 5) == (Write(3, "UPDATE"),)


def test_a_commit_is_named_without_what_could_write_a_line_of_its_own():
    hostile = theirs(6, "UPDATE\nforged\x1b[31m" + "x" * 100)

    found = writes_since(STATE, (hostile, ours(5, "r2"), *LOG), 6)

    assert all(write.operation.isprintable() and len(write.operation) < 100 for write in found)
    assert found[1].operation == "MERGE of refresh r2, which did not end well"


def test_a_log_without_the_last_publish_is_no_proof_of_it():
    assert published_obstacle(STATE, LOG) is None
    assert published_obstacle(replace(STATE, published_commit="r0:7"), LOG)
    assert published_obstacle(replace(STATE, published_version=9), LOG), "a log that is shorter"
    assert published_obstacle(STATE, (theirs(3), theirs(2))), "another table"


def test_the_source_cannot_always_be_read_as_it_was():
    assert source_obstacle(a_publish(), has_pin=True) is None
    assert source_obstacle(None, has_pin=True)
    assert source_obstacle(a_publish(), has_pin=False)
    assert "rollback" in (source_obstacle(a_publish(is_of_source=False), has_pin=True) or "")


@pytest.mark.parametrize(
    ("last", "asked", "has_covered", "part"),
    [
        (EVERYTHING, EVERYTHING, False, EVERYTHING),
        (EVERYTHING, ONE, False, ONE),
        (TWO, EVERYTHING, True, TWO),
        (TWO, ONE, True, ONE),
        (ONE, TWO, True, None),
        (ONE, Scope(start="1"), True, None),
        (Scope(start="1"), Scope(start="1"), True, Scope(start="1")),
        (Scope(without=(ONE,)), ONE, False, ONE),
        (Scope(without=(ONE,)), EVERYTHING, True, None),
    ],
)
def test_the_part_that_has_the_state_of_the_last_publish(last, asked, has_covered, part):
    assert part_at_pin(last, asked, has_covered=has_covered) == part


def test_what_a_refresh_would_insert_is_missing_and_what_it_would_delete_is_extra():
    parts = (PartitionReport('["1"]', 1, 2, 3, 4), PartitionReport('["2"]', 0, 0, 0, 9))
    report = RefreshReport(
        "orders", "r9", rows_inserted=1, rows_updated=2, rows_deleted=3, rows_unchanged=13, partitions=parts
    )
    changes = (
        RowChange("insert", {"id": 1}, None, {"id": 1}),
        RowChange("delete", {"id": 2}, {"id": 2}, None),
        RowChange("update", {"id": 3}, {"id": 3, "v": 1}, {"id": 3, "v": 2}),
    )

    found = compared(Against.SOURCE, "the source", report, Sample(0, changes), ONE)

    assert (found.finding, found.refresh_id, found.scope) == (Finding.DRIFT, "r9", 'partitions ["1"]')
    assert (found.counts, found.rows_same) == ({"missing": 1, "extra": 3, "different": 2}, 13)
    assert found.partitions == (PartitionDrift('["1"]', 1, 3, 2, 4),)
    assert found.rows == (
        DriftedRow("missing", {"id": 1}, None, {"id": 1}),
        DriftedRow("extra", {"id": 2}, {"id": 2}, None),
        DriftedRow("different", {"id": 3}, {"id": 3, "v": 1}, {"id": 3, "v": 2}),
    )


@pytest.mark.parametrize(("extra", "finding"), [(2, Finding.SAME), (3, Finding.DRIFT)])
def test_rows_that_were_kept_by_a_decision_are_no_drift(extra, finding):
    report = RefreshReport("orders", "r9", rows_deleted=extra)

    found = compared(Against.SOURCE, "the source", report, None, EVERYTHING, num_kept=2)

    assert found.finding is finding
    assert "kept by a decision" in found.reason


def test_an_audit_is_kept_without_its_rows():
    side = a_side(
        rows_missing=1, partitions=(PartitionDrift('["1"]', 1, 0, 0, 0),), rows=(DriftedRow("missing", {}, None, {}),)
    )

    kept = stored(an_audit(side))

    assert sides_of(kept["sides"]) == (replace(side, partitions=(), rows=()),)
    assert list(kept["writes"]) == [{"version": 3, "operation": "UPDATE"}]


def test_a_drift_is_said_in_one_sentence():
    columns = replace(a_side(), against=Against.SOURCE, reason="the columns differ: w")
    found = an_audit(a_side(rows_missing=1200, rows_different=3), columns)

    assert (found.is_drift, found.has_compared, found.to_json()["drift"]) == (True, True, True)
    assert drift_text(found) == (
        "against what was published: rows 1,200 missing, 3 different; against the source: the columns differ: w"
    )
    assert not an_audit(a_side(Finding.SAME)).is_drift
    assert not an_audit(a_side(Finding.UNKNOWN)).has_compared


def test_a_drift_names_where_to_look():
    of_source = replace(a_side(rows_missing=1), against=Against.SOURCE)
    by_others = drift_error(an_audit(a_side(rows_missing=1), of_source))
    of_what_was_read = drift_error(an_audit(a_side(Finding.SAME), of_source))
    unwritten = drift_error(replace(an_audit(of_source), writes=()))

    assert "in its log: version 3." in str(by_others)
    for error in (of_what_was_read, unwritten):
        assert "No commit has changed its rows since it was published" in str(error)
    assert all("--repair" in str(error) for error in (by_others, of_what_was_read))


def test_a_repair_compares_everything_that_was_asked_about():
    request = repair_request(an_audit(a_side(rows_extra=1)), Request(scope=ONE, note="x" * 999))

    assert (request.force, request.scope, request.read_only) == (True, ONE, False)
    assert (len(request.note or ""), request.overrides) == (1000, ())


def test_what_was_published_by_a_refresh_of_a_part():
    assert published_text(2, None) == published_text(2, EVERYTHING) == "the table at version 2, as it was published"
    assert published_text(2, ONE).endswith('with the rest as the refresh of partitions ["1"] found it')


def test_a_repair_that_could_not_begin_is_refused_at_once():
    table = TableRecord(1, "orders", "u", "/w", "/w/orders", a_table())
    check_repairable(table, STATE, ONE)
    with pytest.raises(RefreshPausedError):
        check_repairable(table, replace(STATE, paused_since_ms=1), EVERYTHING)
    topic = {"type": "kafka", "topic": "t", "conn_id": "c", "schema": "id BIGINT", "envelope": "upsert"}
    log = replace(table, definition=a_table(source=topic))
    check_repairable(log, STATE, EVERYTHING)
    with pytest.raises(ArgumentError):
        check_repairable(log, STATE, ONE)
    with_log = a_publish(definition=log.definition)
    assert "complete" in (source_obstacle(with_log, has_pin=True) or "")

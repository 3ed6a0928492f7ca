"""How a history is brought to main's version, by the two logs alone; and which definitions of one are refused."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from airflow_mv_provider.core.definition.history import History
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.core.definition.table import RefreshableTable, parse_table
from airflow_mv_provider.core.fence import Commit, CommitNote, parse_note
from airflow_mv_provider.core.progress.history import Way, needs_fence, planned, valid_ms
from airflow_mv_provider.exceptions import DefinitionError
from tests.conftest import a_table

UUID = "0" * 8 + "-0000-0000-0000-" + "0" * 12
BASE = CommitNote(UUID, "r0", 1, "publish", 1 << 20 | 1)


def publish(version: int, refresh: str = "r1", epoch: int = 2) -> Commit:
    note = replace(BASE, refresh_id=refresh, epoch=epoch, txn_version=(epoch << 20) + version)
    return Commit(version, "MERGE", version - 1, note, at_ms=1000 * version)


def foreign(version: int, operation: str = "UPDATE") -> Commit:
    return Commit(version, operation, version - 1, None)


def written(version: int, reached: int, mark: str, epoch: int = 1) -> Commit:
    note = replace(BASE, step="history", epoch=epoch, reached=reached, mark=mark, valid_ms=5000)
    return Commit(version, "MERGE", version - 1, note)


CREATED = foreign(0, "CREATE TABLE")
FIRST = publish(1, "r0", 1)
AT_FIRST = written(1, 1, FIRST.mark or "")
MAIN = [publish(2), FIRST, foreign(0, "CREATE TABLE")]


def plan(history: list[Commit], main: list[Commit] = MAIN, **more: bool) -> Way:
    options = {"definition_hash": "", "has_corrections": True, "is_forced": False} | more
    return planned(
        history, main, main[0].version, [c for c in main if c.note and c.note.refresh_id == "r1"], **options
    ).way


@pytest.mark.parametrize(
    ("history", "main", "way"),
    [
        ([CREATED], MAIN, Way.BEGIN),
        ([foreign(1, "OPTIMIZE"), CREATED], MAIN, Way.BEGIN),
        ([foreign(1, "WRITE"), CREATED], MAIN, Way.COMPARE),  # somebody has filled it
        ([AT_FIRST, CREATED], MAIN, Way.CHANGES),
        ([foreign(2, "OPTIMIZE"), AT_FIRST, CREATED], MAIN, Way.CHANGES),
        ([foreign(2), AT_FIRST, CREATED], MAIN, Way.COMPARE),
        ([AT_FIRST, CREATED], MAIN[1:], Way.NOTHING),
        ([AT_FIRST, CREATED], [foreign(3, "OPTIMIZE"), *MAIN[1:]], Way.NOTHING),
        ([AT_FIRST, CREATED], [publish(3), foreign(2), *MAIN[1:]], Way.COMPARE),
        ([AT_FIRST, CREATED], [publish(3), publish(2, "another"), *MAIN[1:]], Way.COMPARE),
        ([written(1, 1, "another mark"), CREATED], MAIN, Way.COMPARE),  # main was restored, or made again
        ([written(1, 7, "later"), CREATED], MAIN, Way.COMPARE),
        ([AT_FIRST, CREATED], [publish(9), publish(8)], Way.COMPARE),  # main's log is cleaned up
        ([foreign(41, "VACUUM END"), foreign(40, "VACUUM START")], MAIN, Way.COMPARE),  # and so is its own
        ([foreign(9, "OPTIMIZE")], MAIN, Way.COMPARE),
    ],
)
def test_what_a_history_lacks(history, main, way):
    assert plan(history, main) is way


def test_without_corrections_or_by_force_it_is_compared():
    assert plan([AT_FIRST, CREATED], has_corrections=False) is Way.COMPARE
    assert plan([AT_FIRST, CREATED], MAIN[1:], is_forced=True) is Way.COMPARE
    assert plan([AT_FIRST, CREATED], definition_hash="of another definition") is Way.COMPARE


def test_only_where_another_process_may_write_it_needs_a_fence():
    history = [AT_FIRST, CREATED]

    assert not needs_fence(history, MAIN, "r1", 2)
    assert not needs_fence(history, MAIN[1:], "r1", 2)
    assert needs_fence(history, MAIN, "r1", 3)  # the publish is by an earlier epoch
    assert needs_fence(history, [publish(3), foreign(2), *MAIN[1:]], "r1", 2)
    assert needs_fence([CREATED], MAIN, "r1", 3)
    fence = Commit(2, "WRITE", 1, replace(BASE, step="fence", epoch=3))
    assert not needs_fence([fence, *history], MAIN, "r1", 3)


def test_time_never_goes_back():
    assert valid_ms([CREATED], 10) == 10
    assert valid_ms([AT_FIRST, CREATED], 9000) == 9000
    assert valid_ms([AT_FIRST, CREATED], 4000) == 5001


def test_a_commit_says_what_it_has_reached():
    note = BASE.of_history(7, "r1:8", 123)

    assert parse_note(note.to_json(), UUID) == note
    assert "reached" not in BASE.to_json()
    for wrong in ('"reached": -1', '"mark": 7', '"valid_ms": "1"'):
        name = wrong.partition(":")[0]
        text = note.to_json()
        old = next(part for part in text.strip("{}").split(", ") if part.startswith(name))
        assert parse_note(text.replace(old, wrong), UUID) is None


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ({"columns": ["a"], "exclude": ["b"]}, "give one"),
        ({"valid_from": "x", "valid_to": "X"}, "the same name"),
        ({"valid_to_current": "soon"}, "not a time"),
        ({"valid_to_current": "9999-W01-1"}, "not a time"),
        ({"valid_to_current": "2020-01-01"}, "not a time"),
        ({"valid_to_current": "9999-02-31"}, "day"),
        ({"valid_to_current": "9999-12-31T00:00:00+02:00"}, "not a time"),
        ({"deletes": "ignore"}, "deletes"),
        ({"keep": "2 years"}, "duration"),
        ({"valid_from": "_mv_from"}, "reserved"),
        ("yes", "history"),
    ],
)
def test_definitions_that_are_refused(history, problem):
    document = {"name": "a", "source": {"type": "delta", "path": "x"}, "key": ["id"], "history": history}

    with pytest.raises(DefinitionError, match=problem):
        parse_table(document)


@pytest.mark.parametrize("given", [True, False, None, {}, {"deletes": "mark", "keep": "730d"}])
def test_true_is_a_history_and_false_is_none(given):
    document = {"name": "a", "source": {"type": "delta", "path": "x"}, "key": ["id"], "history": given}
    jsonschema.validate(document, RefreshableTable.model_json_schema())

    table = parse_table(document)

    assert (table.history is not None) == (given not in (False, None))
    assert parse_table(table.to_json()) == table


def test_one_that_is_added_makes_a_refresh_compare_everything_but_no_log_be_read_again():
    plain, kept = a_table(), a_table(history=True)

    assert plain.content_hash != kept.content_hash
    assert kept.content_hash == a_table(history={"exclude": ["v"]}).content_hash
    assert kept.content_hash != a_table(history={"deletes": "mark"}).content_hash
    assert not kept.keeps_content(plain.content_hash)
    source = {"type": "kafka", "topic": "t", "conn_id": "k", "envelope": "upsert", "format": "json", "schema": "id INT"}
    log = {"name": "a", "source": source, "key": ["id"]}
    assert parse_table(log | {"history": True}).keeps_content(parse_table(log).content_hash)
    assert parse_table(log).keeps_content(parse_table(log | {"history": {"deletes": "keep"}}).content_hash)


def test_problems_with_the_columns_of_a_table():
    columns = (Column("id", "long"), Column("at", "timestamp"), Column("Operation", "string"))

    assert History(operation="op").problem(columns, ("id",)) is None
    assert "'Operation'" in (History().problem(columns, ("id",)) or "")
    assert "'b'" in (History(operation="op", exclude=("b",)).problem(columns, ("id",)) or "")
    assert "no time" in (History(operation="op", time="id").problem(columns, ("id",)) or "")
    assert "key" in (History(operation="op", exclude=("id",)).problem(columns, ("id",)) or "")

"""How a history is brought to main's version, and whether an earlier process may still write it: by two logs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.fence import Commit, CommitNote, fence_version, parse_note
from airflow_mv_provider.core.progress.history import (
    Way,
    has_begun,
    needs_fence,
    planned,
    shows_last,
    valid_ms,
    written_by,
)

UUID = "0" * 8 + "-0000-0000-0000-" + "0" * 12
BASE = CommitNote(UUID, "r0", 1, "publish", 1 << 20 | 1)


def publish(version: int, refresh: str = "r1", epoch: int = 2) -> Commit:
    note = replace(BASE, refresh_id=refresh, epoch=epoch, txn_version=(epoch << 20) + version)
    return Commit(version, "MERGE", version - 1, note, at_ms=1000 * version)


def foreign(version: int, operation: str = "UPDATE") -> Commit:
    return Commit(version, operation, version - 1, None)


def fence(version: int, epoch: int) -> Commit:
    note = replace(BASE, refresh_id=f"r{epoch}", step="fence", epoch=epoch, txn_version=fence_version(epoch))
    return Commit(version, "WRITE", version - 1, note)


def written(version: int, reached: int, mark: str | None, base: int | None = None) -> Commit:
    note = replace(BASE, step="history").of_history(reached, mark, 5000, base)
    return Commit(version, "MERGE", version - 1, note)


CREATED = foreign(0, "CREATE TABLE")
FIRST = publish(1, "r0", 1)
AT_FIRST = written(1, 1, FIRST.mark)
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
    assert not needs_fence([fence(2, 3), *history], MAIN, "r1", 3)


def test_time_never_goes_back():
    assert valid_ms([CREATED], 10) == 10
    assert valid_ms([AT_FIRST, CREATED], 9000) == 9000
    assert valid_ms([AT_FIRST, CREATED], 4000) == 5001


def test_a_commit_says_what_it_has_reached():
    note = replace(BASE.of_history(7, "r1:8", 123), why="it was compared")

    assert parse_note(note.to_json(), UUID) == note
    assert "reached" not in BASE.to_json()
    for wrong in ('"reached": -1', '"mark": 7', '"valid_ms": "1"', '"why": "\\u0007"'):
        name = wrong.partition(":")[0]
        text = note.to_json()
        old = next(part for part in text.strip("{}").split(", ") if part.startswith(name))
        assert parse_note(text.replace(old, wrong), UUID) is None


LOG = [FIRST, CREATED]
KEPT = [AT_FIRST, CREATED]


@pytest.mark.parametrize(
    ("main", "is_needed"),
    [
        ([], False),
        ([publish(2, "r2", 2)], False),
        ([fence(2, 2)], False),
        ([foreign(2, "OPTIMIZE")], False),
        ([foreign(2)], True),
        ([publish(2, "r2", 2), fence(3, 3)], True),
        ([fence(2, 2), publish(3, "r3", 3)], True),  # it may compare everything, as a person wants
    ],
)
def test_history_is_fenced_where_another_refresh_may_have_something_to_write(main, is_needed):
    epoch = max((c.note.epoch for c in main if c.note), default=2)

    assert needs_fence(KEPT, [*main[::-1], *LOG], f"r{epoch}", epoch) is is_needed


def test_history_that_another_program_has_changed_is_fenced():
    changed = [foreign(2, "DELETE"), *KEPT]

    assert needs_fence(changed, LOG, "r2", 2)
    assert not needs_fence([fence(3, 2), *changed], LOG, "r2", 2)
    assert not needs_fence([foreign(2, "OPTIMIZE"), *KEPT], LOG, "r2", 2)


@pytest.mark.parametrize(("base", "way"), [(0, Way.COMPARE), (1, Way.NOTHING)])
def test_what_others_change_while_a_write_is_decided_is_compared(base, way):
    assert plan([written(2, 1, FIRST.mark, base=base), foreign(1, "DELETE"), CREATED], LOG) is way


def test_log_is_read_back_to_what_the_newest_write_was_decided_from():
    log = [written(9, 1, FIRST.mark, base=6), foreign(8), foreign(7)]

    assert not shows_last(log)
    assert not shows_last(log[1:])
    assert shows_last([*log, foreign(6)])


def test_what_versions_are_written_by_is_the_definition_and_the_columns():
    assert written_by("h1", ["id", "V"]) == written_by("h1", ["v", "id"])
    assert len({written_by("h1", ["id"]), written_by("h2", ["id"]), written_by("h1", ["id", "v"])}) == 3


def test_a_history_has_begun_unless_its_whole_log_shows_that_nothing_was_written():
    assert not has_begun([CREATED])
    assert has_begun([AT_FIRST, CREATED])
    assert has_begun([foreign(1, "WRITE"), CREATED])
    assert has_begun([fence(7, 3)]), "its log was cleaned up"

"""How a history gets to main's version, and whether an earlier process may still write it: decided from two logs."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.fence import Commit, CommitNote, fence_version
from airflow_mv_provider.core.progress.history import Way, needs_fence, planned, shows_last

UUID = "6a1f6a7e-6d7a-4a0b-9f5e-0d6c1c5a3b11"


def commit(version, step=None, epoch=1, operation="MERGE", reached=None, base=None):
    """Return a commit of refresh `r<epoch>`; another program's without a step."""
    if step is None:
        return Commit(version, operation, version - 1, None)
    txn_version = fence_version(epoch) + (step != "fence")
    note = CommitNote(UUID, f"r{epoch}", epoch, step, txn_version)
    if step == "history":
        note = note.of_history(reached, "r1:1048577", None, base)
    return Commit(version, operation, version - 1, note)


CREATED = commit(0, operation="CREATE TABLE")
MAIN = (commit(2, "publish"), commit(1, "fence"), CREATED)
HISTORY = (commit(1, "history", reached=2, base=0), CREATED)


def plan(history, main, ours=()):
    facts = {"definition_hash": "", "has_corrections": True, "is_forced": False}
    return planned(history, main, main[0].version, ours, **facts)


@pytest.mark.parametrize(
    ("main", "is_needed"),
    [
        ([], False),
        ([commit(3, "publish", 2)], False),
        ([commit(3, "fence", 2)], False),
        ([commit(3, operation="OPTIMIZE")], False),
        ([commit(3)], True),
        ([commit(3, "publish", 2), commit(4, "fence", 3)], True),
        ([commit(3, "fence", 2), commit(4, "publish", 3)], True),  # it may compare everything, as a person wants
    ],
)
def test_history_is_fenced_where_another_refresh_may_have_something_to_write(main, is_needed):
    epoch = max((c.note.epoch for c in main if c.note), default=2)

    assert needs_fence(HISTORY, [*main[::-1], *MAIN], f"r{epoch}", epoch) is is_needed


def test_history_that_another_program_has_changed_is_fenced():
    changed = (commit(2, operation="DELETE"), *HISTORY)

    assert needs_fence(changed, MAIN, "r2", 2)
    assert not needs_fence((commit(3, "fence", 2), *changed), MAIN, "r2", 2)
    assert not needs_fence((commit(2, operation="OPTIMIZE"), *HISTORY), MAIN, "r2", 2)


def test_what_others_change_while_a_write_is_decided_is_compared():
    between = (commit(2, "history", reached=2, base=0), commit(1, operation="DELETE"), CREATED)

    assert plan(between, MAIN).way is Way.COMPARE
    assert plan((commit(2, "history", reached=2, base=1), *between[1:]), MAIN).way is Way.NOTHING


def test_log_is_read_back_to_what_the_newest_write_was_decided_from():
    log = (commit(9, "history", reached=2, base=6), commit(8), commit(7))

    assert not shows_last(log)
    assert not shows_last(log[1:])
    assert shows_last((*log, commit(6)))


def test_corrections_are_the_changes_where_nobody_else_has_changed_main():
    ours = commit(3, "publish", 2)

    assert plan(HISTORY, MAIN).way is Way.NOTHING
    assert plan(HISTORY, (ours, *MAIN), [ours]).way is Way.CHANGES
    assert plan(HISTORY, (commit(4, "publish", 2), commit(3), *MAIN), [commit(4, "publish", 2)]).way is Way.COMPARE
    assert plan((CREATED,), MAIN).way is Way.BEGIN

"""Which commits of a Delta table changed its data."""

from __future__ import annotations

import json

import pytest

from airflow_mv_provider.core.commits import NewCommits, commit_name, commit_of, new_commits


def commit(*actions: dict, operation: str = "WRITE") -> str:
    return "\n".join(json.dumps(action) for action in ({"commitInfo": {"operation": operation}}, *actions))


ADD, MOVE = {"add": {"path": "a", "dataChange": True}}, {"add": {"path": "a", "dataChange": False}}
LOG = {
    0: commit({"metaData": {}}, operation="CREATE TABLE"),
    1: commit(ADD),
    2: commit(MOVE, {"remove": {"path": "b", "dataChange": False}}, operation="OPTIMIZE"),
    3: commit({"txn": {}}, operation="WRITE"),
    4: commit({"remove": {"path": "a", "dataChange": True}}, operation="DELETE"),
}


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (None, NewCommits(4)),
        (4, NewCommits(4)),
        (9, NewCommits(4, is_gap=True)),  # the table was made anew, with a shorter log
        (3, NewCommits(4, (4,), ("DELETE",))),
        (1, NewCommits(4, (4,), ("DELETE",))),
        (0, NewCommits(4, (1, 4), ("WRITE", "DELETE"))),
        (-1, NewCommits(4, (1, 4), ("WRITE", "DELETE"))),
    ],
)
def test_only_commits_that_change_data_since_the_last_look_are_news(since, expected):
    assert new_commits(LOG, since, LOG.__getitem__) == expected


def test_a_log_that_was_cleaned_may_have_lost_a_change():
    found = new_commits([2, 3], 0, LOG.__getitem__)

    assert found == NewCommits(3, (), (), is_gap=True)
    assert found.has_data


def test_no_log_is_no_table():
    assert new_commits([], 3, LOG.__getitem__) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"add": 1}', '{"add": {"path": "a"}}'])
def test_what_is_not_understood_is_taken_for_a_change(text):
    assert new_commits([1], 0, lambda _: text).has_data


@pytest.mark.parametrize(
    "name", ["0.json", "00000000000000000007.crc", "00000000000000000007.checkpoint.parquet", "_last_checkpoint"]
)
def test_other_files_of_a_log_are_no_commits(name):
    assert commit_of(name) is None
    assert commit_of(commit_name(7)) == 7

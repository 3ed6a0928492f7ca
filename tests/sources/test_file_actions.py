"""Which rows of which files differ between two versions, from what the commits between them did to files."""

from __future__ import annotations

import pytest

from airflow_mv_provider.sources.delta.file_actions import (
    Action,
    DataFile,
    Part,
    VectorPlace,
    partition_values,
    parts_between,
    unfollowed,
)


def vector(text):
    return VectorPlace("u", text, 1, 34, 2)


def file(path="a", deleted=None):
    return DataFile(path, (), None if deleted is None else vector(deleted))


def added(version, file, operation="WRITE"):
    return Action(version, operation, is_added=True, file=file)


def removed(version, file, operation="UPDATE"):
    return Action(version, operation, is_added=False, file=file)


def parts(*actions):
    return list(parts_between(actions))


def test_file_that_came_has_all_of_its_rows():
    assert parts(added(1, file())) == [Part(file(), 1)]


def test_file_that_is_gone_had_all_but_its_deleted_rows():
    assert parts(removed(1, file(deleted="v"))) == [Part(file(deleted="v"), -1, vector("v"))]


def test_file_that_came_and_went_shows_nothing():
    assert parts(added(1, file()), removed(2, file())) == []


def test_file_that_was_restored_shows_nothing():
    assert parts(removed(1, file(deleted="v")), added(2, file(deleted="v"))) == []


def test_new_vector_names_the_rows_that_are_gone():
    found = parts(removed(1, file()), added(1, file(deleted="v")))

    assert found == [Part(file(), -1, None, vector("v"))]


def test_next_vector_names_more_rows_and_a_restored_one_fewer():
    found = parts(removed(1, file(deleted="v")), added(1, file(deleted="w")))

    assert found == [
        Part(file(deleted="v"), -1, vector("v"), vector("w")),
        Part(file(deleted="w"), 1, vector("w"), vector("v")),
    ]


def test_vector_that_was_taken_back_names_the_rows_that_came():
    found = parts(removed(1, file(deleted="v")), added(1, file()))

    assert found == [Part(file(), 1, None, vector("v"))]


def test_only_the_first_and_the_last_state_count_in_whichever_order_actions_are_read():
    history = [
        *(removed(1, file()), added(1, file(deleted="v"))),
        *(removed(2, file(deleted="v")), added(2, file(deleted="w"))),
    ]

    assert parts(*reversed(history)) == parts(*history) == [Part(file(), -1, None, vector("w"))]


def test_file_whose_statistics_were_added_is_not_new():
    assert parts(added(1, file(), "COMPUTE STATS")) == []


@pytest.mark.parametrize("operation", ["OPTIMIZE", "REORG"])
def test_files_that_were_written_anew_are_there_with_both_signs(operation):
    found = parts(removed(1, file("a"), operation), added(1, file("b"), operation))

    assert found == [Part(file("a"), -1), Part(file("b"), 1)]


@pytest.mark.parametrize(
    ("operations", "first"),
    [
        (["WRITE", "OPTIMIZE", "VACUUM START", "TRUNCATE"], None),
        (["WRITE", "RESTORE"], "RESTORE"),
        (["WRITE", "ROW TRACKING BACKFILL", "CLONE"], "ROW TRACKING BACKFILL"),
        ([""], ""),
    ],
)
def test_operations_whose_files_are_not_understood(operations, first):
    assert unfollowed(operations) == first


@pytest.mark.parametrize(
    ("path", "location", "name"),
    [
        ("part-0.parquet", "/t/part-0.parquet", "part-0.parquet"),
        ("p=a%2520b/part%20%C3%BC.parquet", "/t/p=a%20b/part ü.parquet", "part ü.parquet"),
        ("file:/other/part.parquet", "file:/other/part.parquet", "part.parquet"),
        ("s3a://bucket/x%2By.parquet", "s3a://bucket/x+y.parquet", "x+y.parquet"),
        ("/other/part.parquet", "/other/part.parquet", "part.parquet"),
    ],
)
def test_path_in_the_log_is_a_uri(path, location, name):
    found = DataFile(path)

    assert (found.location("/t"), found.name) == (location, name)


def test_empty_partition_value_is_null():
    assert partition_values({"p": "", "q": None, "a": "x"}) == (("a", "x"), ("p", None), ("q", None))
    assert partition_values(None) == ()

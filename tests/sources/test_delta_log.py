"""What a source's log is taken to say, and what it is not believed to."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.changeset import SignedRows, Whole
from airflow_mv_provider.sources.delta.log import Entry, changes_in, may_be_mapped

NO_ROWS = Entry(8, "OPTIMIZE", {}, {})


def an_entry(operation="UPDATE", metrics=None, version=8, **parameters):
    return Entry(version, operation, parameters, {"numUpdatedRows": "3"} if metrics is None else metrics)


def changes(*entries, has_feed=True):
    return changes_in(entries, 7, 7 + len(entries), has_feed=has_feed)


@pytest.mark.parametrize(
    ("entry", "at_most"),
    [
        (an_entry(), 3),
        (an_entry("DELETE", {"numDeletedRows": "4"}), 4),
        (an_entry("DELETE", {}), None),  # whole files, uncounted
        (an_entry("WRITE", {"numOutputRows": "9"}, mode="Append"), 9),
        (an_entry("WRITE", {"numOutputRows": "9"}, mode="Overwrite"), None),
        (an_entry("STREAMING UPDATE", {"numOutputRows": "9"}, outputMode="Append"), 9),
        (an_entry("STREAMING UPDATE", {"numOutputRows": "9"}, outputMode="Complete"), None),
        (an_entry("MERGE", {"numTargetRowsInserted": "1", "numTargetRowsDeleted": "2"}), 3),
        (an_entry("RESTORE", {}), None),
        (NO_ROWS, 0),
        (an_entry("VACUUM END", {}), 0),
    ],
    ids=str,
)
def test_rows_that_a_commit_may_have_changed(entry, at_most):
    found = changes(entry)

    assert found.at_most == at_most
    assert (getattr(found, "in_files", None) is None) == (at_most is not None or entry.operation == "RESTORE")


def test_counts_of_several_commits_are_added_up():
    assert changes(an_entry(), an_entry(version=9)).at_most == 6
    assert changes(an_entry("RESTORE", {}), an_entry(version=9)).at_most is None
    assert changes(NO_ROWS, Entry(9, "SET TBLPROPERTIES", {"properties": "{}"}, {})).at_most == 0


def test_only_the_versions_in_between_count():
    log = [an_entry(version=version) for version in range(3, 12)]

    assert changes_in(log, 7, 9, has_feed=True) == SignedRows(6)


def test_log_that_does_not_reach_back_says_nothing():
    assert changes_in([an_entry(version=9)], 7, 9, has_feed=True) == (
        Whole("its log no longer reaches back to the last publish")
    )


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (an_entry("ADD COLUMNS", {}), "its log holds ADD COLUMNS of unknown extent"),
        (an_entry("CREATE OR REPLACE TABLE AS SELECT", {}), "its log holds CREATE OR REPLACE"),
        (an_entry("SOMETHING NEW", {}), "its log holds SOMETHING NEW"),
    ],
    ids=str,
)
def test_changes_are_not_asked_for_where_they_may_not_be_all(entry, why):
    found = changes(entry)
    assert isinstance(found, Whole)
    assert why in found.reason


UPDATED = {"numUpdatedRows": "3", "numCopiedRows": "40"}
MERGED = {"numTargetRowsInserted": "1", "numTargetRowsCopied": "5"}
BY_BYTES = {"numAddedBytes": "10", "numRemovedBytes": "50"}


def by_files(at_most, in_files):
    return SignedRows(at_most, in_files, is_counted=True)


@pytest.mark.parametrize(
    ("entries", "has_feed", "at_most", "in_files"),
    [
        ([an_entry()], False, 3, 3),
        ([an_entry(metrics=UPDATED), an_entry("MERGE", MERGED, 9)], False, 4, 49),
        ([an_entry("WRITE", {"numOutputRows": "9"}, mode="Append")], False, 9, 9),
        ([an_entry("SET TBLPROPERTIES", {}, properties='{"delta.enableChangeDataFeed":"true"}')], True, 0, 0),
        (
            [an_entry("UNSET TBLPROPERTIES", {}, properties='["delta.enableChangeDataFeed"]'), an_entry(version=9)],
            True,
            3,
            3,
        ),
    ],
    ids=str,
)
def test_without_a_feed_that_reaches_back_changes_are_in_files(entries, has_feed, at_most, in_files):
    assert changes(*entries, has_feed=has_feed) == by_files(at_most, in_files)


@pytest.mark.parametrize(
    ("entries", "at_most", "fraction"),
    [
        ([an_entry("OPTIMIZE", BY_BYTES), an_entry(version=9, metrics=BY_BYTES | {"numUpdatedRows": "3"})], 3, 0.5),
        ([an_entry("WRITE", {"numOutputRows": "9", "numOutputBytes": "20"}, mode="Overwrite")], None, 0.1),
        ([an_entry("DELETE", {"numRemovedBytes": "500"})], None, 1.0),
        ([an_entry("DELETE", {"numRemovedBytes": "20"}), an_entry("VACUUM END", {}, 9)], None, 0.1),
        ([an_entry("OPTIMIZE", {}), an_entry(version=9)], 3, 1.0),  # nobody knows how much
    ],
    ids=str,
)
def test_rows_that_are_not_counted_are_a_fraction_of_all_bytes(entries, at_most, fraction):
    found = changes_in(entries, 7, 7 + len(entries), has_feed=False, num_bytes=200)

    assert found == by_files(at_most, fraction)


def test_feed_that_would_hold_an_overwrite_twice_is_not_read():
    entry = an_entry("WRITE", {"numOutputRows": "9", "numOutputBytes": "20"}, mode="Overwrite")

    assert changes(entry, has_feed=True) == by_files(None, 1.0)


def test_columns_with_other_names_in_the_files_are_not_read_from_them():
    found = changes_in([an_entry()], 7, 8, has_feed=False, is_mapped=True)

    assert isinstance(found, Whole)
    assert found.reason == "the source keeps no change data feed, and its columns have other names in its files"
    assert changes_in([an_entry()], 7, 8, has_feed=True, is_mapped=True) == SignedRows(3)


@pytest.mark.parametrize(
    ("later", "mode", "may_be"),
    [
        ([], "none", False),
        ([], "name", True),
        (["UPDATE", "OPTIMIZE"], "none", False),
        (["REMOVE COLUMN MAPPING"], "none", True),
        (["SET TBLPROPERTIES"], "none", True),
    ],
)
def test_properties_of_the_newest_version_are_those_of_an_older_one_unless_they_were_changed(later, mode, may_be):
    entries = [an_entry("SET TBLPROPERTIES"), *(an_entry(name, version=9 + n) for n, name in enumerate(later))]

    assert may_be_mapped(entries, 8, {"delta.columnMapping.mode": mode}) == may_be

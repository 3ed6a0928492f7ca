"""Partitions: named so that their values can be read back, refused if Delta would change a value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.progress.partition import WHOLE_TABLE, partition_name, partition_values, unstorable

NASTY = [
    *("", " ", "__HIVE_DEFAULT_PARTITION__", "x" * 300, "a=b/c", "%20", "..", "it's", '"', "a\nb", "`", "😀", "\\"),
    *("[null]", "null", "0001-01-01", "10000-01-01", ",", "\x00", "\u2028", "é", "e\u0301"),
]


@pytest.mark.parametrize("value", NASTY, ids=repr)
def test_partition_name_keeps_every_value(value):
    assert partition_values(partition_name([value, None])) == (value, None)


@given(st.lists(st.none() | st.text(), max_size=4), st.lists(st.none() | st.text(), max_size=4))
def test_partition_names_are_equal_only_for_equal_values(one, other):
    assert partition_values(partition_name(one)) == tuple(one)
    assert (partition_name(one) == partition_name(other)) is (one == other)
    assert json.loads(partition_name(one)) == one


def test_partition_names_are_short_and_fixed():
    assert partition_name(["2013-01-01"]) == '["2013-01-01"]'
    assert partition_name([None]) == "[null]"
    assert partition_name([]) == WHOLE_TABLE
    assert partition_name(["😀", "a"]) == '["😀","a"]'


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_value_that_delta_stores_as_null_is_refused(value):
    problem = unstorable(partition_name(["ok", value]), ["a", "b"])

    assert problem == f"column 'b' holds {value!r}, which Delta stores as NULL."


def test_value_with_a_nul_is_refused():
    problem = unstorable(partition_name(["a\0b"]), ["p"])

    assert problem == "column 'p' holds 'a\\x00b': no file system allows a NUL character in a name."


@pytest.mark.parametrize(
    ("value", "is_storable"),
    [
        *((None, True), ("a=b/c", True), ("%20", True), ("..", True), ("it's", True), ('"', True), ("a\nb", True)),
        *(("`", True), ("😀", True), (" ", True), ("__HIVE_DEFAULT_PARTITION__x", True)),
        *(("x" * 253, True), ("x" * 254, False), ("x" * 300, False)),
        *(("é" * 126, True), ("é" * 127, False), ("😀" * 63, True), ("😀" * 64, False)),
        *(("/" * 84, True), ("/" * 85, False), ("\n" * 84, True), ("\n" * 85, False)),
    ],
    ids=lambda v: repr(v)[:20],
)
def test_value_is_storable_if_its_directory_has_a_name(value, is_storable):
    problem = unstorable(partition_name([value]), ["p"])

    assert (problem is None) is is_storable
    if not is_storable:
        assert problem == f"column 'p' holds a value of {len(value)} characters, too long for a directory's name."


def test_column_name_is_part_of_the_directory_and_escaped_like_the_value():
    assert unstorable(partition_name(["x" * 54]), ["c" * 200]) is None
    assert unstorable(partition_name(["x" * 55]), ["c" * 200]) is not None
    assert unstorable(partition_name(["x" * 55]), ["/" * 200]) is not None
    assert unstorable(partition_name(["x" * 55]), ["/" * 67]) is not None


def test_table_without_partitions_has_nothing_unstorable():
    assert unstorable(WHOLE_TABLE, []) is None

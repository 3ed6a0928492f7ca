"""Which files a path stands for, and which are passed over."""

from __future__ import annotations

import pytest

from airflow_mv_provider.sources.files import hidden_files as listing


@pytest.mark.parametrize(
    ("pattern", "path", "is_meant"),
    [
        ("/w/raw", "/w/raw/a.csv", True),
        ("/w/raw/", "/w/raw/a.csv", True),
        ("/w/raw/a.csv", "/w/raw/a.csv", True),
        ("/w/raw", "/w/raw/sub/a.csv", False),
        ("/w/raw", "/w/raw/day=2/a.csv", True),
        ("/w/raw", "/w/raw/day=2/hour=3/a=b.csv", True),
        ("/w/raw", "/w/raw/day=2/old/a.csv", False),
        ("/w/*/x", "/w/raw/x/a.csv", True),
        ("/w/*", "/w/raw/a.csv", True),
        ("/w/*", "/w/raw/sub/a.csv", False),
        ("s3a://b/raw/{a,b}", "s3a://b/raw/a/x.csv", True),
    ],
)
def test_folders_below_are_meant_only_where_they_are_partitions(pattern, path, is_meant):
    assert listing.divided(pattern, [path]) == (([path], []) if is_meant else ([], [path]))


@pytest.mark.parametrize(
    ("pattern", "is_hidden"),
    [
        ("raw/_a.csv", True),
        ("raw/.a.csv", True),
        ("raw/_*", True),
        ("raw/[_.]*", True),
        ("raw/{a,_b}.csv", True),
        ("raw/a.csv._COPYING_", True),
        ("raw/_inbox", False),
        ("raw/_inbox/*.csv", False),
        ("raw/_day=2", False),
        ("raw/[!_]*.csv", False),
        ("raw/*", False),
    ],
)
def test_path_that_names_hidden_files_is_known(pattern, is_hidden):
    assert listing.names_hidden(pattern) is is_hidden


@pytest.mark.parametrize(
    ("name", "is_told"),
    [
        ("_a.csv", True),
        (".a.csv", True),
        ("a.csv._COPYING_", True),
        ("a.csv", False),
        ("_old", True),
        ("_SUCCESS", False),
        ("_temporary", False),
        (".a.csv.crc", False),
        ("_m=2", False),
    ],
)
def test_markers_of_writers_are_not_told_of(name, is_told):
    assert listing.is_hidden(name) is is_told


def test_partition_folders_are_those_of_files_below():
    paths = ["/w/raw/a.csv", "/w/raw/m=2/b.csv", "/w/raw/m=2/c.csv", "/w/raw/m=1/n=3/d.csv"]

    assert listing.partition_folders("/w/raw", paths) == ["/w/raw/m=1/n=3", "/w/raw/m=2"]
    assert listing.partition_folders("/w/*", paths) == ["/w/raw/m=1/n=3", "/w/raw/m=2"]
    assert listing.partition_folders("/w/raw/a.csv", paths[:1]) == []


def test_a_few_are_shown():
    assert listing.ignored_text(["c", "a", "b"]) == "ignored: a, b, c"
    assert listing.ignored_text(["c", "a", "b", "d", "e"]) == "ignored: a, b, c and 2 more"


@pytest.mark.parametrize(("pattern", "folder"), [("/w/raw/*.csv", "/w/raw"), ("/w/r?w/x", "/w"), ("/*", "/")])
def test_folder_that_must_be_there(pattern, folder):
    assert listing.is_glob(pattern)
    assert listing.folder_of(pattern) == folder


@pytest.mark.parametrize(
    ("pattern", "path", "columns"),
    [
        ("/w/raw", "/w/raw/zip=1/at=2/a.csv", ["zip", "at"]),
        ("/w/raw/zip=1", "/w/raw/zip=1/at=2/a.csv", ["at"]),
        ("/w/raw/zip=1/*", "/w/raw/zip=1/at=2/a.csv", ["at"]),
        ("/w/raw/zip=*", "/w/raw/zip=1/a.csv", ["zip"]),
        ("/w/raw/zip=1/a=b.csv", "/w/raw/zip=1/a=b.csv", []),
        ("/w/r*/x", "/w/raw/x/zip%20code=1/a.csv", ["zip code"]),
    ],
)
def test_columns_of_folders_are_those_that_the_path_does_not_name(pattern, path, columns):
    assert listing.folder_columns(pattern, [path, path]) == columns

"""What a source says of its state: kept, compared and told apart."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.definition.kinds import frontier_from_json
from airflow_mv_provider.core.frontier import NoFrontier, fingerprint
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from airflow_mv_provider.sources.files.frontier import FilesFrontier, SourceFile, added_files
from airflow_mv_provider.sources.query.frontier import QueryFrontier

FILES = st.builds(SourceFile, st.text(), st.integers(0, 2**62), st.integers(0, 2**62), st.one_of(st.none(), st.text()))
DELTA = st.builds(DeltaFrontier, st.text(), st.integers(0, 2**62))
FRONTIERS = st.one_of(
    DELTA,
    st.builds(FilesFrontier, st.lists(FILES, max_size=5).map(tuple)),
    st.builds(QueryFrontier, st.lists(st.tuples(st.text(), DELTA), max_size=3).map(tuple)),
    st.builds(NoFrontier),
)


@given(FRONTIERS)
def test_frontier_survives_the_database(frontier):
    stored = json.loads(json.dumps(frontier.to_json()))

    assert frontier_from_json(stored) == frontier


@given(FRONTIERS, FRONTIERS)
def test_fingerprint_tells_frontiers_apart(one, other):
    assert (fingerprint(one) == fingerprint(other)) is (one == other)
    assert len(fingerprint(one)) == 16


def test_listing_does_not_depend_on_the_order_in_which_files_are_found():
    time = datetime(2013, 1, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    found = [("b.csv", 2, time), ("a.csv", 1, time)]

    frontier = FilesFrontier.of(found)

    assert frontier == FilesFrontier((SourceFile("a.csv", 1, 1357041600123), SourceFile("b.csv", 2, 1357041600123)))
    assert frontier == FilesFrontier.of(found[::-1])


def test_frontier_is_described_for_people():
    files = FilesFrontier((SourceFile("a", 1000, 0), SourceFile("b", 234, 0)))

    assert DeltaFrontier("id", 3).describe() == "Delta version 3"
    assert files.describe() == "2 files, 1,234 bytes"
    assert QueryFrontier((("a", DeltaFrontier("id", 3)), ("b", DeltaFrontier("id", 0)))).describe() == (
        "a at Delta version 3, b at Delta version 0"
    )
    assert NoFrontier().describe() == "a source without versions"


def test_frontier_of_an_unknown_kind_is_no_frontier():
    with pytest.raises(ValueError, match="'pigeon'"):
        frontier_from_json({"type": "pigeon"})


def test_added_files_are_told_only_where_all_others_are_as_they_were():
    a, b, c = (SourceFile(f"/{name}", 1, 1) for name in "abc")

    assert added_files(FilesFrontier((a,)), FilesFrontier((a, b, c))) == (b, c)
    assert added_files(FilesFrontier((a, b)), FilesFrontier((a, b))) == ()
    assert added_files(FilesFrontier((a, b)), FilesFrontier((a, c))) is None
    assert added_files(FilesFrontier((a,)), FilesFrontier((SourceFile("/a", 1, 2), b))) is None


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("a1 b1", "a1 b2", "1 changed of 2 files, 3 bytes"),
        ("a1 b1 c1", "a2 d1 e1", "1 changed, 2 new, 2 gone of 3 files, 4 bytes"),
        ("a1", "a1 b1", "1 new of 2 files, 2 bytes"),
        ("a1 b1", "a1", "1 gone of 1 file, 1 bytes"),
        ("a1", "a2", "1 file, 2 bytes"),
        ("", "a1 b1", "2 files, 2 bytes"),
        ("a1 b1", "a1 b1", "none of 2 files, 2 bytes"),
    ],
)
def test_a_folder_says_how_many_of_its_files_have_changed(before, after, said):
    one, other = (
        FilesFrontier(tuple(SourceFile(f[0], int(f[1]), 0) for f in each.split())) for each in (before, after)
    )

    assert other.since(one) == said
    assert other.since(NoFrontier()) == other.describe()

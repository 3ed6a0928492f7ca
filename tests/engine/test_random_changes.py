"""Random histories of a source and of foreign writes: after each refresh main is the source, row for row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mv_provider.core.outcome import Outcome
from tests.conftest import large_tables
from tests.engine.versioned import of_main, versions

pytestmark = pytest.mark.slow

_VALUES = st.one_of(st.none(), st.sampled_from(["", "a", "b", "NaN", "'", "\\", "é"]))
_FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]))
_NAMED_PARTS = st.sampled_from(["x", "y/z", "%41", "ü"])
_PARTS = st.one_of(st.none(), _NAMED_PARTS)
_ARRAYS = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=2))
SOURCE = st.dictionaries(st.integers(0, 12), st.tuples(_PARTS, _VALUES, _FLOATS, _ARRAYS), min_size=2, max_size=12)
_SOURCE_WITH_PARTS = st.dictionaries(
    st.integers(0, 12), st.tuples(_NAMED_PARTS, _VALUES, _FLOATS, _ARRAYS), min_size=2, max_size=12
)
SCHEMA = "id BIGINT, p STRING, v STRING, f DOUBLE, a ARRAY<INT>"
FOREIGN = st.sampled_from(
    [
        None,
        "INSERT INTO {t} VALUES (5, 'x', 'foreign', 1.0, NULL)",
        "DELETE FROM {t} WHERE id < 4",
        "UPDATE {t} SET v = 'foreign'",
        "INSERT INTO {t} SELECT * FROM {t}",
        "INSERT INTO {t} VALUES (NULL, NULL, NULL, NULL, NULL)",
        "OPTIMIZE {t}",
    ]
)


@pytest.mark.in_test_all
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    histories=st.lists(st.tuples(SOURCE, FOREIGN), min_size=2, max_size=3),
    is_partitioned=st.booleans(),
    is_large=st.booleans(),
)
def test_main_follows_its_source(lake_factory: Any, histories: Any, is_partitioned: bool, is_large: bool) -> None:
    with large_tables(lake_factory(), is_large=is_large) as lake:
        follow(lake, histories, partition_by=["p"] if is_partitioned else [])


@pytest.mark.in_test_all
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(histories=st.lists(st.tuples(_SOURCE_WITH_PARTS, FOREIGN), min_size=2, max_size=3), is_large=st.booleans())
def test_progressive_main_follows_its_source(lake_factory: Any, histories: Any, is_large: bool) -> None:
    definition = {"key": ["id", "p"], "partition_by": ["p"], "publish": "progressive"}
    with large_tables(lake_factory(), is_large=is_large) as lake:
        follow(lake, histories, **definition)


@pytest.mark.in_test_all
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    histories=st.lists(st.tuples(SOURCE, FOREIGN), min_size=3, max_size=4),
    is_partitioned=st.booleans(),
    is_large=st.booleans(),
    deletes=st.sampled_from(["close", "mark", "keep"]),
)
def test_a_history_follows_main(
    lake_factory: Any, histories: Any, is_partitioned: bool, is_large: bool, deletes: str
) -> None:
    """Its versions are those of a few lines of Python, made of main's rows at the versions that it has reached."""
    with large_tables(lake_factory(), is_large=is_large) as lake:
        follow(lake, histories, partition_by=["p"] if is_partitioned else [], history={"deletes": deletes})

    assert versions(lake) == of_main(lake, deletes=deletes)


def follow(lake: Any, histories: Any, **definition: Any) -> None:
    lake.apply(chunk_rows=4, guards={"allow_empty": True, "max_deleted_fraction": 1.0}, **definition)
    for number, (source, foreign) in enumerate(histories):
        rows = [(key, *values) for key, values in source.items()]
        lake.write(lake.spark.createDataFrame(rows, SCHEMA))
        if foreign and number:
            lake.sql(foreign)

        report = lake.refresh()

        assert report.outcome in {Outcome.PUBLISHED, Outcome.NOTHING_TO_DO}
        assert Counter(lake.rows("orders")) == Counter(lake.rows("raw/orders"))
    # Others change main, and change it back: nothing that is known of it holds, so all of it is compared.
    lake.sql("INSERT INTO {t} VALUES (99, 'x', 'foreign', 1.0, NULL)")
    lake.sql("DELETE FROM {t} WHERE id = 99")
    report = lake.refresh(force=True)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)

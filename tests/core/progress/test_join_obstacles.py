"""Which tables are compared by one join, without digests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.progress.joined import join_obstacle
from airflow_mv_provider.core.scope.scope import EVERYTHING, Scope
from airflow_mv_provider.core.strategy import Choice
from tests.conftest import a_table

CORRECTIONS = Choice("corrections", "the source has changed")
PUBLISHED = PublishedDigests("r1", None, 0, num_rows=1_000, digest=1, mixed=1, columns="c")


def obstacle(
    definition: RefreshableTable | None = None,
    scope: Scope = EVERYTHING,
    choice: Choice = CORRECTIONS,
    published: PublishedDigests | None = PUBLISHED,
    *,
    is_evolving: bool = False,
) -> str | None:
    return join_obstacle(definition or a_table(), scope, choice, published, is_evolving=is_evolving)


def test_small_table_as_it_was_published_is_joined():
    assert obstacle() is None
    assert obstacle(published=replace(PUBLISHED, num_rows=200_000)) is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"published": None}, "the table may not be as it was published"),
        ({"published": replace(PUBLISHED, num_rows=0)}, "the table is empty, so every row of the source is new"),
        ({"published": replace(PUBLISHED, num_rows=200_001)}, "the table is large"),
        ({"choice": Choice("replace", "most rows change")}, "the table is to be overwritten"),
        ({"choice": replace(CORRECTIONS, wanted="replace")}, "the table is to be overwritten"),
        ({"definition": a_table(partition_by=["p"])}, "each partition is compared for itself"),
        (
            {"definition": a_table(publish="progressive", partition_by=["p"])},
            "a progressive refresh commits part by part",
        ),
        ({"is_evolving": True}, "the table's columns change"),
        (
            {
                "definition": a_table(source=Files("raw/*.csv", format="csv", schema="id INT")),
                "choice": replace(CORRECTIONS, wanted="incremental"),
            },
            "the sums of its source's files are kept",
        ),
    ],
)
def test_what_is_not_joined_says_why(given, why):
    assert obstacle(**given) == why

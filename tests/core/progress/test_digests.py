"""The digests that a publish keeps: how many buckets, and when they are not worth keeping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.definition.schema import Column, fingerprint
from airflow_mv_provider.core.progress.digests import PublishedDigests, bucket_count, digests_to_keep
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition


@given(st.integers(0, 2**40))
def test_bucket_holds_four_to_eight_rows(rows):
    buckets = bucket_count(rows)

    assert buckets & (buckets - 1) == 0
    assert 64 <= buckets <= 2**23
    if 64 < buckets < 2**23:
        assert 4 <= rows / buckets <= 8


@pytest.mark.parametrize(
    ("rows", "num_buckets", "is_kept"),
    [(1000, 64, True), (1000, 256, True), (10_000, 64, False), (1000, 1024, False), (0, 64, True)],
)
def test_digests_are_kept_while_their_buckets_have_about_the_right_size(rows, num_buckets, is_kept):
    seal = Seal("s", "d", num_buckets, 10, (SealedPartition("[]", rows, 5),), (Column("id", "long"),))

    kept = digests_to_keep(seal, "r")

    columns = fingerprint(seal.columns)
    assert kept == (PublishedDigests("r", "d", num_buckets, rows, 5, 0, columns) if is_kept else None)


def test_digests_at_another_path_have_no_list_of_files_beside_them():
    """So nothing looks for the copies of rows that such a list would name."""
    found = PublishedDigests("r", "/wh/1", 64, 10, 3, 5, "c", kept_bytes=100).rewritten("/wh/1-again", (9, 2, 4))

    assert found == PublishedDigests("r", "/wh/1-again", 64, 9, 2, 4, "c", kept_bytes=0)

"""The seal's totals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from tests.core.progress.sealed import sealed


def test_seal_counts_its_rows():
    assert Seal("s", 10, tuple(sealed(3, 4))).num_rows == 7
    assert Seal("s", 10, ()).num_rows == 0


@given(st.lists(st.integers(0, 2**63 - 1), max_size=5))
def test_digest_of_sealed_rows_is_the_xor_of_their_partitions(digests):
    seal = Seal("s", 10, tuple(SealedPartition(str(n), 1, d) for n, d in enumerate(digests)))

    found = 0
    for digest in digests:
        found ^= digest
    assert seal.totals.digest == found

"""`make soak`, for a few rounds."""

from __future__ import annotations

import pytest

from tests.soak import soaking

pytestmark = [pytest.mark.slow, pytest.mark.in_process, pytest.mark.in_test_all]


def test_a_soak_of_a_few_rounds_finds_nothing(connect, postgres, tmp_path):
    with soaking(tmp_path, connect, postgres, seed=1) as soak:
        soak.run(1)

    assert soak.summary.refreshes >= 1
    assert soak.summary.outcomes["nothing_to_do"] >= 1

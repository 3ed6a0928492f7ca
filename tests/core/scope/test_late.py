"""When a table counts as late."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.scope.ledger import is_late


@pytest.mark.parametrize(
    ("fresh_ms", "now_ms", "target_s", "late"),
    [
        (None, 10**12, None, False),
        (0, 10**12, None, False),
        (None, 10**12, 60, True),
        (1_000, 61_000, 60, False),
        (1_000, 61_001, 60, True),
        (61_000, 1_000, 60, False),  # the clock was set back
    ],
)
def test_late_is_what_was_checked_longer_ago_than_the_target_or_never(fresh_ms, now_ms, target_s, late):
    assert is_late(fresh_ms, now_ms, target_s) is late

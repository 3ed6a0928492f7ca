"""Whether a table is late: its last check of the source is longer ago than its definition allows."""

from __future__ import annotations


def is_late(fresh_ms: int | None, now_ms: int, target_s: int | None) -> bool:
    """True if the source was last checked longer ago than the target, or never.

    fresh_ms : when the last good refresh of the whole table began; None if there was none
    target_s : None if the table has no target
    """
    return target_s is not None and (fresh_ms is None or now_ms - fresh_ms > target_s * 1000)

"""Files of refreshes that the database does not know go only where nobody who lives by another one could use them."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.fence import Commit, CommitNote, fence_version
from airflow_mv_provider.core.leftover import GRACE_MS, Leftover, why_left

UUID = "6a1f6a7e-6d7a-4a0b-9f5e-0d6c1c5a3b11"
UNKNOWN, OTHER = "a" * 32, "b" * 32
FILES = Leftover(UNKNOWN, True, True, 1_000)


def commit(version: int, refresh_id: str, epoch: int, step: str = "publish") -> Commit:
    return Commit(version, "MERGE", version - 1, CommitNote(UUID, refresh_id, epoch, step, fence_version(epoch)))


@pytest.mark.parametrize(
    ("commits", "epoch", "why"),
    [
        ((), 3, None),  # main is gone, or has never been
        ((commit(1, OTHER, 3),), 3, None),  # it has never come as far as its fence
        ((commit(1, UNKNOWN, 2), commit(2, OTHER, 3, "fence"), commit(3, OTHER, 3)), 3, None),
        ((commit(1, UNKNOWN, 2, "fence"), commit(2, OTHER, 3)), 3, None),
        ((commit(1, UNKNOWN, 2), commit(2, OTHER, 3)), 2, "a second database may be in use"),
        ((commit(1, OTHER, 2), commit(2, UNKNOWN, 3)), 2, "a second database may be in use"),
        ((commit(1, OTHER, 2), commit(2, UNKNOWN, 3)), 4, "no later refresh has published"),
        (
            (commit(1, OTHER, 1), commit(2, UNKNOWN, 2), commit(3, OTHER, 3, "fence")),
            3,
            "no later refresh has published",
        ),
        ((commit(1, UNKNOWN, 2), Commit(2, "WRITE", 1, None)), 3, "no later refresh has published"),
    ],
)
def test_files_of_an_unknown_refresh(commits, epoch, why):
    found = why_left(FILES, commits[::-1], epoch=epoch)

    assert found is None if why is None else why in (found or "")


def test_young_files_are_left():
    assert FILES.is_in_grace(1_000 + GRACE_MS - 1)
    assert not FILES.is_in_grace(1_000 + GRACE_MS)

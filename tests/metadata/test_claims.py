"""A claim means the same in SQL as in Python: the same rows hold it, and become the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from sqlalchemy import update

from airflow_mv_provider.core import claim
from airflow_mv_provider.core.claim import Claim
from airflow_mv_provider.core.phase import NEXT, Phase
from airflow_mv_provider.core.state import Ownership
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.rows import becomes, is_unchanged_from
from tests.metadata.rows import registered

FAR = 1 << 50  # milliseconds; later than every clock
AT_WORK = [Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP]


def rows() -> list[dict[str, Any]]:
    """State rows of every phase that differ in what a claim can ask for."""
    facts = product(AT_WORK, (3, 4), ("r1", "r2"), ("a", "b"), (0, 1, FAR))
    names = ("phase", "epoch", "refresh_id", "owner_key", "lease_expires_ms")
    at_work = [dict(zip(names, values, strict=True)) | {"lease_ms": values[-1]} for values in facts]
    at_work += [row | {"lease_ms": 60_000} for row in at_work if row["lease_ms"] == FAR]  # from the future
    nobody = {"phase": Phase.NORMAL, "refresh_id": None, "owner_key": None, "lease_expires_ms": 0}
    return at_work + [
        nobody | {"epoch": epoch, "paused_ms": paused, "dropping_ms": dropping}
        for epoch, paused, dropping in product((3, 4), (None, 1), (None, 1))
    ]


OWN = Ownership(1, "r1", 3)
CLAIMS = {
    "acquire": lambda state: claim.acquire(replace(state, epoch=3), "r9", "a", 7),
    "hand over": lambda state: claim.hand_over(replace(state, phase=Phase.MERGING, epoch=3, refresh_id="r1"), "a", 7),
    "hold": lambda state: claim.hold(OWN),
    "hold in MERGING": lambda state: claim.hold(OWN, Phase.MERGING),
    "abandon": lambda state: claim.abandon(OWN),
    "cancel": lambda state: claim.cancel(),
    "declare dead": lambda state: claim.declare_dead(
        replace(state, phase=Phase.MERGING, epoch=3, refresh_id="r1"), "c"
    ),
    "end lease": lambda state: claim.end_lease(replace(state, phase=Phase.MERGING, epoch=3, refresh_id="r1")),
    **{
        f"advance from {old}": lambda state, old=old, new=new: claim.advance(OWN, old, new)
        for old in AT_WORK
        for new in NEXT[old]
    },
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_is_the_same_in_sql(store, name):
    table = registered(store)
    num_held = 0
    for row in rows():
        with store.engine.begin() as db:
            blank = dict.fromkeys(("paused_ms", "dropping_ms", "cancel_requested_ms"))
            db.execute(update(State).values(blank | row))
        before = store.state(table.id)
        asked: Claim = CLAIMS[name](before)

        with store.engine.begin() as db:
            expected = is_unchanged_from(asked, table.id, store._now())
            values = becomes(asked) or {"epoch": State.epoch}
            is_held = db.execute(update(State).where(*expected).values(**values)).rowcount == 1

        expected = asked.after(before)
        assert is_held is (expected is not None) is asked.holds(before)
        found = store.state(table.id)
        if expected is not None:
            num_held += 1
            # A new owner's lease, and when a cancel was asked for, are times: the store adds them.
            expected = replace(expected, is_lease_live=found.is_lease_live, is_cancel_requested=False)
            assert found == expected
    assert num_held, "no row holds it: nothing was compared"

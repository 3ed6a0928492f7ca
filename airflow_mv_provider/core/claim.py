"""The compare-and-sets on a table's state row, as values: what is believed of the row, and what it becomes.

    acquire     NORMAL, the epoch that was seen, open    ──▶ REFRESHING, a new refresh, epoch and owner
    hand_over   the refresh, epoch and phase as seen,    ──▶ a new epoch and owner
                its owner the caller itself or dead
    hold        owned, in a phase if one is named        ──▶ as it was, but locked
    advance     owned, in a phase                        ──▶ the next phase
    abandon     owned, and main may still be as it was   ──▶ NORMAL
    cancel      a phase in which it still helps          ──▶ as it was, a cancel requested
    bury        the refresh, epoch and phase as seen     ──▶ the caller's own, without a lease

`metadata` makes one UPDATE ... WHERE of each; the model in tests/model applies the same values to rows of its own. What
only the database knows, its clock and its tickets, it adds itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_mv_provider.core.phase import NEXT, Phase
from airflow_mv_provider.core.state import Ownership, RefreshState

# Main has not been seen to hold the whole refresh, so giving it up is still a choice.
_REVOCABLE = frozenset({Phase.REFRESHING, Phase.MERGING})


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a row belongs to from now on."""

    key: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One compare-and-set on a table's state row.

    phases           : of which the row must be in one; None for any
    epoch            : that the row must have; None for any
    refresh_id       : that the row must have; None for any
    held_by          : the caller that must own the row unless its owner is dead; None for anybody
    needs_open       : the row must be neither paused nor being dropped
    to_phase         : what the row goes to; None where it stays
    to_refresh_id    : the refresh that begins; None where the row keeps its own
    to_owner         : who owns the row from now on; None where that stays
    requests_cancel  : the owner is asked to stop
    ends_lease       : nobody holds the row from now on
    """

    phases: frozenset[Phase] | None = None
    epoch: int | None = None
    refresh_id: str | None = None
    held_by: str | None = None
    needs_open: bool = False
    to_phase: Phase | None = None
    to_refresh_id: str | None = None
    to_owner: Owner | None = None
    requests_cancel: bool = False
    ends_lease: bool = False

    def holds(self, row: RefreshState) -> bool:
        """True if the row is as it is believed to be."""
        return (
            (self.phases is None or row.phase in self.phases)
            and (self.epoch is None or row.epoch == self.epoch)
            and (self.refresh_id is None or row.refresh_id == self.refresh_id)
            and (self.held_by is None or row.owner_key == self.held_by or not row.is_lease_live)
            and not (self.needs_open and (row.paused_since_ms is not None or row.is_dropping))
        )

    def after(self, row: RefreshState) -> RefreshState | None:
        """Return the row as it is then, or None where it is not as it was believed to be."""
        if not self.holds(row):
            return None
        if self.to_owner is not None:
            # A cancel is left as it is: one that comes between the caller's look and this must not be lost.
            row = replace(row, owner_key=self.to_owner.key, epoch=self.to_owner.epoch, is_lease_live=True)
        if self.ends_lease:
            row = replace(row, is_lease_live=False)
        if self.to_refresh_id is not None:
            row = replace(row, refresh_id=self.to_refresh_id)
        if self.requests_cancel:
            row = replace(row, is_cancel_requested=True)
        if self.to_phase is Phase.NORMAL:
            row = replace(row, refresh_id=None, owner_key=None, owner_process=None, owned_since_ms=None)
            return replace(row, phase=Phase.NORMAL, is_lease_live=False, is_cancel_requested=False)
        return row if self.to_phase is None else replace(row, phase=self.to_phase)


def acquire(seen: RefreshState, refresh_id: str, caller_key: str, epoch: int) -> Claim:
    """Begin a refresh in a table at rest. That nobody else comes first is for the database to add."""
    assert epoch > seen.epoch
    return Claim(
        phases=frozenset({Phase.NORMAL}),  # no cancel is waiting: whoever brought the table to NORMAL has cleared it
        epoch=seen.epoch,
        needs_open=True,
        to_phase=Phase.REFRESHING,
        to_refresh_id=refresh_id,
        to_owner=Owner(caller_key, epoch),
    )


def hand_over(seen: RefreshState, caller_key: str, epoch: int) -> Claim:
    """Take an unfinished refresh under a new epoch."""
    assert seen.refresh_id is not None
    assert epoch > seen.epoch
    return Claim(
        phases=frozenset({seen.phase}),
        epoch=seen.epoch,
        refresh_id=seen.refresh_id,
        held_by=caller_key,
        to_owner=Owner(caller_key, epoch),
    )


def hold(own: Ownership, phase: Phase | None = None) -> Claim:
    """Write something of a refresh that is owned, in `phase` if one is named."""
    return Claim(None if phase is None else frozenset({phase}), own.epoch, own.refresh_id)


def advance(own: Ownership, old: Phase, new: Phase) -> Claim:
    """Go on to the next phase."""
    assert new in NEXT[old]
    return replace(hold(own, old), to_phase=new)


def abandon(own: Ownership) -> Claim:
    """End a refresh that has not published."""
    assert all(Phase.NORMAL in NEXT[phase] for phase in _REVOCABLE)
    return replace(hold(own), phases=_REVOCABLE, to_phase=Phase.NORMAL)


def cancel() -> Claim:
    """Ask whoever owns the row to stop, as long as main does not have it."""
    return Claim(phases=_REVOCABLE, requests_cancel=True)


def bury(seen: RefreshState, caller_key: str) -> Claim:
    """Believe a person that the owner is dead, whatever its lease says: the caller may take its refresh over.

    The row becomes the caller's own under the epoch that is there: an owner that is alive after all may renew, and the
    caller's hand-over comes all the same. What such an owner still writes to main the fence stops.
    """
    assert seen.phase is not Phase.NORMAL
    return Claim(
        phases=frozenset({seen.phase}),
        epoch=seen.epoch,
        refresh_id=seen.refresh_id,
        to_owner=Owner(caller_key, seen.epoch),
        ends_lease=True,
    )

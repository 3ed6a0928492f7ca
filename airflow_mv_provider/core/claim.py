"""The compare-and-sets on a table's state row, as values: the expected row, and what it becomes.

    acquire       NORMAL, the epoch as read, open          ──▶ REFRESHING, a new refresh, epoch and owner
    hand_over     the refresh, epoch and phase as read,    ──▶ a new epoch and owner
                  its owner the caller itself or dead
    hold          owned, in a phase if one is given        ──▶ unchanged, but locked
    advance       owned, in a phase                        ──▶ the next phase
    abandon       owned, REFRESHING or MERGING             ──▶ NORMAL
    cancel        REFRESHING or MERGING                    ──▶ unchanged, a cancel requested
    declare_dead  the refresh, epoch and phase as read     ──▶ the caller's own, without a lease
    end_lease     the refresh, epoch and phase as read     ──▶ unchanged, without a lease

`metadata` makes one UPDATE ... WHERE of each; the model in tests/model applies the same values to rows of its own. The
database adds the conditions that depend on its clock and its tickets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_mv_provider.core.phase import NEXT, Phase
from airflow_mv_provider.core.state import Ownership, RefreshState

# Main is not known to contain the whole refresh, so it can still be given up.
_REVOCABLE = frozenset({Phase.REFRESHING, Phase.MERGING})


@dataclass(frozen=True, slots=True)
class Owner:
    """The new owner of a row."""

    key: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One compare-and-set on a table's state row.

    phases           : the row must be in one of these; None for any
    epoch            : the row must have this epoch; None for any
    refresh_id       : the row must have this refresh; None for any
    held_by          : the caller that must own the row unless the owner's lease has expired; None for any owner
    needs_open       : the row must be neither paused nor being dropped
    to_phase         : the row's new phase; None if unchanged
    to_refresh_id    : the refresh that begins; None if unchanged
    to_owner         : the row's new owner; None if unchanged
    requests_cancel  : the owner is asked to stop
    ends_lease       : the row's lease ends now
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
        """True if the row is as the claim expects it."""
        return (
            (self.phases is None or row.phase in self.phases)
            and (self.epoch is None or row.epoch == self.epoch)
            and (self.refresh_id is None or row.refresh_id == self.refresh_id)
            and (self.held_by is None or row.owner_key == self.held_by or not row.is_lease_live)
            and not (self.needs_open and (row.paused_since_ms is not None or row.is_dropping))
        )

    def after(self, row: RefreshState) -> RefreshState | None:
        """Return the row after the claim, or None if the row is not as the claim expects it."""
        if not self.holds(row):
            return None
        if self.to_owner is not None:
            # A cancel request is kept: one that comes between the caller's read and this write must not be lost.
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
    """Begin a refresh in a table at rest. The database adds the condition that no other caller comes first."""
    assert epoch > seen.epoch
    return Claim(
        phases=frozenset({Phase.NORMAL}),  # no cancel is pending: the step to NORMAL has cleared it
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
    """Require ownership of a refresh for another write, in `phase` if one is given."""
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
    """Ask the owner of the row to stop, as long as main is not known to contain the refresh."""
    return Claim(phases=_REVOCABLE, requests_cancel=True)


def declare_dead(seen: RefreshState, caller_key: str) -> Claim:
    """Treat the owner as dead on a person's word, even if its lease is live: the caller may take its refresh over.

    The row becomes the caller's own under its present epoch. An owner that is alive after all may renew its lease, but
    the caller's hand-over still succeeds. The fence stops what such an owner still writes to main.
    """
    assert seen.phase is not Phase.NORMAL
    return Claim(
        phases=frozenset({seen.phase}),
        epoch=seen.epoch,
        refresh_id=seen.refresh_id,
        to_owner=Owner(caller_key, seen.epoch),
        ends_lease=True,
    )


def end_lease(seen: RefreshState) -> Claim:
    """End the lease of a refresh that is kept for a process which will not come: any caller may take it over.

    If that process comes after all, it has taken a new epoch, and the row is not as it was read; or it comes later, and
    finds the refresh as every owner does whose lease has expired.
    """
    assert seen.phase is not Phase.NORMAL
    return Claim(phases=frozenset({seen.phase}), epoch=seen.epoch, refresh_id=seen.refresh_id, ends_lease=True)

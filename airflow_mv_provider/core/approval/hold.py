"""When a refresh is held for a person's decision, whether a decision fits, and what follows from it.

    MERGING, compared and judged ──why_held──▶ held ──decided──▶ approved: published as shown
                                                │               rejected: cancelled
                                                └──too late───▶ abandoned

A decision names the refresh and the merge round that was shown. The corrections of a round are fixed: they are computed
once, from sealed rows and from main as it was, and if another writer changes main, a new round discards them. So an
approval never publishes a change that nobody has seen; at worst the refresh is held again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_mv_provider.core.definition.table import Approval
from airflow_mv_provider.core.guard import Refusal


class Decision(StrEnum):
    """What a person has decided about a held refresh."""

    APPROVED = "approved"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Hold:
    """A refresh that waits, or waited, for a decision.

    merge_round : the round whose corrections were shown; a refresh that is held again is another hold
    reason      : why it is held, in words
    guards      : the names of the guards that refused, which an approval overrides
    is_over     : its time is up
    decided_by  : the user, if known
    note        : why it was decided so, in that user's words
    """

    refresh_id: str
    merge_round: int
    reason: str
    guards: tuple[str, ...]
    since_ms: int
    until_ms: int
    is_over: bool = False
    decision: Decision | None = None
    decided_ms: int | None = None
    decided_by: str | None = None
    note: str | None = None

    @property
    def id(self) -> str:
        """What a decision names: the refresh, and the round that was shown."""
        return f"{self.refresh_id}.{self.merge_round}"

    @property
    def by(self) -> str:
        """Who decided and why, for the end of a sentence."""
        return f" by {self.decided_by or 'an unnamed user'}{f': {self.note}' if self.note else ''}"


class Step(StrEnum):
    """What a refresh that is ready to be published does."""

    PUBLISH = "publish"
    HOLD = "hold"  # begin a hold, or go on with the one that is running
    EXPIRE = "expire"  # nobody decided in time
    STOP = "stop"  # it was rejected


def next_step(last: Hold | None, merge_round: int, why: str | None) -> Step:
    """Return what a refresh does before its first commit to main.

    last        : its newest hold; None if it was not held yet
    merge_round : the round of the corrections that it would publish
    why         : why these must be held; None if they need no decision
    """
    if last is None:
        return Step.PUBLISH if why is None else Step.HOLD
    match last.decision:
        case Decision.REJECTED:
            return Step.STOP
        case Decision.APPROVED if last.merge_round == merge_round:
            return Step.PUBLISH
        case None if last.is_over:
            return Step.EXPIRE
        case _:
            return Step.PUBLISH if why is None else Step.HOLD


def overridden(last: Hold | None, merge_round: int) -> tuple[str, ...]:
    """Return the guards that an approval of this round's corrections overrides: those that were shown as refusing."""
    is_approved = last is not None and last.decision is Decision.APPROVED and last.merge_round == merge_round
    return last.guards if last is not None and is_approved else ()


def why_held(
    approval: Approval,
    *,
    is_requested: bool,
    has_changes: bool,
    changes_columns: bool,
    refusals: Sequence[Refusal],
    last: Hold | None,
) -> str | None:
    """Return why corrections need a decision before they are published; None if they need none.

    is_requested    : the caller wants this one refresh to be held, whatever the table's definition says
    has_changes     : a row or a column of main would change; without that there is nothing to decide
    changes_columns : main would gain or lose a column, or widen one
    refusals        : of all guards that refuse them
    last            : the refresh's newest hold; None if it was not held yet
    """
    if not has_changes:
        return None
    refused = " ".join(f"{refusal.guard}: {refusal.problem}" for refusal in refusals)
    reasons = (
        (approval != "never" and bool(refused), refused),
        (is_requested, "its caller asked for a decision."),
        (approval == "always", "every refresh of this table needs a decision."),
        (approval == "schema" and changes_columns, "it changes the table's columns."),
    )
    why = next((reason for holds, reason in reasons if holds), None)
    if last is not None and last.decision is Decision.APPROVED:
        why = " ".join(filter(None, ("another writer has changed main since it was approved.", why)))
    return why


class Objection(StrEnum):
    """Why a decision cannot be recorded."""

    NOTHING_HELD = "no refresh of it is held"
    ANOTHER = "another difference is held now than the one that was shown"
    DECIDED = "it has been decided already"
    OVER = "it is held no more: its time is up"


def objection(hold: Hold | None, hold_id: str | None = None) -> Objection | None:
    """Return why a decision about the table's unfinished refresh cannot be recorded; None if it can.

    hold    : the newest hold of that refresh; None if it was not held, or no refresh is unfinished
    hold_id : the hold that was shown; None for whichever is there
    """
    if hold is None:
        return Objection.NOTHING_HELD
    if hold_id is not None and hold_id != hold.id:
        return Objection.ANOTHER
    if hold.decision is not None:
        return Objection.DECIDED
    return Objection.OVER if hold.is_over else None

"""When a refresh is held for a person's decision, whether a decision fits, and what follows from it.

    MERGING, compared and judged ──why_held──▶ held ──decided──▶ approved: published as shown
                                                │               without deletes: published, but nothing is deleted
                                                │               rejected, or superseded by a newer refresh: cancelled
                                                └──too late───▶ abandoned

A decision names the refresh and the merge round that was shown. The corrections of a round are fixed: they are computed
once, from sealed rows and from main as it was, and if another writer changes main, a new round discards them. So an
approval never publishes a change that was not shown; at worst the refresh is held again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_mv_provider.core.definition.table import Approval
from airflow_mv_provider.core.guard import Refusal


class Decision(StrEnum):
    """What was decided about a held refresh: by a person, or by a newer refresh of a table that lets it."""

    APPROVED = "approved"
    WITHOUT_DELETES = "without deletes"  # approved, but rows that the source no longer has stay in main
    REJECTED = "rejected"
    SUPERSEDED = "superseded"

    @property
    def is_approval(self) -> bool:
        """True if the refresh publishes; False if it is cancelled."""
        return self in (Decision.APPROVED, Decision.WITHOUT_DELETES)


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
    def is_approved(self) -> bool:
        """True if somebody has approved it, with or without its deletes."""
        return self.decision is not None and self.decision.is_approval

    @property
    def is_refused(self) -> bool:
        """True if the refresh is to be cancelled."""
        return self.decision is not None and not self.decision.is_approval

    @property
    def refusal(self) -> str:
        """Why it is cancelled, as a sentence."""
        if self.decision is Decision.SUPERSEDED:
            return f"the refresh was superseded by a newer refresh of {self.decided_by or 'an unnamed user'}."
        return f"the refresh was rejected{self.by}."

    @property
    def by(self) -> str:
        """Who decided and why, for the end of a sentence."""
        return f" by {self.decided_by or 'an unnamed user'}{f': {self.note}' if self.note else ''}"


class Step(StrEnum):
    """What a refresh that is ready to be published does."""

    PUBLISH = "publish"
    HOLD = "hold"  # begin a hold, or go on with the one that is running
    EXPIRE = "expire"  # it was not decided in time
    STOP = "stop"  # it was rejected


def next_step(last: Hold | None, merge_round: int, why: str | None) -> Step:
    """Return what a refresh does before its first commit to main.

    last        : its newest hold; None if it was not held yet
    merge_round : the round of the corrections that it would publish
    why         : why these must be held; None if they need no decision
    """
    if last is None:
        return Step.PUBLISH if why is None else Step.HOLD
    if last.is_refused:
        return Step.STOP
    if last.is_approved and last.merge_round == merge_round:
        return Step.PUBLISH
    if last.decision is None and last.is_over:
        return Step.EXPIRE
    return Step.PUBLISH if why is None else Step.HOLD


def overridden(last: Hold | None, merge_round: int) -> tuple[str, ...]:
    """Return the guards that an approval of this round's corrections overrides: those that were shown as refusing."""
    return last.guards if last is not None and last.is_approved and last.merge_round == merge_round else ()


def keeps_rows(last: Hold | None, merge_round: int, *, has_kept: bool) -> bool:
    """True if this round's corrections are published without their deletes.

    has_kept : main holds a commit of an earlier round that was published so; what completes it deletes nothing either
    """
    is_decided = last is not None and last.decision is Decision.WITHOUT_DELETES and last.merge_round == merge_round
    return is_decided or has_kept


def is_outdated(hold: Hold, *, is_same_definition: bool, is_same_source: bool) -> bool:
    """True if a newer refresh may end this hold, in a table that lets it: it would read or do something else."""
    return hold.decision is None and not (is_same_definition and is_same_source)


def why_held(
    approval: Approval,
    *,
    is_requested: bool,
    has_changes: bool,
    changes_columns: bool,
    refusals: Sequence[Refusal],
    last: Hold | None,
    checks: Sequence[Refusal] = (),
) -> str | None:
    """Return why corrections need a decision before they are published; None if they need none.

    is_requested    : the caller wants this one refresh to be held, whatever the table's definition says
    has_changes     : a row or a column of main would change; without that there is nothing to decide
    changes_columns : main would gain or lose a column, or widen one
    refusals        : of all guards that refuse them
    last            : the refresh's newest hold; None if it was not held yet
    checks          : those that do not hold and ask for a decision, whatever `approval` says
    """
    if not has_changes:
        return None
    refused = " ".join(f"{refusal.guard}: {refusal.problem}" for refusal in refusals)
    broken = " ".join(f"{check.guard}: {check.problem}" for check in checks)
    if approval != "never" and refused:
        broken = f"{refused} {broken}".strip()
    reasons = (
        (bool(checks), broken),
        (approval != "never" and bool(refused), refused),
        (is_requested, "its caller asked for a decision."),
        (approval == "always", "every refresh of this table needs a decision."),
        (approval == "schema" and changes_columns, "the refresh changes the table's columns."),
    )
    why = next((reason for holds, reason in reasons if holds), None)
    if last is not None and last.is_approved:
        why = " ".join(filter(None, ("another writer has changed the table since it was approved.", why)))
    return why


class Objection(StrEnum):
    """Why a decision cannot be recorded."""

    NOTHING_HELD = "no refresh of it awaits approval"
    ANOTHER = "another difference awaits approval now than the one that was shown"
    DECIDED = "the refresh has been decided already"
    OVER = "the refresh no longer awaits approval: its time has expired"
    OVERWRITES = "the table is overwritten without a column, which cannot leave out the deletes"


def objection(
    hold: Hold | None, hold_id: str | None, decision: Decision, *, deletes_by_overwriting: bool = False
) -> Objection | None:
    """Return why a decision about the table's unfinished refresh cannot be recorded; None if it can.

    hold    : the newest hold of that refresh; None if it was not held, or no refresh is unfinished
    hold_id : the hold that was shown; None for whichever is there
    deletes_by_overwriting : rows are deleted because main is overwritten as a whole
    """
    if hold is None:
        return Objection.NOTHING_HELD
    if hold_id is not None and hold_id != hold.id:
        return Objection.ANOTHER
    if hold.decision is not None:
        return Objection.DECIDED
    if hold.is_over:
        return Objection.OVER
    is_impossible = decision is Decision.WITHOUT_DELETES and deletes_by_overwriting
    return Objection.OVERWRITES if is_impossible else None

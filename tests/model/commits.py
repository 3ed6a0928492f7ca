"""What Delta makes of a commit in the small world, and what has to be true of main after it."""

from __future__ import annotations

from tests.model.decisions import epoch_in
from tests.model.design import Design
from tests.model.exploring import Violated
from tests.model.world import SOURCE, Commit, Merge, State, appended, commits_of, content


def committed(design: Design, state: State, merge: Merge) -> int | None:
    """Return main's log with a MERGE committed, or None if Delta refuses it.

    Refused are: another commit of its application meanwhile, a write to a partition that it read, OPTIMIZE.
    """
    touched = {partition for partition, _ in merge.changes}
    for commit in commits_of(state.log)[merge.snapshot + 1 :]:
        is_same_app = bool(commit.epoch) and commit.app == merge.app and design.app != "none"
        if is_same_app or commit.kind == "optimize" or touched & {partition for partition, _ in commit.changes}:
            return None
    if design.holds:
        _check_approved(state, merge)
    if state.outcomes[merge.refresh - 1] != "running" and not state.faults.put_back:
        outcome = state.outcomes[merge.refresh - 1]
        raise Violated(f"invariant 9: refresh {merge.refresh} is {outcome}, and a commit of it reaches main")
    facts = (merge.refresh, merge.epoch, merge.txn, merge.app, merge.merge_round, merge.part)
    may_keep = any(shown.keeps for shown in state.person.approved)
    commit = Commit("publish", merge.changes, *facts, keeps=merge.keeps, base=merge.base)
    return extended(design, state.log, commit, may_keep=may_keep)


def _check_approved(state: State, merge: Merge) -> None:
    """Invariants 14 and 15: what a person has approved is committed, and no row is deleted that was to be kept.

    What completes a refresh, because another writer has written right after its first commit, is not asked about.
    """
    approved = [shown for shown in state.person.approved if shown.refresh == merge.refresh]
    ours = {
        c.changes: c.merge_round for c in commits_of(state.log) if (c.kind, c.refresh) == ("publish", merge.refresh)
    }
    if not ours and (merge.merge_round, merge.changes) not in [(a.merge_round, a.changes) for a in approved]:
        raise Violated(
            f"invariant 14: refresh {merge.refresh} commits {dict(merge.changes)}, which nobody has approved"
        )
    keeps = any(a.keeps and ours.get(a.changes) == a.merge_round for a in approved)
    if keeps and any(value == 0 for _, value in merge.changes):
        raise Violated(f"invariant 15: refresh {merge.refresh} deletes a row that was to be kept")


def extended(design: Design, log: int, commit: Commit, *, may_keep: bool = False) -> int:
    """Return the log with a commit of ours.

    may_keep : somebody has approved a refresh without its deletes
    """
    after = appended(log, commit)
    if commit.epoch < epoch_in(log):
        raise Violated(f"invariant 6: epoch {commit.epoch} commits after epoch {epoch_in(log)}")
    is_foreign = any(c.kind in ("foreign", "restore") for c in commits_of(after))
    now = content(after)
    if may_keep:
        return after  # main may have rows that the source has no longer: `Process.published` looks which
    if design.is_progressive:
        is_torn = any(value not in column for value, column in zip(now, zip(*SOURCE, strict=True), strict=True))
    else:
        is_torn = now not in SOURCE
    if is_torn and not is_foreign:
        raise Violated(f"invariant 4: a reader sees {now}, which no version of the source is")
    if not design.is_progressive and not is_foreign and SOURCE.index(now) < SOURCE.index(content(log)):
        raise Violated(f"invariant 13: main goes back to the source at {SOURCE.index(now)}")
    return after

"""What Delta makes of a commit in the small world, and what has to be true of main after it."""

from __future__ import annotations

from tests.model.decisions import epoch_in
from tests.model.design import Design
from tests.model.world import SOURCE, Commit, Merge, State, Violated, appended, commits_of, content


def committed(design: Design, state: State, merge: Merge) -> int | None:
    """Return main's log with a MERGE committed, or None if Delta refuses it.

    Refused are: another commit of its application meanwhile, a write to a partition that it read, OPTIMIZE.
    """
    touched = {partition for partition, _ in merge.changes}
    for commit in commits_of(state.log)[merge.snapshot + 1 :]:
        is_same_app = bool(commit.epoch) and commit.app == merge.app and design.app != "none"
        if is_same_app or commit.kind == "optimize" or touched & {partition for partition, _ in commit.changes}:
            return None
    if state.outcomes[merge.refresh - 1] != "running" and not state.faults.put_back:
        outcome = state.outcomes[merge.refresh - 1]
        raise Violated(f"invariant 9: refresh {merge.refresh} is {outcome}, and a commit of it reaches main")
    facts = (merge.refresh, merge.epoch, merge.txn, merge.app, merge.merge_round, merge.part)
    return extended(design, state.log, Commit("publish", merge.changes, *facts))


def extended(design: Design, log: int, commit: Commit) -> int:
    """Return the log with a commit of ours."""
    after = appended(log, commit)
    if commit.epoch < epoch_in(log):
        raise Violated(f"invariant 6: epoch {commit.epoch} commits after epoch {epoch_in(log)}")
    is_foreign = any(c.kind in ("foreign", "restore") for c in commits_of(after))
    now = content(after)
    if design.is_progressive:
        is_torn = any(value not in column for value, column in zip(now, zip(*SOURCE, strict=True), strict=True))
    else:
        is_torn = now not in SOURCE
    if is_torn and not is_foreign:
        raise Violated(f"invariant 4: a reader sees {now}, which no version of the source is")
    if not design.is_progressive and not is_foreign and SOURCE.index(now) < SOURCE.index(content(log)):
        raise Violated(f"invariant 13: main goes back to the source at {SOURCE.index(now)}")
    return after

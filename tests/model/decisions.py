"""The package's decisions, asked by the small values of the world; each answer is kept.

They are given real `RefreshState`s, `Commit`s and `Claim`s, made of the small values once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from airflow_mv_provider.core import claim, plan
from airflow_mv_provider.core.approval import hold
from airflow_mv_provider.core.approval.hold import Decision, Hold, Objection
from airflow_mv_provider.core.claim import Claim
from airflow_mv_provider.core.fence import Commit as CoreCommit
from airflow_mv_provider.core.fence import (
    CommitNote,
    LogCheck,
    classify_commits,
    has_fence,
    has_kept_rows,
    has_publish,
    last_epoch,
    mark_at,
    next_txn_version,
    overtaken_by,
    whole_publish,
)
from airflow_mv_provider.core.frontier import Binding, desired_upper, mint
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress import history as core_history
from airflow_mv_provider.core.queue import turn
from airflow_mv_provider.core.state import (
    Admission,
    Ownership,
    RefreshState,
    is_fenced_by_last_publish,
    is_main_as_published,
)
from airflow_mv_provider.core.strategy import compare_reason
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.model.design import Target
from tests.model.versions import Written, written_in
from tests.model.world import CHUNKS, NORMAL, PHASES, UUID, Commit, Held, Recorded, Refresh, Row, commits_of, latest


@cache
def core_log(log: int) -> list[CoreCommit]:
    """Return the log as the package reads it, newest first."""
    return [_core(version, commit) for version, commit in enumerate(commits_of(log))][::-1]


@cache
def _core(version: int, commit: Commit) -> CoreCommit:
    operation = {"create": "CREATE TABLE", "optimize": "OPTIMIZE", "restore": "RESTORE", "publish": "MERGE"}
    note = None
    if commit.epoch:
        step = "fence" if commit.kind == "fence" else "publish"
        # The log tells what the shipped transaction version would be, also to designs that use another.
        facts = {"merge_round": commit.merge_round, "part": commit.part}
        facts |= {"is_final": step == "publish" and not commit.part, "keeps_rows": commit.keeps}
        facts |= {"base": None if commit.base < 0 else commit.base}
        note = CommitNote(UUID, f"r{commit.refresh}", commit.epoch, step, commit.txn, **facts)
    return CoreCommit(version, operation.get(commit.kind, "WRITE"), version - 1, note)


@cache
def as_state(row: Row, *, is_held: bool = False) -> RefreshState:
    return RefreshState(
        table_id=1,
        phase=PHASES[row.phase],
        epoch=row.epoch,
        refresh_id=f"r{row.refresh}" if row.refresh else None,
        owner_key=row.owner or None,
        owner_process=None if row.left or row.phase == NORMAL else "its process",
        owned_since_ms=None,
        is_lease_live=row.live,
        is_cancel_requested=row.cancel,
        published_upper=row.upper,
        published_version=None if row.version < 0 else row.version,
        published_commit=None,
        published_hash="hash",
        published_totals=None,
        covered=(),
        is_main_trusted=row.version >= 0,
        is_held=is_held,
        num_kept=int(row.kept),
    )


def as_row(state: RefreshState) -> Row:
    return Row(
        PHASES.index(state.phase),
        state.epoch,
        int(state.refresh_id[1:]) if state.refresh_id else 0,
        state.owner_key or "",
        state.is_lease_live,
        state.is_cancel_requested,
        state.published_upper,
        -1 if state.published_version is None else state.published_version,
        state.owner_process is None and state.phase is not Phase.NORMAL,
        bool(state.num_kept),
    )


def _after(row: Row, claimed: Claim) -> Row | None:
    found = claimed.after(as_state(row))
    return None if found is None else as_row(found)


def ownership(own: tuple[int, int]) -> Ownership:
    return Ownership(1, f"r{own[0]}", own[1])


@cache
def acquired(row: Row, seen: Row, refresh: int, key: str, epoch: int) -> Row | None:
    return _taken(_after(row, claim.acquire(as_state(seen), f"r{refresh}", key, epoch)))


@cache
def handed_over(row: Row, seen: Row, key: str, epoch: int) -> Row | None:
    return _taken(_after(row, claim.hand_over(as_state(seen), key, epoch)))


def _taken(row: Row | None) -> Row | None:
    return None if row is None else row._replace(left=False)


@cache
def held(row: Row, own: tuple[int, int], phase: int | None = None) -> Row | None:
    return _after(row, claim.hold(ownership(own), None if phase is None else PHASES[phase]))


@cache
def advanced(row: Row, own: tuple[int, int], old: int, new: int) -> Row | None:
    return _after(row, claim.advance(ownership(own), PHASES[old], PHASES[new]))


@cache
def abandoned(row: Row, own: tuple[int, int]) -> Row | None:
    return _after(row, claim.abandon(ownership(own)))


@cache
def cancelled(row: Row) -> Row | None:
    return _after(row, claim.cancel())


@cache
def admission(row: Row, key: str, is_held: bool) -> Admission:
    return turn(as_state(row, is_held=is_held), key, ())


# -- a person's decision -----------------------------------------------------------------------------------------------


def _hold(refresh: int, held: Held) -> Hold:
    return Hold(f"r{refresh}", held.merge_round, "held", (), 0, 0, held.is_over, held.decision)


def is_waiting(row: Row, held: Held | None) -> bool:
    """True if a refresh waits for a decision, and no process works on it; `metadata.holds.is_held` of small values."""
    return held is not None and row.left and held.decision is None and not held.is_over


@cache
def hold_step(refresh: int, held: Held | None, merge_round: int) -> hold.Step:
    last = None if held is None else _hold(refresh, held)
    facts = {"is_requested": False, "has_changes": True, "changes_columns": False, "refusals": (), "last": last}
    return hold.next_step(last, merge_round, hold.why_held("always", **facts))  # type: ignore[arg-type]


@cache
def leaves_out_deletes(refresh: int, held: Held | None, merge_round: int, has_kept: bool) -> bool:
    return hold.keeps_rows(None if held is None else _hold(refresh, held), merge_round, has_kept=has_kept)


@cache
def objection(refresh: int, held: Held | None, shown: tuple[int, int] | None, decision: Decision) -> Objection | None:
    """Return why a decision about what was shown, a refresh and its round, cannot be recorded."""
    hold_id = None if shown is None else f"r{shown[0]}.{shown[1]}"
    return hold.objection(None if held is None else _hold(refresh, held), hold_id, decision)


@cache
def is_outdated(refresh: int, held: Held, pin: int, source: int) -> bool:
    return hold.is_outdated(_hold(refresh, held), is_same_definition=True, is_same_source=pin == source)


@cache
def is_believed(row: Row, log: int) -> bool:
    """True if main is taken for what the last publish left."""
    # The model has no log that was put back: the newest of ours up to a version is always the one that was recorded.
    published_commit = mark_at(core_log(log), row.version)
    return is_main_as_published(replace(as_state(row), published_commit=published_commit), core_log(log))


@cache
def is_fenced_by_publish(row: Row, log: int, epoch: int) -> bool:
    """True if main's newest commit is the last publish, of the epoch right before this one."""
    state = replace(as_state(row), published_commit=mark_at(core_log(log), row.version))
    return is_fenced_by_last_publish(state, core_log(log), epoch)


@cache
def minted(
    row: Row, log: int, bindings: tuple[int, ...], source: int, *, is_forced: bool = False
) -> tuple[int, int] | None:
    """Return the upper that a caller who saw this row would bring main to, and the pin; None if nothing is new."""
    must_compare = compare_reason(
        is_first=row.version < 0,
        is_forced=is_forced,
        same_definition=True,
        is_trusted=is_believed(row, log),
        nondeterminism_reason=None,
        num_kept=int(row.kept),
    )
    newest = Binding(len(bindings), DeltaFrontier("source", bindings[-1])) if bindings else None
    upper = desired_upper(newest, DeltaFrontier("source", source), row.upper, must_compare=must_compare is not None)
    batch = mint(upper, row.upper)
    return None if batch is None else (batch.upper, source)


@cache
def steps_left(
    phase: int,
    is_fenced: bool,
    chunks: tuple[Recorded | None, ...],
    is_progressive: bool,
    is_sealed: bool,
    is_overtaken: bool,
) -> tuple[plan.Step, ...]:
    return plan.remaining(
        PHASES[phase],
        is_fenced=is_fenced,
        chunks=CHUNKS if is_sealed else (),
        recorded={c.number for c in chunks if c},
        committed={c.number for c in chunks if c and (c.committed or c.path is None)},
        is_progressive=is_progressive,
        is_overtaken=is_overtaken,
    )


@cache
def may_have_published(phase: int, refresh: Refresh) -> bool:
    return plan.may_have_published(
        PHASES[phase],
        chunks={chunk.number for chunk in CHUNKS} if refresh.sealed_by else (),
        recorded={c.number for c in refresh.chunks if c},
        merge_round=refresh.merge_round,
    )


@cache
def log_check(
    log: int, base: int, own: tuple[int, int], merge_round: int, part: int | None, tells_rounds: bool
) -> LogCheck:
    commits = core_log(log)
    if not tells_rounds:
        commits = [replace(c, note=c.note and replace(c.note, merge_round=merge_round)) for c in commits]
    facts = {"refresh_id": f"r{own[0]}", "epoch": own[1], "merge_round": merge_round, "part": part}
    return classify_commits(commits, base=base, latest=latest(log), **facts)


@cache
def is_publish_in(log: int, refresh: int) -> bool:
    return has_publish(core_log(log), f"r{refresh}")


@cache
def is_kept_in(log: int, refresh: int) -> bool:
    return has_kept_rows(core_log(log), f"r{refresh}")


@cache
def epoch_in(log: int) -> int:
    return last_epoch(core_log(log))


@cache
def is_fence_in(log: int, own: tuple[int, int]) -> bool:
    return has_fence(core_log(log), own[1], f"r{own[0]}")


@cache
def is_overtaken(log: int, refresh: int, first_epoch: int) -> bool:
    """True if the log shows a refresh that began after this one."""
    return overtaken_by(core_log(log), f"r{refresh}", first_epoch) is not None


@cache
def published_whole(log: int, refresh: int, first_epoch: int) -> int | None:
    """Return the version with all of a refresh, as far as the log alone proves it."""
    commits = core_log(log)
    found = whole_publish(commits, f"r{refresh}", overtaken_by(commits, f"r{refresh}", first_epoch))
    return None if found is None else found.version


@cache
def txn_after(log: int, epoch: int) -> int:
    return next_txn_version(core_log(log), epoch)


# -- the history beside main -----------------------------------------------------------------------------------------


@cache
def history_log(history: int) -> list[CoreCommit]:
    """Return the history's log as the package reads it, newest first."""
    return [_of_history(version, commit) for version, commit in enumerate(written_in(history))][::-1]


@cache
def _of_history(version: int, commit: Written) -> CoreCommit:
    note = None
    if commit.txn:
        step: Any = commit.kind
        note = CommitNote(UUID, f"r{commit.refresh}", commit.epoch, step, commit.txn)
        if commit.kind == "history":
            note = note.of_history(commit.reached, commit.mark, None, None if commit.base < 0 else commit.base)
    operation = {"create": "CREATE TABLE", "foreign": "DELETE", "history": "MERGE", "unseen": "OPTIMIZE"}
    return CoreCommit(version, operation.get(commit.kind, "WRITE"), version - 1, note)


@cache
def needs_history_fence(history: int, log: int, own: tuple[int, int]) -> bool:
    return core_history.needs_fence(history_log(history), core_log(log), f"r{own[0]}", own[1])


@cache
def needs_fence_of_changes(history: int, log: int, own: tuple[int, int]) -> bool:
    """The same, as if a process wrote the history only because main has changed: a weaker design's."""
    commits, main = [c for c in history_log(history) if c.note or c.keeps_data], core_log(log)
    last = core_history.last_written(commits)
    reached = -1 if last is None or last.note is None or last.note.reached is None else last.note.reached
    main = [c for c in main if c.version <= reached or not c.keeps_data]
    return core_history.needs_fence(commits, main, f"r{own[0]}", own[1])


@cache
def history_plan(
    history: int,
    log: int,
    own: tuple[int, int],
    version: int,
    published: tuple[int, ...],
    has_corrections: bool,
    is_forced: bool,
    minds_others: bool,
) -> Target:
    commits = core_log(log)
    ours = [commit for commit in commits if commit.version in published or not minds_others]
    is_forced = is_forced and not is_history_of(history, own)
    facts = {"has_corrections": has_corrections, "is_forced": is_forced}
    found = core_history.planned(history_log(history), commits, version, ours, definition_hash="", **facts)
    newest = history_log(history)[0].version
    return Target(found.way, version, mark_at(commits, version), history_txn_after(history, own[1]), newest)


@cache
def history_txn_after(history: int, epoch: int) -> int:
    return next_txn_version(history_log(history), epoch)


@cache
def is_history_of(history: int, own: tuple[int, int]) -> bool:
    """True if this refresh has written the history last, under this epoch."""
    last = core_history.last_written(history_log(history))
    note = None if last is None else last.note
    return note is not None and (note.refresh_id, note.epoch) == (f"r{own[0]}", own[1])


@cache
def is_history_taken(history: int, log: int, epoch: int) -> bool:
    return last_epoch(history_log(history)) > epoch and last_epoch(core_log(log)) > epoch

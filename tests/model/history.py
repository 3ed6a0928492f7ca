"""How a process brings the history to main's version, after main's commit, as in `runner/steps/history`.

    history ─▶ (fence history ─▶ plan history) ─▶ (compare history) ─▶ merge history ─▶ commit history ─▶ check history

Both logs are read as one; whoever has written between two reads has written before or after both. Where nothing is left
to do there is no fence, either.
"""

from __future__ import annotations

from airflow_mv_provider.core.progress.history import Way
from tests.model.design import Design, Effects, Worker
from tests.model.ending import LOST, MAX_TRIES, Stepped, ended, failing, history_failed


def create(design: Design, fx: Effects, worker: Worker) -> Stepped:
    fx.create_history()
    return "creates the history", worker._replace(at="run")


def read(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Read both logs, and decide whether an earlier process has to be shut out first."""
    if fx.is_history_taken(worker.own):
        return "sees a later epoch in both logs", failing(design, fx, worker, "MV-FENCED")
    target = fx.history_plan(worker.own, worker.data[0])
    is_due = design.fences_history and target.way is not Way.NOTHING
    if is_due and fx.needs_history_fence(worker.own):
        return "sees that an earlier process may still write the history", worker._replace(at="fence history")
    return _planned(design, fx, worker)


def fence(design: Design, fx: Effects, worker: Worker) -> Stepped:
    said = "fences the history" if fx.fence_history(worker.own) else "is refused its fence of the history"
    return f"{said} for epoch {worker.own[1]}", worker._replace(at="plan history")


def plan(design: Design, fx: Effects, worker: Worker) -> Stepped:
    if fx.is_history_taken(worker.own):
        return "sees a later epoch in both logs", failing(design, fx, worker, "MV-FENCED")
    return _planned(design, fx, worker)


def _planned(design: Design, fx: Effects, worker: Worker) -> Stepped:
    found, number = worker.data
    target, version = fx.history_plan(worker.own, found), found.version
    match target.way:
        case Way.NOTHING:
            return "sees the history at main's version", worker._replace(at="published", data=(version,))
        case Way.COMPARE:
            at = "compare history"
        case _:
            at = "merge history"
    said = f"is to bring the history to main's version {version}: {target.way}"
    return said, worker._replace(at=at, data=(found, number, target, None))


def compare(design: Design, fx: Effects, worker: Worker) -> Stepped:
    *before, target, _ = worker.data
    actions = fx.compare_history(target)
    said = f"compares the current versions: {len(actions)} actions"
    return said, worker._replace(at="merge history", data=(*before, target, actions))


def merge(design: Design, fx: Effects, worker: Worker) -> Stepped:
    found, _, target, actions = worker.data
    started = fx.start_history(worker.own, found, target, actions)
    match started:
        case "gone":
            return "finds its changes gone", failing(design, fx, worker, "MV-SEAL-BROKEN")
        case "outdated":
            return "is refused by the history: its transaction is outdated", worker._replace(at="check history")
    return f"starts to write the history: {started}", worker._replace(at="commit history", data=(started, *worker.data))


def commit(design: Design, fx: Effects, worker: Worker) -> Stepped:
    write, *before = worker.data
    after = worker._replace(data=tuple(before))
    if not fx.commit_history(write):
        return "fails to commit to the history: others were faster", history_failed(after, "MV-FENCED")
    return "commits to the history", after._replace(at="check history")


def check(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Look whether the write is in the log. Delta drops a write that comes after a later epoch's without a word."""
    found, *_ = worker.data
    if fx.is_history_taken(worker.own):
        return "sees a later epoch in both logs", history_failed(worker, "MV-FENCED")
    if not fx.is_history_written(worker.own):
        return "sees that its write is not in the history", failing(design, fx, worker, "MV-EPOCH-REGRESSION")
    return "sees that it has written the history", worker._replace(at="published", data=(found.version,))


def again(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Ask for the lease again after an error, and read the logs: they tell whether the write was committed."""
    found, number, code = worker.data
    if number == MAX_TRIES:
        return "has tried often enough", failing(design, fx, worker, code)
    if fx.renew(worker.own) is None:
        return "sees that it was overtaken", ended(LOST)
    return "looks again", worker._replace(at="history", data=(found, number + 1))


def write_ahead(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Write the history before main's commit; only a weaker design does."""
    fx.write_history_ahead(worker.own, *worker.data)
    return "writes the history before main", worker._replace(at="merge")


STEPS = {
    "create history": create,
    "history": read,
    "fence history": fence,
    "plan history": plan,
    "compare history": compare,
    "merge history": merge,
    "commit history": commit,
    "check history": check,
    "history again": again,
    "history ahead": write_ahead,
}

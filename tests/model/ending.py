"""How a process ends: its steps' errors, and what becomes of the refresh then, as in `runner/recovery`."""

from __future__ import annotations

from airflow_mv_provider.core.phase import Ending
from tests.model.design import Design, Effects, Worker

Stepped = tuple[str, Worker]
MAX_TRIES = 3  # as in runner/steps
AGAIN, NOTHING_NEW, OVER, LOST = "again", "nothing new", "over", "MV-LEASE-LOST"
HELD = "MV-HELD"
# An error at one of these ends the process: it owns nothing yet, or has decided what becomes of the refresh.
_ENDS = frozenset({"idle", "supersede", "look", "acquire", "take", "hand over", "settle", "park", "abandon", "sweep"})


def failing(design: Design, fx: Effects, worker: Worker, code: str) -> Worker:
    """Return a process whose step has met an error: the lease is asked again, then what becomes of the refresh."""
    if worker.at in _ENDS:
        return ended(code)
    if design.settles_its_own and not worker.mode.startswith("give up"):
        is_cancelled = fx.renew(worker.own)
        if is_cancelled is None:
            return ended(LOST)
        if is_cancelled and can_stop(fx, worker):
            code = "MV-CANCELLED"
    return fail(fx, worker, code)


def interrupted(design: Design, fx: Effects, worker: Worker, code: str) -> Worker:
    """Return a process that has lost the answer to a step: of a fence or a MERGE, main's log shows what came of it."""
    match worker.at:
        case "fence" | "look at fence":
            return ended(LOST) if fx.renew(worker.own) is None else worker._replace(at="look at fence")
        case "merge" | "commit":
            return merge_failed(worker, code)
        case "commit history":
            return history_failed(worker._replace(data=worker.data[1:]), code)
        case "fence history" | "plan history" | "compare history" | "merge history" | "check history":
            return history_failed(worker, code)
        case _:
            return failing(design, fx, worker, code)


def ended(why: str) -> Worker:
    return Worker(data=(why,))


def fail(fx: Effects, worker: Worker, code: str) -> Worker:
    """Return a process that owns its refresh and stops with an error."""
    if code in ("MV-DATABASE-UNAVAILABLE", LOST):
        return ended(code)
    if worker.mode == "bring to its end" and not fx.is_sealed(worker.own):
        return worker._replace(at="abandon", data=())
    if worker.mode == "bring to its end" and fx.is_merging(worker.own):
        return worker._replace(at="abandon" if code == "MV-OVERTAKEN" else "conclude", data=())
    if worker.mode not in ("", "give up"):
        return ended(code)
    return worker._replace(at="settle", mode="", data=(code,))


def can_stop(fx: Effects, worker: Worker) -> bool:
    return fx.is_cancellable(worker.own, has_tried=has_tried(worker))


def has_tried(worker: Worker) -> bool:
    return worker.has_tried or worker.is_unknown or worker.is_in_main


def merge_failed(worker: Worker, code: str) -> Worker:
    """Return a process whose MERGE has met an error: main's log decides what is next; the last try's error is kept."""
    return worker._replace(at="run", data=(), last_error=code if worker.num_tries == MAX_TRIES else "")


def history_failed(worker: Worker, code: str) -> Worker:
    """Return a process whose write to the history has met an error: its log decides what is next."""
    found, number, *_ = worker.data
    return worker._replace(at="history again", data=(found, number, code))


def settle(design: Design, fx: Effects, worker: Worker) -> Stepped:
    (code,) = worker.data
    own = worker.own
    if design.settles_its_own and not fx.is_own(own):
        return "sees that it was overtaken", ended(LOST)
    if fx.ending(own, code) is Ending.KEEP:
        return "keeps the refresh", worker._replace(at="park", data=())
    if not has_tried(worker) or worker.is_overtaken:
        return "gives the refresh up", worker._replace(at="abandon", data=())
    seen = fx.seen()
    mode = "give up for good" if fx.has_committed(own) and not design.is_progressive else "give up after an error"
    return "wants to give the refresh up", Worker("hand over", own, seen, mode, data=(fx.next_epoch(seen),))


def park(design: Design, fx: Effects, worker: Worker) -> Stepped:
    return "parks the refresh", ended(OVER if fx.park(worker.own) else LOST)


def look_before_giving_up(design: Design, fx: Effects, worker: Worker) -> Stepped:
    if not fx.is_own(worker.own):
        return "sees that the refresh has ended", ended(LOST)
    is_published = fx.has_committed(worker.own) or worker.is_in_main
    if not design.looks_first and (recorded := fx.recorded(worker.own)):
        is_published = is_published or bool(
            fx.check_log(worker.own, recorded, fx.merge_round(worker.own), None).published
        )
    if is_published and worker.mode != "give up for good" and not design.is_progressive:
        mode = "bring to its end" if design.asks_log else ""
        return "sees that main has it", worker._replace(at="run", mode=mode, data=())
    return "sees that it may be given up", worker._replace(at="abandon")


def abandon(design: Design, fx: Effects, worker: Worker) -> Stepped:
    is_main_known = not worker.is_overtaken and worker.mode != "bring to its end"
    if not fx.abandon(worker.own, worker.mode, is_main_known=is_main_known):
        return "cannot abandon any more", ended(LOST)
    return "abandons the refresh", worker._replace(at="sweep", data=())


def sweep(design: Design, fx: Effects, worker: Worker) -> Stepped:
    fx.remove_files(worker.own)
    return "removes its files", ended(OVER)

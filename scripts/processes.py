"""Processes that outlive whoever started them: known by pid and time of birth, ended with all that they started."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

GRACE_S = 10  # seconds that a process has to end


def born(pid: int) -> float:
    """Return when a process began, in seconds since the machine did: a clock that is set does not change it.

    Raises:
        psutil.NoSuchProcess
    """
    return round(float(psutil.Process(pid).create_time()) - psutil.boot_time(), 1)


def boot() -> str:
    """Return what names this start of the machine; empty where it has no name, as on macOS."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def process_of(entry: Mapping[str, Any]) -> psutil.Process | None:
    """Return the process of an entry, unless it has ended; its pid may be another's by now."""
    try:
        process = psutil.Process(entry["pid"])
        is_it = _is_born_at(entry) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return process if is_it else None


def end(services: Sequence[Mapping[str, Any]], how: signal.Signals) -> int:
    """End services and everything in their sessions, also of one that is gone; return how many ran."""
    running = [process for each in services if (process := process_of(each)) is not None]
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(how)
    psutil.wait_procs(running, timeout=GRACE_S)
    leaders = {each["pid"] for each in services if _is_or_was_ours(each)}
    left = [process for process in psutil.process_iter() if _session(process.pid) in leaders]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=GRACE_S)
    return len(running)


def _is_born_at(entry: Mapping[str, Any]) -> bool:
    return abs(born(entry["pid"]) - entry["born"]) < 1.5  # the machine's start is known by the second


def _is_or_was_ours(entry: Mapping[str, Any]) -> bool:
    """True unless another process has the pid by now; while a session lives, nobody gets its leader's."""
    try:
        return _is_born_at(entry)
    except psutil.NoSuchProcess:
        return True


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # it has ended
        return None

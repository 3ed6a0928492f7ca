"""Show a refresh's progress and this package's warnings on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_mv_provider.cli.answer import aside

if TYPE_CHECKING:
    from airflow_mv_provider.runner.watching import Progress, Watcher

_STARTS_SPARK = "airflow_mv_provider.runner.context"  # the logger of the module that does
_AROUND_CHUNKS = 3  # the bar also counts the steps stage, publish and clean


@contextmanager
def watcher() -> Iterator[Watcher]:
    """Yield the function that a Refresher calls before each step; it shows the step."""
    if sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _line


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Show this package's warnings on stderr, one line each, above the progress bar if there is one.

    Without a bar that Spark is being started is shown, too: it may take half a minute in which nothing else is.
    """

    class ToStderr(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            aside(f"amv: {record.getMessage()}")

    levels = {"airflow_mv_provider": logging.WARNING}
    if not sys.stderr.isatty():
        levels[_STARTS_SPARK] = logging.INFO
    with ExitStack() as stack:
        for name, level in levels.items():
            stack.enter_context(_handled(logging.getLogger(name), ToStderr(level)))
        yield


@contextmanager
def _handled(log: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    """Let a handler alone have what a logger is told."""
    was_propagating, level = log.propagate, log.level
    log.propagate = False
    log.setLevel(handler.level)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = was_propagating


def _line(progress: Progress) -> None:
    counted = f" ({progress.done} of {progress.total} batches compared)" if progress.total else ""
    now = datetime.now(UTC).strftime("%H:%M:%S")
    aside(f"{now} {progress.table} {progress.phase}: {progress.message}{counted}")


@contextmanager
def _bar() -> Iterator[Watcher]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[phase]:<10}"),
        BarColumn(bar_width=24),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting Spark", total=None, phase="")

        def show(progress: Progress) -> None:
            total = progress.total + _AROUND_CHUNKS if progress.total else None
            done = {"MERGING": progress.done + 1, "CLEANUP": progress.total + _AROUND_CHUNKS - 1}
            text = escape(f"{progress.table}: {progress.message}")
            bar.update(task, description=text, phase=progress.phase, total=total, completed=done.get(progress.phase, 0))

        yield show

"""Progress on stderr: a bar where somebody looks at a terminal, lines where it is kept; stdout is never touched."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

TELL = """
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.runner.watching import Progress
from airflow_mv_provider.cli.progress_bar import watcher
with watcher() as show:
    for done in range(3):
        show(Progress("orders", "a" * 32, Phase.MERGING, f'comparing partition ["[red]{done}"]', done, 3))
"""


def test_lines_where_there_is_no_terminal():
    done = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True)

    lines = done.stderr.splitlines()
    assert done.stdout == ""
    assert len(lines) == 3
    assert lines[-1].endswith('orders MERGING: comparing partition ["[red]2"] (2 of 3 batches compared)')


def test_a_bar_on_a_terminal():
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}

    done = subprocess.run(
        [sys.executable, "-c", TELL], env=environment, stdout=subprocess.PIPE, stderr=theirs, check=True
    )

    os.close(theirs)
    drawn = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.stdout == b""
    assert "MERGING" in drawn
    assert "━" in drawn
    assert '["[red]2"]' in drawn


STARTS = """
import logging
from airflow_mv_provider.cli.progress_bar import warnings_on_stderr
with warnings_on_stderr():
    logging.getLogger("airflow_mv_provider.runner.context").info("Starting Spark.")
    logging.getLogger("airflow_mv_provider.runner.attempt").info("a step")
    logging.getLogger("airflow_mv_provider.runner.attempt").warning("a warning")
logging.getLogger("airflow_mv_provider.runner.context").info("later")
"""


def test_start_of_spark_is_shown_where_there_is_no_bar():
    done = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, check=True)

    assert done.stderr.splitlines() == ["amv: Starting Spark.", "amv: a warning"]

"""The embedded session: one per process, whichever thread asks, and one line when it cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.in_process]


def test_another_thread_gets_a_session_of_the_same_spark(spark):
    from airflow_mv_provider.spark.session import local_session

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(local_session).result()

    assert other.sparkContext is spark.sparkContext


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("JAVA_HOME", "/no/java/here", "Java is not found under JAVA_HOME"),
        ("AMV_DRIVER_MEMORY", "much", "did not start"),
    ],
)
def test_what_keeps_spark_from_starting_is_said_in_one_line(variable, value, says):
    start = "from airflow_mv_provider.spark.session import local_session; local_session()"

    done = subprocess.run(
        [sys.executable, "-c", start], env=os.environ | {variable: value}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert says in done.stderr.splitlines()[-1]
    assert done.stdout == ""

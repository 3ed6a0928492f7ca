"""What a log says of where Spark runs."""

from __future__ import annotations

import pytest

from airflow_mv_provider.runner.context import spark_place


@pytest.mark.parametrize(
    ("remote", "said"),
    [
        (None, "in this process"),
        ("sc://spark.example:15002", "Connect, spark.example:15002"),
        ("sc://spark.example:15002/;token=hunter2", "Connect, spark.example:15002"),
    ],
)
def test_a_log_names_the_place_of_spark_and_no_token(remote, said):
    assert spark_place(remote) == said
    assert remote is None or remote not in said, "Airflow would mask the whole address, which is a secret of its own"

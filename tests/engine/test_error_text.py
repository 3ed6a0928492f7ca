"""What is kept of an error's text: one line that tells."""

from __future__ import annotations

import pytest

from airflow_mv_provider.spark.errors import first_line

GRPC = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.INTERNAL
\tdetails = "[INTERNAL_ERROR] Out of space in CodeCache. SQLSTATE: XX000"
\tdebug_error_string = "UNKNOWN:Error received from peer  {grpc_status:13}"
>"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(GRPC, "[INTERNAL_ERROR] Out of space in CodeCache", id="a Connect server's"),
        pytest.param(
            "An error occurred while calling o1.sql.\n: java.io.IOException: No space left on device\n\tat x.y(Z.java)",
            "IOException: No space left on device",
            id="Java's through Py4J",
        ),
        pytest.param(
            "[PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03",
            "[PATH_NOT_FOUND] Path does not exist: /x",
            id="Spark's",
        ),
    ],
)
def test_first_line_tells(text, expected):
    assert first_line(text) == expected

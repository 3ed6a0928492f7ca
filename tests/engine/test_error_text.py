"""What is kept of an error's text: one line that tells."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from airflow_mv_provider.spark.errors import BAD_RECORD, first_line, translate

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


FOLDER = "/lake/bl ank, it's"
ENCODED = "/lake/bl%20ank,%20it's"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"[PATH_NOT_FOUND] Path does not exist: file:{FOLDER}/a b.csv. SQLSTATE: 42K03", "a b.csv does not exist"),
        (
            "[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file "
            f"file:{FOLDER}/a b.parquet. Could not read footer. Please ensure that",
            "a b.parquet cannot be read",
        ),
        (
            f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file://{ENCODED}/a%20b.orc.  "
            "SQLSTATE: KD001\n\tat org.apache.spark.sql.errors",
            "a b.orc cannot be read",
        ),
        (
            "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file "
            f"file://{ENCODED}/a%20b.csv. File does not exist. It is possible",
            "a b.csv was removed",
        ),
        (f"[USER_RAISED_EXCEPTION] {BAD_RECORD} file://{ENCODED}/a%20b.json two. SQLSTATE: P0001", "a b.json has a"),
    ],
)
def test_file_is_named_with_its_blanks(text, told):
    assert f"source: {FOLDER}/{told}" in str(translate(PySparkException(text), "source"))

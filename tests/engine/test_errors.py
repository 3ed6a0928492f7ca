"""What Spark says when its surroundings fail, as it says it; no test here needs a JVM."""

from __future__ import annotations

import socket
import struct
from threading import Thread

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, JavaObject
from pyspark.errors import AnalysisException, IllegalArgumentException, SparkRuntimeException
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
from pyspark.sql.connect.client.retries import DefaultPolicy, Retrying
from pyspark.sql.connect.proto import ExecutePlanRequest

from airflow_mv_provider.exceptions import (
    CorruptRecordError,
    DefinitionError,
    DependencyError,
    DiskFullError,
    EngineError,
    InterruptedRefreshError,
    MainMovedError,
    SchemaMismatchError,
    SourceFileError,
)
from airflow_mv_provider.spark.errors import ROW_MISMATCH, UNKNOWN_FILE, is_of_spark, translate, translated

# Shortened as `str(error)` of PySpark 4.2 is; the classes and the order of the lines are Spark's.
FULL = """[TASK_WRITE_FAILED] Task failed while writing rows to file:/wh/_mv/x/staging-1. SQLSTATE: 58030
An error occurred while calling o77.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
OF_A_SHUFFLE = "org.apache.spark.memory.SparkOutOfMemoryError: error while calling spill() : No space left on device"
UNREADABLE = """[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///wh/raw/x.csv. SQLSTATE: KD001
Caused by: java.io.FileNotFoundException: /wh/raw/x.csv (Permission denied)
\tat java.base/java.io.FileInputStream.open0(Native Method)
"""
CANCELLED = """[SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job tags mv-1. SQLSTATE: XXKDA
org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job tags mv-1.
"""
BESIDE_A_CANCELLED_ONE = FULL + "\tSuppressed: " + CANCELLED


@pytest.mark.parametrize(
    "text", [FULL, OF_A_SHUFFLE, FULL.replace("No space left on device", "Disk quota exceeded"), BESIDE_A_CANCELLED_ONE]
)
def test_full_disk_is_named_and_worth_a_retry(text):
    error = translate(SparkRuntimeException(text), "orders")

    assert type(error) is DiskFullError
    assert isinstance(error, EngineError)
    assert error.is_transient
    assert error.advice.startswith("Free space")
    assert "\tat" not in str(error)
    assert "disk that Spark writes to is full: " in str(error)


def test_file_that_may_not_be_read_is_named():
    error = translate(SparkRuntimeException(UNREADABLE), "source")

    assert type(error) is SourceFileError
    assert "/wh/raw/x.csv cannot be read" in str(error)
    assert "Permission denied" in str(error)


FOLDERS = """[CONFLICTING_PARTITION_COLUMN_NAMES] Conflicting partition column names detected:

\tPartition column name list #0: m
\tPartition column name list #1: n

For partitioned table directories, data files should only live in leaf directories.
And directories at the same level should have the same partition column name.
Please check the following directories for unexpected files or inconsistent partition column names:

\tfile:/wh/raw/m=1
\tfile:/wh/raw/n=2 SQLSTATE: KD009
"""
ILLEGAL = "[PARQUET_TYPE_ILLEGAL] Illegal Parquet type: INT64 (TIMESTAMP(NANOS,true)). SQLSTATE: 42846"
ILLEGAL_IN_A_FILE = f"""[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///wh/raw/x.parquet.
Caused by: org.apache.spark.sql.AnalysisException: {ILLEGAL}
"""


def test_folders_that_disagree_are_named_as_what_no_retry_mends():
    error = translate(SparkRuntimeException(FOLDERS), "source")

    assert type(error) is SourceFileError
    assert error.problem == ("its folders have different partition columns, 'm' and 'n': /wh/raw/m=1, /wh/raw/n=2.")


NO_GLOB = ": java.io.IOException: Illegal file pattern: error parsing regexp: Unclosed group at pos 6: `{a.csv`"
COLON = ": java.lang.IllegalArgumentException: java.net.URISyntaxException: Relative path in absolute URI: a:b.csv"


def test_glob_that_is_none_is_a_definitions_mistake():
    error = translate(SparkRuntimeException(NO_GLOB), "source")

    assert type(error) is DefinitionError
    assert error.problem == "the path is not a valid glob: error parsing regexp: Unclosed group at pos 6: `{a.csv`."


def test_colon_in_a_files_name_is_told_as_what_it_is():
    error = translate(IllegalArgumentException(COLON), "source")

    assert type(error) is SourceFileError
    assert (error.problem, error.advice[:10]) == ("'a:b.csv' has a colon in its name.", "Rename it:")


def test_number_of_more_digits_than_spark_has_is_a_matter_of_the_type():
    text = "[DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION] Decimal precision 50 exceeds max precision 38. SQLSTATE: 22003"

    error = translate(SparkRuntimeException(text), "source")

    assert type(error) is SchemaMismatchError
    assert "precision 50 exceeds" in error.problem


MALFORMED = """[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///wh/raw/x.csv. SQLSTATE: KD001
Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are\
 detected in record parsing: [1,null].
Parse Mode: FAILFAST. To process malformed records as null result, try setting the option 'mode' as 'PERMISSIVE'.
Caused by: """


@pytest.mark.parametrize(
    ("cause", "shown"),
    [
        ('java.lang.NumberFormatException: For input string: "two"', "'two'"),
        ('java.lang.IllegalArgumentException: For input string: "yes"', "'yes'"),
        ('java.lang.NumberFormatException: Value out of range. Value:"40000" Radix:10', "'40000'"),
        ("java.time.format.DateTimeParseException: Text '2024x' could not be parsed at index 4", "'2024x'"),
        ("a.b.SparkIllegalArgumentException: [INVALID_INTERVAL] Error parsing 'x' to interval. Please ensure", "'x'"),
        (
            "a.b.SparkArithmeticException: [NUMERIC] The 12345.00 rounded half up from 12345 cannot be represented as",
            "'12345'",
        ),
        (
            "java.lang.NumberFormatException: Character x is neither a decimal digit number, nor",
            "'[1,null]' (Character x is neither a decimal digit number, nor)",
        ),
    ],
)
def test_value_that_does_not_parse_is_shown_with_its_text(cause, shown):
    error = translate(SparkRuntimeException(MALFORMED + cause + "\n"), "source")

    assert type(error) is CorruptRecordError
    assert error.problem == f"/wh/raw/x.csv has a record that does not fit: {shown}."


@pytest.mark.parametrize("text", [ILLEGAL, ILLEGAL_IN_A_FILE])
def test_type_that_cannot_be_read_is_named_as_what_no_retry_mends(text):
    error = translate(SparkRuntimeException(text), "source")

    assert type(error) is SchemaMismatchError
    assert "Illegal Parquet type: INT64 (TIMESTAMP(NANOS,true))" in error.problem
    assert "microseconds" in error.advice


WITHOUT_A_HEADER = """[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///wh/raw/a.csv.
Caused by: java.lang.IllegalArgumentException: CSV header does not conform to the schema.
 Header: 1, a
 Schema: id, v
Expected: id but found: 1
CSV file: file:///wh/raw/a.csv
"""


def test_header_that_is_none_is_told_with_the_option_that_says_so():
    error = translate(SparkRuntimeException(WITHOUT_A_HEADER), "source")

    assert type(error) is SchemaMismatchError
    assert error.problem == "the header of /wh/raw/a.csv does not match the schema: expected column 'id', found '1'."
    assert '`options: {header: "false"}`' in error.advice


def test_what_spark_refuses_of_a_source_is_no_fault_of_spark():
    refusal = AnalysisException("[SOME_NEW_CONDITION] The reader does not take this. SQLSTATE: 0A000")

    assert type(translate(refusal, "source")) is DefinitionError
    assert type(translate(refusal, "orders")) is EngineError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: avro. Make sure the provider name is right.", "avro"),
        ("[AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE] Cannot call the FROM_AVRO SQL function because", "avro"),
    ],
)
def test_format_without_its_jar_names_the_setting_that_brings_it(text, name):
    error = translate(AnalysisException(text), "source")

    assert type(error) is DependencyError
    assert f"AMV_SOURCE_DATABASES={name} " in error.advice
    assert f"org.apache.spark:spark-{name}_2.13:" in error.advice


RAISED = """[FAILED_EXECUTE] An error occurred. SQLSTATE: 39000
Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {} SQLSTATE: P0001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:2700)
"""


def test_what_a_definitions_sql_raises_is_told_and_no_retry_mends_it():
    error = translate(SparkRuntimeException(RAISED.format("five is odd.")), "source")

    assert type(error) is CorruptRecordError
    assert error.problem == "the definition's SQL raised: five is odd."
    assert "SQL" in error.advice


@pytest.mark.parametrize(("text", "kind"), [(ROW_MISMATCH, MainMovedError), (UNKNOWN_FILE, EngineError)])
def test_what_this_packages_sql_raises_keeps_its_meaning(text, kind):
    error = translate(SparkRuntimeException(RAISED.format(text)), "orders")

    assert type(error) is kind
    assert error.is_transient


@pytest.mark.parametrize("text", [CANCELLED, "[OPERATION_CANCELED] Operation has been canceled. SQLSTATE: HY008"])
def test_cancelled_job_is_no_fault_of_spark(text):
    error = translate(SparkRuntimeException(text), "orders")

    assert type(error) is InterruptedRefreshError
    assert error.problem.startswith(f"the Spark job was cancelled: {text.split(' ')[0]} ")
    assert "SQLSTATE" not in error.problem


def test_job_cancelled_beside_one_that_failed_does_not_hide_why():
    error = translate(SparkRuntimeException(UNREADABLE + "\tSuppressed: " + CANCELLED), "source")

    assert type(error) is SourceFileError


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), ConnectionResetError(104, "x")])
def test_jvm_that_has_died_is_told_by_refused_connections_and_another_try_may_have_one(error):
    with pytest.raises(EngineError, match="it may have been killed") as caught, translated("orders"):
        raise error

    assert caught.value.is_transient
    assert is_of_spark(error)


@pytest.mark.parametrize(
    "ask",
    [lambda gateway: gateway.jvm.PythonUtils, lambda gateway: JavaObject("o7", gateway._gateway_client).collect()],
    ids=["class", "method"],
)
def test_jvm_that_dies_while_its_answer_is_awaited_is_told_as_one_that_has_died(ask):
    """Py4J then says that a class does not exist, or which call has failed and nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as jvm:
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=jvm.getsockname()[1]))

        def die() -> None:
            connection, _ = jvm.accept()
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        dying = Thread(target=die)
        dying.start()
        with pytest.raises(EngineError, match="it may have been killed") as caught, translated("orders"):
            ask(gateway)
        dying.join()

    assert caught.value.is_transient


def test_assertion_of_connects_client_is_a_failure_of_the_engine_and_another_try_may_succeed():
    class Released:
        """A server whose streams end without an answer, while the command is released in the client."""

        def ExecutePlan(self, request, metadata):
            yield from ()

        def ReattachExecute(self, request, metadata):
            answers._release_all()
            yield from ()

        def ReleaseExecute(self, request, metadata):
            return None

    answers = ExecutePlanResponseReattachableIterator(
        ExecutePlanRequest(), Released(), lambda: Retrying(DefaultPolicy()), []
    )
    with pytest.raises(EngineError, match="lost the answer to a command") as caught, translated("orders"):
        next(answers)

    assert caught.value.is_transient
    assert type(caught.value.__cause__) is AssertionError


def test_assertion_of_this_package_stays_what_it_is():
    with pytest.raises(AssertionError, match="not Spark's"), translated("orders"):
        raise AssertionError("not Spark's")

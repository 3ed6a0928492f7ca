"""What Spark says when its surroundings fail, as it says it; no test here needs a JVM."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, SparkRuntimeException

from airflow_mv_provider.exceptions import (
    DefinitionError,
    DiskFullError,
    EngineError,
    InterruptedRefreshError,
    SchemaMismatchError,
    SourceFileError,
)
from airflow_mv_provider.spark.errors import translate

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


@pytest.mark.parametrize("text", [ILLEGAL, ILLEGAL_IN_A_FILE])
def test_type_that_cannot_be_read_is_named_as_what_no_retry_mends(text):
    error = translate(SparkRuntimeException(text), "source")

    assert type(error) is SchemaMismatchError
    assert "Illegal Parquet type: INT64 (TIMESTAMP(NANOS,true))" in error.problem
    assert "microseconds" in error.advice


def test_what_spark_refuses_of_a_source_is_no_fault_of_spark():
    refusal = AnalysisException("[SOME_NEW_CONDITION] The reader does not take this. SQLSTATE: 0A000")

    assert type(translate(refusal, "source")) is DefinitionError
    assert type(translate(refusal, "orders")) is EngineError


@pytest.mark.parametrize("text", [CANCELLED, "[OPERATION_CANCELED] Operation has been canceled. SQLSTATE: HY008"])
def test_cancelled_job_is_no_fault_of_spark(text):
    error = translate(SparkRuntimeException(text), "orders")

    assert type(error) is InterruptedRefreshError
    assert error.problem.startswith(f"what Spark ran for it was cancelled: {text.split(' ')[0]} ")
    assert "SQLSTATE" not in error.problem


def test_job_cancelled_beside_one_that_failed_does_not_hide_why():
    error = translate(SparkRuntimeException(UNREADABLE + "\tSuppressed: " + CANCELLED), "source")

    assert type(error) is SourceFileError

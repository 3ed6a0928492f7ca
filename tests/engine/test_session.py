"""The embedded session: one per process, whichever thread asks; one line if it does not start; other confs if small."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import DEFAULT, patch

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_mv_provider import DeltaSource, Query
from airflow_mv_provider.exceptions import DuplicateKeyError
from airflow_mv_provider.runner import admission
from airflow_mv_provider.spark.errors import condition_of
from airflow_mv_provider.spark.session import apply_required_confs, interrupt, isolated, small_plan_confs, tagged
from tests import small_tables
from tests.engine import reading_under_settings
from tests.engines import A_SLOW_NUMBER

PATIENCE_S = 60
PARTITIONS = "spark.sql.shuffle.partitions"

pytestmark = [pytest.mark.slow, pytest.mark.in_process]


@pytest.mark.in_test_all
def test_another_thread_gets_a_session_of_the_same_spark(spark):
    from airflow_mv_provider.spark.session import local_session

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(local_session).result()

    assert other.sparkContext is spark.sparkContext


def test_interrupt_reaches_what_another_thread_runs_under_the_tag_and_nothing_else(spark):
    jobs = spark.sparkContext.statusTracker()

    def run() -> None:
        with tagged(spark, "mine-1"), tagged(spark, "mine-2"):
            spark.range(0, 200, 1, 200).selectExpr(f"id + {A_SLOW_NUMBER}").collect()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        began = time.monotonic()
        while not jobs.getActiveJobsIds():
            assert time.monotonic() - began < PATIENCE_S
        interrupt(spark, "mine-3")
        interrupt(spark, "mine-1")
        with pytest.raises(Py4JJavaError) as caught:
            running.result()
        tags = pool.submit(spark.sparkContext.getJobTags).result()

    assert condition_of(caught.value) == "SPARK_JOB_CANCELLED"
    assert "cancelled job tags mine-1" in str(caught.value)
    assert not list(tags)


@pytest.mark.parametrize("conf", ["spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"])
def test_surrounding_session_cannot_have_files_skipped(spark, tmp_path, conf):
    session = spark.newSession()
    session.conf.set(conf, "true")
    apply_required_confs(session)
    session.range(0, 10, 1, 2).write.parquet(str(tmp_path / "rows"))
    rows = session.read.schema("id BIGINT").parquet(str(tmp_path / "rows"))
    bad = min((tmp_path / "rows").glob("part-*.parquet"))
    (bad.parent / f".{bad.name}.crc").unlink()

    if conf.endswith("CorruptFiles"):
        bad.write_bytes(b"not parquet" * 100)
    else:
        bad.unlink()

    with pytest.raises(Py4JJavaError):
        rows.collect()


@pytest.mark.sample(4)
@pytest.mark.parametrize("conf", reading_under_settings.HARMFUL)
def test_surrounding_session_cannot_have_anything_read_as_something_else(spark, tmp_path, conf):
    value, name = reading_under_settings.HARMFUL[conf]
    reading_under_settings.write(tmp_path)
    session = spark.newSession()
    apply_required_confs(session)
    session.conf.set(conf, value)
    harmed = reading_under_settings.read(session, tmp_path, name)

    apply_required_confs(session)

    assert reading_under_settings.read(session, tmp_path, name) == reading_under_settings.EXPECTED[name] != harmed


@pytest.mark.sample(1)
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


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("source", "during"),
    [
        (DeltaSource("raw/orders"), "1"),
        (Query("SELECT * FROM o", inputs={"o": "raw/orders"}), small_tables.CONFS[PARTITIONS]),  # of what, nobody knows
    ],
    ids=["small", "unknown"],
)
@pytest.mark.in_test_all
def test_only_what_is_known_to_be_small_runs_uncompiled_and_the_session_is_as_it_was(lake, source, during):
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(10)")
    lake.apply(source=source)
    seen = set()
    refresher = lake.refresher(watch=lambda _: seen.add(refresher.spark.conf.get(PARTITIONS)))

    refresher.refresh("orders", lake.caller())
    lake.write("SELECT id DIV 2 AS id, id % 2 AS p, 'a' AS v FROM range(10)")
    with patch.object(admission, "assess", wraps=admission.assess) as assess, pytest.raises(DuplicateKeyError):
        assess.side_effect = lambda *_, **__: seen.add(refresher.spark.conf.get(PARTITIONS)) or DEFAULT
        refresher.refresh("orders", lake.caller())

    assert seen == {during}
    assert refresher.spark.conf.get(PARTITIONS) == small_tables.CONFS[PARTITIONS]


@pytest.mark.in_test_all
def test_what_was_not_set_is_not_set_afterwards(spark):
    session, name = spark.newSession(), "spark.sql.codegen.factoryMode"
    session.conf.unset(name)

    with small_plan_confs(session, is_small=True):
        with small_plan_confs(session, is_small=True):
            pass
        within = session.conf.get(name)

    assert within == "NO_CODEGEN"
    assert session.conf.get(name, None) is None


@pytest.mark.in_test_all
def test_files_that_are_named_are_not_looked_up_in_a_task_each(lake):
    folder, spark = lake.root / "raw/files", lake.refresher().spark
    folder.mkdir(parents=True)
    for number in range(300):
        (folder / f"{number}.csv").touch()
    spark.sparkContext.setJobGroup("listing", "files that are named")

    spark.read.format("binaryFile").load([str(file) for file in folder.iterdir()])

    jobs = spark.sparkContext.statusTracker()
    stages = [stage for job in jobs.getJobIdsForGroup("listing") for stage in jobs.getJobInfo(job).stageIds]
    assert stages
    assert max(jobs.getStageInfo(stage).numTasks for stage in stages) == 200


LANGUAGE = """
import os
from airflow_mv_provider.spark.session import local_session
java = local_session()._jvm.java
seen = (java.lang.System.getenv(name) for name in ("LC_MESSAGES", "LC_CTYPE", "LC_ALL"))
print(java.util.Locale.getDefault().getLanguage(), *seen, os.environ["LC_ALL"])
"""


def test_jvm_speaks_english_on_a_machine_of_another_language():
    """Errors that have no condition, such as a full disk or those of JDBC drivers, are known by their words."""
    german = {"LC_ALL": "C.utf8", "JAVA_TOOL_OPTIONS": "-Duser.language=de -Duser.country=DE"}

    done = subprocess.run(
        [sys.executable, "-c", LANGUAGE], env=os.environ | german, capture_output=True, text=True, check=False
    )

    assert done.stdout == "en C C.utf8 None C.utf8\n", done.stderr


def test_error_that_is_raised_is_not_printed_too(spark, capfd):
    """PySpark prints it with its plan as JSON; so it would before each refresh whose `select` is not deterministic."""
    own = isolated(spark)

    with pytest.raises(PySparkException, match="nothing_there"):
        own.sql("SELECT nothing_there").collect()

    assert "nothing_there" not in capfd.readouterr().err

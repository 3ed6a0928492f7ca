"""Sessions: the embedded local one, and a session of its own for each refresh."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

# What every refresh relies on, whatever the surrounding session says.
_CONFS = {
    "spark.sql.session.timeZone": "UTC",  # a zone with daylight saving shifts timestamps in its gap
    "spark.sql.ansi.enabled": "true",  # overflow and bad casts fail instead of becoming NULL
    "spark.sql.caseSensitive": "false",
    # A transaction version left over from an earlier statement becomes an error, not a silently dropped commit.
    "spark.databricks.delta.write.txnVersion.autoReset.enabled": "true",
    # The default of 1e6 rows in one file would make one task write a whole partition's corrections.
    "spark.sql.adaptive.enabled": "true",
}


def local_session(app_name: str = "airflow-mv", *, driver_memory: str = "2g") -> SparkSession:
    """Return the session of this process, starting local Spark with Delta when there is none.

    cost : 5 to 15 seconds for the first call, and Ivy's download of Delta's jars on a machine that lacks them
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    from delta import configure_spark_with_delta_pip

    cores = os.cpu_count() or 1
    builder = (
        SparkSession.builder.master(os.environ.get("AMV_SPARK_MASTER", "local[*]"))
        .appName(app_name)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.driver.memory", os.environ.get("AMV_DRIVER_MEMORY", driver_memory))
        .config("spark.sql.shuffle.partitions", str(max(4, 2 * cores)))
        .config("spark.databricks.delta.snapshotPartitions", "2")  # the default of 50 costs seconds on small tables
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_log_settings()}")
    )
    return configure_spark_with_delta_pip(builder).getOrCreate()


def isolated(spark: SparkSession) -> SparkSession:
    """Return a session with its own confs: transaction confs are per session, and one writer must not see another's."""
    session = spark.newSession()
    for name, value in _CONFS.items():
        session.conf.set(name, value)
    return session


def _log_settings() -> str:
    return (Path(__file__).parent / "log4j2.properties").as_uri()

"""Fetch Delta's jars into Ivy's cache, so that the first refresh, demo or test does not wait for them.

`--check` only reports by its exit code whether they are there. It imports neither PySpark nor Delta, so it takes
milliseconds.
"""

import sys
from importlib.metadata import version
from pathlib import Path

# Spark copies jars from Ivy's cache to this directory once all of them have been downloaded.
IVY_JARS = "~/.ivy2*/jars/io.delta_delta-spark_*-{version}.jar"


def is_resolved() -> bool:
    """Say whether Ivy already holds the jar of the installed delta-spark."""
    home, _, pattern = IVY_JARS.format(version=version("delta-spark")).partition("/")
    return any(Path(home).expanduser().glob(pattern))


def resolve() -> None:
    """Start and stop a local session with Delta and use it once; about 20 s and 87 MB on a new machine."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[1]")
        .appName("resolve-delta")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    try:
        # A session whose Delta classes are missing starts all the same; this statement fails then.
        session.sql("SELECT 1").collect()
    finally:
        session.stop()


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if is_resolved() else 1)
    resolve()

"""A real Hive metastore on embedded Derby, behind a second session of the tests' JVM or behind processes of their own.

Derby serves one JVM at a time. Each metastore lies in a directory of its own, with the schemas that it makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def hive_confs(directory: Path) -> dict[str, str]:
    """Return the confs of a Spark whose catalog is a metastore in `directory`, which is made where it is missing."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(directory / "managed"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/metastore_db;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }


def spark_defaults(directory: Path) -> Path:
    """Write these confs where Spark's own programs look for them; return that directory, for SPARK_CONF_DIR."""
    conf = directory / "conf"
    conf.mkdir(parents=True)
    lines = [f"{name} {value}" for name, value in hive_confs(directory).items()]
    lines.append(f"spark.driver.extraJavaOptions -Dderby.stream.error.file={directory}/derby.log")
    (conf / "spark-defaults.conf").write_text("\n".join(lines), encoding="utf-8")
    return conf


def hive_session(spark: Any, directory: Path) -> Any:
    """Return a session of the same JVM whose catalog is a metastore; the other sessions keep theirs, in memory."""
    from pyspark.sql import SparkSession

    jvm, context = spark._jvm, spark.sparkContext
    jvm.System.setProperty("derby.stream.error.file", str(directory / "derby.log"))
    options = jvm.java.util.HashMap()
    for name, value in hive_confs(directory).items():
        options.put(name.removeprefix("spark.hadoop."), value)
    # A session without a shared state makes one of its own, with the static confs that it is given.
    return SparkSession(
        context, jsparkSession=jvm.org.apache.spark.sql.classic.SparkSession(context._jsc.sc(), options)
    )

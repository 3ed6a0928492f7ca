"""Which jars Spark loads where it starts, as Maven coordinates."""

from __future__ import annotations

import os
import re

from pyspark.sql import SparkSession

from airflow_mv_provider.spark.causes.databases import drivers_of


def packages(databases: str | None = None) -> str:
    """Return the Maven coordinates of all jars: Delta's, the drivers of source databases, those of AMV_SPARK_PACKAGES.

    databases : their names; those of AMV_SOURCE_DATABASES unless given
    """
    named = os.environ.get("AMV_SOURCE_DATABASES", "") if databases is None else databases
    more = [each.strip() for each in os.environ.get("AMV_SPARK_PACKAGES", "").split(",") if each.strip()]
    return ",".join(dict.fromkeys([delta_packages(), *drivers_of(named), *more]))


def delta_packages(spark_version: str = "") -> str:
    """Return the Maven coordinates of the jars that belong to the installed delta-spark.

    spark_version : of the Spark that loads them, such as a server's; the installed PySpark's unless given
    """
    from delta import configure_spark_with_delta_pip

    options: dict[str, str] = configure_spark_with_delta_pip(SparkSession.Builder())._options
    series = re.match(r"\d+\.\d+", spark_version)
    found = options["spark.jars.packages"]
    return re.sub(r"(?<=:delta-spark_)\d+\.\d+(?=_)", series[0], found) if series else found

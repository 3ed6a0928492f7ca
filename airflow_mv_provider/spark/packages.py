"""Which jars Spark loads where it starts, as Maven coordinates."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from airflow_mv_provider.spark.causes.databases import drivers_of


def packages(databases: str | None = None) -> str:
    """Return the Maven coordinates of all jars: Delta's, the drivers of source databases, those of AMV_SPARK_PACKAGES.

    databases : their names; those of AMV_SOURCE_DATABASES unless given
    """
    named = os.environ.get("AMV_SOURCE_DATABASES", "") if databases is None else databases
    more = [each.strip() for each in os.environ.get("AMV_SPARK_PACKAGES", "").split(",") if each.strip()]
    return ",".join(dict.fromkeys([delta_packages(), *drivers_of(named), *more]))


def delta_packages() -> str:
    """Return the Maven coordinates of the jars that belong to the installed delta-spark."""
    from delta import configure_spark_with_delta_pip

    options: dict[str, str] = configure_spark_with_delta_pip(SparkSession.Builder())._options
    return options["spark.jars.packages"]

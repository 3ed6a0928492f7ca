"""The files of an export: written, listed and removed through Spark, so that a Connect client can do it too."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.transfer.export import ExportedFile, ExportPlace, Manifest, manifest_of
from airflow_mv_provider.spark.errors import condition_of, translated

_COLUMNS = (
    "table string, uuid string, version bigint, refresh_id string, rows bigint,"
    " columns array<struct<name: string, type: string>>, files array<struct<path: string, bytes: bigint>>"
)


def write_rows(rows: DataFrame, place: ExportPlace) -> None:
    """Write rows to this attempt's directory, which does not exist yet."""
    with translated(place.rows):
        rows.write.mode("error").parquet(place.rows)


def num_rows(spark: SparkSession, place: ExportPlace) -> int:
    """Return how many rows the files of this attempt have; reads their footers."""
    with translated(place.rows):
        return spark.read.parquet(place.rows).count()


def files(spark: SparkSession, place: ExportPlace) -> tuple[ExportedFile, ...]:
    """Return the files of this attempt."""
    listed = spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet").load(place.rows)
    with translated(place.rows):
        found = [(row.path.rpartition("/")[2], row.length) for row in listed.select("path", "length").collect()]
    return tuple(ExportedFile(f"{place.name}/{name}", size) for name, size in sorted(found))


def write_manifest(spark: SparkSession, place: ExportPlace, manifest: Manifest) -> None:
    """Write the manifest: one file, which its only task moves into place; remove what a dead attempt left there."""
    line = spark.range(1).select(F.from_json(F.lit(manifest.to_text()), _COLUMNS).alias("m")).select("m.*").coalesce(1)
    writer = line.write.mode("overwrite").option("ignoreNullFields", "false")
    with translated(place.manifest):
        writer.option("mapreduce.fileoutputcommitter.algorithm.version", "2").json(place.manifest)


def manifests(spark: SparkSession, place: ExportPlace) -> list[Manifest]:
    """Return all manifests under the root; none if nothing was exported there.

    raises : DefinitionError, if a file there is not a manifest
    """
    try:
        found = spark.read.option("recursiveFileLookup", "true").text(place.manifests).collect()
    except PySparkException as error:
        if condition_of(error).startswith("PATH_NOT_FOUND"):
            return []
        with translated(place.manifests):
            raise
    return [manifest_of(row.value) for row in found]

"""Turn the bytes of records, values and keys alike, into rows: JSON and CSV; for Avro see `avro`.

A codec adds one column to a frame of records: the struct that some bytes stand for. What they cannot stand for raises
while it runs, with the record's place; bytes that are NULL are NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from airflow_mv_provider.sources.files import csv_lines, json_lines
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.causes.streams import BAD_EVENT
from airflow_mv_provider.spark.compare.replay import AT, refused

_NUM_SHOWN = 80


class Codec(Protocol):
    """How values, or keys, are decoded."""

    @property
    def columns(self) -> StructType:
        """The columns of what is decoded."""

    def identity(self, key: Column) -> Column:
        """Return the bytes that two records of the same key have in common."""

    def decoded(self, frame: DataFrame, content: Column, name: str) -> DataFrame:
        """Return the frame with one more column, the struct that the bytes stand for; lazy.

        frame   : with _mv_at, the place of each record
        content : binary
        raises  : EventError, while it runs
        """


@dataclass(frozen=True, slots=True)
class TextCodec:
    """JSON, one object a record, or a record of CSV, which is one line without a header."""

    columns: StructType
    format: str = "json"
    options: Mapping[str, str] = field(default_factory=dict)

    def identity(self, key: Column) -> Column:
        """See `Codec`."""
        return key

    def decoded(self, frame: DataFrame, content: Column, name: str) -> DataFrame:
        """See `Codec`."""
        return self.of_text(frame, content.cast("string"), content, name)

    def of_text(self, frame: DataFrame, text: Column, content: Column, name: str) -> DataFrame:
        """Return what a text stands for. See `Codec`.

        content : the bytes that the text is of, or that it is part of
        """
        is_decoded = F.coalesce(F.is_valid_utf8(content.cast("string")), F.lit(True))
        lines = frame.select("*", text.alias("text"), is_decoded.alias("is_decoded"))
        judged = csv_lines.judged if self.format == "csv" else json_lines.judged
        parsed = judged(lines, self.columns, self.options)
        broken = F.col("broken")
        shown = F.coalesce("misfit", F.substring("text", 1, _NUM_SHOWN))
        detail = (
            F.when(broken == marking.ENCODING, F.lit("it is not UTF-8"))
            .when(broken == marking.UNKNOWN_FIELD, F.concat(F.lit("the schema has no field "), F.col("unknown")))
            .when(broken == marking.NOTHING, F.lit("it is empty"))
            .otherwise(F.concat(F.lit("it does not fit the schema: "), shown))
        )
        is_bad = F.col("text").isNotNull() & broken.isNotNull()
        record = F.when(is_bad, refused(BAD_EVENT, F.col(AT), detail)).otherwise(F.col("record"))
        return parsed.select(*frame.columns, record.alias(name))

"""Turn the bytes of records, values and keys alike, into rows: JSON and CSV; for Avro see `avro`.

A codec adds two columns to a frame of records: the struct that some bytes stand for, and why they stand for none. Bytes
that are NULL are NULL. `decoded` raises while it runs, with the record's place, for bytes that stand for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from airflow_mv_provider.sources.files import csv_lines, json_lines
from airflow_mv_provider.sources.kafka.replay import AT
from airflow_mv_provider.sources.texts import CORRUPT
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.causes.streams import BAD_EVENT

_NUM_SHOWN = 80


class Codec(Protocol):
    """How values, or keys, are decoded."""

    @property
    def columns(self) -> StructType:
        """The columns of what is decoded."""

    def parsed(self, frame: DataFrame, content: Column, name: str) -> DataFrame:
        """Return the frame with two more columns; lazy.

        content : binary
        returns : (*frame, name, <name>_problem): the struct that the bytes stand for, and what `problem` returns
        """


def problem(detail: Column, what: str = BAD_EVENT) -> Column:
    """Return why some bytes stand for nothing; NULL if the detail is.

    what : of `causes.streams`
    """
    return F.when(detail.isNotNull(), F.struct(F.lit(what).alias("what"), detail.alias("detail")))


def problem_of(name: str) -> str:
    """Return the name of the column that says why a column has no value."""
    return f"{name}_problem"


def decoded(codec: Codec, frame: DataFrame, content: Column, name: str) -> DataFrame:
    """Return the frame with one more column, the struct that the bytes stand for; lazy.

    frame   : with _mv_at, the place of each record
    content : binary
    raises  : EventError, while it runs
    """
    return strict(codec.parsed(frame, content, name), name)


def strict(parsed: DataFrame, name: str) -> DataFrame:
    """Return what a codec has parsed without the problems: they raise while it runs. See `decoded`."""
    why = F.col(problem_of(name))
    raised = F.raise_error(F.concat(why["what"], F.lit(" "), F.col(AT), F.lit(" "), why["detail"]))
    others = [each for each in parsed.columns if each not in (name, problem_of(name))]
    return parsed.select(*others, F.when(why.isNotNull(), raised).otherwise(F.col(name)).alias(name))


@dataclass(frozen=True, slots=True)
class TextCodec:
    """JSON, one object a record, or a record of CSV, which is one line without a header.

    Attributes:
        lacks: What is said of a field that `columns` lacks.
    """

    columns: StructType
    format: str = "json"
    options: Mapping[str, str] = field(default_factory=dict)
    lacks: str = "the schema has no field "

    def parsed(self, frame: DataFrame, content: Column, name: str) -> DataFrame:
        """See `Codec`."""
        return self.of_text(frame, content.cast("string"), content, name)

    def of_text(self, frame: DataFrame, text: Column, content: Column, name: str) -> DataFrame:
        """Return what a text stands for. See `Codec`.

        content : the bytes that the text is of, or that it is part of
        """
        is_decoded = F.coalesce(F.is_valid_utf8(content.cast("string")), F.lit(True))
        lines = frame.select("*", text.alias("text"), is_decoded.alias("is_decoded"))
        judged = csv_lines.judged if self.format == "csv" else json_lines.judged
        found = judged(lines, self.columns, self.options)
        broken = F.col("broken")
        shown = F.coalesce("misfit", F.substring("text", 1, _NUM_SHOWN))
        detail = (
            F.when(broken == marking.ENCODING, F.lit("not UTF-8"))
            .when(broken == marking.UNKNOWN_FIELD, F.concat(F.lit(self.lacks), F.col("unknown")))
            .when(broken == marking.NOTHING, F.lit("empty"))
            .otherwise(F.concat(F.lit("does not fit the schema: "), shown))
        )
        is_bad = F.col("text").isNotNull() & broken.isNotNull()
        record = F.when(~is_bad, F.col("record").dropFields(CORRUPT))
        return found.select(*frame.columns, record.alias(name), problem(F.when(is_bad, detail)).alias(problem_of(name)))

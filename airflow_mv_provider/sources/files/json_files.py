"""The records of JSON files that may span lines (`multiLine`), each as a text, as if it had a line for itself.

Spark reads such a file's first value and drops the others, and checks less of it than of a line.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.sources.files import json_numbers
from airflow_mv_provider.sources.texts import from_json, refusal
from airflow_mv_provider.spark.errors import BAD_ENCODING, BAD_RECORD

_OBJECTS, _TEXTS = "array<map<string,string>>", "array<string>"
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF_A_CHARACTER = rf"(?<!\\)(?:\\\\)*+(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})"  # its backslash is not escaped


def records(files: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Return a row per record, in a file's order; lazy.

    Args:
        files: (file string, text string, is_decoded boolean, ...), a whole file in each text.
        options: The parser's.

    Returns:
        The same columns. The text of an element that is no object is `null`.

    Raises:
        Exception: While it runs: the errors for BAD_ENCODING and BAD_RECORD in `spark.errors`, for a file that is
            not exactly one object or one array.
    """
    text, marked = F.col("text"), json_numbers.marked(F.col("text"))
    is_respelt = json_numbers.may_be_respelt(text, options)
    # As the only element of an array, so that any text after the value is a syntax error.
    alone = F.concat(F.lit("["), F.when(is_respelt, marked).otherwise(text), F.lit("\n]"))
    values = files.withColumn("values", from_json(alone, _TEXTS, options))
    value = F.get("values", F.lit(0))
    as_array = F.when(value.startswith("["), value).otherwise(F.concat(F.lit("["), value, F.lit("]")))
    found = values.withColumn("as_array", F.when(F.size("values") == 1, as_array))
    # Of an element that is a text, such as one that holds JSON, only the maps show that it is no object.
    both = {"each": F.from_json("as_array", _TEXTS), "objects": F.from_json("as_array", _OBJECTS)}
    found = found.withColumns(both)
    is_one_value = F.col("objects").isNotNull() & ~F.ltrim("text").startswith('"')
    elements = F.zip_with(
        "each", "objects", lambda each, fields: F.when(fields.isNotNull(), json_numbers.unmarked(each))
    )
    checked = (
        F.when(~F.col("is_decoded"), refusal(BAD_ENCODING, F.col("file")))
        .when(has_half_a_character(text), refusal(BAD_RECORD, F.col("file"), F.lit("half a character")))
        .when(is_one_value, elements)
        .otherwise(refusal(BAD_RECORD, F.col("file"), F.lit("the file is not one object, or one array of objects")))
    )
    each = found.select(*files.columns, F.explode(checked).alias("element"))
    return each.withColumn("text", F.coalesce("element", F.lit("null"))).drop("element")


def has_half_a_character(text: Column) -> Column:
    """Return whether JSON has an unpaired surrogate, which Spark reads as a question mark."""
    return text.contains("\\u") & text.rlike(_HALF_A_CHARACTER)

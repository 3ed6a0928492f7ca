"""JSON records, one a line, parsed so that nothing of a line is passed over.

Spark's own reader takes a line's first value and drops what follows it, takes the last of two fields with one name,
and leaves out fields that the schema does not know, all in silence. So a line is read as text and parsed twice: once
for what fields it has, once by the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from airflow_mv_provider.core.identifier import quoted
from airflow_mv_provider.spark import rejected
from airflow_mv_provider.spark.errors import BAD_ENCODING, BAD_RECORD, UNKNOWN_FIELD

_CORRUPT = "_mv_corrupt"
_ENCODINGS = ("encoding", "charset")
_MARKED = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
_NUM_SHOWN = 80


def read(spark: SparkSession, paths: Sequence[str], schema: StructType, options: Mapping[str, str]) -> DataFrame:
    """Return the records of the files at `paths`; lazy.

    raises : when it is run: what `spark.errors` makes of BAD_ENCODING, BAD_RECORD and UNKNOWN_FIELD
    """
    shown = F.substring("text", 1, _NUM_SHOWN)
    broken = F.col("broken")
    checked = (
        F.when(broken == rejected.ENCODING, _refusal(BAD_ENCODING, F.lit("")))
        .when(broken == rejected.UNKNOWN_FIELD, _refusal(UNKNOWN_FIELD, F.col("unknown")))
        .when(broken.isNotNull(), _refusal(BAD_RECORD, shown))
        .otherwise(F.col("record"))
    )
    parsed = _parsed(spark, paths, schema, options)
    return parsed.select(checked.alias("r")).select(*(F.col(f"r.{quoted(f.name)}") for f in schema.fields))


def marked(
    spark: SparkSession, paths: Sequence[str], schema: StructType, options: Mapping[str, str], *, is_numbered: bool
) -> DataFrame:
    """Return the records of the files at `paths`, those that cannot be decoded included and marked; lazy.

    is_numbered : say where each of them is
    """
    broken = F.col("broken")
    reason = (
        F.when(broken == rejected.ENCODING, F.lit("bytes that are not in the declared encoding"))
        .when(broken == rejected.UNKNOWN_FIELD, F.concat(F.lit("the schema has no field "), F.col("unknown")))
        .when(broken.isNotNull(), F.lit("it does not fit the schema"))
    )
    at = {"block": F.col("block"), "number": F.col("number")} if is_numbered else {}
    origin = rejected.origin(file=F.col("file"), rule=broken, reason=reason, record=F.col("text"), **at)
    parsed = _parsed(spark, paths, schema, options, is_numbered=is_numbered)
    return parsed.select(*(F.col(f"record.{quoted(f.name)}") for f in schema.fields), origin)


def _parsed(
    spark: SparkSession,
    paths: Sequence[str],
    schema: StructType,
    options: Mapping[str, str],
    *,
    is_numbered: bool = False,
) -> DataFrame:
    """Return (file, text, record, broken, unknown): each line parsed, and the rule that it breaks."""
    lines, has_text = _texts(spark, paths, options, is_numbered=is_numbered), F.col("text").rlike(r"\S")
    if not is_numbered:  # a line without text counts, or the numbers of the lines behind it would be wrong
        lines = lines.where(has_text)
    parsed = lines.select("*", _alone(F.col("text"), options), _record(schema, options).alias("record"))
    names = F.map_keys(F.get("alone", F.lit(0)))
    unknown = F.array_except(names, F.array(*(F.lit(f.name) for f in schema.fields)))
    broken = (
        F.when(~has_text, rejected.NOTHING)
        .when(~F.col("is_decoded"), rejected.ENCODING)
        .when(names.isNull() | (F.size("alone") != 1), rejected.CORRUPT_RECORD)
        .when(F.size(unknown) > 0, rejected.UNKNOWN_FIELD)
        .when(F.size(F.array_distinct(names)) < F.size(names), rejected.CORRUPT_RECORD)
        .when(F.col(f"record.{_CORRUPT}").isNotNull(), rejected.CORRUPT_RECORD)
    )
    return parsed.select("*", broken.alias("broken"), F.array_min(unknown).alias("unknown"))


def check_whole(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> None:
    """Refuse files that hold more than one value, of which `multiLine` would read the first alone.

    cost   : a scan of the files; each must fit into a task's memory
    raises : what `spark.errors` makes of BAD_ENCODING and BAD_RECORD
    """
    files = _texts(spark, paths, options, wholetext="true")
    # As the only field of an object: here, too, what follows the value is a mistake.
    only = F.from_json(
        F.concat(F.lit('{"value":'), F.col("text"), F.lit("\n}")),
        StructType().add("value", StringType()).add(_CORRUPT, StringType()),
        _parsing(options) | _MARKED,
    )
    broken = F.lit("it is not one value")
    checked = (
        F.when(~F.col("is_decoded"), _refusal(BAD_ENCODING, F.lit("")))
        .when(F.col(f"only.{_CORRUPT}").isNotNull(), _refusal(BAD_RECORD, broken))
        .otherwise(1)
    )
    files.select("file", "is_decoded", only.alias("only")).agg(F.sum(checked.cast("int"))).collect()


def _texts(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str], *, is_numbered: bool = False, **more: str
) -> DataFrame:
    """Return (file, text, is_decoded), a row for each line; with (block, number) when they are asked for."""
    separated = {"lineSep": options["lineSep"]} if "lineSep" in options else {}
    lines = spark.read.format("text").options(**separated, **more).load(list(paths))
    at = (F.col(rejected.BLOCK).alias("block"), F.monotonically_increasing_id().alias("number")) if is_numbered else ()
    named = lines.select(F.input_file_name().alias("file"), "value", *at)
    declared = next((options[name] for name in _ENCODINGS if name in options), "UTF-8")
    if declared.upper() in ("UTF-8", "UTF8"):
        text, is_decoded = F.col("value"), F.is_valid_utf8("value")
    else:
        text, is_decoded = F.decode(F.col("value").cast("binary"), declared), F.lit(True)
    plain = F.ltrim(text, F.lit("\ufeff")).alias("text")
    return named.select("file", plain, is_decoded.alias("is_decoded"), *(("block", "number") if is_numbered else ()))


def _alone(text: Column, options: Mapping[str, str]) -> Column:
    """Parse `text` as the only element of an array: what follows a value is a mistake there."""
    wrapped = F.concat(F.lit("["), text, F.lit("\n]"))  # the line break ends a comment, where comments are allowed
    return F.from_json(wrapped, "array<map<string,string>>", _parsing(options) or None).alias("alone")


def _record(schema: StructType, options: Mapping[str, str]) -> Column:
    whole = StructType([*schema.fields]).add(_CORRUPT, StringType())
    return F.from_json("text", whole, _parsing(options) | _MARKED)


def _parsing(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in (*_ENCODINGS, "lineSep", "multiLine")}


def _refusal(what: str, detail: Column) -> Column:
    return F.raise_error(F.concat(F.lit(f"{what} "), F.col("file"), F.lit(" "), detail))

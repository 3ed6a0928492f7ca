"""JSON records, one per line, parsed without dropping any part of a line.

Spark's own reader silently takes a line's first value and drops the rest, takes the last of two fields with the same
name, leaves out fields that are not in the schema, turns an unpaired surrogate (`\\ud800`) into a question mark and
guesses dates and numbers (see `values`, `json_numbers`). So a line is read as text and parsed twice: once for its field
names, once with the schema. If fields have fields or elements, it is parsed once more for the texts of those.

With `multiLine`, the texts are the records inside the files (see `json_files`), and all else is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, ByteType, DataType, MapType, StringType, StructField, StructType

from airflow_mv_provider.core.definition.identifier import RESERVED_PREFIX, quoted
from airflow_mv_provider.sources.files import json_files, json_numbers, values
from airflow_mv_provider.sources.texts import (
    CORRUPT,
    ENCODINGS,
    LENIENT,
    decoded,
    from_json,
    is_multi_line,
    is_utf_8,
    refusal,
    texts,
)
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.errors import BAD_ENCODING, BAD_RECORD, UNKNOWN_FIELD

_WORDS = ("NaN", *(f"{sign}{word}" for sign in ("", "+", "-") for word in ("INF", "Infinity")))  # valid DOUBLE texts
_NUM_SHOWN = 80


def read(
    spark: SparkSession,
    paths: Sequence[str],
    schema: StructType,
    options: Mapping[str, str],
    extra: Sequence[Column] = (),
) -> DataFrame:
    """Return the records of the files at `paths`; lazy.

    extra : additional columns, computed from Spark's own such as `_metadata`
    raises : while it runs: the errors for BAD_ENCODING, BAD_RECORD and UNKNOWN_FIELD in `spark.errors`
    """
    broken, file = F.col("broken"), F.col("file")
    shown = F.coalesce("misfit", F.substring("text", 1, _NUM_SHOWN))
    checked = (
        F.when(broken == marking.ENCODING, refusal(BAD_ENCODING, file))
        .when(broken == marking.UNKNOWN_FIELD, refusal(UNKNOWN_FIELD, file, F.col("unknown")))
        .when(broken.isNotNull(), refusal(BAD_RECORD, file, shown))
        .otherwise(F.col("record"))
    )
    parsed = _parsed(spark, paths, schema, options, extra)
    kept = _kept(parsed)
    return parsed.select(checked.alias("r"), *kept).select(
        *(F.col(f"r.{quoted(f.name)}") for f in schema.fields), *kept
    )


def marked(
    spark: SparkSession,
    paths: Sequence[str],
    schema: StructType,
    options: Mapping[str, str],
    extra: Sequence[Column] = (),
    *,
    is_numbered: bool,
) -> DataFrame:
    """Return the records of the files at `paths`, including and marking those that cannot be decoded; lazy.

    is_numbered : add each record's position in its file to its mark
    """
    broken = F.col("broken")
    reason = (
        F.when(broken == marking.ENCODING, F.lit(marking.NOT_ENCODED))
        .when(broken == marking.UNKNOWN_FIELD, F.concat(F.lit("the schema has no field "), F.col("unknown")))
        .when(broken.isNotNull(), F.coalesce("misfit", F.lit(marking.NO_FIT)))
    )
    at = {"block": F.col("block"), "number": F.col("number")} if is_numbered else {}
    origin = marking.origin(file=F.col("file"), rule=broken, reason=reason, record=F.col("text"), **at)
    parsed = _parsed(spark, paths, schema, options, extra, is_numbered=is_numbered)
    return parsed.select(*(F.col(f"record.{quoted(f.name)}") for f in schema.fields), *_kept(parsed), origin)


def _parsed(
    spark: SparkSession,
    paths: Sequence[str],
    schema: StructType,
    options: Mapping[str, str],
    extra: Sequence[Column],
    *,
    is_numbered: bool = False,
) -> DataFrame:
    lines, has_text = _texts(spark, paths, options, extra, is_numbered=is_numbered), F.col("text").rlike(r"\S")
    if not is_numbered:  # numbered lines keep those without text, or the numbers of later lines would be wrong
        lines = lines.where(has_text)
    return judged(lines, schema, options)


def judged(lines: DataFrame, schema: StructType, options: Mapping[str, str]) -> DataFrame:
    """Return each text parsed, and the rule that it breaks; lazy.

    lines   : (text string, is_decoded boolean, ...), one JSON value in each text
    returns : (..., record, broken, unknown, misfit)
    broken  : the rule; NULL for a valid record
    unknown : the least field name that is not in the schema
    misfit  : a message on a value that is invalid for its type; only for a corrupt record
    """
    has_text = F.col("text").rlike(r"\S")
    seen = lines.select("*", _record(schema, options), *_deeper(schema, options))
    marked = F.when(_may_be_respelt(schema, options), json_numbers.marked(F.col("text")))
    parsed = seen.withColumn("marked", marked).select("*", _alone(options))
    parsed = parsed.withColumn("record", _as_written(schema, options)).drop("marked")
    names = F.map_keys(F.get("alone", F.lit(0)))
    unknown = F.array_except(names, F.array(*(F.lit(f.name) for f in schema.fields)))
    wrong = [(field, found) for field in schema.fields if (found := _wrong(field, options)) is not None]
    broken = (
        F.when(~has_text, marking.NOTHING)
        .when(~F.col("is_decoded"), marking.ENCODING)
        .when(names.isNull() | (F.size("alone") != 1), marking.CORRUPT_RECORD)
        .when(F.size(unknown) > 0, marking.UNKNOWN_FIELD)
        .when(F.size(F.array_distinct(names)) < F.size(names), marking.CORRUPT_RECORD)
        .when(F.col(f"record.{CORRUPT}").isNotNull(), marking.CORRUPT_RECORD)
        .when(json_files.has_half_a_character(F.col("text")), marking.CORRUPT_RECORD)
    )
    for _, found in wrong:
        broken = broken.when(found, marking.CORRUPT_RECORD)
    judged = parsed.select("*", broken.alias("broken"), F.array_min(unknown).alias("unknown"))
    # For corrupt records only: the first value that Spark could not read, or that is invalid for its type.
    # First those with a BINARY: after a text in it that is not base64, Spark reads no other field.
    in_turn = sorted(schema.fields, key=lambda field: not _has(field.dataType, "binary"))
    unread = [(field, _is_unread(field, options)) for field in in_turn]
    misfit = F.coalesce(*(F.when(found, _expectation(field)) for field, found in (*unread, *wrong)))
    # In a lambda, because Spark generates no code for it: otherwise the method per row is too long for HotSpot's JIT.
    aside = F.get(F.transform(F.array(F.lit(0)), lambda _: misfit), F.lit(0))
    return judged.select("*", F.when(F.col("broken") == marking.CORRUPT_RECORD, aside).alias("misfit"))


def _texts(
    spark: SparkSession,
    paths: Sequence[str],
    options: Mapping[str, str],
    extra: Sequence[Column] = (),
    *,
    is_numbered: bool = False,
) -> DataFrame:
    """Return (file, text, is_decoded, *extra), a row per record; with (block, number) before `extra` if numbered."""
    at = [column.alias(name) for name, column in marking.numbers(is_numbered=is_numbered).items()]
    if is_multi_line(options):
        whole = texts(spark, paths, options).select(F.input_file_name().alias("file"), "value", "_metadata")
        records = json_files.records(_decoded(whole, options), parsing(options))
        return records.select("file", "text", "is_decoded", *at, *extra)
    return _decoded(
        texts(spark, paths, options).select(F.input_file_name().alias("file"), "value", *at, *extra), options
    )


def _decoded(lines: DataFrame, options: Mapping[str, str]) -> DataFrame:
    text = F.ltrim(decoded(F.col("value"), options), F.lit("\ufeff")).alias("text")
    is_decoded = F.is_valid_utf8("value") if is_utf_8(options) else F.lit(True)
    return lines.select("file", text, is_decoded.alias("is_decoded"), *lines.columns[2:])


def _kept(parsed: DataFrame) -> list[str]:
    """Return the names of the additional columns (`extra`)."""
    return [name for name in parsed.columns if name.startswith(RESERVED_PREFIX)]


def _may_be_respelt(schema: StructType, options: Mapping[str, str]) -> Column:
    """Return the condition that Spark may read a number of a line as another text than the line has."""
    of_strings = [field for field in schema.fields if _has(field.dataType, "string")]
    if not of_strings:
        return F.lit(False)
    read = F.array(*(_of_record(field) for field in of_strings if not _is_nested(field))).cast("array<string>")
    may_be_read = F.lit(any(map(_is_nested, of_strings))) | F.exists(read, json_numbers.may_be_a_number)
    return json_numbers.may_be_respelt(F.col("text"), options) & may_be_read


def _alone(options: Mapping[str, str]) -> Column:
    """Return a line parsed as the only element of an array, so that text after its value is a syntax error."""

    def parsed(text: Column) -> Column:
        wrapped = F.concat(F.lit("["), text, F.lit("\n]"))  # the line break ends a comment, if they are allowed
        return from_json(wrapped, "array<map<string,string>>", parsing(options))

    numbers_as_written = F.transform(
        parsed(F.col("marked")),
        lambda fields: F.transform_values(fields, lambda _, value: json_numbers.unmarked(value)),
    )
    return F.when(F.col("marked").isNull(), parsed(F.col("text"))).otherwise(numbers_as_written).alias("alone")


def _record(schema: StructType, options: Mapping[str, str]) -> Column:
    whole = StructType([*schema.fields]).add(CORRUPT, StringType())
    return from_json("text", whole, parsing(options) | LENIENT).alias("record")


def _as_written(schema: StructType, options: Mapping[str, str]) -> Column:
    """Return the record, the numbers in its STRINGs as the line has them."""
    nested = [field for field in schema.fields if _is_nested(field) and _has(field.dataType, "string")]
    wanted = StructType([StructField(field.name, _as_texts(field.dataType)) for field in nested])
    texts = from_json("marked", wanted, parsing(options)) if nested else F.lit(None)

    def written(field: StructField, texts: Column) -> Column:
        if field in nested:
            return _exact(_of_record(field), texts[field.name], field.dataType)
        return _text_of(field) if isinstance(field.dataType, StringType) else _of_record(field)

    def whole(texts: Column) -> Column:
        fields = (written(field, texts).alias(field.name) for field in schema.fields)
        return F.struct(*fields, F.col(f"record.{CORRUPT}").alias(CORRUPT))

    # In a lambda for the reason that `judged` gives.
    aside = F.get(F.transform(F.array(texts), whole), F.lit(0))
    return F.when(F.col("marked").isNull() | F.col("record").isNull(), F.col("record")).otherwise(aside)


def _exact(value: Column, texts: Column, kind: DataType) -> Column:
    """Return a value with the numbers in its STRINGs as written; `texts`: the same with STRING for each scalar type."""
    if not _has(kind, "string"):
        return value
    match kind:
        case StructType(fields=fields):
            inside = (_exact(value[f.name], texts[f.name], f.dataType).alias(f.name) for f in fields)
            return F.when(value.isNotNull(), F.struct(*inside))
        case ArrayType(elementType=element):
            return F.zip_with(value, texts, lambda each, text: _exact(each, text, element))
        case MapType(valueType=of_map):
            return F.transform_values(value, lambda key, each: _exact(each, F.try_element_at(texts, key), of_map))
    return json_numbers.unmarked(texts)


def _deeper(schema: StructType, options: Mapping[str, str]) -> Iterator[Column]:
    """Yield a column with the texts inside a line's nested fields, if any of them must be checked."""
    judged = [field for field in schema.fields if _is_nested(field) and _is_judged(field.dataType, options)]
    if judged:
        wanted = StructType([StructField(field.name, _as_texts(field.dataType)) for field in judged])
        yield from_json("text", wanted, parsing(options)).alias("deeper")


def _wrong(field: StructField, options: Mapping[str, str]) -> Column | None:
    """Return the condition that a value which Spark has read is invalid for its field; None if Spark detects that."""
    if not _is_nested(field):
        return _misfit(_text_of(field), field.dataType, options)
    is_twice = _text_of(field).isNotNull() & F.try_parse_json(_text_of(field)).isNull()  # two inner fields of one name
    found = _misfit(F.col(f"deeper.{quoted(field.name)}"), field.dataType, options)
    return is_twice if found is None else is_twice | found


def _misfit(texts: Column, kind: DataType, options: Mapping[str, str]) -> Column | None:
    """Return the condition that one of the texts in a value is invalid for its type; None if Spark detects that."""
    match kind:
        case StructType(fields=fields):
            found = (_misfit(texts[field.name], field.dataType, options) for field in fields)
            wrong = [each for each in found if each is not None]
            return reduce(Column.__or__, wrong) if wrong else None
        case ArrayType(elementType=element):
            return _any_misfit(texts, element, options)
        case MapType(valueType=value):
            return _any_misfit(F.map_values(texts), value, options)
    if isinstance(kind, ByteType):  # the parser takes 128 to 255 for a byte without a sign
        return F.coalesce(texts.try_cast("bigint") > 127, F.lit(False))
    if not values.is_guessed(kind, options):
        return None
    return F.coalesce(texts.isNotNull() & values.is_misspelt(texts, kind, _WORDS), F.lit(False))


def _any_misfit(texts: Column, kind: DataType, options: Mapping[str, str]) -> Column | None:
    if not _is_judged(kind, options):
        return None
    found = F.exists(texts, lambda each: cast(Column, _misfit(each, kind, options)))
    return F.coalesce(found, F.lit(False))


def _is_judged(kind: DataType, options: Mapping[str, str]) -> bool:
    return _misfit(F.lit(None).cast(StringType()), kind, options) is not None


def _is_nested(field: StructField) -> bool:
    return isinstance(field.dataType, StructType | ArrayType | MapType)


def _of_record(field: StructField) -> Column:
    return F.col(f"record.{quoted(field.name)}")


def _text_of(field: StructField) -> Column:
    """Return a field's value as text; NULL if the line has no such field."""
    return F.try_element_at(F.get("alone", F.lit(0)), F.lit(field.name))


def _is_unread(field: StructField, options: Mapping[str, str]) -> Column:
    """Return the condition that Spark could not read a field's value."""
    if _has(field.dataType, "binary"):
        return from_json("text", StructType([field]).add(CORRUPT, StringType()), parsing(options) | LENIENT)[
            CORRUPT
        ].isNotNull()
    return _of_record(field).isNull() & _text_of(field).isNotNull()


def _has(kind: DataType, scalar: str) -> bool:
    """Return whether a type is or has this scalar type; of a few that neither are nor have it, also true."""
    return scalar in kind.simpleString()


def _expectation(field: StructField) -> Column:
    return F.concat(values.expectation(field.name, field.dataType), F.substring(_text_of(field), 1, _NUM_SHOWN))


def _as_texts(kind: DataType) -> DataType:
    """Return the type with STRING in place of every scalar type."""
    match kind:
        case StructType(fields=fields):
            return StructType([StructField(field.name, _as_texts(field.dataType)) for field in fields])
        case ArrayType(elementType=element):
            return ArrayType(_as_texts(element))
        case MapType(valueType=value):
            return MapType(StringType(), _as_texts(value))
    return StringType()


def parsing(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in (*ENCODINGS, "lineSep", "multiLine")}

"""CSV records, read without guessing or dropping any part of a line. What Spark's own reader does silently:

    a quote that is never closed        the value extends to the end of the line; with multiLine, of the file
    text after a closing quote          the quotes become part of the value
    the character NUL                   is dropped inside quotes; without `quote` it is the quote itself
    a line of white space alone         is skipped, also where the separator is white space or a control character
    line ends, with multiLine           those inside quotes become \\n; outside, one other than the first becomes text
    an empty value, with nullValue      is NULL, as a value is that equals nullValue; also if that is quoted
    bytes invalid in the encoding       become a replacement character, which a file may also contain itself
    a text that is no date or number    see `values`

With multiLine a file is divided into its records here, and Spark parses each of them. Otherwise Spark divides the
file, and a line that it would skip is refused. `csv_text` checks quotes, NULs, such lines, quoted texts that equal
nullValue, and bytes in UTF-8 before the records are read. Bytes in other encodings, dates and numbers are checked while
they are read, because columns of such types are read as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, DoubleType, FloatType, StringType, StructField, StructType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.sources.files import csv_text, values
from airflow_mv_provider.sources.texts import CORRUPT, ENCODINGS, LENIENT, is_multi_line, is_utf_8, refusal, texts
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.errors import BAD_ENCODING, BAD_HEADER, BAD_RECORD
from airflow_mv_provider.spark.layout import sql_of

_STRICT = {
    "mode": "FAILFAST",
    "enforceSchema": "false",  # the header's names must be the schema's, in its order
    "columnPruning": "false",  # with pruning, Spark does not detect that a line is too short or too long
    "header": "true",
}
_REPLACEMENT = "\ufffd"
_OF_FILES = ("header", "comment", "multiLine", "lineSep", *ENCODINGS)  # options that do not apply to a single record
_NUM_SHOWN = 80


def read(
    spark: SparkSession,
    paths: Sequence[str],
    declared: StructType,
    options: Mapping[str, str],
    extra: Sequence[Column] = (),
) -> DataFrame:
    """Return the records of the files at `paths`, which `csv_text.check` has checked; lazy.

    While it runs, it raises the errors for BAD_ENCODING, BAD_HEADER and BAD_RECORD in `spark.errors`, and Spark's own
    for other malformed records.

    Args:
        spark: The session.
        paths: The files.
        declared: The columns and their types.
        options: The reader's options.
        extra: Additional columns, computed from Spark's own such as `_metadata`.
    """
    if is_multi_line(options):
        records = _records(spark, paths, declared, options)
        shown = F.substring("text", 1, _NUM_SHOWN)
        is_corrupt, refused = F.col(f"parsed.{CORRUPT}").isNotNull(), refusal(BAD_RECORD, F.input_file_name(), shown)
        rows = records.select(F.when(is_corrupt, refused).otherwise(F.col("parsed")).alias("parsed")).select("parsed.*")
    else:
        reader = spark.read.schema(_as_text(declared, options))
        rows = reader.options(**{**_STRICT, **csv_text.of_spark(options)}).csv(list(paths))

    def column(field: StructField) -> Column:
        value, misfit = _value(field, options, _read(field))
        if misfit is not None:  # not used as the condition: it would compute the value a second time
            refused = refusal(BAD_RECORD, F.input_file_name(), _misfit(field, _read(field))).cast(
                sql_of(field.dataType)
            )
            value = F.coalesce(value, F.when(_text_of(_read(field), options).isNotNull(), refused))
        if not is_utf_8(options) and isinstance(field.dataType, StringType | BinaryType):
            refused = refusal(BAD_ENCODING, F.input_file_name()).cast(sql_of(field.dataType))
            value = F.when(_read(field).contains(_REPLACEMENT), refused).otherwise(value)
        return value.alias(field.name)

    return rows.select(*(column(field) for field in declared.fields), *extra)


def marked(
    spark: SparkSession,
    paths: Sequence[str],
    declared: StructType,
    options: Mapping[str, str],
    undecoded: Sequence[str] | None,
    extra: Sequence[Column] = (),
    *,
    is_numbered: bool,
) -> DataFrame:
    """Return the records of the files at `paths`, including and marking those that cannot be decoded; lazy.

    Args:
        spark: The session.
        paths: The files.
        declared: The columns and their types.
        options: The reader's options.
        undecoded: As returned by `csv_text.check_marked`.
        extra: Additional columns, as in `read`.
        is_numbered: Add each record's position in its file to its mark.
    """
    if is_multi_line(options):
        whole = F.when(F.col(f"parsed.{CORRUPT}").isNotNull(), F.col("text")).alias(CORRUPT)
        fields = (F.col(f"parsed.{quoted(field.name)}") for field in declared.fields)
        rows = _records(spark, paths, declared, options).select(*fields, whole)
    else:
        reader = spark.read.schema(_with_corrupt(_as_text(declared, options)))
        rows = reader.options(**{**_STRICT, **csv_text.of_spark(options), **LENIENT}).csv(list(paths))
    found = [(field, *_value(field, options, _read(field))) for field in declared.fields]
    misfits = [(field, misfit) for field, _, misfit in found if misfit is not None]
    # Spark refuses a query for the corrupt record alone, so the query reads every column.
    text = F.concat_ws("", *(_read(field).cast("string") for field in declared.fields))
    is_garbled = text.contains(_REPLACEMENT)
    if is_utf_8(options) and undecoded is not None:
        is_garbled &= F.col(marking.FILE).isin(*undecoded)
    is_corrupt = F.col(CORRUPT).isNotNull()
    is_misfit = reduce(Column.__or__, (misfit for _, misfit in misfits), F.lit(False))
    rule = F.when(is_corrupt | is_misfit, marking.CORRUPT_RECORD).when(is_garbled, marking.ENCODING)
    reason = F.when(is_corrupt, marking.NO_FIT)
    for field, misfit in misfits:
        reason = reason.when(misfit, _misfit(field, _read(field)))
    reason = reason.when(is_garbled, marking.NOT_ENCODED)
    record = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*(_read(field) for field in declared.fields))))
    at = marking.numbers(is_numbered=is_numbered)
    return rows.select(
        *(value.alias(field.name) for field, value, _ in found),
        *extra,
        marking.origin(file=F.col(marking.FILE), rule=rule, reason=reason, record=record, **at),
    )


def judged(lines: DataFrame, declared: StructType, options: Mapping[str, str]) -> DataFrame:
    """Return each text parsed as one record, and the rule that it breaks; lazy. Nothing of a text is dropped.

    Args:
        lines: (text string, is_decoded boolean, ...)
        declared: The columns and their types.
        options: The reader's options.

    Returns:
        (..., record, broken, unknown, misfit), as of `json_lines.judged`; `unknown` is NULL.
    """
    parsed = lines.select("*", _parsed(declared, options))
    found = [(field, *_value(field, options, F.col(f"parsed.{quoted(field.name)}"))) for field in declared.fields]
    misfit = F.when(F.col("text").rlike(r"[\r\n]"), F.lit("the record has a line break"))
    if (quote := options.get("quote", '"')) != "":
        is_odd = F.col("text").contains(quote) & ~F.col("text").rlike(csv_text.well_quoted(options))
        misfit = misfit.when(is_odd, F.lit("a quoted value is not closed, or continues after its closing quote"))
    misfit = misfit.when(csv_text.has_bad_nul(F.col("text"), options), F.lit(csv_text.bad_nul(options)))
    if (is_quoted_null := csv_text.is_quoted_null(F.col("text"), options)) is not None:
        misfit = misfit.when(is_quoted_null, F.lit("a quoted value equals nullValue"))
    for field, _, is_misfit in found:
        if is_misfit is not None:
            misfit = misfit.when(is_misfit, _misfit(field, F.col(f"parsed.{quoted(field.name)}")))
    is_corrupt = F.col(f"parsed.{CORRUPT}").isNotNull() | misfit.isNotNull()
    broken = (
        F.when(F.col("text") == "", marking.NOTHING)
        .when(~F.col("is_decoded"), marking.ENCODING)
        .when(is_corrupt, marking.CORRUPT_RECORD)
    )
    record = F.struct(*(value.alias(field.name) for field, value, _ in found))
    unknown = F.lit(None).cast("string").alias("unknown")
    return parsed.select(
        *lines.columns, record.alias("record"), broken.alias("broken"), unknown, misfit.alias("misfit")
    )


def _records(spark: SparkSession, paths: Sequence[str], declared: StructType, options: Mapping[str, str]) -> DataFrame:
    """Return (text, parsed), a row for each record of files that are read as a whole; lazy.

    `csv_text.check` has checked them. While it runs, it raises the error for BAD_HEADER in `spark.errors`.
    """
    record, end = csv_text.record_pattern(options)
    pieces = F.regexp_extract_all(csv_text.text_column(options), F.lit(rf"(?s)\G({record})(?:{end}|\z)"), 1)
    comment = options.get("comment")

    def is_record(text: Column) -> Column:
        return (text != "") & ~text.startswith(comment) if comment else text != ""

    found = texts(spark, paths, options).select(F.filter(pieces, is_record).alias("texts"))
    if options.get("header", "true").lower() == "true":
        fields = [StructField(f"c{number}", StringType()) for number in range(len(declared.fields))]
        own = {name: value for name, value in options.items() if name != "nullValue"}
        head = F.get("texts", F.lit(0))
        found = found.select("texts", head.alias("text")).select("texts", "text", _parsed(StructType(fields), own))
        names = [(field.name, F.coalesce(f"parsed.c{number}", F.lit(""))) for number, field in enumerate(declared)]
        wrong = F.when(F.col(f"parsed.{CORRUPT}").isNotNull(), F.concat(F.lit("Header: "), F.col("text")))
        for name, read in names:  # in any case, as Spark compares them
            told = F.concat(F.lit(f"Expected: {name} but found: "), read)
            wrong = wrong.when(F.col("text").isNotNull() & (F.lower(read) != F.lower(F.lit(name))), told)
        refused = refusal(BAD_HEADER, F.input_file_name(), F.col("wrong")).cast("array<string>")
        rest = F.slice("texts", 2, F.greatest(F.size("texts"), F.lit(1)))
        found = found.select("texts", wrong.alias("wrong")).select(
            F.when(F.col("wrong").isNotNull(), refused).otherwise(rest).alias("texts")
        )
    return found.select(F.explode("texts").alias("text")).select("text", _parsed(declared, options))


def _parsed(declared: StructType, options: Mapping[str, str]) -> Column:
    """Return the column `text` parsed as one record, as the column `parsed`."""
    schema = _with_corrupt(_as_text(declared, options))
    ddl = ", ".join(f"{quoted(field.name)} {sql_of(field.dataType)}" for field in schema.fields)
    of_record = {name: value for name, value in csv_text.of_spark(options).items() if name not in _OF_FILES}
    # With options of its own Spark reads every column of a text, and notices one that is too short or too long.
    return F.from_csv("text", ddl, {**of_record, **LENIENT}).alias("parsed")


def _with_corrupt(schema: StructType) -> StructType:
    return StructType([*schema.fields, StructField(CORRUPT, StringType())])


def _as_text(declared: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with STRING for binary columns and for the types whose values Spark would guess.

    With `nullValue` all are STRING, because Spark does not see which texts are NULL.
    """

    def read_as(field: StructField) -> StructField:
        is_text = isinstance(field.dataType, BinaryType) or values.is_guessed(field.dataType, options)
        return StructField(field.name, StringType()) if is_text or options.get("nullValue") else field

    return StructType([read_as(field) for field in declared.fields])


def _value(field: StructField, options: Mapping[str, str], read: Column) -> tuple[Column, Column | None]:
    """Return a column's value, and the condition that its text is invalid for its type; None if that needs no check.

    read : what Spark has read, with the type that `_as_text` gives
    """
    kind, null = field.dataType, options.get("nullValue")
    if isinstance(kind, StringType | BinaryType):
        text = F.when(F.coalesce(read, F.lit("")) != null, F.coalesce(read, F.lit(""))) if null else read
        return F.encode(text, "UTF-8") if isinstance(kind, BinaryType) else text, None
    text = _text_of(read, options)
    if not values.is_guessed(kind, options):
        if not null:
            return read, None
        found = _typed(text, kind, options)
        return found, text.isNotNull() & found.isNull()
    found = values.value_of(text, kind)
    if isinstance(kind, DoubleType | FloatType):
        for name, default, what in (("positiveInf", "Inf", "inf"), ("negativeInf", "-Inf", "-inf")):
            found = F.when(text == options.get(name, default), F.lit(float(what)).cast(kind)).otherwise(found)
        found = F.when(text == options.get("nanValue", "NaN"), F.lit(float("nan")).cast(kind)).otherwise(found)
    return found, text.isNotNull() & found.isNull()


def _text_of(read: Column, options: Mapping[str, str]) -> Column:
    """Return the text of a value that is not NULL; an empty value without quotes is NULL, except as a text."""
    null = options.get("nullValue")
    return F.when(read != null, read) if null else read


def _typed(text: Column, kind: DataType, options: Mapping[str, str]) -> Column:
    """Return the value that Spark's csv reader gives a text; NULL if there is none."""
    formats = {name: value for name, value in options.items() if name.endswith("Format") or name == "locale"}
    alone = {"sep": "\x01", "quote": "", **formats, **LENIENT}
    read = F.from_csv(text, f"v {sql_of(kind)}, {CORRUPT} STRING", alone)
    return F.when(read[CORRUPT].isNull() & ~text.contains("\0"), read["v"])  # without `quote`, NUL is Spark's quote


def _read(field: StructField) -> Column:
    return F.col(quoted(field.name))


def _misfit(field: StructField, read: Column) -> Column:
    return F.concat(values.expectation(field.name, field.dataType), read)

"""CSV records, read without guessing or dropping any part of a line. What Spark's own reader does silently:

    a quote that is never closed        the value extends to the end of the line; with multiLine, of the file
    text after a closing quote          the quotes become part of the value
    bytes invalid in the encoding       become a replacement character, which a file may also contain itself
    a text that is no date or number    see `values`

The first three are checked in the raw text before the records are read (invalid bytes in UTF-8 only; in other encodings
while they are read). The last is checked while they are read, because columns of such types are read as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DoubleType, FloatType, StringType, StructField, StructType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.exceptions import SourceFileError
from airflow_mv_provider.sources.files import values
from airflow_mv_provider.sources.files.listing import without
from airflow_mv_provider.sources.texts import (
    CORRUPT,
    LENIENT,
    decoded,
    encoding,
    is_multi_line,
    is_utf_8,
    refusal,
    texts,
)
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.errors import BAD_ENCODING, BAD_QUOTE, BAD_RECORD
from airflow_mv_provider.spark.layout import sql_of

_STRICT = {
    "mode": "FAILFAST",
    "enforceSchema": "false",  # the header's names must be the schema's, in its order
    "columnPruning": "false",  # with pruning, Spark does not detect that a line is too short or too long
    "header": "true",
}
_REPLACEMENT = "\ufffd"
# Of the encodings that Spark supports, those in which every byte below 128 is always its ASCII character.
SINGLE_BYTE = ("ISO-8859-1", "US-ASCII")
_SEPARATORS = {r"\t": "\t", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\\": "\\", r"\u0000": "\0"}
_MAX_FILES = 1000
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")


def check(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> None:
    """Check that all quotes are closed and, in UTF-8, that all bytes are valid.

    cost   : a scan of the lines, and a regular expression on those with quotes. With multiLine each file must fit into
             a task's memory
    raises : the errors for BAD_ENCODING and BAD_QUOTE in `spark.errors`; SourceFileError, if a compressed file that
             should have a header has no content
    """
    verdict = _quotes_checked(options)
    if is_utf_8(options):
        refused = refusal(BAD_ENCODING, F.input_file_name()).cast("int")
        verdict = F.when(~F.is_valid_utf8("value"), refused).otherwise(verdict)
    _scan(spark, paths, options, verdict)


def check_quotes(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> list[str] | None:
    """Check the quotes as `check` does, and return the files with invalid UTF-8.

    returns : an empty list for other encodings; None if there are more than 1,000 such files
    """
    _scan(spark, paths, options, _quotes_checked(options))
    if not is_utf_8(options):
        return []
    bad = texts(spark, paths, options).where(~F.is_valid_utf8("value"))
    files = bad.select(F.col(marking.FILE).alias("file")).distinct()
    found = [row.file for row in files.limit(_MAX_FILES + 1).collect()]
    return found if len(found) <= _MAX_FILES else None


def read(
    spark: SparkSession,
    paths: Sequence[str],
    declared: StructType,
    options: Mapping[str, str],
    beside: Sequence[Column] = (),
) -> DataFrame:
    """Return the records of the files at `paths`, which `check` has checked; lazy.

    beside : additional columns, computed from Spark's own such as `_metadata`
    raises : while it runs: the errors for BAD_ENCODING and BAD_RECORD in `spark.errors`, and Spark's own for other
             malformed records
    """
    rows = spark.read.schema(_as_text(declared, options)).options(**{**_STRICT, **options}).csv(list(paths))

    def column(field: StructField) -> Column:
        value, misfit = _value(field, options, _read(field))
        if misfit is not None:  # not used as the condition: it would compute the value a second time
            refused = refusal(BAD_RECORD, F.input_file_name(), _misfit(field, _read(field))).cast(
                sql_of(field.dataType)
            )
            value = F.coalesce(value, F.when(_read(field).isNotNull(), refused))
        if not is_utf_8(options) and isinstance(field.dataType, StringType | BinaryType):
            refused = refusal(BAD_ENCODING, F.input_file_name()).cast(sql_of(field.dataType))
            value = F.when(_read(field).contains(_REPLACEMENT), refused).otherwise(value)
        return value.alias(field.name)

    return rows.select(*(column(field) for field in declared.fields), *beside)


def marked(
    spark: SparkSession,
    paths: Sequence[str],
    declared: StructType,
    options: Mapping[str, str],
    undecoded: Sequence[str] | None,
    beside: Sequence[Column] = (),
    *,
    is_numbered: bool,
) -> DataFrame:
    """Return the records of the files at `paths`, including and marking those that cannot be decoded; lazy.

    undecoded   : as returned by `check_quotes`
    is_numbered : add each record's position in its file to its mark
    """
    schema = StructType([*_as_text(declared, options).fields, StructField(CORRUPT, StringType())])
    rows = spark.read.schema(schema).options(**{**_STRICT, **options, **LENIENT}).csv(list(paths))
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
        *beside,
        marking.origin(file=F.col(marking.FILE), rule=rule, reason=reason, record=record, **at),
    )


def judged(lines: DataFrame, declared: StructType, options: Mapping[str, str]) -> DataFrame:
    """Return each text parsed as one record, and the rule that it breaks; lazy. Nothing of a text is dropped.

    lines   : (text string, is_decoded boolean, ...)
    returns : (..., record, broken, unknown, misfit), as of `json_lines.judged`; `unknown` is NULL
    """
    schema = StructType([*_as_text(declared, options).fields, StructField(CORRUPT, StringType())])
    ddl = ", ".join(f"{quoted(field.name)} {sql_of(field.dataType)}" for field in schema.fields)
    # With options of its own Spark reads every column of a line, and notices one that is too short or too long.
    parsed = lines.select("*", F.from_csv("text", ddl, {**options, **LENIENT}).alias("parsed"))
    found = [(field, *_value(field, options, F.col(f"parsed.{quoted(field.name)}"))) for field in declared.fields]
    misfit = F.when(F.col("text").rlike(r"[\r\n]"), F.lit("it has a line break"))
    if (quote := options.get("quote", '"')) != "":
        is_odd = F.col("text").contains(quote) & ~F.col("text").rlike(well_quoted(options))
        misfit = misfit.when(is_odd, F.lit("a quoted value is not closed, or continues after its closing quote"))
    for field, _, is_misfit in found:
        if is_misfit is not None:
            misfit = misfit.when(is_misfit, _misfit(field, F.col(f"parsed.{quoted(field.name)}")))
    is_corrupt = F.col(f"parsed.{CORRUPT}").isNotNull() | misfit.isNotNull()
    broken = (
        F.when(~F.col("text").rlike(r"\S"), marking.NOTHING)
        .when(~F.col("is_decoded"), marking.ENCODING)
        .when(is_corrupt, marking.CORRUPT_RECORD)
    )
    record = F.struct(*(value.alias(field.name) for field, value, _ in found))
    unknown = F.lit(None).cast("string").alias("unknown")
    return parsed.select(
        *lines.columns, record.alias("record"), broken.alias("broken"), unknown, misfit.alias("misfit")
    )


def well_quoted(options: Mapping[str, str]) -> str:
    """Return a Java regular expression for a text in which each quote that opens a value is closed at the value's end.

    A text is a line; with multiLine it is a whole file. All repetitions are possessive, so they neither recurse nor
    backtrack on any text.
    """
    quote, escape = _code(options.get("quote", '"')), _code(options.get("escape", "\\") or "\0")
    sep = re.sub(r"\\(?:u0000|.)", _unescaped, options.get("sep", options.get("delimiter", ",")))
    end = _code(options.get("lineSep", "\r\n")) if is_multi_line(options) else ""
    stop = rf"(?:{_code(sep)}|[{end}])" if end else rf"(?:{_code(sep)})"
    other = rf"[^{_code(sep)}{end}]" if len(sep) == 1 else rf"(?:(?!{stop}).)"
    inside = rf"[^{quote}]++|{quote}{quote}" if quote == escape else rf"[^{quote}{escape}]++|{escape}."
    blank = rf"(?:(?!{stop})[\x00-\x20])*+"
    before = blank if options.get("ignoreLeadingWhiteSpace", "").lower() == "true" else ""
    value = rf"(?:{before}{quote}(?:{inside})*+{quote}{blank}(?={stop}|\z)|{before}(?!{quote}){other}++|)"
    if end and (comment := options.get("comment")):
        value = rf"(?:(?<![^{end}]){_code(comment)}[^{end}]*+|{value})"
    return rf"(?s)\A{value}(?:{stop}{value})*+\z"


def _scan(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str], verdict: Column) -> None:
    """Evaluate `verdict`, which is 1 or raises, over the text of all files.

    raises : SourceFileError, if a compressed file that should have a header has no content
    """
    lines, verdict = texts(spark, paths, options), verdict.alias("verdict")
    has_header = options.get("header", "true").lower() == "true"
    if not (has_header and any(path.lower().endswith(_COMPRESSED) for path in paths)):
        lines.select(verdict).agg(F.sum("verdict")).collect()
        return
    # Some codecs treat bytes that they cannot decode, zeros for instance, as the end of the file.
    has_text = (F.length(F.trim("value")) > 0).cast("int").alias("n")
    judged = lines.select(verdict, has_text, F.col(marking.FILE).alias("file"))
    found = judged.groupBy("file").agg(F.sum("verdict"), F.sum("n").alias("n")).collect()
    if lacking := without(paths, (row.file for row in found if row.n)):
        raise SourceFileError("source", f"{lacking[0]} is empty and has no header.")


def _quotes_checked(options: Mapping[str, str]) -> Column:
    """Return a column that is 1, or raises for a text with a quote that opens a value and is not closed."""
    quote = options.get("quote", '"')
    if not quote:
        return F.lit(1)
    is_as_read = is_utf_8(options) or encoding(options).upper() in SINGLE_BYTE
    text = F.col("value") if is_as_read else decoded(F.col("value"), options)
    is_odd = text.contains(quote) & ~text.rlike(well_quoted(options))
    if (comment := options.get("comment")) and not is_multi_line(options):
        is_odd &= ~text.startswith(comment)
    return F.when(is_odd, refusal(BAD_QUOTE, F.input_file_name()).cast("int")).otherwise(1)


def _as_text(declared: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with STRING for binary columns and for the types whose values Spark would guess."""

    def read_as(field: StructField) -> StructField:
        is_text = isinstance(field.dataType, BinaryType) or values.is_guessed(field.dataType, options)
        return StructField(field.name, StringType()) if is_text else field

    return StructType([read_as(field) for field in declared.fields])


def _value(field: StructField, options: Mapping[str, str], read: Column) -> tuple[Column, Column | None]:
    """Return a column's value, and the condition that its text is invalid for its type; None if that needs no check.

    read : what Spark has read, with the type that `_as_text` gives
    """
    kind = field.dataType
    if isinstance(kind, BinaryType):
        return F.encode(read, "UTF-8"), None
    if not values.is_guessed(kind, options):
        return read, None
    found = values.value_of(read, kind)
    if isinstance(kind, DoubleType | FloatType):
        for name, default, what in (("positiveInf", "Inf", "inf"), ("negativeInf", "-Inf", "-inf")):
            found = F.when(read == options.get(name, default), F.lit(float(what)).cast(kind)).otherwise(found)
        found = F.when(read == options.get("nanValue", "NaN"), F.lit(float("nan")).cast(kind)).otherwise(found)
    return found, read.isNotNull() & found.isNull()


def _read(field: StructField) -> Column:
    return F.col(quoted(field.name))


def _misfit(field: StructField, read: Column) -> Column:
    return F.concat(values.expectation(field.name, field.dataType), read)


def _unescaped(found: re.Match[str]) -> str:
    """Return the character that an escape sequence in a separator stands for in Spark."""
    return _SEPARATORS.get(found.group(), found.group())


def _code(text: str) -> str:
    """Return a text escaped for a regular expression, also inside brackets."""
    return "".join(rf"\x{{{ord(char):x}}}" for char in text)

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
file, and a line that it would skip is refused. Quotes, such lines and quoted texts that equal nullValue are checked in
the raw text before the records are read, as are invalid bytes in UTF-8; those in other encodings while they are read,
as are dates and numbers, because columns of such types are read as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, DoubleType, FloatType, StringType, StructField, StructType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.exceptions import SourceFileError
from airflow_mv_provider.sources.files import values
from airflow_mv_provider.sources.files.listing import without
from airflow_mv_provider.sources.texts import (
    CORRUPT,
    ENCODINGS,
    LENIENT,
    decoded,
    encoding,
    is_multi_line,
    is_utf_8,
    refusal,
    texts,
)
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.errors import (
    BAD_ENCODING,
    BAD_HEADER,
    BAD_QUOTE,
    BAD_RECORD,
    BLANK_LINE,
    QUOTED_NULL,
)
from airflow_mv_provider.spark.layout import sql_of

_STRICT = {
    "mode": "FAILFAST",
    "enforceSchema": "false",  # the header's names must be the schema's, in its order
    "columnPruning": "false",  # with pruning, Spark does not detect that a line is too short or too long
    "header": "true",
}
_REPLACEMENT = "\ufffd"
_NONCHARACTER = "\ufdd0"  # of Unicode: for internal use, never in a text that is exchanged
_OF_FILES = ("header", "comment", "multiLine", "lineSep", *ENCODINGS)  # options that do not apply to a single record
_NUM_SHOWN = 80
# Of the encodings that Spark supports, those in which every byte below 128 is always its ASCII character.
SINGLE_BYTE = ("ISO-8859-1", "US-ASCII")
_SEPARATORS = {r"\t": "\t", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\\": "\\", r"\u0000": "\0"}
_MAX_FILES = 1000
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")


def check(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> None:
    """Check that all quotes are closed, that Spark skips no line and, in UTF-8, that all bytes are valid.

    cost   : a scan of the lines, and a regular expression on those with quotes. With multiLine each file must fit into
             a task's memory
    raises : the errors for BAD_ENCODING, BAD_QUOTE, BLANK_LINE and QUOTED_NULL in `spark.errors`; SourceFileError, if a
             compressed file that should have a header has no content
    """
    verdict = _text_checked(options)
    if is_utf_8(options):
        refused = refusal(BAD_ENCODING, F.input_file_name()).cast("int")
        verdict = F.when(~F.is_valid_utf8("value"), refused).otherwise(verdict)
    _scan(spark, paths, options, verdict)


def check_marked(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> list[str] | None:
    """Check the text as `check` does, and return the files with invalid UTF-8.

    returns : an empty list for other encodings; None if there are more than 1,000 such files
    """
    _scan(spark, paths, options, _text_checked(options))
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
    raises : while it runs: the errors for BAD_ENCODING, BAD_HEADER and BAD_RECORD in `spark.errors`, and Spark's own
             for other malformed records
    """
    if is_multi_line(options):
        records = _records(spark, paths, declared, options)
        shown = F.substring("text", 1, _NUM_SHOWN)
        is_corrupt, refused = F.col(f"parsed.{CORRUPT}").isNotNull(), refusal(BAD_RECORD, F.input_file_name(), shown)
        rows = records.select(F.when(is_corrupt, refused).otherwise(F.col("parsed")).alias("parsed")).select("parsed.*")
    else:
        reader = spark.read.schema(_as_text(declared, options))
        rows = reader.options(**{**_STRICT, **_of_spark(options)}).csv(list(paths))

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

    undecoded   : as returned by `check_marked`
    is_numbered : add each record's position in its file to its mark
    """
    if is_multi_line(options):
        whole = F.when(F.col(f"parsed.{CORRUPT}").isNotNull(), F.col("text")).alias(CORRUPT)
        fields = (F.col(f"parsed.{quoted(field.name)}") for field in declared.fields)
        rows = _records(spark, paths, declared, options).select(*fields, whole)
    else:
        reader = spark.read.schema(_with_corrupt(_as_text(declared, options)))
        rows = reader.options(**{**_STRICT, **_of_spark(options), **LENIENT}).csv(list(paths))
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
    parsed = lines.select("*", _parsed(declared, options))
    found = [(field, *_value(field, options, F.col(f"parsed.{quoted(field.name)}"))) for field in declared.fields]
    misfit = F.when(F.col("text").rlike(r"[\r\n]"), F.lit("it has a line break"))
    if (quote := options.get("quote", '"')) != "":
        is_odd = F.col("text").contains(quote) & ~F.col("text").rlike(well_quoted(options))
        misfit = misfit.when(is_odd, F.lit("a quoted value is not closed, or continues after its closing quote"))
    misfit = misfit.when(_has_bad_nul(F.col("text"), options), F.lit(_bad_nul(options)))
    if (is_quoted_null := _is_quoted_null(F.col("text"), options)) is not None:
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


def well_quoted(options: Mapping[str, str], *, null: str | None = None, nul: bool = True) -> str:
    """Return a Java regular expression for a text in which each quote that opens a value is closed at the value's end.

    A text is a line; with multiLine it is a whole file. All repetitions are possessive, so they neither recurse nor
    backtrack on any text.

    null : a text that no quoted value may be
    nul  : a quoted value may have the character NUL
    """
    record, end = _record(options, null, nul=nul)
    return rf"(?s)\A{record}(?:(?:{end}){record})*+\z" if is_multi_line(options) else rf"(?s)\A{record}\z"


def _record(options: Mapping[str, str], null: str | None = None, *, nul: bool = True) -> tuple[str, str]:
    """Return Java regular expressions for a record, or with multiLine a comment, and for the end of a line.

    null, nul : as in `well_quoted`
    """
    quote, escape = _code(options.get("quote", '"')), _code(options.get("escape", "\\") or "\0")
    sep, line_sep = _separator(options), options.get("lineSep")
    end = _code(line_sep) if line_sep else r"\r\n|[\r\n]"
    stop = rf"(?:{_code(sep)}|{end})" if is_multi_line(options) else rf"(?:{_code(sep)})"
    ends = line_sep or "\r\n" if is_multi_line(options) else ""
    is_by_char = len(sep) == 1 and len(line_sep or "\n") == 1
    other = rf"[^{_code(sep + ends)}]" if is_by_char else rf"(?:(?!{stop}).)"
    blank = rf"(?:(?!{stop})[\x00-\x20])*+"
    before = blank if options.get("ignoreLeadingWhiteSpace", "").lower() == "true" else ""
    value = rf"(?:{before}{other}++|)"
    if quote:
        but = "" if nul else r"\x00"
        inside = rf"[^{quote}{but}]++|{quote}{quote}" if quote == escape else rf"[^{quote}{escape}{but}]++|{escape}."
        closed = rf"{quote}{blank}(?={stop}|\z)"
        another = "" if null is None else rf"(?!(?:{_inside_quotes(null, options)}){closed})"
        value = rf"(?:{before}{quote}{another}(?:{inside})*+{closed}|{before}(?!{quote}){other}++|)"
    record = rf"{value}(?:{_code(sep)}{value})*+"
    if is_multi_line(options) and (comment := options.get("comment")):
        record = rf"(?:{_code(comment)}(?:(?!{end}).)*+|{record})"
    return record, end


def _inside_quotes(text: str, options: Mapping[str, str]) -> str:
    """Return a regular expression for what stands for a text inside quotes."""
    quote, escape = options.get("quote", '"'), options.get("escape", "\\")

    def of(char: str) -> str:
        if char == quote:
            return _code(escape + char)
        return rf"(?:{_code(escape)})?{_code(char)}" if char == escape else _code(char)

    return "".join(of(char) for char in text)


def _records(spark: SparkSession, paths: Sequence[str], declared: StructType, options: Mapping[str, str]) -> DataFrame:
    """Return (text, parsed), a row for each record of files that are read as a whole; lazy. `check` has checked them.

    raises : while it runs: the error for BAD_HEADER in `spark.errors`
    """
    record, end = _record(options)
    pieces = F.regexp_extract_all(_decoded(options), F.lit(rf"(?s)\G({record})(?:{end}|\z)"), 1)
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
    of_record = {name: value for name, value in _of_spark(options).items() if name not in _OF_FILES}
    # With options of its own Spark reads every column of a text, and notices one that is too short or too long.
    return F.from_csv("text", ddl, {**of_record, **LENIENT}).alias("parsed")


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


def _text_checked(options: Mapping[str, str]) -> Column:
    """Return a column that is 1, or raises for a text that Spark would not read as it is."""
    file, text = F.input_file_name(), _decoded(options)
    bad = list[tuple[Column, Column]]()
    if not is_multi_line(options):  # as Java's `trim` sees it, with which Spark looks for lines without text
        is_blank = (text != "") & (text < "!") & text.rlike(r"\A[\x00-\x20]++\z")
        bad.append((is_blank, refusal(BLANK_LINE, file)))
    if quote := options.get("quote", '"'):
        is_odd = text.contains(quote) & ~text.rlike(well_quoted(options))
        bad.append((is_odd, refusal(BAD_QUOTE, file)))
    bad.append((_has_bad_nul(text, options), refusal(BAD_RECORD, file, F.lit(_bad_nul(options)))))
    if (is_quoted_null := _is_quoted_null(text, options)) is not None:
        bad.append((is_quoted_null, refusal(QUOTED_NULL, file, F.lit(options["nullValue"]))))
    verdict = reduce(lambda found, each: F.when(each[0], each[1].cast("int")).otherwise(found), bad[::-1], F.lit(1))
    comment = options.get("comment")
    return F.when(text.startswith(comment), 1).otherwise(verdict) if comment and not is_multi_line(options) else verdict


def _has_bad_nul(text: Column, options: Mapping[str, str]) -> Column:
    """Return the condition that a text has the character NUL where Spark would not read it as it is."""
    if options.get("quote", '"'):
        return text.contains("\0") & ~text.rlike(well_quoted(options, nul=False))
    return text.contains("\0") if "\0" not in _separator(options) else F.lit(False)


def _bad_nul(options: Mapping[str, str]) -> str:
    if options.get("quote", '"'):
        return "a NUL character inside quotes, which Spark drops"
    return "a NUL character, which is Spark's quote if `quote` is empty"


def _is_quoted_null(text: Column, options: Mapping[str, str]) -> Column | None:
    """Return the condition that a quoted value in a text equals `nullValue`; None if there is no such option."""
    quote, null = options.get("quote", '"'), options.get("nullValue")
    if not quote or not null:
        return None
    may_be = text.contains(quote) & (text.contains(null[0]) | text.contains(_NONCHARACTER))
    nulls = (null, _empty(options))
    return may_be & reduce(Column.__or__, (~text.rlike(well_quoted(options, null=each)) for each in nulls))


def _decoded(options: Mapping[str, str]) -> Column:
    """Return a value of `texts` as text; without a byte order mark, if it is a whole file."""
    is_as_read = is_utf_8(options) or encoding(options).upper() in SINGLE_BYTE
    if not is_multi_line(options):
        return F.col("value") if is_as_read else decoded(F.col("value"), options)
    return F.regexp_replace(decoded(F.col("value"), options), r"\A\x{feff}", "")


def _of_spark(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for Spark: its `nullValue` is the text of a value that is empty and has no quotes."""
    return {**options, "nullValue": _empty(options)} if options.get("nullValue") else dict(options)


def _empty(options: Mapping[str, str]) -> str:
    """Return a text that only a quoted value could be, because it has the separator, and that `check` refuses there."""
    return _NONCHARACTER + _separator(options)


def _separator(options: Mapping[str, str]) -> str:
    return re.sub(r"\\(?:u0000|.)", _unescaped, options.get("sep", options.get("delimiter", ",")))


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
    return F.when(read[CORRUPT].isNull(), read["v"])


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

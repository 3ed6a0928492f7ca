"""The text of csv files: what a record is in it, and what Spark's reader would not read as it is.

A text is a line, or with multiLine a whole file. It is checked before its records are read; see `csv_lines`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.exceptions import SourceFileError
from airflow_mv_provider.sources.files.listing import without
from airflow_mv_provider.sources.texts import decoded, encoding, is_multi_line, is_utf_8, refusal, texts
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.errors import BAD_ENCODING, BAD_QUOTE, BAD_RECORD, BLANK_LINE, QUOTED_NULL

_NONCHARACTER = "\ufdd0"  # of Unicode: for internal use, never in a text that is exchanged
# Of the encodings that Spark supports, those in which every byte below 128 is always its ASCII character.
SINGLE_BYTE = ("ISO-8859-1", "US-ASCII")
_SEPARATORS = {r"\t": "\t", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\\": "\\", r"\u0000": "\0"}
_MAX_FILES = 1000
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")


def check(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> None:
    """Check that all quotes are closed, that Spark skips no line and, in UTF-8, that all bytes are valid.

    Raises:
        SourceFileError: If a compressed file that should have a header has no content. Also the errors for
            BAD_ENCODING, BAD_QUOTE, BAD_RECORD, BLANK_LINE and QUOTED_NULL in `spark.errors`.

    Cost:
        A scan of the lines, and a regular expression on those with quotes. With multiLine each file must fit into a
        task's memory.
    """
    verdict = _text_checked(options)
    if is_utf_8(options):
        refused = refusal(BAD_ENCODING, F.input_file_name()).cast("int")
        verdict = F.when(~F.is_valid_utf8("value"), refused).otherwise(verdict)
    _scan(spark, paths, options, verdict)


def check_marked(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> list[str] | None:
    """Check the text as `check` does, and return the files with invalid UTF-8.

    Returns:
        An empty list for other encodings; None if there are more than 1,000 such files.
    """
    _scan(spark, paths, options, _text_checked(options))
    if not is_utf_8(options):
        return []
    bad = texts(spark, paths, options).where(~F.is_valid_utf8("value"))
    files = bad.select(F.col(marking.FILE).alias("file")).distinct()
    found = [row.file for row in files.limit(_MAX_FILES + 1).collect()]
    return found if len(found) <= _MAX_FILES else None


def well_quoted(options: Mapping[str, str], *, null: str | None = None, nul: bool = True) -> str:
    """Return a Java regular expression for a text in which each quote that opens a value is closed at the value's end.

    A text is a line; with multiLine it is a whole file. All repetitions are possessive, so they neither recurse nor
    backtrack on any text.

    Args:
        options: The reader's options.
        null: A text that no quoted value may be.
        nul: A quoted value may have the character NUL.
    """
    record, end = record_pattern(options, null, nul=nul)
    return rf"(?s)\A{record}(?:(?:{end}){record})*+\z" if is_multi_line(options) else rf"(?s)\A{record}\z"


def record_pattern(options: Mapping[str, str], null: str | None = None, *, nul: bool = True) -> tuple[str, str]:
    """Return Java regular expressions for a record, or with multiLine a comment, and for the end of a line.

    Args:
        options: The reader's options.
        null: As in `well_quoted`.
        nul: As in `well_quoted`.
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


def has_bad_nul(text: Column, options: Mapping[str, str]) -> Column:
    """Return the condition that a text has the character NUL where Spark would not read it as it is."""
    if options.get("quote", '"'):
        return text.contains("\0") & ~text.rlike(well_quoted(options, nul=False))
    return text.contains("\0") if "\0" not in _separator(options) else F.lit(False)


def bad_nul(options: Mapping[str, str]) -> str:
    """Say what `has_bad_nul` finds."""
    if options.get("quote", '"'):
        return "a NUL character inside quotes, which Spark drops"
    return "a NUL character, which is Spark's quote if `quote` is empty"


def is_quoted_null(text: Column, options: Mapping[str, str]) -> Column | None:
    """Return the condition that a quoted value in a text equals `nullValue`; None if there is no such option."""
    quote, null = options.get("quote", '"'), options.get("nullValue")
    if not quote or not null:
        return None
    may_be = text.contains(quote) & (text.contains(null[0]) | text.contains(_NONCHARACTER))
    nulls = (null, _empty(options))
    return may_be & reduce(Column.__or__, (~text.rlike(well_quoted(options, null=each)) for each in nulls))


def text_column(options: Mapping[str, str]) -> Column:
    """Return a value of `texts` as text; without a byte order mark, if it is a whole file."""
    is_as_read = is_utf_8(options) or encoding(options).upper() in SINGLE_BYTE
    if not is_multi_line(options):
        return F.col("value") if is_as_read else decoded(F.col("value"), options)
    return F.regexp_replace(decoded(F.col("value"), options), r"\A\x{feff}", "")


def of_spark(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for Spark: its `nullValue` is the text of a value that is empty and has no quotes."""
    return {**options, "nullValue": _empty(options)} if options.get("nullValue") else dict(options)


def _empty(options: Mapping[str, str]) -> str:
    """Return a text that only a quoted value could be, because it has the separator, and that `check` refuses there."""
    return _NONCHARACTER + _separator(options)


def _scan(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str], verdict: Column) -> None:
    """Evaluate `verdict`, which is 1 or raises, over the text of all files.

    Raises:
        SourceFileError: If a compressed file that should have a header has no content.
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
    file, text = F.input_file_name(), text_column(options)
    bad = list[tuple[Column, Column]]()
    if not is_multi_line(options):  # as Java's `trim` sees it, with which Spark looks for lines without text
        is_blank = (text != "") & (text < "!") & text.rlike(r"\A[\x00-\x20]++\z")
        bad.append((is_blank, refusal(BLANK_LINE, file)))
    if quote := options.get("quote", '"'):
        is_odd = text.contains(quote) & ~text.rlike(well_quoted(options))
        bad.append((is_odd, refusal(BAD_QUOTE, file)))
    bad.append((has_bad_nul(text, options), refusal(BAD_RECORD, file, F.lit(bad_nul(options)))))
    if (equals_null := is_quoted_null(text, options)) is not None:
        bad.append((equals_null, refusal(QUOTED_NULL, file, F.lit(options["nullValue"]))))
    verdict = reduce(lambda found, each: F.when(each[0], each[1].cast("int")).otherwise(found), bad[::-1], F.lit(1))
    comment = options.get("comment")
    return F.when(text.startswith(comment), 1).otherwise(verdict) if comment and not is_multi_line(options) else verdict


def _inside_quotes(text: str, options: Mapping[str, str]) -> str:
    """Return a regular expression for what stands for a text inside quotes."""
    quote, escape = options.get("quote", '"'), options.get("escape", "\\")

    def of(char: str) -> str:
        if char == quote:
            return _code(escape + char)
        return rf"(?:{_code(escape)})?{_code(char)}" if char == escape else _code(char)

    return "".join(of(char) for char in text)


def _separator(options: Mapping[str, str]) -> str:
    return re.sub(r"\\(?:u0000|.)", _unescaped, options.get("sep", options.get("delimiter", ",")))


def _unescaped(found: re.Match[str]) -> str:
    """Return the character that an escape sequence in a separator stands for in Spark."""
    return _SEPARATORS.get(found.group(), found.group())


def _code(text: str) -> str:
    """Return a text escaped for a regular expression, also inside brackets."""
    return "".join(rf"\x{{{ord(char):x}}}" for char in text)

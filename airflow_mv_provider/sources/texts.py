"""Read text files as raw lines or whole files, to be checked or parsed as CSV or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

ENCODINGS = ("encoding", "charset")
"""Options that name the encoding; the first one counts."""
CORRUPT = "_mv_corrupt"
LENIENT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
"""Options by which Spark keeps a record that it cannot parse, in an additional column, instead of raising."""
_UTF_8 = ("UTF-8", "UTF8")


def texts(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Return (value), one row per unit that the reader parses: a line, or with `multiLine` a whole file."""
    separated = {"lineSep": options["lineSep"]} if "lineSep" in options else {}
    how = {"wholetext": "true"} if is_multi_line(options) else separated
    return spark.read.format("text").options(**how).load(list(paths))


def decoded(value: Column, options: Mapping[str, str]) -> Column:
    """Return a value of `texts` decoded; Spark raises for bytes that are invalid in an encoding other than UTF-8."""
    return value if is_utf_8(options) else F.decode(value.cast("binary"), encoding(options))


def from_json(text: Column | str, kind: StructType | str, options: Mapping[str, str]) -> Column:
    """Return a text parsed as JSON. Of options that are empty, a client of Spark Connect makes a map without a type."""
    return F.from_json(text, kind, dict(options) or None)


def encoding(options: Mapping[str, str]) -> str:
    """Return the encoding that a source declares."""
    return next((options[name] for name in ENCODINGS if name in options), "UTF-8")


def is_utf_8(options: Mapping[str, str]) -> bool:
    """True if texts are in UTF-8, Spark's own encoding, in which `is_valid_utf8` detects invalid bytes."""
    return encoding(options).upper() in _UTF_8


def is_multi_line(options: Mapping[str, str]) -> bool:
    """True if a record may span several lines, so that a file is parsed as a whole."""
    return options.get("multiLine", "").lower() == "true"


def refusal(what: str, file: Column, detail: Column | None = None) -> Column:
    """Return an expression that raises when it is evaluated, with a message that `spark.errors` translates.

    what : one of that module's constants, such as BAD_RECORD
    """
    return F.raise_error(F.concat(F.lit(f"{what} "), file, F.lit(" "), F.lit("") if detail is None else detail))

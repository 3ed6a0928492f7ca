"""Mark the rows of a source with their origin, while it is read: the file, the position in it, and the rule they break.

    records ──▶ marked rows ──┬─▶ decoded, the mark dropped ──▶ main
                              └─▶ see `rejected`

A row that could not be decoded carries the rule that it breaks, the reason and the record as it was read.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

ORIGIN = "_mv_origin"
IN_FILE = "_mv_file"  # URI of the row's file, as Spark reports it
FILE, BLOCK = "_metadata.file_path", "_metadata.file_block_start"
CORRUPT_RECORD, ENCODING, UNKNOWN_FIELD, KEY_NULL = "corrupt_record", "encoding", "unknown_field", "key_null"
NOT_COMPUTABLE = "select"  # an expression of the projection raises for it
NOTHING = "nothing"  # not a record: it is counted and not collected
# Reasons for CORRUPT_RECORD, unless a value of the record is named, and for ENCODING.
NO_FIT, NOT_ENCODED = "does not fit the schema", "bytes that are not in the declared encoding"


def origin(
    *,
    file: Column | None = None,
    block: Column | None = None,
    number: Column | None = None,
    rule: Column | None = None,
    reason: Column | None = None,
    record: Column | None = None,
) -> Column:
    """Return the column that marks a row with its origin.

    file   : URI of its file, as Spark reports it
    block  : start offset of the file block that one task reads
    number : increases by one from row to row of a block
    rule   : the rule that the record breaks; NULL for a decoded record
    record : the record as it was read
    """
    fields: tuple[tuple[str, Column | None, str], ...] = (
        *(("file", file, "string"), ("block", block, "bigint"), ("number", number, "bigint")),
        *(("rule", rule, "string"), ("reason", reason, "string"), ("record", record, "string")),
    )
    return F.struct(
        *((F.lit(None) if value is None else value).cast(kind).alias(name) for name, value, kind in fields)
    ).alias(ORIGIN)


def numbers(*, is_numbered: bool) -> dict[str, Column]:
    """Return the arguments of `origin` that number the rows which a file reader returns; none if not `is_numbered`."""
    return {"block": F.col(BLOCK), "number": F.monotonically_increasing_id()} if is_numbered else {}


def decoded(marked: DataFrame) -> DataFrame:
    """Return the rows that could be decoded, still marked."""
    return marked.where(F.col(f"{ORIGIN}.rule").isNull())


def plain_path(uri: Column) -> Column:
    """Return a file's URI as a plain path; `url_decode` alone would turn a plus sign into a blank."""
    decoded_uri = F.url_decode(F.replace(uri, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(decoded_uri, "^file:/+", "/")

"""A bitmap of keys: says of most rows of main, by their key alone, that no change can match them.

A MERGE that may insert keeps every row of its source, so Spark cannot broadcast the source and sorts the whole target
instead, all columns of it. With the bitmap in its condition only the rows that may match get that far. It is a Bloom
filter with one hash function, seven bits a byte, so that plain SQL can read it on any engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.identifier import quoted

_NUM_BITS = 1 << 20
_BITS_PER_BYTE = 7  # so that every byte is a character, and ascii() gives it back
MAX_KEYS = _NUM_BITS // 8  # beyond, more than one row in eight would pass


def bitmap_of(changes: DataFrame, key: Sequence[str]) -> bytes:
    """Return the bitmap of the keys in `changes`.

    cost : one scan; at most 150,000 numbers come to the driver, no value of any row
    """
    place = F.xxhash64(*(F.col(quoted(name)) for name in key)).bitwiseAND(F.lit(_NUM_BITS - 1)).cast("int")
    bits = F.expr(f"bit_or(shiftleft(1, place % {_BITS_PER_BYTE}))")
    byte = F.expr(f"CAST(place DIV {_BITS_PER_BYTE} AS INT)")
    found = bytearray(_NUM_BITS // _BITS_PER_BYTE + 1)
    for index, value in changes.select(place.alias("place")).groupBy(byte).agg(bits).collect():
        found[index] = value
    return bytes(found)


def may_match_sql(alias: str, key: Sequence[str], bitmap: bytes) -> str:
    """Return the condition that a row of `alias` may have one of the keys; false only if it has none."""
    columns = ", ".join(f"{quoted(alias)}.{quoted(name)}" for name in key)
    place = f"CAST(xxhash64({columns}) & {_NUM_BITS - 1} AS INT)"
    byte = f"ascii(CAST(substring(X'{bitmap.hex()}', {place} DIV {_BITS_PER_BYTE} + 1, 1) AS STRING))"
    return f"getbit({byte}, {place} % {_BITS_PER_BYTE}) = 1"

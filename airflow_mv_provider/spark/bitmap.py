"""A bitmap of keys: says of most rows of main, by their key alone, that no change can match them.

A MERGE that may insert keeps every row of its source, so Spark cannot broadcast the source and sorts the whole target
instead, all columns of it. With the bitmap in its condition only the rows that may match get that far. It is a Bloom
filter with one hash function, in 64-bit words, which plain SQL reads on any engine without making anything of a row.

Delta writes a MERGE's condition into main's log, so it is as small as the changes are few: about six bytes a key of a
hundred keys or more, at most 400 KB.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.identifier import literal, quoted

_BITS_PER_KEY, _MIN_BITS, _MAX_BITS = 16, 1 << 10, 1 << 20  # of up to 65,536 keys one row in sixteen passes, or less
_WORD = 64
MAX_KEYS = _MAX_BITS * 2 // 3  # of so many, about half of all rows pass


def bitmap_of(changes: DataFrame, key: Sequence[str], num_keys: int) -> tuple[int, ...]:
    """Return the bitmap of the keys in `changes`: words of 64 bits, signed; how many is a power of two.

    num_keys : about how many there are
    cost     : one scan; at most 16,384 numbers come to the driver, no value of any row
    """
    num_bits = min(max(_MIN_BITS, 1 << (_BITS_PER_KEY * num_keys - 1).bit_length()), _MAX_BITS)
    place = F.xxhash64(*(F.col(quoted(name)) for name in key)).bitwiseAND(F.lit(num_bits - 1)).cast("int")
    bits = F.expr(f"bit_or(shiftleft(1L, place % {_WORD}))")
    words = [0] * (num_bits // _WORD)
    for index, word in changes.select(place.alias("place")).groupBy(F.expr(f"place DIV {_WORD}")).agg(bits).collect():
        words[index] = word
    return tuple(words)


def may_match_sql(alias: str, key: Sequence[str], bitmap: Sequence[int]) -> str:
    """Return the condition that a row of `alias` may have one of the keys; false only if it has none."""
    columns = ", ".join(f"{quoted(alias)}.{quoted(name)}" for name in key)
    place = f"CAST(xxhash64({columns}) & {len(bitmap) * _WORD - 1} AS INT)"
    words = f"from_json({literal(str(list(bitmap)))}, 'ARRAY<BIGINT>')"  # read once, when the statement is planned
    return f"getbit(get({words}, CAST({place} DIV {_WORD} AS INT)), {place} % {_WORD}) = 1"

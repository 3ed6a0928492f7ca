"""A Bloom filter over keys: excludes most rows of main from a MERGE's join by their key alone.

A MERGE that may insert keeps every row of its source, so Spark cannot broadcast the source. It sorts the whole target
instead, with all its columns. With the filter in the MERGE's condition, Spark sorts only the rows that may match. The
filter has one hash function and is stored in 64-bit words, which plain SQL tests on any engine without creating an
object per row.

Delta writes a MERGE's condition, with its values, into main's log. Therefore the words are an array in a session
variable that a query fills: Spark keeps such an array in its own format, whose text is a class name and a hash code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.spark.errors import translated

_BITS_PER_KEY, _MIN_BITS, _MAX_BITS = 16, 1 << 10, 1 << 24  # up to a million keys: at most one row in sixteen passes
_WORD = 64


@dataclass(frozen=True)
class Bitmap:
    """A Bloom filter over keys in a session variable.

    variable : holds the array of 64-bit words
    num_bits : a power of two
    """

    variable: str
    key: tuple[str, ...]
    num_bits: int

    def place_sql(self, alias: str) -> str:
        """Return the SQL of the bit position of a row's key, counted from 0."""
        columns = ", ".join(f"{quoted(alias)}.{quoted(name)}" for name in self.key)
        return f"CAST(xxhash64({columns}) & {self.num_bits - 1} AS INT)"

    def may_match_sql(self) -> str:
        """Return the SQL condition that a row of `t` may have one of the keys; false only if it has none."""
        place = self.place_sql("t")
        return f"getbit(get({quoted(self.variable)}, CAST({place} DIV {_WORD} AS INT)), {place} % {_WORD}) = 1"


@contextmanager
def bitmap_of(spark: SparkSession, view: str, table: RefreshableTable, num_keys: int) -> Iterator[Bitmap]:
    """Create the bitmap of the keys in `view` as a session variable named `<view>_keys`; drop it on exit.

    num_keys : approximate number of keys
    cost     : one scan; an array of `num_keys` × 2 to 4 bytes, at most 2 MB, in the driver and each task
    """
    num_bits = min(max(_MIN_BITS, 1 << (_BITS_PER_KEY * num_keys - 1).bit_length()), _MAX_BITS)
    bitmap = Bitmap(f"{view}_keys", tuple(table.key), num_bits)
    variable, place = quoted(bitmap.variable), bitmap.place_sql("s")
    spark.sql(f"DECLARE OR REPLACE VARIABLE {variable} ARRAY<BIGINT>")
    try:
        with translated(table.name):
            spark.sql(f"""
                SET VAR {variable} = (
                    SELECT transform(array_sort(collect_list(struct(number, word))), x -> x.word) FROM (
                        SELECT number, bit_or(word) AS word FROM (
                            SELECT id AS number, 0L AS word FROM range({num_bits // _WORD})
                            UNION ALL
                            SELECT {place} DIV {_WORD}, shiftleft(1L, {place} % {_WORD}) FROM {quoted(view)} AS s)
                        GROUP BY number))
            """).collect()  # nosec B608  # every name is quoted
        yield bitmap
    finally:
        spark.sql(f"DROP TEMPORARY VARIABLE IF EXISTS {variable}")

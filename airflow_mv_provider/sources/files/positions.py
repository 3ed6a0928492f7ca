"""The origin of a file's record, as columns that a definition may name in `select` and `order_by`.

    _file       the file's path
    _file_time  its modification time in the file system
    _position   the record's number in its file, from 1

Spark does not number the records of a text file that it splits. But the offset of each split is known, and its records
come in order, so the records of a file can be ordered however it was split. That order suffices for `order_by`. If
`select` uses the number itself, all records are sorted to compute it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_mv_provider.spark.marking import BLOCK, FILE, plain_path

NAMES = ("_file", "_file_time", "_position")
_PLACE = "_mv_place"


def named_in(expressions: Iterable[str]) -> set[str]:
    """Return the names of NAMES that occur in SQL expressions."""
    return {name for name in NAMES for text in expressions if re.search(rf"(?<![\w.]){name}\b", text)}


def place(format_: str) -> Column:
    """Return the column with a record's origin, for files of a format."""
    number = F.col("_metadata.row_index") if format_ == "parquet" else F.monotonically_increasing_id()
    fields = {"file": FILE, "time": "_metadata.file_modification_time", "block": BLOCK}
    return F.struct(*(F.col(path).alias(name) for name, path in fields.items()), number.alias("number")).alias(_PLACE)


def nowhere() -> Column:
    """Return the same column, all NULL, for a source without files."""
    kinds = {"file": "string", "time": "timestamp", "block": "bigint", "number": "bigint"}
    return F.struct(*(F.lit(None).cast(kind).alias(name) for name, kind in kinds.items())).alias(_PLACE)


def with_names(rows: DataFrame, names: Collection[str], selected: Collection[str]) -> DataFrame:
    """Return rows with their origin column replaced by the columns `names`; lazy.

    selected : the names whose values are used, not only their order
    cost     : a shuffle and a sort of all rows if `_position` is among `selected`
    """
    at = F.struct(f"{_PLACE}.block", f"{_PLACE}.number")
    if "_position" in selected:
        at = F.row_number().over(Window.partitionBy(f"{_PLACE}.file").orderBy(at)).cast("bigint")
    columns = {"_file": plain_path(F.col(f"{_PLACE}.file")), "_file_time": F.col(f"{_PLACE}.time"), "_position": at}
    found = rows.select("*", *(columns[name].alias(name) for name in NAMES if name in names))
    return found.drop(_PLACE)

"""Where a record of a file comes from, as columns that a definition may name in `select` and `order_by`.

    _file       the file's path
    _file_time  when it was last written, as the file system says
    _position   the record's number in its file, from 1

A text that Spark splits has no numbers; but each part says where it begins, and its records come in their order. So the
records of a file can be ordered however it was split. That order is enough for `order_by`; to count along it, where
`select` wants the number itself, all records are sorted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_mv_provider.spark.rejected import BLOCK, plain_path

NAMES = ("_file", "_file_time", "_position")
_PLACE = "_mv_place"


def named_in(expressions: Iterable[str]) -> set[str]:
    """Return those of the names that occur in SQL expressions."""
    return {name for name in NAMES for text in expressions if re.search(rf"(?<![\w.]){name}\b", text)}


def place(format_: str) -> Column:
    """Return the column that says where a record comes from, for whoever reads files of a format."""
    number = F.col("_metadata.row_index") if format_ == "parquet" else F.monotonically_increasing_id()
    fields = {"file": "_metadata.file_path", "time": "_metadata.file_modification_time", "block": BLOCK}
    return F.struct(*(F.col(path).alias(name) for name, path in fields.items()), number.alias("number")).alias(_PLACE)


def nowhere() -> Column:
    """Return the same column for no rows of no file."""
    kinds = {"file": "string", "time": "timestamp", "block": "bigint", "number": "bigint"}
    return F.struct(*(F.lit(None).cast(kind).alias(name) for name, kind in kinds.items())).alias(_PLACE)


def with_names(rows: DataFrame, names: Collection[str], selected: Collection[str]) -> DataFrame:
    """Return rows that have a place with the columns `names` instead of it; lazy.

    selected : those whose values are wanted, and not their order alone
    cost     : with `_position` among them a shuffle and a sort of all rows
    """
    at = F.struct(f"{_PLACE}.block", f"{_PLACE}.number")
    if "_position" in selected:
        at = F.row_number().over(Window.partitionBy(f"{_PLACE}.file").orderBy(at)).cast("bigint")
    columns = {"_file": plain_path(F.col(f"{_PLACE}.file")), "_file_time": F.col(f"{_PLACE}.time"), "_position": at}
    found = rows.select("*", *(columns[name].alias(name) for name in NAMES if name in names))
    return found.drop(_PLACE)

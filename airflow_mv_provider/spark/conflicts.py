"""Choose one row per key where the source has several, as `on_conflict` defines.

    overwrite  the last row by `order_by`
    ignore     main's row; the first by `order_by` if main does not have the key
    keep       main's row for every key that main has, also where the source has it once

The row's hash breaks ties: an arbitrary choice, but the same one whenever the rows are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.spark.compare import hashing
from airflow_mv_provider.spark.layout import Layout, any_null, columns

_KEY = "_mv_key"
_ORDERING = "_mv_by_"


def resolved(rows: DataFrame, layout: Layout, main: DataFrame | None) -> DataFrame:
    """Return the rows with one row per key, chosen by `on_conflict`; rows with a NULL key are kept for later checks.

    rows : all columns of the source, and the columns that order them
    main : main's rows, if the definition keeps a row that main has already; None while main does not exist
    cost : a scan of the keys and a shuffle of eight bytes each; a shuffle of all rows whose key occurs twice. If main's
           row is kept, also a shuffle of main's rows with those keys; with `keep`, with all keys
    """
    table = layout.table
    if table.on_conflict == "fail":
        return rows
    key, hashed = columns(table.key), F.xxhash64(*columns(table.key))
    keyed = rows.withColumn(_KEY, F.when(~any_null(table.key), hashed))
    twice = keyed.where(F.col(_KEY).isNotNull()).groupBy(_KEY).count().where("count > 1").select(_KEY)
    once = keyed.join(twice, _KEY, "left_anti").drop(_KEY)
    several = keyed.join(twice, _KEY, "left_semi").drop(_KEY)
    own = [column for column in schema.columns_of(rows.schema.jsonValue()) if not column.name.startswith(_ORDERING)]
    tie = F.expr(hashing.row_hash(own)).desc()
    by = [F.col(quoted(ordering(name) if ordering(name) in rows.columns else name)) for name in table.order_by]
    last = [each.desc_nulls_last() for each in by] if table.on_conflict == "overwrite" else [each.asc() for each in by]
    decided, contested = layout.shaped(once), layout.shaped(_first_of_each(several, key, [*last, tie]))
    decided, contested = (each.select(*columns(layout.names)) for each in (decided, contested))
    if table.on_conflict == "overwrite" or main is None:
        return decided.unionByName(contested)
    if table.on_conflict == "keep":
        return _unless_in(main, decided.unionByName(contested), layout)
    return decided.unionByName(_unless_in(main, contested, layout))


def ordering(name: str) -> str:
    """Return the internal name of an ordering column that main does not have."""
    return f"{_ORDERING}{name}"


def _unless_in(main: DataFrame, rows: DataFrame, layout: Layout) -> DataFrame:
    """Return main's row for each key that main has, and the row of `rows` for each other key."""
    keys_of, tie = list(layout.table.key), F.expr(hashing.row_hash(layout.columns)).desc()
    held = layout.shaped(main).join(rows.select(*columns(keys_of)), keys_of, "left_semi")
    stays = _first_of_each(held.select(*columns(layout.names)), columns(keys_of), [tie])
    new = rows.join(stays.select(*columns(keys_of)), keys_of, "left_anti").select(*columns(layout.names))
    return new.unionByName(stays)


def _first_of_each(rows: DataFrame, key: Sequence[Column], order: Sequence[Column]) -> DataFrame:
    number = F.row_number().over(Window.partitionBy(*key).orderBy(*order))
    return rows.withColumn(_KEY, number).where(F.col(_KEY) == 1).drop(_KEY)

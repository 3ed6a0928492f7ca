"""Some of the rows that recorded corrections would change, with main's present values beside the new ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.compare.corrections import OP
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns

_OPERATIONS = {"I": "insert", "R": "insert", "U": "update", "D": "delete", "X": "delete"}
_DELETES, _UPDATES, _INSERTS = ("D", "X"), ("U",), ("I", "R")


def row_changes(
    main: delta.Main, layout: Layout, corrections: DataFrame, counts: Counts, base_version: int, limit: int
) -> list[RowChange]:
    """Return up to `limit` rows of each operation, in the key's order.

    corrections  : as recorded, verified
    counts       : of the corrections
    base_version : main's version with which they were compared
    cost         : a scan of the corrections for each operation that they have, and one of main's rows with these keys
    """
    found = ((_DELETES, counts.deleted), (_UPDATES, counts.updated), (_INSERTS, counts.inserted))
    kinds = [ops for ops, number in found if number and limit]
    table, key = layout.table, columns(layout.table.key)
    former: dict[str, dict[str, Any]] = {}
    with translated(table.name):
        first = {ops: corrections.where(F.col(OP).isin(*ops)).orderBy(*key).limit(limit) for ops in kinds}
        json_columns = _as_json(layout.names).alias("row"), _as_json(table.key).alias("key")
        chosen = [row for ops in kinds for row in first[ops].select(OP, *json_columns).collect()]
        if in_main := [first[ops].select(*key) for ops in kinds if ops != _INSERTS]:
            rows = layout.shaped(delta.read(main.spark, main.ref, base_version))
            found_rows = rows.join(F.broadcast(reduce(DataFrame.unionAll, in_main)), list(table.key), "left_semi")
            former = {each["key"]: _parsed(each["row"]) for each in found_rows.select(*json_columns).collect()}
    return [_change(row.asDict(), former) for row in chosen]


def column_counts(main: delta.Main, layout: Layout, corrections: DataFrame, base_version: int) -> dict[str, int]:
    """Return for each column outside the key how many updates change it; columns that none changes are left out.

    corrections  : as recorded, verified
    base_version : main's version with which they were compared
    cost         : a scan of main, and a join with the updates
    """
    table = layout.table
    names = [name for name in layout.names if name not in table.group_by]
    if not names:
        return {}
    with translated(table.name):
        new = corrections.where(F.col(OP) == "U").alias("n")
        old = layout.shaped(delta.read(main.spark, main.ref, base_version)).alias("o")
        on = [F.col(f"n.{quoted(key)}") == F.col(f"o.{quoted(key)}") for key in table.key]
        both = new.join(old, reduce(Column.__and__, on))
        is_same = (F.col(f"n.{quoted(name)}").eqNullSafe(F.col(f"o.{quoted(name)}")) for name in names)
        found = both.agg(*(F.count_if(~same).alias(f"c{i}") for i, same in enumerate(is_same))).collect()[0]
    return {name: number for name, number in zip(names, found, strict=True) if number}


def _as_json(names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*columns(names)), {"ignoreNullFields": "false"})


def _change(row: dict[str, Any], former: dict[str, dict[str, Any]]) -> RowChange:
    operation, key = _OPERATIONS[row[OP]], _parsed(row["key"])
    before = None if operation == "insert" else former.get(row["key"])
    after = None if operation == "delete" else _parsed(row["row"])
    return RowChange(operation, key, before, after)


def _parsed(text: str) -> dict[str, Any]:
    """Return the values of a JSON object; a fraction stays text, because a decimal has more digits than a float."""
    found: dict[str, Any] = json.loads(text, parse_float=str)
    return found

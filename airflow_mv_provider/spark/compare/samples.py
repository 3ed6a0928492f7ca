"""Some of the rows that recorded corrections would change, with main's present values beside the new ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.compare.corrections import OP
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns

_OPERATIONS = {"I": "insert", "R": "insert", "U": "update", "D": "delete", "X": "delete"}


def row_changes(
    main: delta.Main, layout: Layout, corrections: DataFrame, base_version: int, limit: int
) -> list[RowChange]:
    """Return up to `limit` rows of each operation, in the key's order.

    corrections  : as recorded, verified
    base_version : main's version with which they were compared
    cost         : a scan of the corrections for each operation, and one of main's rows with the chosen keys
    """
    table, key = layout.table, columns(layout.table.key)
    with translated(table.name):
        chosen = []
        for ops in (("D", "X"), ("U",), ("I", "R")):
            rows = corrections.where(F.col(OP).isin(*ops)).orderBy(*key).limit(limit)
            chosen += rows.select(OP, _as_json(layout.names).alias("row"), _as_json(table.key).alias("key")).collect()
        former = _former(main, layout, corrections, base_version, limit) if limit else {}
    return [_change(row.asDict(), former) for row in chosen]


def _former(
    main: delta.Main, layout: Layout, corrections: DataFrame, base_version: int, limit: int
) -> dict[str, dict[str, Any]]:
    """Return main's rows with the keys of the chosen updates and deletes, by their keys as JSON."""
    table, key = layout.table, columns(layout.table.key)
    wanted = [
        corrections.where(F.col(OP).isin(*ops)).orderBy(*key).limit(limit).select(*key) for ops in (("D", "X"), ("U",))
    ]
    rows = layout.shaped(delta.read(main.spark, main.ref, base_version))
    found = rows.join(F.broadcast(wanted[0].unionAll(wanted[1])), list(table.key), "left_semi")
    pairs = found.select(_as_json(table.key).alias("key"), _as_json(layout.names).alias("row")).collect()
    return {pair["key"]: _parsed(pair["row"]) for pair in pairs}


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

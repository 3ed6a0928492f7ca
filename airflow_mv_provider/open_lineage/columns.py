"""Which columns of a source each column of main is computed from, as OpenLineage's own parser reads the definition."""

from __future__ import annotations

from collections.abc import Mapping

from openlineage_sql import parse

from airflow_mv_provider.core.definition.table import RefreshableTable

_SOURCE = "_mv_source"
_DIALECT = "databricks"  # the one of the parser's that reads Spark's SQL


def columns_of(definition: RefreshableTable) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return the source columns of each column of main, as pairs of an input's name and a column of it.

    returns : only columns whose expressions the parser understands; none if the definition has no projection or query,
              or has both
    """
    source = definition.source
    sql = getattr(source, "sql", None)
    if sql is not None and source.select is None and source.connection_id is None:
        return {name: found for name, found in _parsed(sql).items() if all(i in source.named_paths for i, _ in found)}
    if source.select is None or sql is not None:
        return {}
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for expression in source.select:  # one by one: what the parser does not understand is left out alone
        sql = f"SELECT {expression} FROM {_SOURCE}"  # nosec B608  # it is parsed, and never run
        for name, read in _parsed(sql).items():
            if name == _SOURCE:
                continue  # the expression is cut off, so that FROM became a part of it
            # A name before a dot is a column with fields: there is only one table.
            found[name] = tuple(dict.fromkeys(("", column if i in ("", _SOURCE) else i) for i, column in read))
    return found


def _parsed(sql: str) -> dict[str, tuple[tuple[str, str], ...]]:
    meta = parse([sql], _DIALECT)
    if meta is None or meta.errors:
        return {}
    named = {each.descendant.name: each.lineage for each in meta.column_lineage}
    return {
        name: tuple(("" if read.origin is None else read.origin.name, read.name) for read in lineage)
        for name, lineage in named.items()
    }

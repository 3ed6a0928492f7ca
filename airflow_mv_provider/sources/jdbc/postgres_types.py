"""How PostgreSQL's columns travel to Spark; `exact` gives the reasons."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mv_provider.sources.jdbc.dialect import quoted
from airflow_mv_provider.sources.jdbc.exact import Column, from_text, marked

_AS_THEY_ARE = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "text": "STRING",
    "varchar": "STRING",
    "bytea": "BINARY",
}
_ARRAYS = {"_bool": "BOOLEAN", "_int4": "INT", "_int8": "BIGINT", "_float8": "DOUBLE", "_text": "STRING"}
# Before PostgreSQL 14 `extract` is a double, which holds each second of a far year, but not its microseconds.
_SECONDS = "extract(epoch FROM date_trunc('second', {0}))::int8"
_SINCE_EPOCH = f"({_SECONDS} * 1000000 + extract(microseconds FROM {{0}})::int8 % 1000000)"
EPOCH = {
    "date": ("DATE '1970-01-01' + {}", "({} - DATE '1970-01-01')"),
    "timestamp": ("TIMESTAMP 'epoch' + {} * INTERVAL '1 microsecond'", _SINCE_EPOCH),
    "timestamptz": ("TIMESTAMPTZ 'epoch' + {} * INTERVAL '1 microsecond'", _SINCE_EPOCH),
}
_FIRST_YEAR, _AFTER_LAST_YEAR = "0001-01-01", "10000-01-01"  # of dates that other readers of main can represent


INNER = """
  SELECT root, inner_oid FROM made_of JOIN pg_type AS t USING (oid) CROSS JOIN LATERAL (
    SELECT typelem UNION ALL SELECT typbasetype
    UNION ALL SELECT rngsubtype FROM pg_range AS r WHERE t.oid IN (rngtypid, (to_jsonb(r) ->> 'rngmultitypid')::oid)
    UNION ALL SELECT atttypid FROM pg_attribute WHERE attrelid = typrelid AND typrelid <> 0 AND attnum > 0
  ) AS parts (inner_oid) WHERE inner_oid <> 0
"""
"""The step of a recursive `made_of (root, oid)` from a type to what it is made of: elements, fields, bounds of ranges,
what a domain is of. PostgreSQL 13 has no multiranges, and no column `rngmultitypid`."""
KINDS = f"""
WITH RECURSIVE made_of (root, oid) AS (
  SELECT oid, oid FROM pg_type WHERE oid = ANY (%s)
  UNION {INNER}
)
SELECT root, t.typname, format_type(root, NULL), t.typtype, t.typnamespace = 'pg_catalog'::regnamespace,
       bool_or(p.typnamespace = 'pg_catalog'::regnamespace AND p.typname ~ '^reg[a-z]+$'),
       bool_or(p.oid = 'money'::regtype)
FROM made_of JOIN pg_type AS t ON t.oid = root JOIN pg_type AS p ON p.oid = made_of.oid
GROUP BY root, t.typname, t.typtype, t.typnamespace
"""  # nosec B608  # of constants
"""Answers the oid and a `Kind` of each of these types, from all types that it is made of."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type, as pg_type has it.

    Attributes:
        name: Its `typname`.
        shown: As PostgreSQL writes it.
        group: Its `typtype`.
        has_reg: It is one of the types of object identifiers (regclass, ...), or made of one.
        has_money: The same of money.
    """

    name: str
    shown: str
    group: str
    is_builtin: bool
    has_reg: bool
    has_money: bool

    @property
    def is_itself(self) -> bool:
        """Whether it is regclass or the like, or money; not made of one."""
        return self.is_builtin and (self.name == "money" or self.name.startswith("reg"))


def text(name: str, kind: Kind, wanted: str) -> Column | None:
    """Return how a column travels as text, for the type that the definition's `columns` gives; None if it has none.

    The text of money depends on the locale, that of regclass and the like on search_path, and neither can be set
    without a change of what the author's SQL means; so it is their number. A bit string is no number of that spelling.
    """
    it = quoted(name)
    if kind.has_reg or kind.has_money:
        number = "numeric" if kind.has_money else "oid"
        return from_text(name, f"{it}::{number}::text", wanted) if kind.is_itself else None
    if kind.name in ("record", "_record"):  # of fields that no catalog lists
        return None
    if kind.name in ("bit", "varbit") and kind.is_builtin and wanted not in ("STRING", "BOOLEAN"):
        return None
    if kind.name == "float4" and kind.is_builtin and wanted == "DOUBLE":
        it = f"{it}::float8"
    return from_text(name, f"{it}::text", wanted)


def column(name: str, found: Kind, precision: int | None, scale: int | None) -> Column | None:
    """Return how a column travels; None if Spark has no exact type for it."""
    it, kind, group = quoted(name), found.name, found.group
    if group == "e":
        return Column(name, f"{it}::text", "STRING", "STRING")
    if not found.is_builtin or found.has_reg:
        return None
    if kind == "money":
        return text(name, found, "STRING")
    if kind in _AS_THEY_ARE:
        return Column(name, it, _AS_THEY_ARE[kind], _AS_THEY_ARE[kind])
    if kind in EPOCH:
        is_date, value = kind == "date", EPOCH[kind][1].format(it)
        fits = f"{it} >= '{_FIRST_YEAR}' AND {it} < '{_AFTER_LAST_YEAR}'"
        sql = _guarded(name, it, fits, value, "int4" if is_date else "int8")
        if is_date:
            return Column(name, sql, "INT", "DATE", "date_from_unix_date({it})")
        return Column(name, sql, "BIGINT", "TIMESTAMP", "timestamp_micros({it})")
    if kind == "numeric":
        if precision is None or scale is None or precision > 38 or not 0 <= scale <= precision:
            return None
        decimal = f"DECIMAL({precision},{scale})"
        return Column(name, _guarded(name, it, f"{it} <> 'NaN'", it, "numeric"), decimal, decimal)
    if kind in _ARRAYS:
        fits = f"array_ndims({it}) IS NULL OR (array_ndims({it}) = 1 AND array_lower({it}, 1) = 1)"
        array = f"ARRAY<{_ARRAYS[kind]}>"
        return Column(name, _guarded(name, it, fits, it, kind.removeprefix("_") + "[]"), array, array)
    if kind == "oid":
        return Column(name, f"{it}::int8", "BIGINT", "BIGINT")
    # Everything else that PostgreSQL defines has a text from which it can be restored; arrays and records have not.
    is_scalar = group in ("b", "r", "m") and not kind.startswith("_")
    return Column(name, f"{it}::text", "STRING", "STRING") if is_scalar else None


def _guarded(name: str, it: str, fits: str, value: str, kind: str) -> str:
    """Return an expression that is `value`, and that raises for a value that does not fit.

    A text that is no value of the type raises with that text. It contains the value, so that it is not computed early.
    """
    raises = f"('{marked(name)}' || left({it}::text, 40))::{kind}"
    return f"CASE WHEN {it} IS NULL THEN NULL WHEN {fits} THEN {value} ELSE {raises} END"

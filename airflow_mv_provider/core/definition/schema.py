"""Columns and types, as values: which can be compared, which can be a key, and whether two schemas are the same.

A type is in Spark's JSON form: a name ("long", "decimal(12,2)") or a mapping for array, struct and map.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_mv_provider.core.definition.identifier import check_column_name, needs_mapping
from airflow_mv_provider.exceptions import KeyColumnError, NotComparableError, SchemaMismatchError

Type = str | Mapping[str, Any]

_SCALARS = frozenset(
    {
        *("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"),
        *("date", "timestamp", "timestamp_ntz"),
    }
)
_NO_KEY = frozenset({"float", "double"})  # operations disagree on whether two NaN, or 0.0 and -0.0, are equal
_NO_PARTITION = frozenset({"float", "double", "binary"})


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type

    @property
    def shown_type(self) -> str:
        return self.type if isinstance(self.type, str) else str(self.type["type"])


def columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of a Spark schema's JSON value; nullability and comments are left out."""
    return tuple(Column(f["name"], _of_field(f)) for f in schema["fields"])


def fingerprint(columns: Sequence[Column]) -> str:
    """Return sixteen hex digits that identify these columns and types: hashes of rows are valid for one list only."""
    content = json.dumps([[column.name, column.type] for column in columns], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def are_mapped(columns: Iterable[Column]) -> bool:
    """True if Delta needs its column mapping for one of these columns, or for a field in one."""
    return any(needs_mapping(name) for column in columns for name in (column.name, *_fields(column.type)))


def check_source(
    where: str,
    columns: Sequence[Column],
    key: Sequence[str],
    partition_by: Sequence[str],
    sensitive: Sequence[str] = (),
) -> None:
    """Refuse columns that cannot be stored or compared, or cannot be the definition's key or partition columns.

    Args:
        sensitive: Columns whose values are hidden; a name that is misspelt would hide nothing.

    Raises:
        InvalidIdentifierError
        SchemaMismatchError
        NotComparableError
        KeyColumnError
    """
    seen: dict[str, str] = {}
    for column in columns:
        check_column_name(column.name)
        _check_fields(where, column.name, column.type)
        if (other := seen.get(column.name.lower())) is not None:
            raise SchemaMismatchError(
                where,
                f"columns {other!r} and {column.name!r} have the same name.",
                hint="Rename one of them where it gets its name: in `select`, or if it has it before, in the source,"
                " because `select` cannot tell two such columns apart.",
            )
        seen[column.name.lower()] = column.name
        if not is_comparable(column.type):
            raise NotComparableError(
                where, f"column {column.name!r} is of type {column.shown_type}.", column=column.name
            )
    types = {column.name: column for column in columns}
    for role, names, unusable in (("key", key, _NO_KEY), ("partition", partition_by, _NO_PARTITION)):
        hint = None if role == "key" else "Correct `partition_by`."
        for name in names:
            if name not in types:
                raise KeyColumnError(
                    where, f"{role} column {name!r} is not among {_listed(types)}.", column=name, hint=hint
                )
            if not isinstance(types[name].type, str) or types[name].type in unusable:
                raise KeyColumnError(
                    where,
                    f"{role} column {name!r} is of type {types[name].shown_type}, which cannot identify rows.",
                    column=name,
                    hint=hint,
                )
    if partition_by and types.keys() == set(partition_by):
        problem = f"partition_by names every column ({_listed(types)}); the files of a table need one that is left."
        hint = "Partition by fewer columns, or leave `partition_by` out."
        raise KeyColumnError(where, problem, hint=hint, column=partition_by[-1])
    if unknown := [name for name in sensitive if name not in types]:
        raise SchemaMismatchError(
            where,
            f"sensitive column {unknown[0]!r} is not among {_listed(types)}.",
            column=unknown[0],
            hint="Correct `sensitive` in the definition: what it does not name is shown.",
        )


def check_same(
    where: str,
    desired: Sequence[Column],
    main: Sequence[Column],
    *,
    names: tuple[str, str] = ("the source", "the table"),
) -> None:
    """Refuse a source whose columns are not main's; their order does not matter.

    Args:
        names: The names of the two sides in the message.

    Raises:
        SchemaMismatchError: Naming the first column that differs.
    """
    here, there = names
    have = {column.name: column for column in main}
    want = {column.name: column for column in desired}
    if added := [name for name in want if name not in have]:
        raise SchemaMismatchError(where, f"{here} has column {added[0]!r}, {there} does not.", column=added[0])
    if missing := [name for name in have if name not in want]:
        raise SchemaMismatchError(where, f"{there} has column {missing[0]!r}, {here} does not.", column=missing[0])
    for name, column in want.items():
        if column.type != have[name].type:
            raise SchemaMismatchError(
                where,
                f"column {name!r} is {shown(column.type)} in {here} and {shown(have[name].type)} in {there}.",
                column=name,
            )


def _check_fields(where: str, path: str, kind: Type) -> None:
    """Refuse field names inside a column that Delta cannot store, before Delta fails in the middle of a refresh."""
    if isinstance(kind, str):
        return
    if kind["type"] == "array":
        _check_fields(where, path, kind["elementType"])
    names: set[str] = set()
    for field in kind.get("fields", ()):
        check_column_name(field["name"])
        if field["name"].lower() in names:
            hint = (
                "Rename them in `select`: CAST(<column> AS STRUCT<...>) gives the fields other names, in their order."
            )
            raise SchemaMismatchError(where, f"column {path!r} has two fields {field['name']!r}.", hint=hint)
        names.add(field["name"].lower())
        _check_fields(where, f"{path}.{field['name']}", field["type"])


def _fields(kind: Type) -> list[str]:
    """Return the names of the fields in a type, at every depth."""
    if isinstance(kind, str):
        return []
    inside = _fields(kind["elementType"]) if kind["type"] == "array" else []
    return inside + [name for f in kind.get("fields", ()) for name in (f["name"], *_fields(f["type"]))]


def is_comparable(kind: Type) -> bool:
    """True if equality of two values of this type is defined, at every depth."""
    if isinstance(kind, str):
        return kind in _SCALARS or kind.startswith("decimal(")
    match kind["type"]:
        case "array":
            return is_comparable(kind["elementType"])
        case "struct":
            return all(is_comparable(f["type"]) for f in kind["fields"])
        case _:
            return False


def _of_field(field: Mapping[str, Any]) -> Type:
    """Return a column's or field's type. Its collation is metadata; under one, equal texts need not be identical."""
    collations = field.get("metadata", {}).get("__COLLATIONS", {})
    return f"string collate {next(iter(collations.values()))}" if collations else _bare(field["type"])


def _bare(kind: Type) -> Type:
    """Drop nullability and metadata, which do not affect values."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return {"type": "array", "elementType": _bare(kind["elementType"])}
        case "struct":
            fields = [{"name": f["name"], "type": _of_field(f)} for f in kind["fields"]]
            return {"type": "struct", "fields": fields}
        case _:
            return kind


def shown(kind: Type) -> str:
    """Return a type in the notation that users write."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return f"array<{shown(kind['elementType'])}>"
        case "struct":
            return "struct<" + ", ".join(f"{f['name']}: {shown(f['type'])}" for f in kind["fields"]) + ">"
        case other:
            return str(other)


def _listed(names: Mapping[str, object]) -> str:
    shown = ", ".join(list(names)[:20])
    return shown + (", ..." if len(names) > 20 else "")

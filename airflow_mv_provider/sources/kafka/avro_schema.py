"""Decisions on Avro schemas, as JSON; no Avro library and no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_mv_provider.exceptions import DefinitionError

_END = {"type": "fixed", "name": "mv_end", "size": 16}
_NAMED = ("record", "enum", "fixed", "error")
# Of numbers in these a logical type says what they stand for. Avro reads them as they are.
_WITH_UNITS = ("int", "long", "bytes", "fixed")
# What Avro reads as what, and, of that, where digits may be lost.
_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_ROUNDED = {("int", "float"), ("long", "float"), ("long", "double")}


def check_record(schema: str) -> None:
    """Check that a schema is a record's: its fields are the columns.

    raises : DefinitionError
    """
    found = json.loads(schema)
    if not isinstance(found, dict) or found.get("type") != "record" or not isinstance(found.get("fields"), list):
        raise DefinitionError("source", "an Avro schema has to be a record: its fields are the columns.")


def sealed(schema: str) -> str:
    """Return the schema of a record that is followed by 16 bytes: a record of (row, end)."""
    fields: list[dict[str, Any]] = [{"name": "row", "type": json.loads(schema)}, {"name": "end", "type": _END}]
    # Without a namespace, so that names inside the row stand for what they stood for.
    return json.dumps({"type": "record", "name": "mv_sealed", "fields": fields})


def lost(writer: str, reader: str, within: str | None = None) -> str | None:
    """Return what the reader's schema loses of records written with another one: Avro drops or changes it in silence.

    within  : look inside this field only
    returns : what the writer's schema has, for "the schema has ..."; None if nothing is lost
    raises  : ValueError, if the writer's schema is no JSON or no schema
    """
    try:
        written, read = json.loads(writer), json.loads(reader)
        names, known = dict(_named(written)), dict(_named(read))
        if within is not None:
            written, read = (_field(each, within) for each in (written, read))
        return _lost(written, read, names, known, (), set())
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("this is not an Avro schema") from error


def _lost(
    written: Any,
    read: Any,
    names: Mapping[str, Any],
    known: Mapping[str, Any],
    path: tuple[str, ...],
    seen: set[tuple[int, int]],
) -> str | None:
    written, read = _resolved(written, names), _resolved(read, known)
    if isinstance(written, list):
        return next((found for each in written if (found := _lost(each, read, names, known, path, seen))), None)
    if isinstance(read, list):
        read = _branch(written, [_resolved(each, known) for each in read])
    if not isinstance(written, dict) or not isinstance(read, dict):
        return _changed(written, read, path)
    if (id(written), id(read)) in seen:
        return None  # a record that contains itself
    seen.add((id(written), id(read)))
    match written["type"]:
        case "record":
            by_name = {
                name: each for each in read.get("fields", ()) for name in (each["name"], *each.get("aliases", ()))
            }
            for field in written["fields"]:
                inner = (*path, str(field["name"]))
                if field["name"] not in by_name:
                    return f"the field {'.'.join(inner)}, which schema_file lacks"
                if found := _lost(field["type"], by_name[field["name"]]["type"], names, known, inner, seen):
                    return found
            return None
        case "array":
            return _lost(written["items"], read.get("items"), names, known, path, seen)
        case "map":
            return _lost(written["values"], read.get("values"), names, known, path, seen)
        case "enum" if more := [each for each in written["symbols"] if each not in read.get("symbols", ())]:
            return f"the symbol {more[0]} of {'.'.join(path)}, which schema_file lacks"
    return _changed(written, read, path)


def _changed(written: Any, read: Any, path: tuple[str, ...]) -> str | None:
    """Return a value that is neither a union nor made of others, if Avro reads it as another one."""
    kinds = _kind(written), _kind(read)
    if kinds[0] != kinds[1] and kinds[1] not in _PROMOTED.get(kinds[0], ()):
        return None  # Avro itself refuses it
    fits = _unit(written)[:2] == _unit(read)[:2] and _unit(written)[2] <= _unit(read)[2]
    names = [each["connect.name"] for each in (written, read) if isinstance(each, dict) and "connect.name" in each]
    is_other = kinds[0] in _WITH_UNITS and len(set(names)) > 1
    if fits and not is_other and kinds not in _ROUNDED:
        return None
    return f"{'.'.join(path)} as {_shown(written)}, which schema_file has as {_shown(read)}"


def _unit(schema: Any) -> tuple[str | None, int, int]:
    """Return the logical type of a number, and a decimal's scale and precision."""
    if not isinstance(schema, dict) or schema["type"] not in _WITH_UNITS or "logicalType" not in schema:
        return None, 0, 0
    return schema["logicalType"], schema.get("scale", 0), schema.get("precision", 0)


def _shown(schema: Any) -> str:
    logical, scale, precision = _unit(schema)
    if logical == "decimal":
        return f"decimal({precision},{scale})"
    return str(logical or (isinstance(schema, dict) and schema.get("connect.name")) or _kind(schema))


def _branch(written: Any, branches: list[Any]) -> Any:
    """Return the branch of the reader's union that Avro takes for what was written; None if there is none."""
    alike = next((each for each in branches if _is_alike(written, each)), None)
    promoted = _PROMOTED.get(_kind(written), ())
    return next((each for each in branches if _kind(each) in promoted), None) if alike is None else alike


def _is_alike(written: Any, branch: Any) -> bool:
    """True if a branch of the reader's union takes what was written: of the same kind, and of the same name."""
    kind = _kind(written)
    return kind == _kind(branch) and (kind not in _NAMED or _short(written["name"]) == _short(branch["name"]))


def _kind(schema: Any) -> Any:
    return schema["type"] if isinstance(schema, dict) else schema


def _named(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield every named type of a schema, by its name without a namespace."""
    if isinstance(schema, list):
        for each in schema:
            yield from _named(each)
    elif isinstance(schema, dict):
        kind = schema["type"]
        if kind in _NAMED:
            yield _short(schema["name"]), schema
        inside = [each["type"] for each in schema.get("fields", ())] if kind == "record" else []
        inside += [schema[name] for name in ("items", "values") if name in schema]
        if not isinstance(kind, str):
            inside.append(kind)
        for each in inside:
            yield from _named(each)


def _resolved(schema: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(schema, str):
        return names.get(_short(schema), schema)
    if isinstance(schema, dict) and not isinstance(schema["type"], str):
        return _resolved(schema["type"], names)  # {"type": {"type": "record", ...}}
    return schema


def _field(schema: Any, name: str) -> Any:
    return {each["name"]: each["type"] for each in schema["fields"]}[name]


def _short(name: str) -> str:
    return name.rpartition(".")[2]

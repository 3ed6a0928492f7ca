"""Decisions on Avro schemas, as JSON; no Avro library and no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_mv_provider.exceptions import DefinitionError

_END = {"type": "fixed", "name": "mv_end", "size": 16}
_NAMED = ("record", "enum", "fixed", "error")


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


def lacking(writer: str, reader: str, within: str | None = None) -> str | None:
    """Return a field that records written with one schema have and the reader's schema lacks: Avro drops it in silence.

    within  : look inside this field only
    returns : its path, with dots; None if there is none
    raises  : ValueError, if the writer's schema is no JSON or no schema
    """
    try:
        written, read = json.loads(writer), json.loads(reader)
        names, known = dict(_named(written)), dict(_named(read))
        if within is not None:
            written, read = (_field(each, within) for each in (written, read))
        return _lacking(written, read, names, known, (), set())
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("this is not an Avro schema") from error


def _lacking(
    written: Any,
    read: Any,
    names: Mapping[str, Any],
    known: Mapping[str, Any],
    path: tuple[str, ...],
    seen: set[tuple[int, int]],
) -> str | None:
    written, read = _resolved(written, names), _resolved(read, known)
    if (id(written), id(read)) in seen:
        return None  # a record that contains itself
    seen.add((id(written), id(read)))
    if isinstance(written, list):
        pairs = ((each, read) for each in written)
        return next((found for a, b in pairs if (found := _lacking(a, b, names, known, path, seen))), None)
    if isinstance(read, list):
        read = _resolved(next((each for each in read if _is_alike(written, each, names, known)), None), known)
    if not isinstance(written, dict) or not isinstance(read, dict):
        return None
    match written["type"]:
        case "record":
            by_name = {
                name: each for each in read.get("fields", ()) for name in (each["name"], *each.get("aliases", ()))
            }
            for field in written["fields"]:
                inner = (*path, str(field["name"]))
                if field["name"] not in by_name:
                    return ".".join(inner)
                if found := _lacking(field["type"], by_name[field["name"]]["type"], names, known, inner, seen):
                    return found
        case "array":
            return _lacking(written["items"], read.get("items"), names, known, path, seen)
        case "map":
            return _lacking(written["values"], read.get("values"), names, known, path, seen)
    return None


def _is_alike(written: Any, branch: Any, names: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """True if a branch of the reader's union takes what was written: of the same kind, and of the same name."""
    first, second = _resolved(written, names), _resolved(branch, known)
    if not isinstance(first, dict) or not isinstance(second, dict):
        return bool(first == second)
    is_same = first["type"] == second["type"]
    return is_same and (first["type"] not in _NAMED or _short(first["name"]) == _short(second["name"]))


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

"""The problems of a definition, in words: their place, what was expected and found, the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from airflow_mv_provider.core.secret import may_be_secret

_MAX_SHOWN = 60
# What pydantic puts into a location: a mark of a name that is no string, and the form of a limit (`guards`).
_NO_NAMES = ("[key]", "[usual]", "[fixed]")
_KINDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    dict: "a mapping",
}
_KINDS |= {list: "a list", tuple: "a list", type(None): "nothing", bytes: "binary data", set: "a set"}
_EXPECTED = {
    "tuple_type": "a list",
    "string_type": "a string",
    "string_unicode": "a string that UTF-8 can encode",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "date_type": "a date such as 2026-01-31",
    "date_parsing": "a date such as 2026-01-31",
    "date_from_datetime_parsing": "a date such as 2026-01-31",
    "date_from_datetime_inexact": "a date such as 2026-01-31",
}
_BOUNDS = {"greater_than": "more than", "greater_than_equal": "at least", "less_than_equal": "at most"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem.

    Attributes:
        place: Names and indexes that lead to it from the definition's top; () is the whole definition.
    """

    place: tuple[int | str, ...]
    text: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.place))}: {self.text}" if self.place else self.text


def problems_of(error: ValidationError, model: type[BaseModel]) -> tuple[Problem, ...]:
    """Return the problems that pydantic found in a document for `model`."""
    return tuple(_problem(dict(each), model) for each in error.errors(include_url=False))


def sentence(problems: Iterable[object]) -> str:
    """Return several problems as the middle part of an error's message."""
    return f"{'; '.join(map(str, problems))}."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests the known name closest to `name`; "" if none is close."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f" (did you mean {by_lower[found[0]]}?)" if found else ""


def kind_of(value: object) -> str:
    """Return the kind of a document's value, in the words of people who write YAML."""
    return _KINDS.get(type(value), type(value).__name__)


def _problem(error: Mapping[str, Any], model: type[BaseModel]) -> Problem:
    location = [part for part in error["loc"] if part not in _NO_NAMES]
    where, place = _walked(model, location)
    return Problem(place, _text(error, where, _shown(place, error["input"])))


def _text(error: Mapping[str, Any], where: type[BaseModel] | None, shown: str) -> str:
    kind, found, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = _names(where)
        return f"unknown name{nearest(str(error['loc'][-1]), known)}; known are {', '.join(known)}"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {shown}{_how(kind, found, shown)}"
    match kind:
        case "missing":
            return "missing"
        case "literal_error":
            expected = str(context["expected"])
            return f"expected {expected}, found {shown}{nearest(str(found), expected.split(chr(39))[1::2])}"
        case "union_tag_invalid":
            return f"{context['tag']!r:.60} is not a type; expected one of {context['expected_tags']}"
        case "union_tag_not_found":
            return "its type is missing"
        case "too_short" | "string_too_short":
            return "empty"
        case "string_too_long":
            return f"more than {context['max_length']} characters"
        case "invalid_key":
            return "a name must be a string: put it in quotes"
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            return f"expected {_BOUNDS[kind]} {next(iter(context.values()))}, found {shown}"
        case "value_error":
            return str(context["error"])
    message = str(error["msg"])
    return message[:1].lower() + message[1:]


def _how(kind: str, found: object, shown: str) -> str:
    if kind == "tuple_type" and shown == repr(found):
        return f": write [{found}]"
    if kind == "string_type" and isinstance(found, bool | int | float):
        return ": put it in quotes"
    return ""


def _shown(place: Sequence[int | str], found: object) -> str:
    """Return a value as messages show it: a short scalar as it is, of anything else only its kind.

    A value in the wrong place may be a secret: a long text, or one that looks like a secret, is not shown.
    """
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, int | float | str):
        text = _digits(found) if isinstance(found, int) else repr(found)
        if may_be_secret(".".join(map(str, place)), text):
            return kind_of(found)
        return text if len(text) <= _MAX_SHOWN else f"{kind_of(found)} of {len(text):,} characters"
    return kind_of(found)


def _digits(number: int) -> str:
    return str(number) if number.bit_length() < 1000 else "a number with hundreds of digits"


def _names(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _walked(
    model: type[BaseModel], location: Sequence[int | str]
) -> tuple[type[BaseModel] | None, tuple[int | str, ...]]:
    """Return the model in which the last name of a location is looked up, and the location as the document has it.

    Pydantic inserts the tag of a source into a location; the tag is not a name in the document.
    """
    candidates, within, place = [model], model, list[int | str]()
    for part in location:
        if len(candidates) > 1:
            candidates = [each for each in candidates if part in get_args(each.model_fields["type"].annotation)]
            continue
        within = candidates[0] if candidates else within
        place.append(part)
        fields = within.model_fields.items() if candidates else ()
        candidates = [
            each for name, field in fields if part in (name, field.alias) for each in _models(field.annotation)
        ]
    return within, tuple(place)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Literal:
        return []
    return [each for argument in get_args(annotation) for each in _models(argument)]

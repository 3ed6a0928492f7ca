"""Decode a record of Protobuf strictly. Runs in Spark's Python workers, which get this module's code with the task.

Strictly: bytes that are not such a message, a field that the schema lacks, a number that an enum lacks, a required
field that is not set and a text that is not UTF-8 are problems, and no values. So this module imports nothing of the
package.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_NANOS = 10**9
_TIMESTAMP = "google.protobuf.Timestamp"


class _NoRowError(Exception):
    """Why a message is no row."""


class Decoder:
    """The function of a message: its bytes to (row, problem), one of which is None."""

    def __init__(self, schema: str, message: str) -> None:
        self._schema, self._message = schema, message
        self._made: tuple[Any, Callable[[Any], tuple[Any, ...]]] | None = None

    def __call__(self, content: bytes | None) -> tuple[tuple[Any, ...] | None, str | None] | None:
        """Return the row of a record; None for NULL."""
        from google.protobuf.message import DecodeError

        if content is None:
            return None
        if self._made is None:
            self._made = self._make()
        kind, row_of = self._made
        found = kind()
        try:
            found.ParseFromString(bytes(content))
            if not found.IsInitialized():
                return None, f"the record lacks {found.FindInitializationErrors()[0]}, which is required"
            return row_of(found), None
        except DecodeError:
            return None, f"the record is not a {self._message}: {len(content)} bytes, {bytes(content[:16]).hex()}"
        except UnicodeDecodeError:
            return None, "not UTF-8"
        except _NoRowError as error:
            return None, str(error)

    def __getstate__(self) -> tuple[str, str]:
        return self._schema, self._message

    def __setstate__(self, state: tuple[str, str]) -> None:
        self._schema, self._message = state
        self._made = None

    def _make(self) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(self._schema)).file:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(self._message)
        return message_factory.GetMessageClass(descriptor), _row(descriptor)


def _row(message: Any) -> Callable[[Any], tuple[Any, ...]]:
    from google.protobuf.unknown_fields import UnknownFieldSet

    parts = [(each.name, each.has_presence, _value(each)) for each in message.fields]

    def row_of(found: Any) -> tuple[Any, ...]:
        if len(unknown := UnknownFieldSet(found)):
            raise _NoRowError(f"{message.name} has no field {unknown[0].field_number}, or not one of this type")
        return tuple(
            None if has_presence and not found.HasField(name) else convert(getattr(found, name))
            for name, has_presence, convert in parts
        )

    return row_of


def _value(field: Any) -> Callable[[Any], Any]:
    """Return what makes a column's value of a field's."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = (_single(kind.fields_by_name[name]) for name in ("key", "value"))
        return lambda found: {key(each): value(found[each]) for each in found}
    single = _single(field)
    return (lambda found: [single(each) for each in found]) if field.is_repeated else single


def _single(field: Any) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return _moment if field.message_type.full_name == _TIMESTAMP else _row(field.message_type)
    if field.enum_type is not None:
        names: dict[int, str] = {number: each.name for number, each in field.enum_type.values_by_number.items()}

        def named(number: int) -> str:
            if number not in names:
                raise _NoRowError(f"{field.name} is {number}, which {field.enum_type.name} lacks")
            return names[number]

        return named
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return Decimal
    return lambda found: found


def _moment(found: Any) -> datetime:
    if not 0 <= found.nanos < _MAX_NANOS:
        raise _NoRowError(f"a Timestamp has {found.nanos} nanoseconds")
    try:
        return _EPOCH + timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
    except OverflowError:
        raise _NoRowError(f"a Timestamp of {found.seconds} seconds is beyond the year 9999") from None

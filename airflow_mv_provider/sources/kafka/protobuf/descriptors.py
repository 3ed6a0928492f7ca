"""Decisions on Protobuf's descriptors: what of a descriptor file a message needs, and which columns it has.

A descriptor file is what `protoc --include_imports --descriptor_set_out` writes. What is kept of it is what the message
needs, without comments and options, so that a change of anything else is no change of the schema.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator
from typing import Any

from pyspark.sql import types as T

from airflow_mv_provider.core.definition.problems import nearest
from airflow_mv_provider.exceptions import DefinitionError, DependencyError

_INSTALL = "pip install 'protobuf>=6.31'"
_COMPILE = "Write it by `protoc --include_imports --descriptor_set_out=FILE`."
TIMESTAMP = "google.protobuf.Timestamp"
_UNSIGNED_64 = T.DecimalType(20, 0)


def kept(content: bytes, message: str, location: str) -> str:
    """Return what a message needs of a descriptor file, as text in one spelling.

    raises : DefinitionError; DependencyError, where Python lacks the library
    """
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise DependencyError("source", "Python has no library for Protobuf.", hint=_INSTALL) from error
    try:
        found = FileDescriptorSet.FromString(content)
    except DecodeError as error:
        raise DefinitionError("source", f"{location} is not a descriptor file of Protobuf.", hint=_COMPILE) from error
    if not found.file:
        raise DefinitionError("source", f"{location} is not a descriptor file of Protobuf: it is empty.", hint=_COMPILE)
    owners = {f".{_full(file, each)}": (file, each) for file in found.file for each in _top_level(file)}
    names = sorted(name[1:] for file in found.file for name in _messages(file))
    if message not in names:
        problem = f"{location} has no message {message}{nearest(message, names)}."
        raise DefinitionError("source", problem, hint=f"The file has {', '.join(names[:8]) or 'none'}.")
    needed = _needed(f".{message}", owners, location)
    out = FileDescriptorSet()
    for file in found.file:
        mine = {name for name in needed if owners[name][0] is file}
        if mine:
            referred = (each for name in mine for each in _referred(owners[name][1]))
            imported = {owners[_owner(each, owners)][0].name for each in referred}
            out.file.append(_reduced(file, mine, imported - {file.name}))
    out.DiscardUnknownFields()
    return base64.b64encode(out.SerializeToString(deterministic=True)).decode()


def descriptor_of(schema: str, message: str) -> Any:
    """Return the descriptor of a message of what `kept` returned.

    raises : DefinitionError
    """
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema, validate=True)).file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except (TypeError, KeyError, ValueError, binascii.Error) as error:
        problem = f"the descriptor of {message} cannot be used: {str(error).splitlines()[0][:200]}."
        raise DefinitionError("source", problem, hint=_COMPILE) from error


def columns_of(message: Any) -> T.StructType:
    """Return the columns of a message, in the order of its declaration.

    message : its descriptor
    raises  : DefinitionError, if it contains itself or a message without fields
    """
    return _struct(message, ())


def _struct(message: Any, inside: tuple[str, ...]) -> T.StructType:
    if message.full_name in inside:
        path = " contains ".join((*inside, message.full_name))
        raise DefinitionError("source", f"a message that contains itself is not a row: {path}.")
    if not message.fields:
        raise DefinitionError("source", f"the message {message.full_name} has no field.")
    inside = (*inside, message.full_name)
    return T.StructType([T.StructField(each.name, _type(each, inside)) for each in message.fields])


def _type(field: Any, inside: tuple[str, ...]) -> T.DataType:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        both = kind.fields_by_name
        return T.MapType(_single(both["key"], inside), _single(both["value"], inside))
    return T.ArrayType(_single(field, inside)) if field.is_repeated else _single(field, inside)


def _single(field: Any, inside: tuple[str, ...]) -> T.DataType:
    if field.message_type is not None:
        return T.TimestampType() if field.message_type.full_name == TIMESTAMP else _struct(field.message_type, inside)
    if field.type in (field.TYPE_UINT32, field.TYPE_FIXED32):
        return T.LongType()
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return _UNSIGNED_64
    if field.type == field.TYPE_BYTES:
        return T.BinaryType()
    return {
        field.CPPTYPE_INT32: T.IntegerType(),
        field.CPPTYPE_INT64: T.LongType(),
        field.CPPTYPE_FLOAT: T.FloatType(),
        field.CPPTYPE_DOUBLE: T.DoubleType(),
        field.CPPTYPE_BOOL: T.BooleanType(),
        field.CPPTYPE_ENUM: T.StringType(),
        field.CPPTYPE_STRING: T.StringType(),
    }[field.cpp_type]


def _needed(message: str, owners: dict[str, tuple[Any, Any]], location: str) -> set[str]:
    """Return the top-level types that a message needs, those inside which it and they are declared."""
    left, found = [message], set[str]()
    while left:
        name = left.pop()
        if not (owner := _owner(name, owners)):
            problem = f"{location} lacks {name[1:]}, which {message[1:]} needs."
            raise DefinitionError("source", problem, hint=_COMPILE)
        if owner not in found:
            found.add(owner)
            left += _referred(owners[owner][1])
    return found


def _owner(name: str, owners: Collection[str]) -> str:
    """Return the top-level type in which a type is declared; "" if there is none."""
    while name and name not in owners:
        name = name.rpartition(".")[0]
    return name


def _referred(declared: Any) -> Iterator[str]:
    """Yield the names of the types of all fields in a message, or an enum, which has none."""
    if hasattr(declared, "field"):
        yield from (field.type_name for field in declared.field if field.type_name)
        for each in declared.nested_type:
            yield from _referred(each)


def _reduced(file: Any, names: set[str], imported: set[str]) -> Any:
    """Return a file with some of its top-level types, which imports some files."""
    out = type(file)(name=file.name, package=file.package, syntax=file.syntax)
    if file.HasField("edition"):
        out.edition = file.edition
    if file.options.HasField("features"):
        out.options.features.CopyFrom(file.options.features)
    out.dependency.extend(sorted(imported))
    for kinds, mine in ((file.message_type, out.message_type), (file.enum_type, out.enum_type)):
        mine.extend(each for each in kinds if f".{_full(file, each)}" in names)
    return out


def _top_level(file: Any) -> list[Any]:
    return [*file.message_type, *file.enum_type]


def _messages(file: Any) -> Iterator[str]:
    def within(prefix: str, declared: Any) -> Iterator[str]:
        name = f"{prefix}.{declared.name}"
        yield name
        for each in declared.nested_type:
            if not each.options.map_entry:
                yield from within(name, each)

    for each in file.message_type:
        yield from within(f".{file.package}" if file.package else "", each)


def _full(file: Any, declared: Any) -> str:
    return f"{file.package}.{declared.name}" if file.package else str(declared.name)

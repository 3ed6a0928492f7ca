"""Messages of one shop in Protobuf, described and written by Python's own library; no compiler is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2

from airflow_mv_provider.sources.kafka.protobuf import descriptors
from airflow_mv_provider.sources.kafka.protobuf.codec import ProtobufCodec

SHOP = """
name: "shop.proto" package: "shop" syntax: "proto3"
message_type { name: "Key" field { name: "id" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "v" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true oneof_index: 0 }
  field { name: "tags" number: 3 type: TYPE_STRING label: LABEL_REPEATED }
  oneof_decl { name: "_v" }
}
"""
ALL = """
name: "all.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type {
  name: "All"
  field { name: "i" number: 1 type: TYPE_SINT32 label: LABEL_OPTIONAL }
  field { name: "u" number: 2 type: TYPE_UINT32 label: LABEL_OPTIONAL }
  field { name: "l" number: 3 type: TYPE_INT64 label: LABEL_OPTIONAL proto3_optional: true oneof_index: 0 }
  field { name: "ul" number: 4 type: TYPE_FIXED64 label: LABEL_OPTIONAL }
  field { name: "f" number: 5 type: TYPE_FLOAT label: LABEL_OPTIONAL }
  field { name: "d" number: 6 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "b" number: 7 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "raw" number: 8 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "e" number: 9 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".shop.Colour" }
  field { name: "at" number: 10 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".google.protobuf.Timestamp" }
  field { name: "lines" number: 11 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".shop.All.Line" }
  field { name: "by_name" number: 12 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".shop.All.ByNameEntry" }
  nested_type {
    name: "Line"
    field { name: "n" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
    field { name: "s" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "ByNameEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
  }
  oneof_decl { name: "_l" }
}
enum_type { name: "Colour" value { name: "RED" number: 0 } value { name: "BLUE" number: 3 } }
"""


def described(*texts: str) -> bytes:
    """Return a descriptor file, as `protoc --include_imports` writes it, of files in Protobuf's text format."""
    from google.protobuf import text_format

    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    for text in texts:
        text_format.Parse(text, found.file.add())
    return found.SerializeToString()


def message(text: str, name: str, row: Mapping[str, Any]) -> bytes:
    """Return a record of a message."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described(text)).file:
        pool.Add(file)
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
    content: bytes = json_format.ParseDict(row, found).SerializeToString()
    return content


def codec(text: str, name: str) -> ProtobufCodec:
    return ProtobufCodec.of(descriptors.kept(described(text), name, "shop.pb"), name)

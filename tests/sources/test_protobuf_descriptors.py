"""What is kept of a descriptor file, and which columns a message has."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2

from airflow_mv_provider.exceptions import DefinitionError, MvError
from airflow_mv_provider.sources.kafka.protobuf import descriptors
from tests.engine.protobuf_forms import ALL, SHOP, described

SELF = """
name: "self.proto" package: "shop" syntax: "proto3"
message_type {
  name: "Node" field { name: "next" number: 1 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".shop.Node" }
}
message_type { name: "Nothing" }
"""
ABROAD = """
name: "abroad.proto" package: "abroad" syntax: "proto3" dependency: "all.proto"
message_type {
  name: "Trip" field { name: "colour" number: 1 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".shop.Colour" }
}
"""


def kept(message: str, *texts: str) -> str:
    return descriptors.kept(described(*texts), message, "shop.pb")


def columns(message: str, *texts: str) -> str:
    return descriptors.columns_of(descriptors.descriptor_of(kept(message, *texts), message)).simpleString()


def test_columns_are_the_fields_of_a_message():
    assert columns("shop.Order", SHOP) == "struct<id:int,v:string,tags:array<string>>"
    assert columns("shop.All", ALL) == (
        "struct<i:int,u:bigint,l:bigint,ul:decimal(20,0),f:float,d:double,b:boolean,raw:binary,e:string,at:timestamp,"
        "lines:array<struct<n:int,s:string>>,by_name:map<string,bigint>>"
    )
    assert columns("shop.All.Line", ALL) == "struct<n:int,s:string>"
    assert columns("abroad.Trip", ALL, ABROAD) == "struct<colour:string>"


def test_what_a_message_does_not_need_is_no_change_of_its_schema():
    more = SHOP.replace('message_type { name: "Key"', 'message_type { name: "New" }\nmessage_type { name: "Key"', 1)
    found = descriptor_pb2.FileDescriptorSet.FromString(described(SHOP))
    found.file[1].source_code_info.location.add(leading_comments="a comment")
    found.file[1].options.java_package = "com.shop"

    assert kept("shop.Order", more, ALL) == kept("shop.Order", SHOP)
    assert descriptors.kept(found.SerializeToString(), "shop.Order", "shop.pb") == kept("shop.Order", SHOP)


def test_what_a_message_needs_is_a_change():
    other = SHOP.replace('name: "v" number: 2', 'name: "v" number: 4')

    assert kept("shop.Order", other) != kept("shop.Order", SHOP)
    assert kept("shop.Key", other) == kept("shop.Key", SHOP)
    assert kept("abroad.Trip", ALL.replace("BLUE", "GREEN"), ABROAD) != kept("abroad.Trip", ALL, ABROAD)


@pytest.mark.parametrize(
    ("content", "message", "words"),
    [
        (b"", "shop.Order", "it is empty"),
        (b"syntax = 'proto3';", "shop.Order", "not a descriptor file of Protobuf"),
        (described(SHOP), "Order", r"has no message Order \(did you mean shop.Order\?\)"),
        (described(SHOP), "shop.Nothing", "has no message shop.Nothing"),
        (described(ABROAD), "abroad.Trip", "lacks shop.Colour, which abroad.Trip needs"),
        (described(SELF), "shop.Node", "contains itself is not a row: shop.Node contains shop.Node"),
        (described(SELF), "shop.Nothing", "shop.Nothing has no field"),
    ],
    ids=["empty", "source", "no package", "unknown", "no imports", "recursive", "no field"],
)
def test_descriptor_that_cannot_be_used_is_named(content, message, words):
    with pytest.raises(DefinitionError, match=words) as caught:
        descriptors.columns_of(descriptors.descriptor_of(descriptors.kept(content, message, "shop.pb"), message))

    assert isinstance(caught.value, MvError)

"""What a definition of a topic may say, and how a topic's state relates to an earlier one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_mv_provider.core.definition.table import parse_table
from airflow_mv_provider.core.frontier import fingerprint
from airflow_mv_provider.exceptions import (
    SourceRegressedError,
    SourceReplacedError,
    StreamGoneError,
    StreamReloadError,
)
from airflow_mv_provider.sources.kafka.frontier import (
    KafkaFrontier,
    Order,
    Span,
    check_continues,
    check_deletes_kept,
    check_kept,
    compared,
    num_offsets,
    spans,
)
from airflow_mv_provider.sources.kafka.model import Kafka

AVRO = {
    "format": "avro",
    "schema": None,
    "schema_file": "schemas/order.avsc",
    "record_key": {"format": "csv", "schema": "id INT"},
}
PROTOBUF = {
    "format": "protobuf",
    "schema": None,
    "schema_file": "schemas/shop.pb",
    "message": "shop.Order",
    "record_key": {"format": "csv", "schema": "id INT"},
}
WHOLE = {"conn_id": "kafka_shop", "envelope": "upsert", "schema": "id INT, v STRING"}
AT = KafkaFrontier("c1", "shop.orders", "t1", (10, 0, 7))


def a_topic(**more: object) -> Kafka:
    return Kafka("shop.orders", **(WHOLE | more))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": "shop.*"}, "not the name of one topic"),
        ({"topic": "a,b"}, "not the name of one topic"),
        ({"topic": ".."}, "not the name of one topic"),
        ({"conn_id": "a b"}, "not a connection's id"),
        ({"envelope": "avro"}, "'none', 'upsert' or 'debezium'"),
        ({"format": "xml"}, "'json', 'csv', 'avro' or 'protobuf'"),
        ({"schema": None}, "format json needs schema"),
        ({"format": "csv", "schema": None}, "format csv needs schema"),
        ({"format": "csv"}, "format csv needs record_key"),
        ({"format": "csv", "envelope": "debezium"}, "in json or avro, not in csv"),
        ({"format": "csv", "options": {"header": "false"}}, "forbidden options: header"),
        ({"format": "csv", "options": {"multiLine": "true"}}, "forbidden options: multiLine"),
        ({"format": "csv", "options": {"sep": ""}}, "sep: expected a string that is not empty"),
        ({"options": {"sep": ";"}}, "format json takes no options"),
        ({"format": "avro"}, "format avro takes no schema, but schema_file"),
        ({"schema_file": "a.avsc"}, "format json takes no schema_file, but schema"),
        (AVRO | {"schema_file": None}, "format avro needs schema_file"),
        (AVRO | {"schema_file": "schemas/*.avsc"}, "the path of one file"),
        (AVRO | {"schema_file": " "}, "the path of one file"),
        (AVRO | {"record_key": None}, "format avro needs record_key"),
        (AVRO | {"record_key": {"format": "avro"}}, "format avro needs schema_file"),
        (AVRO | {"record_key": {"format": "csv", "schema": ""}}, "names no column"),
        (AVRO | {"record_key": {"format": "csv", "schema": "id INT", "colour": 1}}, "Extra inputs"),
        (AVRO | {"envelope": "none"}, "leave out record_key"),
        (PROTOBUF | {"schema_file": None}, "format protobuf needs schema_file"),
        (PROTOBUF | {"schema": "id INT"}, "format protobuf takes no schema, but schema_file"),
        (PROTOBUF | {"message": None}, "format protobuf needs message"),
        (PROTOBUF | {"message": "shop Order"}, "the full name of one message"),
        (PROTOBUF | {"message": ".shop.Order"}, "the full name of one message"),
        (PROTOBUF | {"record_key": None}, "format protobuf needs record_key"),
        (PROTOBUF | {"record_key": {"format": "protobuf", "schema_file": "a.pb"}}, "format protobuf needs message"),
        (PROTOBUF | {"envelope": "debezium"}, "in json or avro, not in protobuf"),
        (PROTOBUF | {"registry": True}, "read in avro, not in protobuf"),
        (PROTOBUF | {"options": {"sep": ";"}}, "takes no options"),
        (AVRO | {"message": "shop.Order"}, "format avro takes no message"),
        ({"message": "shop.Order"}, "format json takes no message"),
        ({"registry": True}, "read in avro, not in json"),
        (AVRO | {"registry": "yes"}, "boolean"),
        (AVRO | {"envelope": "debezium"}, "record_key in avro, none in json"),
        ({"envelope": "debezium", "record_key": {"format": "json", "schema": "id INT"}}, "record_key in avro"),
        ({"schema": " "}, "names no column"),
        ({"watermark": "at"}, "no watermark"),
        ({"complete": "yes"}, "boolean"),
        ({"read_timeout": 0}, "greater than or equal to 1"),
        ({"max_records": 0}, "greater than or equal to 1"),
        ({"max_records": "7"}, "integer"),
        *(
            ({name: "x"}, "come from the connection")
            for name in ("kafka.bootstrap.servers", "bootstrap.servers", "sasl.password", "kafka.sasl.jaas.config")
        ),
        *(
            ({name: "x"}, "pinned by each refresh")
            for name in ("startingOffsets", "endingOffsets", "subscribePattern", "failOnDataLoss", "assign", "group.id")
        ),
        ({"url": "x"}, "Extra inputs"),
    ],
)
def test_definition_that_cannot_be_is_refused(given, words):
    with pytest.raises(ValidationError, match=words):
        Kafka(**({"topic": "shop.orders"} | WHOLE | given))


def test_definition_says_which_cluster_is_asked_and_not_which_rows():
    assert a_topic().connection_id == "kafka_shop"
    assert (a_topic().is_complete, a_topic(complete=True).is_complete) == (False, True)
    assert {"conn_id", "complete", "ingestion", "max_records", "read_timeout", "watermark"} == Kafka.not_content


def test_schema_files_are_paths_of_the_source():
    key = {"format": "avro", "schema_file": "schemas/key.avsc"}

    assert a_topic().paths == ()
    assert a_topic(**AVRO).paths == ("schemas/order.avsc",)
    assert a_topic(**AVRO | {"record_key": key}).paths == ("schemas/order.avsc", "schemas/key.avsc")


def test_definition_in_json_is_stored_as_before_other_formats_came():
    """Its hash decides whether the topic can be continued."""
    stored = a_topic().model_dump(mode="json", by_alias=True)
    table = {"name": "orders", "key": ["id"]}

    assert set(stored) == {
        *("type", "topic", "conn_id", "format", "envelope", "schema", "complete", "read_timeout", "select", "watermark")
    }
    assert parse_table(table | {"source": a_topic(**AVRO).model_dump(mode="json", by_alias=True)}).source == a_topic(
        **AVRO
    )
    assert parse_table(table | {"source": stored}).content_hash == "245cd18d1bd2b80e"
    assert (
        parse_table(table | {"source": a_topic(**AVRO).model_dump(mode="json", by_alias=True)}).content_hash
        == "e14f56b0ad994f7a"
    )


@pytest.mark.parametrize(
    ("now", "order"),
    [
        (AT, Order.SAME),
        (AT.from_start((3, 0, 0)), Order.SAME),
        (replace(AT, offsets=(10, 1, 7)), Order.AHEAD),
        (replace(AT, offsets=(10, 0, 7, 0)), Order.SAME),
        (replace(AT, offsets=(10, 0, 7, 5)), Order.AHEAD),
        (replace(AT, offsets=(9, 5, 7)), Order.BEHIND),
        (replace(AT, offsets=(10, 0)), Order.BEHIND),
        (replace(AT, topic_id="t2"), Order.ANOTHER),
        (replace(AT, cluster="c2", offsets=(11, 0, 7)), Order.ANOTHER),
    ],
)
def test_states_of_a_topic_are_compared(now, order):
    assert compared(AT, now) is order


def test_partition_that_was_added_begins_at_its_first_record():
    grown = replace(AT, offsets=(10, 2, 7, 5))

    check_continues(AT, grown)

    assert spans(AT, grown) == (Span(1, 0, 2), Span(3, 0, 5))
    assert num_offsets(spans(AT, grown)) == 7


def test_whole_topic_is_read_from_what_is_still_there():
    whole = AT.from_start((4, 0, 7))

    assert not whole.continues
    assert AT.continues
    assert spans(None, whole) == (Span(0, 4, 10),)


@pytest.mark.parametrize(
    ("now", "error", "words"),
    [
        (replace(AT, topic_id="t2"), SourceReplacedError, "another topic answers as 'shop.orders'"),
        (replace(AT, cluster="c2"), SourceReplacedError, "another cluster answers"),
        (replace(AT, offsets=(10, 0, 6)), SourceRegressedError, "partition 2: 6, was 7"),
        (replace(AT, offsets=(10, 0)), SourceRegressedError, "fewer partitions"),
        (replace(AT, value_schema="{}"), StreamReloadError, "the schema that schema_file names has changed"),
        (replace(AT, key_schema="{}"), StreamReloadError, "the schema that record_key names has changed"),
    ],
)
def test_topic_that_does_not_continue_is_named(now, error, words):
    with pytest.raises(error, match=words):
        check_continues(AT, now)


def test_state_is_stored_with_its_schemas():
    with_schemas = replace(AT, value_schema='{"type":"record"}', key_schema="{}")

    assert [KafkaFrontier.from_json(each.to_json()) for each in (AT, with_schemas)] == [AT, with_schemas]
    assert fingerprint(AT) == "367f8a175887cb9e"  # as before topics had schema files: what is stored still counts
    assert fingerprint(AT) != fingerprint(with_schemas)


def test_records_removed_before_they_were_read_are_named():
    until = replace(AT, offsets=(20, 0, 7))
    check_kept("shop.orders", spans(AT, until), (10, 0, 7))

    with pytest.raises(StreamGoneError, match="begins at offset 11 of partition 0, after 10"):
        check_kept("shop.orders", spans(AT, until), (11, 0, 7))


def test_deletes_that_compaction_may_have_removed_before_they_were_read_are_named():
    wanted = spans(AT, replace(AT, offsets=(20, 0, 9)))
    check_deletes_kept("shop.orders", wanted, (10, 0, 7), 1000)

    with pytest.raises(StreamGoneError, match=r"retention\.ms=1000: .* partition 2 between 7, .* and 8 are older"):
        check_deletes_kept("shop.orders", wanted, (10, 0, 8), 1000)


def test_moment_at_which_a_topic_was_asked_is_stored_and_changes_nothing():
    asked = replace(AT, at_ms=1_700_000_000_000)

    assert asked == AT
    assert KafkaFrontier.from_json(asked.to_json()).at_ms == asked.at_ms
    assert KafkaFrontier.from_json(AT.to_json()).at_ms is None


_OFFSETS = st.lists(st.integers(0, 50), min_size=1, max_size=4).map(tuple)
_MORE = st.lists(st.integers(0, 9), min_size=4, max_size=6)


@given(first=_OFFSETS, steps=st.lists(_MORE, max_size=4))
def test_any_cut_reads_each_offset_once(first, steps):
    states = [KafkaFrontier("c", "t", "i", first)]
    for step in steps:
        former = (*states[-1].offsets, *([0] * (len(step) - len(states[-1].offsets))))
        states.append(replace(states[-1], offsets=tuple(a + b for a, b in zip(former, step, strict=False))))
        if len(states[-1].offsets) < len(states[-2].offsets):
            states.pop()
    whole = states[-1].from_start([0] * len(states[-1].offsets))
    wanted = {(each.partition, at) for each in spans(None, whole) for at in range(each.start, each.end)}

    parts = [spans(None, states[0].from_start([0] * len(first)))]
    for then, now in pairwise(states):
        check_continues(then, now)
        parts.append(spans(then, now))
    read = [(each.partition, at) for part in parts for each in part for at in range(each.start, each.end)]

    assert len(read) == len(set(read))
    assert set(read) == wanted


@given(offsets=_OFFSETS, begin=st.none() | _OFFSETS)
def test_frontier_survives_its_stored_form(offsets, begin):
    found = KafkaFrontier("c", "t", "i", offsets, begin)

    assert KafkaFrontier.from_json(found.to_json()) == found
    assert "t up to" in found.describe()

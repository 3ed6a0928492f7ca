"""What is published to the consumer group of an ingestion: never more than every table of a topic has."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.frontier import NoFrontier
from airflow_mv_provider.sources.kafka.frontier import KafkaFrontier
from airflow_mv_provider.sources.kafka.shared import releasable

OFFSETS = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)
TABLES = st.dictionaries(
    st.sampled_from("abcd"), st.tuples(st.sampled_from(["t", "u"]), st.none() | OFFSETS), min_size=1
)


def at(topic: str, offsets: tuple[int, ...] | None) -> KafkaFrontier | None:
    return None if offsets is None else KafkaFrontier("c", topic, f"id of {topic}", offsets)


def padded(offsets: tuple[int, ...]) -> tuple[int, ...]:
    return (*offsets, *[0] * (3 - len(offsets)))


@given(TABLES)
def test_no_table_is_behind_what_is_released(tables):
    topics = {name: topic for name, (topic, _) in tables.items()}

    found = releasable(topics, {name: at(*each) for name, each in tables.items()})

    for topic, offsets in found.items():
        mine = [ends for each, ends in tables.values() if each == topic]
        assert None not in mine
        assert padded(offsets) == tuple(map(min, zip(*(padded(ends) for ends in mine if ends), strict=True)))
    assert set(found) == {
        topic for topic in topics.values() if None not in [e for t, e in tables.values() if t == topic]
    }


@given(TABLES, st.sampled_from("abcd"), OFFSETS)
def test_publish_of_a_table_takes_nothing_back(tables, name, more):
    topics = {each: topic for each, (topic, _) in tables.items()}
    before = {each: at(*found) for each, found in tables.items()}
    known = before.get(name)
    if known is None:
        return
    grown = tuple(map(sum, zip(padded(known.offsets), padded(more), strict=True)))
    after = before | {name: replace(known, offsets=grown)}

    first, second = releasable(topics, before), releasable(topics, after)

    assert set(first) == set(second)
    for topic, offsets in first.items():
        assert all(a <= b for a, b in zip(padded(offsets), padded(second[topic]), strict=True))


def test_topic_that_was_made_again_and_a_table_of_another_source_release_nothing():
    topics = {"a": "t", "b": "t"}
    old = KafkaFrontier("c", "t", "old", (3,))

    assert releasable(topics, {"a": old, "b": replace(old, topic_id="new")}) == {}
    assert releasable(topics, {"a": old, "b": NoFrontier()}) == {}
    assert releasable(topics, {"a": old}) == {}
    assert releasable(topics, {"a": old, "b": replace(old, offsets=(2, 1))}) == {"t": (2, 0)}

"""How a cluster is reached, and what a real one answers about a topic: within a limit, and without a secret."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Uuid
from confluent_kafka.admin import NewTopic

from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    SourceDeniedError,
    SourceNotFoundError,
    SourceUnavailableError,
    UnsafeLocationError,
)
from airflow_mv_provider.sources.credentials import Credentials, confined_to, of_environment
from airflow_mv_provider.sources.kafka.client import commit, deletes_kept_ms, inspect
from airflow_mv_provider.sources.kafka.cluster import SECRET_OPTIONS, cluster_of
from scripts.kafka_server import KafkaServer
from scripts.ports import free_port
from tests.kafka import LOGIN, PASSWORD

SECRET = 'p"4ss\\word, of many'
OPEN = {"bootstrap.servers": "b1:9092,b2:9093"}


def credentials(extra: dict[str, str], **more: Any) -> Credentials:
    return Credentials("k", **({"kind": "kafka", "options": extra} | more))


def test_connection_of_airflow_is_understood_by_both_clients():
    known = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "ssl.ca.location": "/ca.pem"}
    extra = OPEN | known | {"sasl.username": "me", "sasl.password": SECRET, "group.id": "unused"}
    found = cluster_of(of_environment("k", {"AIRFLOW_CONN_K": json.dumps({"conn_type": "kafka", "extra": extra})}))

    assert found.client == OPEN | known | {"sasl.username": "me", "sasl.password": SECRET}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert found.spark == {
        "kafka.bootstrap.servers": OPEN["bootstrap.servers"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="me" password="p\\"4ss\\\\word, of many";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
    }
    assert SECRET not in repr(found)
    assert {name for name, value in found.spark.items() if "p\\" in value} == set(SECRET_OPTIONS)


def test_host_and_login_of_the_connection_count_too():
    uri = "kafka://me:pw%3D1@b1:19092?security.protocol=SASL_PLAINTEXT"
    found = cluster_of(of_environment("k", {"AIRFLOW_CONN_K": uri}))

    assert found.client["bootstrap.servers"] == "b1:19092"
    assert (found.client["sasl.username"], found.client["sasl.password"]) == ("me", "pw=1")


@pytest.mark.parametrize(
    ("extra", "more", "words"),
    [
        ({}, {"kind": "postgres"}, "of type 'postgres'"),
        ({}, {}, "names no broker"),
        (OPEN | {"ssl.key.location": "/k"}, {}, "'ssl.key.location' in its extra is not known"),
        (OPEN | {"enable.ssl.certificate.verification": "false"}, {}, "is not known"),
        (OPEN | {"security.protocol": "TLS"}, {}, "not one of PLAINTEXT, SSL"),
        (OPEN, {"user": "me", "password": SECRET}, "has a login, and no security.protocol"),
        (OPEN | {"security.protocol": "SASL_SSL"}, {}, "needs a login and a password"),
        (OPEN | {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, {"user": "me"}, "sasl.mechanism"),
    ],
)
def test_connection_that_is_not_understood_is_refused(extra, more, words):
    with pytest.raises(ConnectionUnknownError, match=words) as caught:
        cluster_of(credentials(extra, **more))

    assert SECRET not in str(caught.value)


def test_brokers_are_confined_like_hosts():
    def find(_: str) -> Credentials:
        return credentials({"bootstrap.servers": "b1.example:9092, evil.test:9092"})

    confined_to([], find)("k")
    confined_to(["*.example", "evil.test"], find)("k")
    with pytest.raises(UnsafeLocationError, match=r"evil\.test"):
        confined_to(["*.example"], find)("k")
    other = confined_to(
        ["db"], lambda _: Credentials("p", "postgres", "evil.test", options={"bootstrap.servers": "db"})
    )
    with pytest.raises(UnsafeLocationError, match=r"evil\.test"):
        other("p")


def open_to(broker: Any) -> Any:
    return cluster_of(credentials({"bootstrap.servers": broker.address}))


def ended_at(broker, name, offsets):
    until = time.monotonic() + 30
    while (found := inspect(open_to(broker), name, 10)).frontier.offsets != offsets:
        assert time.monotonic() < until, found
    return found


@pytest.mark.slow
def test_topic_is_known_by_its_id_and_ends_at_the_last_stable_offset(broker):
    name = broker.topic(partitions=2)
    broker.send(name, ("a", "1"), ("b", "2"), partition=1)
    before = inspect(open_to(broker), name, 10)
    left_open = broker.begin(name, ("c", "3"), partition=0)
    during = inspect(open_to(broker), name, 10)
    left_open.abort_transaction(10)
    after = ended_at(broker, name, (2, 2))  # the broker writes the marker of the abort after it has answered
    broker.forget(name, 1, partition=1)
    gone = inspect(open_to(broker), name, 10)
    broker.drop(name)
    broker.topic(name, partitions=2)
    again = inspect(open_to(broker), name, 10)

    assert [each.frontier.offsets for each in (before, during, after)] == [(0, 2), (0, 2), (2, 2)]
    assert [each.lows for each in (before, gone)] == [(0, 0), (0, 1)]
    assert before.frontier.topic_id == gone.frontier.topic_id != again.frontier.topic_id
    assert before.frontier.cluster == again.frontier.cluster
    with pytest.raises(SourceNotFoundError, match="no topic 'missing'"):
        inspect(open_to(broker), "missing", 10)


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.parametrize("password", [PASSWORD, "wr0ng/p4ss"])
def test_cluster_with_a_login_is_asked_with_it(broker, password):
    name = broker.topic()
    extra = {"bootstrap.servers": broker.login_address, "security.protocol": "SASL_PLAINTEXT"}
    cluster = cluster_of(credentials(extra, user=LOGIN, password=password))

    if password == PASSWORD:
        assert inspect(cluster, name, 10).frontier.offsets == (0,)
    else:
        with pytest.raises(SourceDeniedError, match="refuses") as caught:
            inspect(cluster, name, 10)
        assert password not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "kept_ms"),
    [
        ({}, None),
        ({"cleanup_policy": "compact"}, 86_400_000),
        ({"cleanup_policy": "compact,delete", "delete_retention_ms": "7"}, 7),
    ],
    ids=["deleted by age", "compacted", "both"],
)
def test_how_long_deletes_are_kept_is_known_of_compacted_topics(broker, config, kept_ms):
    assert deletes_kept_ms(open_to(broker), broker.topic(**config), 10) == kept_ms


@pytest.mark.parametrize("is_silent", [False, True])
def test_cluster_that_does_not_answer_is_given_up(is_silent):
    began = time.monotonic()
    with socket.socket() as listener:
        port = free_port()
        if is_silent:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        with pytest.raises(SourceUnavailableError, match=f"127.0.0.1:{port}"):
            inspect(cluster_of(credentials({"bootstrap.servers": f"127.0.0.1:{port}"})), "t", 1)

    assert time.monotonic() - began < 10


def test_broker_that_gives_topics_no_ids_is_refused(monkeypatch):
    """Kafka before 2.8, and what speaks its protocol: the client has zeros in place of an id."""

    class OldCluster:
        def __init__(self, _settings: Any) -> None: ...

        def list_topics(self, timeout: float) -> None: ...

        def describe_cluster(self, request_timeout: float) -> Any:
            return answer(SimpleNamespace(cluster_id="c"))

        def describe_topics(self, _topics: Any, request_timeout: float) -> Any:
            return {"t": answer(SimpleNamespace(topic_id=Uuid(0, 0), partitions=[0]))}

        def list_offsets(self, asked: Any, **_more: Any) -> Any:
            return {each: answer(SimpleNamespace(offset=7)) for each in asked}

    def answer(value: Any) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_result(value)
        return found

    monkeypatch.setattr("confluent_kafka.admin.AdminClient", OldCluster)

    with pytest.raises(ConnectionUnknownError, match=r"gives t no id.*Kafka 2\.8"):
        inspect(cluster_of(credentials(OPEN)), "t", 1)


@pytest.mark.slow
@pytest.mark.in_test_all
def test_first_group_of_a_cluster_waits_for_its_coordinator(tmp_path):
    """The topic of all groups' offsets is made when the first one asks, and its broker is not known at once."""
    kafka = KafkaServer(tmp_path)
    try:
        kafka.admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        cluster = cluster_of(credentials({"bootstrap.servers": kafka.address}))

        commit(cluster, "g", {"t": (0,)}, timeout_s=30)

        asked = [ConsumerGroupTopicPartitions("g")]
        kept = kafka.admin.list_consumer_group_offsets(asked)["g"].result(30)
        assert [(each.topic, each.offset) for each in kept.topic_partitions] == [("t", 0)]
    finally:
        kafka.kill()

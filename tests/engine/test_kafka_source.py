"""A real Kafka as source: what is read, from where to where, and what happens when that is not there any more."""

from __future__ import annotations

import json
import logging
import os
import re
import traceback
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.secret import every_spelling
from airflow_mv_provider.definition_file import parse
from airflow_mv_provider.exceptions import (
    ArgumentError,
    DefinitionError,
    DuplicateKeyError,
    EventError,
    SourceDeniedError,
    SourceReplacedError,
    SourceUnavailableError,
    StreamGoneError,
    StreamReloadError,
)
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.refresh import Refresher
from tests.conftest import Crash
from tests.engine.streaming import counts, row, shop
from tests.kafka import LOGIN, PASSWORD

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]


@pytest.mark.in_test_all
def test_refresh_that_is_overtaken_before_it_begins_says_nothing_of_the_topic(shop):
    """While Spark starts, another refresh publishes: the binding is forgotten that this one would continue from."""
    shop.send(row(1, "a"))
    shop.apply()
    shop.refresh()
    shop.send(row(2, "b"))

    def start():
        shop.refresh()
        shop.send(row(3, "c"))
        return shop.lake.spark

    slow = Refresher(Store(shop.lake.store.engine, shop.lake.clock.now), shop.lake.settings, start)

    report = slow.refresh("orders", shop.lake.caller())

    assert counts(report) == ("incremental", 1, 0, 0)
    assert shop.rows == [(1, "a"), (2, "b"), (3, "c")]
    assert shop.lake.store.obstacle(shop.lake.store.table("orders").id) is None


@pytest.mark.in_test_all
def test_time_that_no_calendar_has_keeps_nothing_from_being_shown(shop):
    """A producer gives microseconds where Kafka means milliseconds."""
    shop.topic = shop.broker.topic(message_timestamp_after_max_ms=str(2**63 - 1))
    shop.send(row(1, "a"), at_ms=1_764_000_000_000_000)
    shop.apply()

    report = shop.refresh()

    assert (report.outcome, shop.rows) == (Outcome.PUBLISHED, [(1, "a")])
    table = shop.lake.store.table("orders")
    assert shop.lake.store.status(table).table == "orders"
    assert [each.refresh_id for each in shop.lake.store.history(table.id)] == [report.refresh_id]


def test_topic_is_followed_from_its_start_without_a_gap(shop):
    """The first load, what came since, nothing new, an aborted transaction, one that is open, and a partition more."""
    shop.send(row(1, "a"), row(2, "b"), row(3, "c"), row(2, None), row(1, "a2"))
    shop.apply()
    first, idle = shop.refresh(), shop.refresh()
    assert shop.rows == [(1, "a2"), (3, "c")]

    shop.send(row(1, None), row(3, "c2"), row(4, "d"), row(4, "d2"), row(5, "e"), row(5, None))
    shop.broker.begin(shop.topic, row(3, "aborted")).abort_transaction(10)
    left_open = shop.broker.begin(shop.topic, row(6, "open"), partition=0)
    second = shop.refresh()
    assert shop.rows == [(3, "c2"), (4, "d2")]

    left_open.commit_transaction(10)
    shop.broker.grow(shop.topic, 3)
    shop.send(row(7, "new"), partition=2)
    third = shop.refresh()
    compared = shop.refresh(force=True)

    assert (first.outcome, idle.outcome) == (Outcome.PUBLISHED, Outcome.NOTHING_TO_DO)
    assert [counts(each) for each in (second, third)] == [("incremental", 1, 1, 1), ("incremental", 2, 0, 0)]
    assert shop.rows == [(3, "c2"), (4, "d2"), (6, "open"), (7, "new")]
    assert counts(compared) == ("corrections", 0, 0, 0)
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "point", ["acquire.before", "acquire.after", "create_main.after", "staging.after", "seal.after", "publish.before"]
)
@pytest.mark.sample(1)
def test_killed_first_load_is_followed_by_a_whole_one(shop, crash_at, point):
    shop.send(row(1, "a"), row(2, "b"))
    shop.apply()
    crash_at(point)
    with pytest.raises(Crash):
        shop.refresh()
    shop.send(row(2, None), row(3, "c"))
    shop.lake.clock.pass_ms(shop.lake.settings.lease_ms + 1)

    shop.refresh()
    shop.refresh()

    assert shop.rows == [(1, "a"), (3, "c")]
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "point",
    [
        *("acquire.before", "acquire.after", "staging.before", "staging.after", "seal.after", "publish.before"),
        *("publish.after", "published.before", "published.after", "normal.before"),
    ],
)
@pytest.mark.sample(2)
def test_killed_refresh_loses_and_doubles_no_record(shop, crash_at, point):
    shop.send(*(row(number, "a") for number in range(6)))
    shop.apply()
    shop.refresh()
    shop.send(row(1, "b"), row(2, None), row(7, "new"))
    crash_at(point)
    with pytest.raises(Crash):
        shop.refresh()
    shop.send(row(1, "c"), row(3, None), row(2, "again"))
    shop.lake.clock.pass_ms(shop.lake.settings.lease_ms + 1)

    shop.refresh()
    shop.refresh()

    assert shop.rows == [(0, "a"), (1, "c"), (2, "again"), (4, "a"), (5, "a"), (7, "new")]
    assert counts(shop.refresh(force=True)) == ("corrections", 0, 0, 0)
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
def test_retry_reads_the_same_records(shop, crash_at):
    """What is bound is read: records that came after it are in the next refresh."""
    shop.send(row(1, "a"))
    shop.apply()
    shop.refresh()
    shop.send(row(1, "b"))
    caller = shop.lake.caller("test:same")
    crash_at("staging.after")
    with pytest.raises(Crash):
        shop.refresh(caller=caller)
    shop.send(row(1, "c"), row(2, "d"))

    retried = shop.refresh(caller=caller)

    assert counts(retried) == ("incremental", 0, 1, 0)
    assert shop.rows == [(1, "b")]
    shop.refresh()
    assert shop.rows == [(1, "c"), (2, "d")]


@pytest.mark.in_test_all
def test_records_removed_before_they_were_read_end_the_refresh(shop):
    shop.send(row(1, "a"), row(2, "b"), partition=0)
    shop.apply()
    shop.refresh()
    shop.send(row(3, "c"), row(1, None), row(4, "d"), partition=0)
    shop.broker.forget(shop.topic, 4)

    with pytest.raises(StreamGoneError, match="offset 4 of partition 0, after 2"):
        shop.refresh()
    assert shop.rows == [(1, "a"), (2, "b")]
    with pytest.raises(DefinitionError, match="complete"):
        shop.refresh(reload=True)
    with pytest.raises(StreamGoneError):
        shop.refresh(force=True)

    shop.apply(source={"complete": True})
    reloaded = shop.refresh(reload=True)
    shop.send(row(5, "e"))

    assert counts(reloaded)[1:] == (1, 0, 2)
    assert counts(shop.refresh()) == ("incremental", 1, 0, 0)
    assert shop.rows == [(4, "d"), (5, "e")]


@pytest.mark.in_test_all
@pytest.mark.parametrize("config", [{}, {"cleanup_policy": "compact", "delete_retention_ms": "60000"}], ids=str)
def test_topic_that_keeps_deletes_long_enough_goes_on(shop, config):
    shop = replace(shop, topic=shop.broker.topic(**config))
    shop.send(row(1, "a"), row(2, "b"))
    shop.apply()
    shop.refresh()
    shop.send(row(1, None))

    shop.refresh()

    assert shop.rows == [(2, "b")]


def test_compacted_topic_whose_deletes_may_be_gone_ends_the_refresh(shop):
    """Compaction removes them without moving the topic's start."""
    shop = replace(shop, topic=shop.broker.topic(cleanup_policy="compact", delete_retention_ms="1"))
    shop.send(row(1, "a"), row(2, "b"))
    shop.apply(source={"complete": True})
    shop.refresh()
    idle = shop.refresh()
    shop.send(row(1, None))

    with pytest.raises(StreamGoneError, match=r"retention\.ms=1: .* partition 0 between 2, .* and 3 are older"):
        shop.refresh()
    before = shop.rows
    shop.refresh(reload=True)

    assert idle.outcome == Outcome.NOTHING_TO_DO
    assert before == [(1, "a"), (2, "b")]
    assert shop.rows == [(2, "b")]


@pytest.mark.in_test_all
def test_topic_made_again_is_another_one(shop):
    shop.send(row(1, "a"), row(2, "b"))
    shop.apply(source={"complete": True})
    shop.refresh()
    shop.broker.drop(shop.topic)
    shop.broker.topic(shop.topic, partitions=2)
    shop.send(row(3, "c"))

    with pytest.raises(SourceReplacedError, match="made again"):
        shop.refresh()
    assert shop.rows == [(1, "a"), (2, "b")]
    shop.refresh(reload=True)
    shop.send(row(4, "d"))
    shop.refresh()

    assert shop.rows == [(3, "c"), (4, "d")]


@pytest.mark.in_test_all
def test_foreign_write_is_corrected_without_older_records(shop, at_point):
    """Main is compared with what the last publish has, brought forward; the topic does not have that any more."""
    shop.send(row(1, "a"), row(2, "b"), row(3, "c"), partition=0)
    shop.apply()
    shop.refresh()
    shop.broker.forget(shop.topic, 3)
    shop.lake.sql("DELETE FROM {t} WHERE id = 1")
    shop.lake.sql("INSERT INTO {t} VALUES (9, 'foreign')")
    shop.send(row(2, "b2"), row(3, None), partition=0)

    first = shop.refresh()
    assert shop.rows == [(1, "a"), (2, "b2")]
    shop.send(row(2, "b3"), partition=0)
    at_point("seal.after", lambda: shop.lake.sql("UPDATE {t} SET v = 'foreign'"))
    shop.refresh()

    assert first.strategy == "corrections"
    assert shop.rows == [(1, "a"), (2, "b3")]


@pytest.mark.in_test_all
def test_record_that_cannot_be_read_leaves_table_and_position(shop):
    shop.send(row(1, "a"))
    shop.apply()
    shop.refresh()
    shop.send(row(2, "b"), (row(1, "")[0], '{"id": 1, "w": "typo"}'))

    for _ in range(2):
        with pytest.raises(EventError, match=rf"{shop.topic}, partition \d, offset 1: the schema has no field w"):
            shop.refresh()
    assert shop.rows == [(1, "a")]
    shop.send(row(1, "c"))  # only the last record of a key is decoded
    shop.refresh()

    assert shop.rows == [(1, "c"), (2, "b")]


@pytest.mark.in_test_all
def test_key_of_the_table_is_the_records_key(shop):
    shop.send(row(1, "a"))
    shop.apply()
    shop.refresh()
    shop.send((row(1, "")[0], {"id": 2, "v": "another"}))
    with pytest.raises(EventError, match="id is 2 in its row, and 1 in its key"):
        shop.refresh()
    shop.send(row(1, "b"), ("another", {"id": 1, "v": "b"}))
    with pytest.raises(EventError, match="of its key, does not fit the schema: another"):
        shop.refresh()

    assert shop.rows == [(1, "a")]


@pytest.mark.in_test_all
def test_each_record_is_a_row_of_its_own(shop):
    select = ("_partition", "_offset", "id", "upper(v) AS v", "_timestamp > '2026-01-01' AS is_new")
    shop.apply("none", source={"select": select}, key=["_partition", "_offset"])
    shop.send(row(1, "a"), row(1, "b"), partition=1)
    shop.refresh()
    shop.send((None, {"id": 1, "v": "c"}), partition=0)
    second = shop.refresh()

    assert counts(second) == ("incremental", 1, 0, 0)
    assert shop.rows == [(0, 0, 1, True, "C"), (0, 1, 1, True, "A"), (1, 1, 1, True, "B")]


@pytest.mark.in_test_all
def test_example_of_the_documentation(shop, monkeypatch):
    text = (Path(__file__).parents[2] / "docs/kafka.md").read_text(encoding="utf-8")
    example, *_ = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    (definition,) = parse(example.replace("shop.customers", shop.topic))
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", os.environ["AIRFLOW_CONN_SHOP"])
    shop.send(('{"customer_id": 1}', {"customer_id": 1, "name": "Ann", "city": "Ulm"}))

    shop.lake.refresher().apply(definition)
    shop.lake.refresh("customers")

    assert shop.lake.rows("customers") == [("Ulm", 1, "Ann")]


@pytest.mark.in_test_all
def test_row_moves_to_another_partition(shop):
    shop.send(row(1, "a"), row(2, "b"))
    shop.apply(partition_by=["v"])
    shop.refresh()
    shop.send(row(1, "b"), row(2, None), row(3, "c"))
    shop.refresh()

    assert shop.rows == [(1, "b"), (3, "c")]
    assert counts(shop.refresh(force=True))[1:] == (0, 0, 0)


def test_two_rows_with_one_key_in_two_partitions_are_an_error(shop):
    """Records that are rows each: none of them takes the place of another."""
    shop.send(row(1, "a"))
    shop.apply("none", partition_by=["v"])
    shop.refresh()
    shop.send(row(7, "x"), row(7, "y"))

    with pytest.raises(DuplicateKeyError):
        shop.refresh()

    assert shop.rows == [(1, "a")]


@pytest.mark.in_test_all
def test_more_records_than_a_refresh_takes_are_taken_in_order(shop, crash_at):
    """Key 1 moves to another partition: its newer record there is not read before the older one."""
    start_ms = 1_767_225_600_000
    shop.topic = shop.broker.topic(partitions=2, retention_ms="-1")  # its records are old
    for n, (key, value, partition) in enumerate(
        [(1, "a", 1), (2, "b", 0), (3, "c", 0), (1, "a2", 1), (1, "a3", 0), (2, None, 0), (4, "d", 1)]
    ):
        shop.send(row(key, value), partition=partition, at_ms=start_ms + n)
    shop.apply(source={"max_records": 3, "complete": True})
    first = shop.refresh()
    after_first = shop.rows
    crash_at("staging.after")
    with pytest.raises(Crash):
        shop.refresh()
    shop.lake.clock.pass_ms(shop.lake.settings.lease_ms + 1)
    second = shop.refresh()
    after_second = shop.rows
    third, idle = shop.refresh(), shop.refresh()
    shop.send(*(row(number, "e") for number in range(5, 10)), at_ms=start_ms + 100)
    of_one_time = shop.refresh()
    reloaded = shop.refresh(reload=True)

    assert "this refresh takes 3 of 7 new records" in first.reason
    assert after_first == [(1, "a"), (2, "b"), (3, "c")]
    assert (counts(second), after_second) == (("incremental", 0, 1, 1), [(1, "a3"), (3, "c")])
    assert (counts(third), idle.outcome) == (("incremental", 1, 0, 0), Outcome.NOTHING_TO_DO)
    assert counts(of_one_time) == ("incremental", 5, 0, 0)
    assert counts(reloaded)[1:] == (0, 0, 0)
    assert shop.rows == [(1, "a3"), (3, "c"), (4, "d"), *((number, "e") for number in range(5, 10))]


@pytest.mark.in_test_all
def test_the_state_of_a_topic_is_as_old_as_its_newest_record_that_is_taken(shop):
    """Times are out of order in one partition, and later records are there already, which the next refresh takes."""
    start_ms = 1_767_225_600_000
    shop.topic = shop.broker.topic(partitions=3, retention_ms="-1")  # the last one stays empty
    for n, (at, partition) in enumerate([(2, 0), (5, 1), (1, 0), (7, 1), (9, 0)]):
        shop.send(row(n, "a"), partition=partition, at_ms=start_ms + at * 1000)
    shop.apply(source={"max_records": 3, "complete": True}, freshness={"target": "1h", "measured_from": "source"})
    table = shop.lake.store.table("orders")

    first, second, idle = shop.refresh(), shop.refresh(), shop.refresh()

    seconds = [datetime.fromisoformat(each.source_at).timestamp() - start_ms / 1000 for each in (first, second, idle)]
    assert (seconds, idle.outcome) == ([5, 9, 9], Outcome.NOTHING_TO_DO)
    assert shop.rows == [(n, "a") for n in range(5)]
    assert shop.lake.store.status(table).is_late


@pytest.mark.in_test_all
def test_what_cannot_be_continued_is_refused(shop):
    shop.send(row(1, "a"))
    shop.apply()
    shop.refresh()
    plan = shop.lake.refresher().plan("orders")
    preview = shop.refresh(read_only=True)
    assert plan.strategy == "skip"
    assert (preview.outcome, preview.rows_inserted, preview.rows_deleted) == (Outcome.DIFFERENCES, 0, 0)

    caller = shop.lake.caller()
    for kind, refused in (
        (DefinitionError, lambda: shop.lake.refresher().roll_back("orders", "1", caller, "no")),
        (DefinitionError, lambda: shop.lake.refresher().load("orders", {"type": "delta", "path": "raw/x"}, caller)),
        (ArgumentError, lambda: shop.refresh(partitions=["x"])),
    ):
        with pytest.raises(kind):
            refused()
    shop.apply(source={"schema": "id BIGINT, v STRING"})
    with pytest.raises(StreamReloadError, match="the definition has changed"):
        shop.refresh()
    shop.apply()
    shop.send(row(2, "b"))
    shop.refresh()

    assert shop.rows == [(1, "a"), (2, "b")]


@pytest.mark.in_test_all
def test_rows_of_a_main_that_nobody_knows_are_not_deleted(shop):
    """The database was lost: which records main has is not known, and older ones may be gone."""
    shop.lake.write("SELECT 1 AS id, 'a' AS v", "orders")
    shop.send(row(2, "b"))
    shop.apply(adopt=True)

    with pytest.raises(StreamReloadError, match="not known"):
        shop.refresh()
    assert shop.rows == [(1, "a")]
    shop.apply(adopt=True, source={"complete": True})
    shop.refresh()

    assert shop.rows == [(2, "b")]


@pytest.mark.in_test_all
def test_broker_that_is_away_ends_the_refresh_and_not_the_table(shop, at_point):
    shop.send(row(1, "a"))
    shop.apply(source={"read_timeout": 3})
    shop.refresh()
    shop.send(row(1, "b"), row(2, "c"))
    at_point("acquire.after", shop.broker.kill)
    try:
        for _ in range(2):
            with pytest.raises(SourceUnavailableError):
                shop.refresh()
    finally:
        shop.broker.start()
    shop.lake.clock.pass_ms(shop.lake.settings.lease_ms + 1)
    shop.refresh()

    assert shop.rows == [(1, "b"), (2, "c")]


@pytest.mark.in_test_all
def test_password_is_shown_nowhere(shop, monkeypatch, caplog, capfd, tmp_path):
    caplog.set_level(logging.INFO, logger="py4j")  # else a line for each call to the JVM
    caplog.set_level(logging.DEBUG)
    extra = {"bootstrap.servers": shop.broker.login_address, "security.protocol": "SASL_PLAINTEXT"}
    known = {"conn_type": "kafka", "login": LOGIN, "password": PASSWORD, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(known))
    shop.send(row(1, "a"))
    shop.apply()
    report = shop.refresh()
    shop.send(row(1, "b"), (*row(2, "no json")[:1], "{"))
    with pytest.raises(EventError) as caught:
        shop.refresh()
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(known | {"password": "wr0ng/p4ss"}))
    with pytest.raises(SourceDeniedError) as denied:
        shop.refresh()

    said = [caplog.text, *capfd.readouterr(), str(report.to_json()), str(shop.lake.refresher().plan)]
    said += ["".join(traceback.format_exception(each.value)) for each in (caught, denied)]
    said += [file.read_bytes().decode("latin-1") for file in shop.lake.root.parent.rglob("*") if file.is_file()]
    for secret in (*every_spelling([PASSWORD]), "wr0ng/p4ss"):
        assert not [text for text in said if secret in text]
    assert shop.rows == [(1, "a")]

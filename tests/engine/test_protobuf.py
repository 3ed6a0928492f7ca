"""Protobuf: what a record's bytes stand for, exactly, and that nothing which cannot be one is read."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

from airflow_mv_provider.exceptions import DefinitionError, DependencyError, EventError
from airflow_mv_provider.sources.kafka import envelope, schema_files
from airflow_mv_provider.sources.kafka.codecs import Codecs
from airflow_mv_provider.sources.kafka.model import Kafka
from airflow_mv_provider.sources.kafka.protobuf.decoding import Decoder
from airflow_mv_provider.spark.errors import translated
from tests.engine.protobuf_forms import ALL, SHOP, codec, described, message
from tests.engine.test_record_formats import by_id, csv, records, rows

pytestmark = pytest.mark.slow

ORDER = message(SHOP, "shop.Order", {"id": 1, "v": "a", "tags": ["x", ""]})
EVERY: dict[str, Any] = {"i": -5, "u": 2**32 - 1, "l": 2**62, "ul": 2**64 - 1, "f": 0.5, "d": 0.1, "b": True}
EVERY |= {"raw": "AP8=", "e": "BLUE", "at": "1500-02-03T04:05:06.789012345Z"}
EVERY |= {"lines": [{"n": 1, "s": "ü"}, {}], "byName": {"a": 7}}


def test_values_of_protobuf_are_exact(spark):
    """A field that is not set is NULL if it can be told from zero, else zero; nanoseconds are cut."""
    found = rows(spark, codec(ALL, "shop.All"), message(ALL, "shop.All", EVERY), b"")

    first, second = found[0], found[1]
    assert first[:7] == (-5, 2**32 - 1, 2**62, Decimal(2**64 - 1), 0.5, 0.1, True)
    assert (bytes(first[7]), first[8]) == (b"\x00\xff", "BLUE")
    assert first[9].replace(tzinfo=UTC) == datetime(1500, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    assert ([tuple(each) for each in first[10]], first[11]) == ([(1, "ü"), (0, "")], {"a": 7})
    assert second[:7] == (0, 0, None, Decimal(0), 0.0, 0.0, False)
    assert (bytes(second[7]), *second[8:]) == (b"", "RED", None, [], {})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (ORDER[:-1], "the record is not a shop.Order"),
        (ORDER + b"\x00", "the record is not a shop.Order"),
        (b"\xff" * 30, "the record is not a shop.Order: 30 bytes, ffff"),
        (b"\x00\x00\x00\x00\x07" + ORDER, "the record is not a shop.Order"),  # Confluent's header
        (ORDER + b"\x48\x01", "Order has no field 9"),
        (b"\x0a\x01a", "Order has no field 1, or not one of this type"),
        (ORDER.replace(b"\x01a", b"\x01\xff"), "the record is not a shop.Order"),
        (None, "empty"),
    ],
    ids=["short", "long", "noise", "registered", "unknown field", "other type", "encoding", "none"],
)
@pytest.mark.sample(1)
def test_bytes_that_are_no_message_are_named(spark, value, words):
    with pytest.raises(EventError, match=f"t, partition 0, offset 1: {words}"):
        rows(spark, codec(SHOP, "shop.Order"), ORDER, value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\x48\x07", "e is 7, which Colour lacks"),
        (b"\x52\x02\x10\x05" + b"\x5a\x02\x18\x01", "Line has no field 3"),
        (b"\x52\x06\x10\x80\xa8\xd6\xb9\x07", "a Timestamp has 2000000000 nanoseconds"),
        (b"\x52\x07\x08\x80\x80\x80\x80\x80\x40", "beyond the year 9999"),
    ],
    ids=["enum", "nested", "nanoseconds", "far"],
)
@pytest.mark.in_test_all
def test_values_that_have_no_column_are_named(spark, value, words):
    with pytest.raises(EventError, match=f"t, partition 0, offset 0: .*{words}"):
        rows(spark, codec(ALL, "shop.All"), value)


@pytest.mark.in_test_all
def test_key_in_protobuf_deletes_its_row(spark):
    key = codec(SHOP, "shop.Key")
    pairs = [(message(SHOP, "shop.Key", {"id": n}), message(SHOP, "shop.Order", {"id": n})) for n in (1, 2)]
    order = codec(SHOP, "shop.Order")
    last = envelope.last_of_keys(records(spark, *pairs, (pairs[0][0], None)), order, by_id(spark, order, key))

    assert {(row._mv_key.id, row._mv_gone) for row in last.collect()} == {(1, True), (2, False)}


@pytest.mark.in_test_all
def test_key_in_another_format_may_be_mixed_with_it(spark):
    order = codec(SHOP, "shop.Order")
    key = by_id(spark, order, csv(spark, "id INT"))
    last = envelope.last_of_keys(records(spark, (b"1", ORDER), (b"1", None)), order, key)

    assert [(row._mv_key.id, row._mv_gone) for row in last.collect()] == [(1, True)]


@pytest.mark.in_test_all
def test_schema_file_is_read_where_spark_is(spark, tmp_path):
    (tmp_path / "shop.pb").write_bytes(described(SHOP))
    found = schema_files.pinned(spark, str(tmp_path / "shop.pb"), "shop.Order")
    source = {"topic": "t", "conn_id": "k", "envelope": "none", "format": "protobuf", "schema_file": "shop.pb"}

    codecs = Codecs.of(spark, Kafka(**source, message="shop.Order"), found, None, ["id"])
    with pytest.raises(DefinitionError, match=r"shop\.pb has no message shop\.Oder \(did you mean shop\.Order\?\)"):
        schema_files.pinned(spark, str(tmp_path / "shop.pb"), "shop.Oder")

    assert codecs.columns.simpleString() == "struct<id:int,v:string,tags:array<string>>"


@pytest.mark.in_test_all
@pytest.mark.parametrize("module", ["google", "google.protobuf"])
def test_cluster_whose_python_lacks_the_library_is_named(spark, module):
    def decode(_: int) -> int:
        raise ModuleNotFoundError(f"No module named {module!r}")

    found = spark.createDataFrame([(1,)], "a INT").select(F.udf(decode, "int", useArrow=False)("a"))
    problem = r"Spark's Python has no library for Protobuf.*pip install protobuf"
    with pytest.raises(DependencyError, match=problem), translated("source"):
        found.collect()


def test_decoder_needs_nothing_of_the_package(tmp_path):
    """Its code goes with the task: another Python, which lacks the package, can run it."""
    made = codec(SHOP, "shop.Order")
    (tmp_path / "decoder").write_bytes(cloudpickle.dumps((Decoder(made.schema, made.message), ORDER)))
    code = (
        "import pickle, sys\n"
        "class Closed:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.startswith('airflow_mv_provider'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Closed())\n"
        f"decode, record = pickle.load(open({str(tmp_path / 'decoder')!r}, 'rb'))\n"
        "print(decode(record))\n"
    )

    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert shown.strip() == "((1, 'a', ['x', '']), None)"

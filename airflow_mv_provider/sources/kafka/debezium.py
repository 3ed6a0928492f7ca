"""Change events of Debezium's connector for PostgreSQL, as rows: `envelope.last_changes` takes the last of each key.

In JSON an event and its key are texts, whose parts are decoded. In Avro an event is a record with the fields `before`,
`after`, `source` and `op`, as the connector's own converter writes it, and a key is a record of the key's columns.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.sources.files.json_files import has_half_a_character
from airflow_mv_provider.sources.kafka.codec import Codec, TextCodec, decoded, problem_of, strict
from airflow_mv_provider.sources.kafka.envelope import (
    FIRST_ROWS,
    OFFSET,
    PARTITION,
    SNAPSHOT,
    TIME,
    UNAVAILABLE,
    VALUE,
    marked_bad,
    may_be_left_out,
    or_refused,
    placed,
)
from airflow_mv_provider.sources.kafka.record_keys import KEY, KeyDecoder
from airflow_mv_provider.sources.kafka.replay import AT, BAD, GONE, LSN, TABLE, TRUNCATES, WRITTEN_MS, Cut, of_one_table
from airflow_mv_provider.spark.causes.streams import RESTARTED

# `unavailable.value.placeholder`, and what the connector makes of it for an array of uuid.
_PLACEHOLDER, _AS_UUID = "__debezium_unavailable_value", "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
_AS_BASE64 = base64.b64encode(_PLACEHOLDER.encode()).decode()
_AS_NUMBERS = tuple(_PLACEHOLDER.encode())  # of an array of int, bigint or date
_AS_HSTORE = f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}'
# How they are spelt in JSON: of a text, of bytes, of each kind of array, of hstore; and what one of each has in it.
_PLACEHOLDERS = (
    *(_PLACEHOLDER, _AS_BASE64, _AS_HSTORE),
    *(json.dumps(each, separators=(",", ":")) for each in ([_PLACEHOLDER], [_AS_BASE64], [_AS_UUID], _AS_NUMBERS)),
)
_IN_PLACEHOLDERS = (_PLACEHOLDER, _AS_BASE64, _AS_UUID, ",".join(map(str, _AS_NUMBERS)))
# Spark takes single quotes, too, and a payload that is a text with JSON in it.
_MAY_TRUNCATE = r"""["']op["']\s*:\s*["']t["']|["']payload["']\s*:\s*["']"""
_OF_TABLE = ("db", "schema", "table")  # in `source`
_TEXTS = "map<string,string>"
_NO_NAMES = "array<string>"


def changes_of_json(
    records: DataFrame,
    codec: TextCodec,
    keys: KeyDecoder,
    *,
    continues: bool,
    cut: Cut | None = None,
    keeps_bad: bool = False,
) -> DataFrame:
    """Return each event as a row; empty values that follow a delete go.

    Args:
        keeps_bad: An event whose row cannot be decoded is marked, and does not raise.
        continues: Events came before these, so a snapshot that begins here is a new one.
        cut: An event that truncates; older ones are left out.

    Returns:
        (the codec's columns, _mv_key, _mv_gone, _mv_truncates, _mv_lsn, _mv_written_ms, _mv_snapshot, _mv_unavailable,
        place); a row that is gone has no values.
    """
    of_values = placed(records).where(F.col("value").isNotNull())
    value_text, key_text = F.col("value").cast("string"), F.col("key").cast("string")
    outer = of_values.select("*", _fields_of(value_text).alias("outer"))
    # With `schemas.enable` the event is the payload of an object that describes it.
    is_wrapped = _is_wrapped(F.col("outer"))
    event = F.when(is_wrapped, _fields_of(F.col("outer.payload"))).otherwise(F.col("outer"))
    key_of = F.when(_may_have(key_text, "payload"), _fields_of(key_text))
    seen = outer.select("*", event.alias("event"), key_of.alias("key_of"))
    seen = seen.select("*", _fields_of(F.col("event.source")).alias("source"))
    origin = F.struct(
        F.col("source.lsn").try_cast("bigint").alias("lsn"),
        F.col("source.snapshot").alias("snapshot"),
        F.col("source.ts_ms").try_cast("bigint").alias("ts_ms"),
        _joined([F.col(f"source.{name}") for name in _OF_TABLE]).alias("table"),
    )
    seen = seen.select(
        "*",
        F.col("event.op").alias("op"),
        F.col("event.after").alias("after"),
        origin.alias("origin"),
        F.when(_is_wrapped(F.col("key_of")), F.col("key_of.payload")).otherwise(key_text).alias("key_text"),
    )
    seen = _not_before(seen, cut)
    op, is_row = F.col("op"), F.col("op").isin("r", "c", "u")
    broken = (
        F.when(~F.is_valid_utf8(value_text), F.lit("not UTF-8"))
        .when(has_half_a_character(value_text) | has_half_a_character(key_text), F.lit("half a character"))
        .when(F.col("event").isNull(), F.lit("its value is no JSON object, or has a field twice"))
        .when(F.col("event.source").isNotNull() & F.col("source").isNull(), F.lit("its source is no JSON object"))
    )
    placeholders = F.map_filter(F.from_json(F.col("after"), _TEXTS), lambda _, value: value.isin(*_PLACEHOLDERS))
    left_out = F.when(_may_have(F.col("after"), *_IN_PLACEHOLDERS), F.map_keys(placeholders))
    keyed = keys.keyed_by_text(seen, F.when(op != "t", F.col("key_text")), F.col("key"))
    key = _or_refused(broken, F.col("key_text"), F.col(KEY), continues=continues)
    marked = keyed.select(*_marks(key, left_out), "value", F.when(is_row, F.col("after")).alias("row_text"))
    rows = codec.of_text(marked, F.col("row_text"), F.col("value"), "r")
    if not keeps_bad:
        return _spread(strict(rows, "r"), F.col("r"), codec.columns)
    why = F.col(problem_of("r"))
    is_bad = why.isNotNull()
    bad = {GONE: F.col(GONE) | is_bad, VALUE: F.col("value")}
    return _spread(
        rows.withColumns({BAD: marked_bad(why, F.col("value"), has_key=True)} | bad), F.col("r"), codec.columns
    )


def may_truncate(records: DataFrame) -> DataFrame:
    """Return those of some records in JSON among which are all that truncate, found without parsing them."""
    text = F.col("value").cast("string")
    return records.where(text.rlike(_MAY_TRUNCATE) | text.contains(r"\u"))


def changes_of_avro(
    records: DataFrame, value: Codec, keys: KeyDecoder, *, continues: bool, cut: Cut | None = None
) -> DataFrame:
    """Return each event as a row; see `changes_of_json`.

    Args:
        value: Of whole events, see `row_of_events`.
    """
    columns = row_of_events(value.columns)
    events = decoded(value, placed(records).where(F.col("value").isNotNull()), F.col("value"), "event")
    origin = F.struct(
        F.col("event.source.lsn").cast("bigint").alias("lsn"),
        (F.col("event.source.snapshot") if _has_text(value.columns, "snapshot") else F.lit(None))
        .cast("string")
        .alias("snapshot"),
        (F.col("event.source.ts_ms") if _has_time(value.columns) else F.lit(None)).cast("bigint").alias("ts_ms"),
        _joined([F.col(f"event.source.{name}") for name in _OF_TABLE if _has_text(value.columns, name)]).alias("table"),
    )
    seen = events.select(
        "*", F.col("event.op").alias("op"), F.col("event.after").alias("after"), origin.alias("origin")
    )
    seen = _not_before(seen, cut)
    op, is_row = F.col("op"), F.col("op").isin("r", "c", "u")
    keyed = keys.keyed(seen, F.when(op != "t", F.col("key")))
    names = [
        F.when(_is_left_out(F.col(f"after.{quoted(field.name)}"), field.dataType), F.lit(field.name))
        for field in columns.fields
        if may_be_left_out(field.dataType)
    ]
    left_out = F.array_compact(F.array(*names)) if names else F.array().cast(_NO_NAMES)
    key = _or_refused(F.when(F.lit(False), F.lit("")), F.col("key"), F.col(KEY), continues=continues)
    marked = keyed.select(*_marks(key, left_out), F.when(is_row, F.col("after")).alias("r"))
    return _spread(marked, F.col("r"), columns)


def row_of_events(event: StructType) -> StructType:
    """Return the columns of a row of these events.

    raises : DefinitionError, if they are none of Debezium's connector for PostgreSQL
    """
    fields = _fields(event)
    row, source = fields.get("after"), fields.get("source")
    of_source = _fields(source) if isinstance(source, StructType) else {}
    if not isinstance(row, StructType) or not isinstance(fields.get("op"), StringType):
        problem = "the schema is none of Debezium's events: it needs a text `op` and a record `after`."
        raise DefinitionError("source", problem, hint="Give the schema of the topic's values as Debezium registers it.")
    if not isinstance(of_source.get("lsn"), LongType | IntegerType):
        raise DefinitionError("source", "the events' `source` has no `lsn`, which PostgreSQL's connector writes.")
    return row


def _fields(of: StructType) -> Mapping[str, DataType]:
    return {field.name: field.dataType for field in of.fields}


def _has_text(event: StructType, name: str) -> bool:
    source = _fields(event)["source"]
    return isinstance(source, StructType) and isinstance(_fields(source).get(name), StringType)


def _joined(names: Sequence[Column]) -> Column:
    """Return the parts of a name with dots between them; NULL if there is none."""
    return F.nullif(F.concat_ws(".", *names), F.lit(""))


def _not_before(seen: DataFrame, cut: Cut | None) -> DataFrame:
    """Leave out older events, and those without a place: each was checked when it was read as a new one.

    Raises:
        EventError: While it runs, if one is of another table than the cut.
    """
    if cut is None:
        return seen
    truncated = F.lit(cut.table).cast("string")
    return seen.where(of_one_table(F.col("origin.table"), truncated, F.col("origin.lsn") >= cut.lsn))


def _has_time(event: StructType) -> bool:
    source = _fields(event)["source"]
    return isinstance(source, StructType) and isinstance(_fields(source).get("ts_ms"), LongType)


def _or_refused(first: Column, key: Column, found: Column, *, continues: bool) -> Column:
    """Return the key of an event, or raise for an event that cannot be a row.

    Args:
        first: A chain of details: the refusals that come before all others.
        key: NULL if the event has none.
        found: What it is for the table.
    """
    op, is_row = F.col("op"), F.col("op").isin("r", "c", "u")
    detail = (
        first.when(op.isNull(), F.lit("the record has no op"))
        .when(~op.isin("r", "c", "u", "d", "t"), F.concat(F.lit("its op is not known: "), F.substring(op, 1, 20)))
        .when(F.col("origin.lsn").isNull(), F.lit("its source has no lsn, which PostgreSQL's connector writes"))
        .when((op != "t") & key.isNull(), F.lit("the record has no key"))
        .when(is_row & F.col("after").isNull(), F.lit("the record has no row in after"))
    )
    checked = or_refused(detail, found)
    if continues:
        begins = (op == "r") & F.col("origin.snapshot").isin(*FIRST_ROWS)
        again = F.when(begins, F.lit("a snapshot begins here: what was deleted before it is in no event"))
        checked = or_refused(again, checked, RESTARTED)
    return checked


def _marks(key: Column, left_out: Column) -> list[Column]:
    op, is_row = F.col("op"), F.col("op").isin("r", "c", "u")
    nothing = F.array().cast(_NO_NAMES)
    return [
        *(F.col(name) for name in (AT, PARTITION, OFFSET, TIME)),
        key.alias(KEY),
        (op == "d").alias(GONE),
        (op == "t").alias(TRUNCATES),
        F.col("origin.lsn").alias(LSN),
        F.when(op == "t", F.col("origin.ts_ms")).alias(WRITTEN_MS),
        F.col("origin.table").alias(TABLE),
        F.when(op == "r", F.coalesce(F.col("origin.snapshot"), F.lit(""))).alias(SNAPSHOT),
        F.when(is_row, F.coalesce(left_out, nothing)).otherwise(nothing).alias(UNAVAILABLE),
    ]


def _spread(found: DataFrame, row: Column, columns: StructType) -> DataFrame:
    values = [row[field.name].alias(field.name) for field in columns.fields]
    return found.select(*values, *(each for each in found.columns if each.startswith("_mv_")))


def _is_left_out(value: Column, kind: DataType) -> Column:
    text, data = F.lit(_PLACEHOLDER), F.encode(F.lit(_PLACEHOLDER), "UTF-8")
    match kind:
        case StringType():
            return value.isin(_PLACEHOLDER, _AS_HSTORE)
        case BinaryType():
            return value == data
        case ArrayType(elementType=StringType()):
            return (F.size(value) == 1) & F.get(value, F.lit(0)).isin(_PLACEHOLDER, _AS_UUID)
        case ArrayType(elementType=BinaryType()):
            return (F.size(value) == 1) & (F.get(value, F.lit(0)) == data)
        case ArrayType(elementType=IntegerType() | LongType()):
            return value == F.array(*map(F.lit, _AS_NUMBERS)).cast(kind)
        case ArrayType(elementType=DateType()):
            return F.transform(value, F.unix_date) == F.array(*map(F.lit, _AS_NUMBERS))
        case MapType(keyType=StringType(), valueType=StringType()):
            return (F.size(value) == 1) & (F.try_element_at(value, text) == text)
    return F.lit(False)


def _fields_of(text: Column) -> Column:
    """Return the fields of the JSON object that a text is, as texts; NULL if it is none, or has a field twice."""
    alone = F.from_json(F.concat(F.lit("["), text, F.lit("\n]")), f"array<{_TEXTS}>")

    def is_one(found: Column) -> Column:
        names = F.map_keys(F.get(found, F.lit(0)))
        return (F.size(found) == 1) & (F.size(F.array_distinct(names)) == F.size(names))

    # In a lambda, because the optimizer would else repeat what is parsed, and parse that of it several times each.
    return F.get(F.get(F.filter(F.array(alone), is_one), F.lit(0)), F.lit(0))


def _may_have(text: Column, *parts: str) -> Column:
    """Return whether JSON may have one of some ASCII words in it, which is far cheaper to tell than to parse it.

    A letter that is not written as itself is written with a backslash and u.
    """
    return reduce(Column.__or__, (text.contains(part) for part in (*parts, r"\u")))


def _is_wrapped(texts: Column) -> Column:
    has_both = F.map_contains_key(texts, "schema") & F.map_contains_key(texts, "payload")
    return F.coalesce(has_both & (F.size(F.map_keys(texts)) == 2), F.lit(False))

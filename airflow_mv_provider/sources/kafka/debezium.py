"""Change events of Debezium's connector for PostgreSQL, as rows: `envelope.last_changes` takes the last of each key.

In JSON an event and its key are texts, whose parts are decoded. In Avro an event is a record with the fields `before`,
`after`, `source` and `op`, as the connector's own converter writes it, and a key is a record of the key's columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.sources.kafka.codec import Codec, TextCodec, decoded, problem_of, strict
from airflow_mv_provider.sources.kafka.envelope import (
    FIRST_ROWS,
    KEY,
    OFFSET,
    PARTITION,
    SNAPSHOT,
    TIME,
    UNAVAILABLE,
    marked_bad,
    may_be_left_out,
    of_key,
    placed,
)
from airflow_mv_provider.spark.causes.streams import BAD_EVENT, RESTARTED
from airflow_mv_provider.spark.compare.replay import AT, BAD, GONE, LSN, TRUNCATES, WRITTEN_MS, Cut, refused

_PLACEHOLDER = "__debezium_unavailable_value"
# As a text, as bytes in base64, and as the only element of an array.
_PLACEHOLDERS = (_PLACEHOLDER, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", f'["{_PLACEHOLDER}"]')
# Spark takes single quotes, too, and a payload that is a text with JSON in it.
_MAY_TRUNCATE = r"""["']op["']\s*:\s*["']t["']|["']payload["']\s*:\s*["']"""
_TEXTS = "map<string,string>"
_NO_NAMES = "array<string>"


def changes_of_json(
    records: DataFrame, codec: TextCodec, *, continues: bool, cut: Cut | None = None, keeps_bad: bool = False
) -> DataFrame:
    """Return each event as a row; empty values that follow a delete go.

    keeps_bad : an event whose row cannot be decoded is marked, and does not raise
    continues : events came before these, so a snapshot that begins here is a new one
    cut       : an event that truncates; older ones are left out
    returns   : (the codec's columns, _mv_key, _mv_gone, _mv_truncates, _mv_lsn, _mv_written_ms, _mv_snapshot,
                _mv_unavailable, place)
    """
    of_values = placed(records).where(F.col("value").isNotNull())
    outer = of_values.select("*", F.from_json(F.col("value").cast("string"), _TEXTS).alias("outer"))
    # With `schemas.enable` the event is the payload of an object that describes it.
    event = F.when(_is_wrapped(F.col("outer")), F.from_json(F.col("outer.payload"), _TEXTS)).otherwise(F.col("outer"))
    key_text = F.col("key").cast("string")
    key = F.when(_may_have(key_text, "payload"), F.from_json(key_text, _TEXTS))
    seen = outer.select("*", event.alias("event"), key.alias("key_of")).select(
        "*",
        F.col("event.op").alias("op"),
        F.col("event.after").alias("after"),
        F.from_json(F.col("event.source"), "lsn BIGINT, snapshot STRING, ts_ms BIGINT").alias("origin"),
        F.when(_is_wrapped(F.col("key_of")), F.col("key_of.payload")).otherwise(_spelt(key_text)).alias("key_text"),
    )
    seen = _not_before(seen, cut)
    op, is_row = F.col("op"), F.col("op").isin("r", "c", "u")
    no_event = F.when(F.col("event").isNull(), F.lit("its value is no JSON object"))
    text = _refused(no_event, F.col("key_text"), StringType(), continues=continues)
    text = text.when(is_row, F.col("after")).when(op == "d", F.col("key_text")).otherwise(F.lit("{}"))
    placeholders = F.map_filter(F.from_json(F.col("after"), _TEXTS), lambda _, value: value.isin(*_PLACEHOLDERS))
    left_out = F.when(_may_have(F.col("after"), *_PLACEHOLDERS[:2]), F.map_keys(placeholders))
    marked = seen.select(*_marks(F.col("key_text"), left_out), "value", text.alias("row_text"))
    rows = codec.of_text(marked, F.col("row_text"), F.col("value"), "r")
    if not keeps_bad:
        return _spread(strict(rows, "r"), F.col("r"), codec.columns)
    why = F.when(~F.col(GONE), F.col(problem_of("r")))
    keyed = rows.select("*", F.when(why.isNotNull(), F.col(KEY)).alias("k_text"), marked_bad(why, has_key=True))
    keyed = strict(codec.of_text(keyed, F.col("k_text"), F.col("k_text").cast("binary"), "k"), "k")
    is_bad = F.col(BAD).isNotNull()
    other = keyed.withColumns(
        {
            "r": F.when(is_bad, F.col("k")).otherwise(F.col("r")),
            GONE: F.col(GONE) | is_bad,
            UNAVAILABLE: F.when(is_bad, F.array().cast(_NO_NAMES)).otherwise(F.col(UNAVAILABLE)),
            problem_of("r"): F.when(~is_bad, F.col(problem_of("r"))),
        }
    )
    return _spread(strict(other, "r"), F.col("r"), codec.columns)


def may_truncate(records: DataFrame) -> DataFrame:
    """Return those of some records in JSON among which are all that truncate, found without parsing them."""
    text = F.col("value").cast("string")
    return records.where(text.rlike(_MAY_TRUNCATE) | text.contains(r"\u"))


def changes_of_avro(
    records: DataFrame, value: Codec, key: Codec, *, continues: bool, cut: Cut | None = None
) -> DataFrame:
    """Return each event as a row; see `changes_of_json`.

    value : of whole events, see `row_of_events`
    """
    columns = row_of_events(value.columns)
    events = decoded(value, placed(records).where(F.col("value").isNotNull()), F.col("value"), "event")
    origin = F.struct(
        F.col("event.source.lsn").cast("bigint").alias("lsn"),
        (F.col("event.source.snapshot") if _has_snapshot(value.columns) else F.lit(None))
        .cast("string")
        .alias("snapshot"),
        (F.col("event.source.ts_ms") if _has_time(value.columns) else F.lit(None)).cast("bigint").alias("ts_ms"),
    )
    seen = events.select(
        "*", F.col("event.op").alias("op"), F.col("event.after").alias("after"), origin.alias("origin")
    )
    seen = _not_before(seen, cut)
    op, is_row = F.col("op"), F.col("op").isin("r", "c", "u")
    keyed = decoded(key, seen, F.when(op == "d", F.col("key")), "k")
    identity = key.identity(F.col("key"))
    names = [
        F.when(_is_left_out(F.col(f"after.{quoted(field.name)}"), field.dataType), F.lit(field.name))
        for field in columns.fields
        if may_be_left_out(field.dataType)
    ]
    left_out = F.array_compact(F.array(*names)) if names else F.array().cast(_NO_NAMES)
    row = _refused(F.when(F.lit(False), F.lit("")), identity, columns, continues=continues)
    row = row.when(is_row, F.col("after")).when(op == "d", of_key("k", key, columns))
    marked = keyed.select(*_marks(identity, left_out), row.alias("r"))
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


def _has_snapshot(event: StructType) -> bool:
    source = _fields(event)["source"]
    return isinstance(source, StructType) and isinstance(_fields(source).get("snapshot"), StringType)


def _not_before(seen: DataFrame, cut: Cut | None) -> DataFrame:
    """Leave out older events, and those without a place: each was checked when it was read as a new one."""
    return seen if cut is None else seen.where(F.col("origin.lsn") >= cut.lsn)


def _has_time(event: StructType) -> bool:
    source = _fields(event)["source"]
    return isinstance(source, StructType) and isinstance(_fields(source).get("ts_ms"), LongType)


def _refused(first: Column, key: Column, kind: DataType, *, continues: bool) -> Column:
    """Return a chain of conditions that raises for an event which cannot be a row; more can be added.

    first : a chain too: the refusals that come before all others
    key   : NULL if the event has none
    kind  : of what the chain's other values will be
    """
    op, is_row = F.col("op"), F.col("op").isin("r", "c", "u")
    begins = (op == "r") & F.col("origin.snapshot").isin(*FIRST_ROWS)
    detail = (
        first.when(op.isNull(), F.lit("it has no op"))
        .when(~op.isin("r", "c", "u", "d", "t"), F.concat(F.lit("its op is not known: "), F.substring(op, 1, 20)))
        .when(F.col("origin.lsn").isNull(), F.lit("its source has no lsn, which PostgreSQL's connector writes"))
        .when((op != "t") & key.isNull(), F.lit("it has no key"))
        .when(is_row & F.col("after").isNull(), F.lit("it has no row in after"))
    )
    found = F.when(detail.isNotNull(), refused(BAD_EVENT, F.col(AT), detail).cast(kind))
    if continues:
        again = refused(RESTARTED, F.col(AT), "a snapshot begins here: what was deleted before it is in no event")
        found = found.when(begins, again.cast(kind))
    return found


def _marks(key: Column, left_out: Column) -> list[Column]:
    op, is_row = F.col("op"), F.col("op").isin("r", "c", "u")
    nothing = F.array().cast(_NO_NAMES)
    return [
        *(F.col(name) for name in (AT, PARTITION, OFFSET, TIME)),
        F.when(op != "t", key).alias(KEY),
        (op == "d").alias(GONE),
        (op == "t").alias(TRUNCATES),
        F.col("origin.lsn").alias(LSN),
        F.when(op == "t", F.col("origin.ts_ms")).alias(WRITTEN_MS),
        F.when(op == "r", F.coalesce(F.col("origin.snapshot"), F.lit(""))).alias(SNAPSHOT),
        F.when(is_row, F.coalesce(left_out, nothing)).otherwise(nothing).alias(UNAVAILABLE),
    ]


def _spread(found: DataFrame, row: Column, columns: StructType) -> DataFrame:
    values = [row[field.name].alias(field.name) for field in columns.fields]
    return found.select(*values, *(each for each in found.columns if each.startswith("_mv_")))


def _is_left_out(value: Column, kind: DataType) -> Column:
    match kind:
        case StringType():
            return value == _PLACEHOLDER
        case BinaryType():
            return value == F.encode(F.lit(_PLACEHOLDER), "UTF-8")
    return (F.size(value) == 1) & (F.get(value, F.lit(0)) == _PLACEHOLDER)


def _spelt(text: Column) -> Column:
    """Return a JSON value in the one spelling that it has inside another one, as that of a payload is."""
    whole = F.from_json(F.concat(F.lit('{"key":'), text, F.lit("}")), _TEXTS)
    return F.coalesce(F.try_element_at(whole, F.lit("key")), text)


def _may_have(text: Column, *parts: str) -> Column:
    """Return whether JSON may have one of some ASCII words in it, which is far cheaper to tell than to parse it.

    A letter that is not written as itself is written with a backslash and u.
    """
    return reduce(Column.__or__, (text.contains(part) for part in (*parts, r"\u")))


def _is_wrapped(texts: Column) -> Column:
    has_both = F.map_contains_key(texts, "schema") & F.map_contains_key(texts, "payload")
    return F.coalesce(has_both & (F.size(F.map_keys(texts)) == 2), F.lit(False))

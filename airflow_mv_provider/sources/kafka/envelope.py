"""What a topic's records mean for rows: the last event of each key, as a row with the marks of `compare.replay`.

    records ──▶ the texts of rows, of the last record of each key ──▶ decoded strictly
    records of Debezium ──▶ the texts of rows ──▶ decoded strictly ──▶ the last event of each key, its gaps filled

Debezium leaves out a large value that has not changed. It is taken from the latest earlier event of the key that has
it; what none has is marked, and filled from main. That is why each event of Debezium is decoded, and not only the last.

Order: within a partition by offset. A key whose records lie in several partitions, because some were added, is ordered
by its records' times there. Debezium's events are ordered by the position in PostgreSQL's log, then by offset: after a
crash of the connector events come again, and one that came again is no newer.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.sources.files import json_lines
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.causes.streams import BAD_EVENT, RESTARTED
from airflow_mv_provider.spark.compare.replay import AT, GONE, LSN, TRUNCATES, UNFILLED, refused

PARTITION, OFFSET, TIME = "_mv_partition", "_mv_offset", "_mv_time"
_KEY, _UNAVAILABLE = "_mv_key", "_mv_unavailable"
_PLACEHOLDER = "__debezium_unavailable_value"
# As a text, as bytes in base64, and as the only element of an array.
_PLACEHOLDERS = (_PLACEHOLDER, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", f'["{_PLACEHOLDER}"]')
_TEXTS = "map<string,string>"
_NUM_SHOWN = 80


def rows_of(records: DataFrame, schema: StructType) -> DataFrame:
    """Return each record as a row.

    records : (topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary)
    returns : (columns of the schema, _mv_gone, _mv_at, _mv_partition, _mv_offset, _mv_time)
    """
    text = F.coalesce(F.col("value").cast("string"), F.lit(""))
    found = _placed(records).select("*", text.alias("text"), F.lit(False).alias(GONE))
    return _decoded(found, schema, F.col("value"))


def last_of_keys(records: DataFrame, schema: StructType) -> DataFrame:
    """Return the last record of each key as a row; one without a value takes its row away. See `rows_of`."""
    keyed = _placed(records).withColumn(_KEY, _needed(F.col("key"), "it has no key", "binary"))
    every = F.struct(*[F.col(name) for name in keyed.columns if name != _KEY]).alias("e")
    in_partition = keyed.groupBy(_KEY, PARTITION).agg(F.max_by(every, OFFSET).alias("e"))
    by_time = F.struct(F.col(f"e.{TIME}"), F.col(PARTITION))
    last = in_partition.groupBy(_KEY).agg(F.max_by("e", by_time).alias("e")).select("e.*")
    content = F.coalesce("value", "key")
    marked = last.select("*", content.cast("string").alias("text"), F.col("value").isNull().alias(GONE))
    return _decoded(marked, schema, content)


def last_changes(records: DataFrame, schema: StructType, *, continues: bool) -> DataFrame:
    """Return the last change of each key, of Debezium's events. See `rows_of`.

    continues : events came before these, so a snapshot that begins here is a new one
    returns   : also (_mv_unfilled, _mv_lsn, _mv_truncates); an event that truncates is a row without values
    """
    decoded = _decoded(_changes(records, continues=continues), schema, F.col("value"))
    order = F.struct(LSN, PARTITION, OFFSET)
    names = [name for name in decoded.columns if name != _KEY]
    whole = F.max_by(F.struct(*[F.col(quoted(name)) for name in names]), order).alias("e")
    gaps = [field.name for field in schema.fields if _may_be_left_out(field.dataType)]
    has = [
        F.when(~F.col(GONE) & ~F.array_contains(_UNAVAILABLE, name), order).alias(f"_mv_order_{n}")
        for n, name in enumerate(gaps)
    ]
    filled = [
        F.max_by(F.struct(F.col(quoted(name)).alias("v")), f"_mv_order_{n}").alias(f"_mv_former_{n}")
        for n, name in enumerate(gaps)
    ]
    last = decoded.select("*", *has).groupBy(_KEY).agg(whole, *filled)
    lacks = [F.array_contains(f"e.{_UNAVAILABLE}", name) for name in gaps]
    values = [
        F.when(lacks[gaps.index(name)], F.col(f"_mv_former_{gaps.index(name)}.v"))
        .otherwise(F.col(f"e.{quoted(name)}"))
        .alias(name)
        if name in gaps
        else F.col(f"e.{quoted(name)}")
        for name in names
        if name != _UNAVAILABLE
    ]
    left = [F.when(lacks[n] & F.col(f"_mv_former_{n}").isNull(), F.lit(name)) for n, name in enumerate(gaps)]
    unfilled = F.array_compact(F.array(*left)) if left else F.array().cast("array<string>")
    return last.select(*values, unfilled.alias(UNFILLED))


def _changes(records: DataFrame, *, continues: bool) -> DataFrame:
    """Return the text of each event's row beside Debezium's own fields; empty values that follow a delete go."""
    placed = _placed(records).where(F.col("value").isNotNull())
    outer = placed.select("*", F.from_json(F.col("value").cast("string"), _TEXTS).alias("outer"))
    # With `schemas.enable` the event is the payload of an object that describes it.
    event = F.when(_is_wrapped(F.col("outer")), F.from_json(F.col("outer.payload"), _TEXTS)).otherwise(F.col("outer"))
    key_text = F.col("key").cast("string")
    key = F.from_json(key_text, _TEXTS)
    seen = outer.select("*", event.alias("event"), key.alias("key_of")).select(
        "*",
        F.col("event.op").alias("op"),
        F.col("event.after").alias("after"),
        F.from_json(F.col("event.source"), "lsn BIGINT, snapshot STRING").alias("origin"),
        F.when(_is_wrapped(F.col("key_of")), F.col("key_of.payload")).otherwise(_spelt(key_text)).alias("key_text"),
    )
    op, is_row = F.col("op"), F.col("op").isin("r", "c", "u")
    begins = (op == "r") & F.col("origin.snapshot").isin("first", "first_in_data_collection")
    detail = (
        F.when(F.col("event").isNull(), F.lit("its value is no JSON object"))
        .when(op.isNull(), F.lit("it has no op"))
        .when(~op.isin("r", "c", "u", "d", "t"), F.concat(F.lit("its op is not known: "), F.substring(op, 1, 20)))
        .when(F.col("origin.lsn").isNull(), F.lit("its source has no lsn, which PostgreSQL's connector writes"))
        .when((op != "t") & F.col("key_text").isNull(), F.lit("it has no key"))
        .when(is_row & F.col("after").isNull(), F.lit("it has no row in after"))
    )
    text = F.when(detail.isNotNull(), refused(BAD_EVENT, F.col(AT), detail).cast("string"))
    if continues:
        again = refused(RESTARTED, F.col(AT), "a snapshot begins here: what was deleted before it is in no event")
        text = text.when(begins, again.cast("string"))
    text = text.when(is_row, F.col("after")).when(op == "d", F.col("key_text")).otherwise(F.lit("{}"))
    left_out = F.map_keys(
        F.map_filter(F.from_json(F.col("after"), _TEXTS), lambda _, value: value.isin(*_PLACEHOLDERS))
    )
    return seen.select(
        *(AT, PARTITION, OFFSET, TIME, "value"),
        F.when(op != "t", F.col("key_text")).alias(_KEY),
        text.alias("text"),
        (op == "d").alias(GONE),
        (op == "t").alias(TRUNCATES),
        F.col("origin.lsn").alias(LSN),
        F.when(is_row, F.coalesce(left_out, F.array().cast("array<string>")))
        .otherwise(F.array().cast("array<string>"))
        .alias(_UNAVAILABLE),
    )


def _placed(records: DataFrame) -> DataFrame:
    at = F.concat_ws("/", F.col("topic"), F.col("partition"), F.col("offset"))
    return records.select(
        at.alias(AT),
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        F.col("timestamp").alias(TIME),
        *("key", "value"),
    )


def _needed(value: Column, detail: str, kind: str) -> Column:
    return F.when(value.isNull(), refused(BAD_EVENT, F.col(AT), detail).cast(kind)).otherwise(value)


def _spelt(text: Column) -> Column:
    """Return a JSON value in the one spelling that it has inside another one, as that of a payload is."""
    whole = F.from_json(F.concat(F.lit('{"key":'), text, F.lit("}")), _TEXTS)
    return F.coalesce(F.try_element_at(whole, F.lit("key")), text)


def _is_wrapped(texts: Column) -> Column:
    has_both = F.map_contains_key(texts, "schema") & F.map_contains_key(texts, "payload")
    return F.coalesce(has_both & (F.size(F.map_keys(texts)) == 2), F.lit(False))


def _decoded(events: DataFrame, schema: StructType, content: Column) -> DataFrame:
    """Return (columns of the schema, marks) of (text, value, marks).

    content : the bytes that the text is of, or that it is part of
    """
    lines = events.select("*", F.coalesce(F.is_valid_utf8(content.cast("string")), F.lit(True)).alias("is_decoded"))
    kept = [name for name in events.columns if name.startswith("_mv_")]
    parsed = json_lines.judged(lines.select(*kept, "text", "is_decoded"), schema, {})
    broken = F.col("broken")
    shown = F.coalesce("misfit", F.substring("text", 1, _NUM_SHOWN))
    detail = (
        F.when(broken == marking.ENCODING, F.lit("it is not UTF-8"))
        .when(broken == marking.UNKNOWN_FIELD, F.concat(F.lit("the schema has no field "), F.col("unknown")))
        .when(broken == marking.NOTHING, F.lit("it is empty"))
        .otherwise(F.concat(F.lit("it does not fit the schema: "), shown))
    )
    record = F.when(broken.isNotNull(), refused(BAD_EVENT, F.col(AT), detail)).otherwise(F.col("record"))
    return parsed.select(record.alias("r"), *kept).select(
        *(F.col(f"r.{quoted(field.name)}").alias(field.name) for field in schema.fields), *kept
    )


def _may_be_left_out(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType) or (
        isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
    )

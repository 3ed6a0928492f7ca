"""What a topic's records mean for rows: the last event of each key, as a row with the marks of `replay`.

    records ──▶ the last record of each key ──▶ decoded strictly, a row or the key that is gone
    records of Debezium ──▶ `debezium` ──▶ rows of events ──▶ the last event of each key, its gaps filled

A key is that of the table, which `record_keys` makes of the record's. What is projected has to have the key that its
record has (`with_keys_of_records`).

Debezium leaves out a large value that has not changed. It is taken from the latest earlier event of the key that has
it; what none has is marked, and filled from main. That is why each event of Debezium is decoded, and not only the last.
If the latest one that may have it cannot be decoded, nothing older takes its place, and the key is as bad as that one.

Order: within a partition by offset. A key whose records lie in several partitions, because some were added or because
it is spelt in several ways, is ordered by its records' times there; if the last ones have the same time, none is taken.
Debezium's events are ordered by the position in PostgreSQL's log, then by offset: after a crash of the connector events
come again, and one that came again is no newer. A row of a snapshot is older than whatever follows it in its partition,
at any position: a transaction that was open when the snapshot was taken wrote before it, is not in it, and comes after
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.sources.kafka.codec import Codec, decoded, problem, problem_of
from airflow_mv_provider.sources.kafka.record_keys import KEY, KeyDecoder
from airflow_mv_provider.sources.kafka.replay import AT, BAD, GONE, LSN, SNAPSHOT_END, UNFILLED, bad, refused
from airflow_mv_provider.spark import marking
from airflow_mv_provider.spark.causes.streams import BAD_EVENT, BAD_SCHEMA
from airflow_mv_provider.spark.layout import columns as columns_of

PARTITION, OFFSET, TIME = "_mv_partition", "_mv_offset", "_mv_time"
UNAVAILABLE, SNAPSHOT, VALUE = "_mv_unavailable", "_mv_snapshot", "_mv_value"
_NUM_SHOWN, _KEY, _HIDDEN, _STREAMED = 60, "_mv_same_key", "_mv_hidden", "_streamed"
# What a snapshot's first and last row of a table are marked with. An only row is marked as a last one.
FIRST_ROWS, LAST_ROWS = ("first", "first_in_data_collection"), ("last", "last_in_data_collection")


def rows_of(records: DataFrame, value: Codec, *, keeps_bad: bool = False) -> DataFrame:
    """Return each record as a row.

    records   : (topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary)
    keeps_bad : what cannot be decoded is marked, and does not raise
    returns   : (the codec's columns, _mv_gone, _mv_at, _mv_partition, _mv_offset, _mv_time), also _mv_bad if it is kept
    """
    found = placed(records)
    if not keeps_bad:
        found = found.select("*", F.lit(False).alias(GONE))
        content = needed(F.col("value"), "empty", "binary")
        return _spread(decoded(value, found, content, "r"), value.columns, "r")
    parsed = value.parsed(found, F.col("value"), "r")
    why = F.when(F.col("value").isNull(), problem(F.lit("empty"))).otherwise(F.col(problem_of("r")))
    marked = parsed.select("*", why.isNotNull().alias(GONE), marked_bad(why, F.col("value"), has_key=False))
    return _spread(marked, value.columns, "r")


def last_of_keys(records: DataFrame, value: Codec, key: KeyDecoder, *, keeps_bad: bool = False) -> DataFrame:
    """Return the last record of each key as a row; one without a value takes its row away. See `rows_of`.

    Returns:
        Also _mv_key, and _mv_value if what cannot be decoded is kept. A row that is gone has no values.
    """
    keyed = key.keyed(placed(records), needed(F.col("key"), "the record has no key", "binary"))
    every = F.struct(*[F.col(name) for name in keyed.columns if name != KEY]).alias("e")
    in_partition = keyed.groupBy(KEY, PARTITION).agg(F.max_by(every, OFFSET).alias("e"))
    last, other = (
        F.max_by("e", F.struct(F.col(f"e.{TIME}"), order)) for order in (F.col(PARTITION), -F.col(PARTITION))
    )
    found = in_partition.groupBy(KEY).agg(last.alias("e"), other.alias("other"), _same_key())
    is_tied = F.col(f"e.{PARTITION}") != F.col(f"other.{PARTITION}")
    also = F.concat(F.col(f"other.{AT}"), F.lit(" has the same key and time, and nothing shows which of them is newer"))
    found = found.select(F.col(_KEY).alias(KEY), "e.*", F.when(is_tied, also).alias("tied"))
    if not keeps_bad:
        checked = found.where(_passes(F.col("tied"))).select("*", F.col("value").isNull().alias(GONE))
        return _spread(decoded(value, checked, F.col("value"), "r"), value.columns, "r")
    parsed = value.parsed(found, F.col("value"), "r")
    why = F.coalesce(problem(F.col("tied")), F.col(problem_of("r")))
    gone = (F.col("value").isNull() | why.isNotNull()).alias(GONE)
    marked = parsed.select("*", gone, marked_bad(why, F.col("value"), has_key=True), F.col("value").alias(VALUE))
    return _spread(marked, value.columns, "r")


def with_keys_of_records(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return projected rows with the keys of their records, which rows have themselves and what is gone lacks.

    Args:
        rows: (columns, marks, _mv_key), also _mv_value if what is bad is kept.
        names: The columns of the table's key.

    Returns:
        (columns, marks)

    Raises:
        EventError: While it runs, if a row has another key than its record.
    """
    both = F.struct(F.struct(*columns_of(names)).alias("row"), F.col(KEY).alias("key"))

    def difference(each: Column) -> Column:
        return F.coalesce(*(_difference(name, each["row"][name], each["key"][name]) for name in names))

    # In a lambda, which refers to the row and its key once: else what they are computed by is repeated.
    differs = F.get(F.transform(F.array(both), difference), F.lit(0))
    differs = F.when(F.col(KEY).isNotNull() & ~F.col(GONE), differs)
    found = {name: F.col(KEY)[name] for name in names}
    if BAD in rows.columns:
        is_bad = marked_bad(problem(differs), F.col(VALUE), has_key=True)
        rows = rows.withColumn(BAD, F.coalesce(BAD, is_bad))
        found[GONE] = F.col(GONE) | F.col(BAD).isNotNull()
    else:
        rows = rows.where(_passes(differs))
    kept = (name for name in rows.columns if name not in (KEY, VALUE))
    return rows.select(*(found.get(name, F.col(quoted(name))).alias(name) for name in kept))


def _passes(detail: Column) -> Column:
    """Return a condition that is true, or raises where there is a detail of why a record is refused.

    Spark takes it for not deterministic and leaves it where it stands. From another one it would derive a constraint
    for each subset of the columns that the detail is computed from, which takes minutes.
    """
    raised = refused(BAD_EVENT, F.col(AT), detail).cast("string").isNull()
    return F.when(detail.isNotNull(), raised).otherwise(F.monotonically_increasing_id() >= 0)


def _difference(name: str, row: Column, key: Column) -> Column:
    """Return how a row's key differs from its record's; NULL if it does not."""
    of_row, of_key = (F.coalesce(F.substring(each.cast("string"), 1, _NUM_SHOWN), F.lit("NULL")) for each in (row, key))
    text = F.concat(F.lit(f"{name} is "), of_row, F.lit(" in its row, and "), of_key, F.lit(" in its key"))
    return F.when(~row.eqNullSafe(key), text)


def or_refused(detail: Column, value: Column, what: str = BAD_EVENT) -> Column:
    """Return a value, or raise where there is a detail of why a record is refused."""
    raised = refused(what, F.col(AT), detail).cast("string").isNull()
    return F.when(detail.isNotNull(), F.when(raised, value)).otherwise(value)


def last_changes(changes: DataFrame, schema: StructType) -> DataFrame:
    """Return the last change of each key, of Debezium's events as `debezium` returns them. See `rows_of`.

    returns : also (_mv_key, _mv_unfilled, _mv_lsn, _mv_truncates, _mv_written_ms, _mv_snapshot_end); a row without a
              key is one that truncates
    """
    order = F.struct(LSN, PARTITION, OFFSET)
    names = [name for name in changes.columns if name not in (KEY, SNAPSHOT)]
    every = F.struct(*[F.col(quoted(name)) for name in (*names, SNAPSHOT)])
    gaps = [field.name for field in schema.fields if may_be_left_out(field.dataType)]
    formers = {name: f"_mv_former_{n}" for n, name in enumerate(gaps)}
    # A bad event may have a value that nobody can read, unless it leaves the value out as well.
    bad_at = F.when(F.col(BAD).isNotNull(), F.col(AT)) if BAD in changes.columns else F.lit(None).cast("string")
    may_have = (~F.col(GONE)) | bad_at.isNotNull()
    has = {name: F.when(may_have & ~F.array_contains(UNAVAILABLE, name), order) for name in gaps}
    place = [*(F.col(name) for name in (PARTITION, OFFSET, SNAPSHOT)), bad_at.alias("bad_at")]
    with_value = {name: F.struct(*place, F.col(quoted(name)).alias("v")) for name in gaps}
    filling = [each for name in gaps for each in _newest(with_value[name], has[name], formers[name])]
    snapshot_end = F.max(F.when(F.col(SNAPSHOT).isin(*LAST_ROWS), F.col(LSN))).alias(SNAPSHOT_END)
    last = changes.groupBy(KEY).agg(*_newest(every, order, "e"), snapshot_end, *filling, _same_key())
    last = last.withColumn("e", _followed("e"))
    lacks = {name: ~F.col(f"e.{GONE}") & F.array_contains(f"e.{UNAVAILABLE}", name) for name in gaps}
    values = [
        F.when(lacks[name], _followed(formers[name], ".v")).otherwise(F.col(f"e.{quoted(name)}")).alias(name)
        if name in gaps
        else F.col(f"e.{quoted(name)}")
        for name in names
        if name != UNAVAILABLE
    ]
    left = [F.when(lacks[name] & F.col(formers[name]).isNull(), F.lit(name)) for name in gaps]
    unfilled = F.array_compact(F.array(*left)) if left else F.array().cast("array<string>")
    marks = [unfilled.alias(UNFILLED), F.col(SNAPSHOT_END), F.col(_KEY).alias(KEY)]
    if BAD not in changes.columns:
        return last.select(*values, *marks)
    hidden = [
        F.when(lacks[name], F.concat(F.lit(f"{name} is not in the event, and what may have it is bad: "), at))
        for name, at in ((name, _followed(formers[name], ".bad_at")) for name in gaps)
    ]
    found = last.select(*values, *marks, F.coalesce(*hidden, F.lit(None).cast("string")).alias(_HIDDEN))
    is_hidden = F.col(_HIDDEN).isNotNull()
    as_bad = {
        GONE: F.col(GONE) | is_hidden,
        UNFILLED: F.when(~is_hidden, F.col(UNFILLED)).otherwise(F.array().cast("array<string>")),
        BAD: F.coalesce(BAD, marked_bad(problem(F.col(_HIDDEN)), F.col(VALUE), has_key=True)),
    }
    return found.withColumns(as_bad).drop(_HIDDEN)


def _newest(value: Column, order: Column, name: str) -> list[Column]:
    """Return two aggregates: the newest of some events by their order alone, and that without rows of snapshots."""
    streamed = F.when(F.col(SNAPSHOT).isNull(), order)
    return [F.max_by(value, order).alias(name), F.max_by(value, streamed).alias(f"{name}{_STREAMED}")]


def _followed(name: str, field: str = "") -> Column:
    """Return the newest of some events, of `_newest`: what follows a row of a snapshot in its partition is newer.

    It is not a column of each gap: a filter is moved below these, and derives a constraint for each subset of them.

    Args:
        field: With a dot before it; empty for the whole event.
    """
    one, streamed = F.col(name), F.col(f"{name}{_STREAMED}")
    is_same_partition = streamed[PARTITION] == one[PARTITION]
    follows = one[SNAPSHOT].isNotNull() & is_same_partition & (streamed[OFFSET] > one[OFFSET])
    return F.when(follows, F.col(f"{name}{_STREAMED}{field}")).otherwise(F.col(f"{name}{field}"))


def _same_key() -> Column:
    """Return a group's key, apart from the column that it is grouped by.

    A filter on that column is moved below the aggregate, where the key is an expression that keeps the optimizer busy
    for minutes.
    """
    return F.max(KEY).alias(_KEY)


def placed(records: DataFrame) -> DataFrame:
    """Return (_mv_at, _mv_partition, _mv_offset, _mv_time, key, value)."""
    at = F.concat_ws("/", F.col("topic"), F.col("partition"), F.col("offset"))
    return records.select(
        at.alias(AT),
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        F.col("timestamp").alias(TIME),
        *("key", "value"),
    )


def marked_bad(why: Column, value: Column, *, has_key: bool) -> Column:
    """Return the mark of a record that cannot be a row; see `replay.bad`.

    Args:
        why: As `codec.problem` returns it.
        value: The record's.
        has_key: True if the key of its row is known.
    """
    at = F.substring_index(F.col(AT), "/", 2), F.substring_index(F.col(AT), "/", -1).cast("bigint")
    rule = F.when(why["what"] == BAD_SCHEMA, F.lit("unknown_schema")).otherwise(F.lit(marking.CORRUPT_RECORD))
    found = bad(at, _text(value), rule, why["detail"], has_key=has_key)
    return F.when(why.isNotNull(), found).alias(BAD)


def _text(value: Column) -> Column:
    """Return a record as the error table shows it: its text, or in hexadecimal what is none."""
    text = value.cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit("0x"), F.lower(F.hex(value))))


def needed(value: Column, detail: str, kind: str) -> Column:
    """Return a value that has to be there; where it is not, the record is refused."""
    return F.when(value.isNull(), refused(BAD_EVENT, F.col(AT), detail).cast(kind)).otherwise(value)


def may_be_left_out(kind: DataType) -> bool:
    """True if Debezium may leave out a value of this type that has not changed.

    A schema in JSON may read an array of whole numbers as one of any other type of number.
    """
    return isinstance(kind, StringType | BinaryType | ArrayType | MapType)


def _spread(decoded: DataFrame, columns: StructType, name: str) -> DataFrame:
    """Return (columns, marks) of a frame with a struct of these columns."""
    values = [F.col(f"{name}.{quoted(field.name)}").alias(field.name) for field in columns.fields]
    return decoded.select(*values, *(each for each in decoded.columns if each.startswith("_mv_")))

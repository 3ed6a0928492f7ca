"""Bring rows forward by the last events of their keys: all rows that there are then, or only those that change.

    main's rows ──┬──▶ those of keys without an event ──┐
    events ───────┴──▶ new rows of the other keys ──────┴──▶ all rows

An event is a row with marks: whether its key is gone, which of its values are missing and stay as main has them, and
its place in the log. One that truncates ends all rows that are not newer than it. Main's rows do not have their place:
a caller that has an event that truncates (`noticed_in`) passes the newer events too, also those that main has already.
Nor do they have their table, so such an event is refused if several tables are seen to have events in the topic.

If the table has an error table, an event that cannot be a row is marked as bad. Its key, if it has one, is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import RESERVED_PREFIX, quoted
from airflow_mv_provider.spark.causes.streams import BAD_EVENT, UNFILLED_EVENT
from airflow_mv_provider.spark.compare import corrections
from airflow_mv_provider.spark.layout import any_null, columns, sql_of

GONE, UNFILLED, LSN, TRUNCATES, AT = "_mv_gone", "_mv_unfilled", "_mv_lsn", "_mv_truncates", "_mv_at"
WRITTEN_MS, SNAPSHOT_END, TABLE = "_mv_written_ms", "_mv_snapshot_end", "_mv_table"
BAD = "_mv_bad"
_OF_BAD: dict[str, schema.Type] = {
    **{"source_file": "string", "source_position": "long", "record": "string", "rule": "string", "reason": "string"},
    "has_key": "boolean",
}
_TYPES: dict[str, schema.Type] = {
    GONE: "boolean",
    UNFILLED: {"type": "array", "elementType": "string", "containsNull": True},
    LSN: "long",
    TRUNCATES: "boolean",
    WRITTEN_MS: "long",
    SNAPSHOT_END: "long",
    TABLE: "string",
    AT: "string",
    BAD: {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _OF_BAD.items()],
    },
}
_CUT, _OLD = "_mv_cut", "_mv_old"


@dataclass(frozen=True, slots=True)
class Cut:
    """The last event that truncates.

    lsn        : its place in the log
    written_ms : when the database wrote it, by its own clock; None if the event does not say
    table      : of the database, with its schema; None if the event does not say
    """

    lsn: int
    written_ms: int | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Noticed:
    """What events show about the log that they are a part of.

    cut          : the last event that truncates; None if there is none
    snapshot_end : the place of a snapshot whose last row is among them; None if there is none
    """

    cut: Cut | None = None
    snapshot_end: int | None = None


def marks_of(events: DataFrame) -> list[schema.Column]:
    """Return the marks that these events have."""
    return [schema.Column(name, kind) for name, kind in _TYPES.items() if name in events.columns]


def bad(at: Sequence[Column], record: Column, rule: Column, reason: Column, *, has_key: bool) -> Column:
    """Return the mark of an event that cannot be a row.

    at      : where it lies, and its position there
    has_key : it is known which of main's rows it was about
    """
    values = (*at, record, rule, reason, F.lit(has_key))
    kinds = [str(kind) for kind in _OF_BAD.values()]
    named = zip(values, _OF_BAD, kinds, strict=True)
    return F.struct(*(value.cast("bigint" if kind == "long" else kind).alias(name) for value, name, kind in named))


def rejected(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the records that cannot be rows, and the keys that are missing in main for them; lazy.

    returns : (source_file, source_position, record, rule, reason, key), key as JSON or NULL
    """
    known = F.when(F.col(f"{BAD}.has_key"), _key_as_json(key))
    fields = [F.col(f"{BAD}.{name}").alias(name) for name in _OF_BAD if name != "has_key"]
    return events.where(F.col(BAD).isNotNull()).select(*fields, known.alias("key"))


def still_rejected(former: DataFrame, events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the records, rejected before, whose keys have no later event, as `rejected` does."""
    later = events.where(F.col(BAD).isNull() | F.col(f"{BAD}.has_key"))
    if TRUNCATES in events.columns:
        former = former.join(F.broadcast(_cut(events)), F.lit(True)).where(F.col(_CUT).isNull()).drop(_CUT)
        later = later.where(~F.col(TRUNCATES))
    return former.join(later.select(_key_as_json(key).alias("key")), "key", "left_anti").select(*former.columns)


def _key_as_json(key: Sequence[str]) -> Column:
    return F.to_json(F.struct(*columns(key)), {"ignoreNullFields": "false"})


def refused(what: str, at: Column, detail: Column | str) -> Column:
    """Return an expression that raises when it is evaluated, with a message that `causes.streams` translates.

    at : topic/partition/offset
    """
    reason = F.lit(detail) if isinstance(detail, str) else detail
    return F.raise_error(F.concat(F.lit(f"{what} "), at, F.lit(" "), reason))


def all_rows(
    events: DataFrame, main: DataFrame | None, key: Sequence[str], truncations: DataFrame | None = None
) -> DataFrame:
    """Return all rows that there are after the events; lazy.

    events      : (columns, marks), each key once
    main        : the rows before them; None if the events are all there is
    truncations : (_mv_truncates, _mv_lsn): the events among which are all that truncate; `events`, unless given
    returns     : (columns)
    raises      : while it runs: EventError, EventIncompleteError
    cost        : a shuffle of both on the key, and a scan of `truncations`, if the events can truncate
    """
    names = [name for name in events.columns if not name.startswith(RESERVED_PREFIX)]
    if main is None:
        return _filled(_alive(events, truncations), None, key).select(*columns(names))
    kinds = {field.name: sql_of(field.dataType) for field in main.schema.fields}
    cast = [
        (F.col(quoted(name)).cast(kinds[name]) if name in kinds else F.col(quoted(name))).alias(name) for name in names
    ]
    new = _filled(_alive(events), main, key).select(*cast)
    left = _untruncated(main, events).join(_keys(events, key), list(key), "left_anti")
    return new.unionByName(left.select(*columns([name for name in names if name in kinds])), allowMissingColumns=True)


def signed(events: DataFrame, main: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the rows that the events take away (-1) and bring (+1).

    events  : (*columns, marks), each key once; read several times, so it is best a copy
    main    : (*columns), main's rows before them
    returns : (*columns, _mv_sign int)
    cost    : two scans of main: of its keys, and of the rows that are taken away
    raises  : while it runs: EventError, EventIncompleteError
    """
    names = columns(main.columns)
    new = _filled(_alive(events), main, key).select(*names, F.lit(1).alias(corrections.SIGN))
    old = main.join(_keys(events, key), list(key), "left_semi")
    if TRUNCATES in events.columns:
        old = (
            main.join(F.broadcast(_cut(events)), F.lit(True))
            .where(F.col(_CUT).isNotNull())
            .select(*names)
            .unionByName(_untruncated(old.select(*names), events))
        )
    return new.unionByName(old.select(*names, F.lit(-1).alias(corrections.SIGN)))


def noticed_in(events: DataFrame) -> Noticed:
    """Return what the events show about their log.

    cost : reads the events, if they can truncate
    """
    if TRUNCATES not in events.columns:
        return Noticed()
    last = F.max(F.when(F.col(TRUNCATES), F.struct(LSN, WRITTEN_MS, TABLE)))
    ((cut, snapshot_end),) = events.agg(last, F.max(SNAPSHOT_END)).collect()
    return Noticed(None if cut is None else Cut(*cut), snapshot_end)


def _alive(events: DataFrame, truncations: DataFrame | None = None) -> DataFrame:
    if TRUNCATES not in events.columns:
        return events.where(~F.col(GONE))
    left = events.join(F.broadcast(_cut(events if truncations is None else truncations)), F.lit(True))
    is_newer = F.col(_CUT).isNull() | (F.col(LSN) > F.col(_CUT)[LSN])
    is_alive = of_one_table(F.col(TABLE), F.col(_CUT)[TABLE], ~F.col(GONE) & is_newer)
    return left.where(~F.col(TRUNCATES) & is_alive).drop(_CUT)


def of_one_table(table: Column, truncated: Column, value: Column) -> Column:
    """Return a value, or raise where an event is of another table than the one that is truncated.

    truncated : NULL if none is, or its name is not known
    """
    detail = F.concat(F.lit("a TRUNCATE of "), truncated, F.lit(" is not of all rows, and "), table)
    raised = refused(BAD_EVENT, F.col(AT), F.concat(detail, F.lit(" is in the topic, too")))
    return F.when(table != truncated, raised.cast("boolean")).otherwise(value)


def _untruncated(rows: DataFrame, events: DataFrame) -> DataFrame:
    if TRUNCATES not in events.columns:
        return rows
    return rows.join(F.broadcast(_cut(events)), F.lit(True)).where(F.col(_CUT).isNull()).drop(_CUT)


def _cut(events: DataFrame) -> DataFrame:
    """Return one row: the place and the table of the last event that truncates; NULL if there is none."""
    return events.agg(F.max(F.when(F.col(TRUNCATES), F.struct(LSN, TABLE))).alias(_CUT))


def _keys(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the keys that have an event; one that is gone must be known by its whole key."""
    those = events.where(~F.col(TRUNCATES)) if TRUNCATES in events.columns else events
    if BAD in events.columns:
        those = those.where(F.col(BAD).isNull() | F.col(f"{BAD}.has_key"))
    lacking = refused(BAD_EVENT, F.col(AT), f"a delete whose key does not have {' and '.join(key)}")
    checked = (
        F.when(F.col(GONE) & any_null(key), lacking.cast("string").isNull()).otherwise(F.lit(True)).alias("_mv_checked")
    )
    return those.select(*columns(key), checked).where("_mv_checked").select(*columns(key))


def _filled(rows: DataFrame, main: DataFrame | None, key: Sequence[str]) -> DataFrame:
    """Return the rows with main's values where theirs are missing."""
    if UNFILLED not in rows.columns:
        return rows
    lacking = refused(
        UNFILLED_EVENT,
        F.col(AT),
        F.concat(F.array_join(UNFILLED, ", "), F.lit(" is not in the event, and nothing earlier has it")),
    )
    if main is None:
        checked = F.when(F.size(UNFILLED) > 0, lacking.cast("string").isNull()).otherwise(F.lit(True))
        return rows.where(checked)
    names = [field.name for field in main.schema.fields if field.name in rows.columns and field.name not in key]
    old = main.select(*columns(key), F.struct(*columns(names), F.lit(1).alias("_mv_is_there")).alias(_OLD))
    alias = [F.col(quoted(each)).alias(f"_mv_key_{n}") for n, each in enumerate(key)]
    old = old.select(*alias, _OLD)
    # Only rows that lack something look for main's; NULL keys find none, and are refused later.
    on = [F.col(quoted(each)) == F.col(f"_mv_key_{n}") for n, each in enumerate(key)]
    both = rows.join(old, reduce(Column.__and__, [*on, F.size(UNFILLED) > 0]), "left_outer")
    is_lacking = (F.size(UNFILLED) > 0) & F.col(f"{_OLD}._mv_is_there").isNull()
    others = F.array_except(UNFILLED, F.array(*[F.lit(name) for name in names]).cast("array<string>"))
    is_lacking = is_lacking | (F.size(others) > 0)
    both = both.where(F.when(is_lacking, lacking.cast("string").isNull()).otherwise(F.lit(True)))
    types = {field.name: sql_of(field.dataType) for field in rows.schema.fields}
    values = [
        F.when(F.array_contains(UNFILLED, name), F.col(f"{_OLD}.{quoted(name)}").cast(types[name]))
        .otherwise(F.col(quoted(name)))
        .alias(name)
        if name in names
        else F.col(quoted(name))
        for name in rows.columns
    ]
    return both.select(*values)

"""A record's key as the table's key: the one identity of what a record brings, what it takes away, and what main has.

    the key's bytes ──▶ decoded ──▶ what `select` makes of that ──▶ the table's key

Records are folded by these values and never by bytes: two spellings of a key in JSON, or two ids of its schema, are one
key, whether one refresh reads them or two. So the table's key has to be made of exactly the columns that a record's key
has, and a record whose value has another key than the record itself is no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.exceptions import DefinitionError, KeyColumnError
from airflow_mv_provider.sources.kafka.codec import Codec, TextCodec, problem_of, strict
from airflow_mv_provider.sources.kafka.replay import AT, refused
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.causes.streams import BAD_EVENT
from airflow_mv_provider.spark.layout import any_null, sql_of
from airflow_mv_provider.spark.layout import columns as columns_of

KEY = "_mv_key"
_REST, _PARSED = "_mv_rest", "_mv_k"
_HINT = "Let `key` have the columns of the records' key, by their own names or by expressions of `select` over them."


@dataclass(frozen=True, slots=True)
class KeyDecoder:
    """How the bytes of a record's key become the table's key.

    Attributes:
        codec: Of the bytes; its columns are those that the table's key is made of.
        select: The expressions of the projection that give the table's key; none where it is the codec's columns.
        names: The columns of the table's key.
    """

    codec: Codec
    select: tuple[str, ...]
    names: tuple[str, ...]

    def keyed(self, frame: DataFrame, content: Column) -> DataFrame:
        """Return the frame with `_mv_key`, the struct of the table's key; NULL where the bytes are.

        Args:
            content: The key's bytes.

        Raises:
            EventError: While it runs.
        """
        return self._keyed(self.codec.parsed(frame, content, _PARSED))

    def keyed_by_text(self, frame: DataFrame, text: Column, content: Column) -> DataFrame:
        """As `keyed`, for a text that is part of the key's bytes."""
        assert isinstance(self.codec, TextCodec), "events in JSON have keys in JSON"
        return self._keyed(self.codec.of_text(frame, text, content, _PARSED))

    def _keyed(self, parsed: DataFrame) -> DataFrame:
        problem = problem_of(_PARSED)
        said = F.col(problem).withField("detail", F.concat(F.lit("of its key, "), F.col(f"{problem}.detail")))
        found = strict(parsed.withColumn(problem, F.when(F.col(problem).isNotNull(), said)), _PARSED)
        # Whatever else the frame has is set apart, because a column of the key may have any name.
        apart = found.select(F.struct(*columns_of(found.columns)).alias(_REST), f"{_PARSED}.*")
        if self.select:
            apart = apart.selectExpr(_REST, *self.select)
        key = F.struct(*columns_of(self.names))
        lacking = refused(BAD_EVENT, F.col(f"{_REST}.{AT}"), f"its key does not have {' and '.join(self.names)}")
        key = F.when(any_null(self.names), F.when(lacking.cast("string").isNull(), key)).otherwise(key)
        others = [F.col(f"{_REST}.{quoted(name)}") for name in found.columns if name != _PARSED]
        return apart.select(*others, F.when(F.col(f"{_REST}.{_PARSED}").isNotNull(), key).alias(KEY))


def expanded(select: Sequence[str] | None, columns: StructType) -> tuple[str, ...]:
    """Return a projection with the columns of a row in place of `*`; empty for none."""
    mine = [quoted(name) for name in columns.names]
    return tuple(each for text in select or () for each in (mine if text.strip() == "*" else [text]))


def decoder(
    spark: SparkSession, columns: StructType, select: Sequence[str], table_key: Sequence[str], codec: Codec | None
) -> KeyDecoder:
    """Return how records' keys become a table's; runs no job.

    Args:
        columns: Of a row, before the projection.
        select: The projection, without `*`; empty for none.
        codec: Of the records' keys; None for JSON objects of the columns that the table's key is made of.

    Raises:
        DefinitionError: If the table's key is not made of the columns of the records' key.
        KeyColumnError: If the projection lacks a column of the table's key.
    """
    giving = _giving(spark, columns, select, table_key)
    made_of = _made_of(spark, columns, giving) if select else tuple(table_key)
    if codec is None:
        of_key = StructType([field for field in columns.fields if field.name in made_of])
        codec = TextCodec(of_key, lacks="the table's key is not made of the field ")
    _check_types(codec.columns, columns)
    if not made_of or set(codec.columns.names) != set(made_of):
        of = f"is made of {', '.join(made_of)}" if made_of else "is made of no column of a record"
        problem = f"the table's key {of}, and the records' key has {', '.join(codec.columns.names) or 'none'}."
        raise DefinitionError("source", problem, hint=_HINT)
    return KeyDecoder(codec, giving, tuple(table_key))


def _giving(
    spark: SparkSession, columns: StructType, select: Sequence[str], table_key: Sequence[str]
) -> tuple[str, ...]:
    """Return the expressions of a projection that give the table's key.

    Raises:
        DefinitionError: If one uses more than columns of a record: its place, or another expression's alias.
        KeyColumnError: See `decoder`.
    """
    if not select:
        given, is_plain = {name: {name} for name in columns.names}, True
    else:
        every = delta.no_rows(spark, columns)
        names = {text: _names(every, [text]) for text in select}
        given, is_plain = {text: set(each or ()) for text, each in names.items()}, None not in names.values()
    known = sorted({name for each in given.values() for name in each})
    for name in table_key:
        if name in known:
            continue
        if is_plain:
            raise KeyColumnError("source", f"key column {name!r} is not among {', '.join(known)}.", column=name)
        problem = f"key column {name!r} is made of more than a record's columns, and a record's key has nothing else."
        raise DefinitionError("select", problem, hint=_HINT)
    return tuple(text for text, each in given.items() if each & set(table_key)) if select else ()


def _made_of(spark: SparkSession, columns: StructType, giving: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that expressions refer to: they cannot be analysed without them."""
    text = "\n".join(giving).lower()
    possible = [name for name in columns.names if "*" in text or name.lower().replace("`", "``") in text]

    def is_needed(name: str) -> bool:
        others = StructType([field for field in columns.fields if field.name != name])
        return _names(delta.no_rows(spark, others), giving) is None

    return tuple(name for name in possible if quoted(name) in giving or is_needed(name))


def _names(frame: DataFrame, select: Sequence[str]) -> list[str] | None:
    """Return the columns that a projection gives; None if it cannot be analysed."""
    try:
        return list(frame.selectExpr(*select).columns)
    except AnalysisException:
        return None


def _check_types(key: StructType, columns: StructType) -> None:
    """Check that a record's key has only columns of a row, with their types.

    Raises:
        DefinitionError: If it has others.
    """
    known = {field.name: sql_of(field.dataType) for field in columns.fields}
    for field in key.fields:
        kind = sql_of(field.dataType)
        if known.get(field.name) != kind:
            expected = f"is {known[field.name]} in the values" if field.name in known else "is not among the values'"
            problem = f"the records' key has {field.name} as {kind}, which {expected}."
            raise DefinitionError(
                "source", problem, hint="Correct `record_key`: a key's columns are some of the row's."
            )

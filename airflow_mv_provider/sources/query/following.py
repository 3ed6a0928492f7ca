"""The changes of a query's result, computed from those of its inputs.

    rows of the inputs that went and came ─▶ affected units ─┬─▶ the query over them alone ─▶ their rows now      (+1)
                                                             └─▶ main's rows of these units                      (-1)

`units` decides what the affected units are, from a tree that sqlglot has read. It is believed only if Spark makes the
same optimized plan of that tree's text as of the author's, and only to name units: the rows themselves are computed by
the author's text, and are the units' by a join with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
)
from sqlglot import exp

from airflow_mv_provider.core.changeset import Changeset, SignedRows, Upserts
from airflow_mv_provider.core.definition.identifier import RESERVED_PREFIX, quoted
from airflow_mv_provider.sources.projection import Plans
from airflow_mv_provider.sources.query.spark_plan import num_aggregates, optimized, pinned_sql
from airflow_mv_provider.sources.query.units import shape, ties
from airflow_mv_provider.sources.query.units.affected import Changes, Part, affected
from airflow_mv_provider.sources.query.units.restriction import restrictions
from airflow_mv_provider.sources.query.units.shape import NotIncrementalError
from airflow_mv_provider.spark.compare import corrections
from airflow_mv_provider.spark.errors import condition_of

_MAX_VALUES = 1000  # up to which Delta skips files by the values themselves
_MAX_BROADCAST = 1_000_000
# Grouped rows with such values may stand for different ones, or they cannot be grouped.
_NOT_GROUPED = re.compile(r"\b(?:float|double|map|variant|interval|collate|geometry|geography)\b")
_UNIT = f"{RESERVED_PREFIX}unit_"
_NOT_GIVEN = re.compile(r"_col_\d+")  # sqlglot's names
_BY = f"{RESERVED_PREFIX}by"


@dataclass(frozen=True, slots=True)
class TouchedBy:
    """A query for units that changes of some inputs can have touched.

    Attributes:
        names: Of these inputs; more than one if a derived table joins them.
    """

    names: tuple[str, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class Followed:
    """A query whose changes can be computed.

    Attributes:
        columns: Its columns and their types, as Spark has found them.
        units: The positions of its unit columns.
        inputs: Each input's rows as SQL.
    """

    query: exp.Query
    columns: StructType
    units: tuple[int, ...]
    inputs: Mapping[str, str]

    @property
    def unit_columns(self) -> tuple[str, ...]:
        """The names of its unit columns."""
        return tuple(self.columns[position].name for position in self.units)

    def reads(self, name: str) -> bool:
        """Return whether an input is read; that of a definition may not be."""
        return name.lower() in shape.inputs_of(self.query)

    def affected(self, changed: Sequence[str], name: Callable[[str, Part], str]) -> list[TouchedBy]:
        """Return queries for the units that changes of inputs can have touched.

        Args:
            changed: The inputs that have changed.

        Raises:
            NotIncrementalError
        """
        inputs = {each.lower(): each for each in changed}
        with shape.not_too_deep():
            parts = affected(self.query, self.units, Changes(inputs, name))
            read = [shape.inputs_of(each) for each in parts]
            return [
                TouchedBy(
                    tuple(inputs[n] for n in inputs if names & {name(n, "gone"), name(n, "came")}), shape.text(part)
                )
                for part, names in zip(parts, read, strict=True)
            ]

    def shown(self, spark: SparkSession, changed: Sequence[str]) -> tuple[str, ...]:
        """Return `affected` as text for people, which Spark has analysed.

        Raises:
            NotIncrementalError: Also if Spark rejects it.
        """
        found = tuple(each.sql for each in self.affected(changed, lambda name, part: f"{part}_{name}"))
        defined = []
        for name, rows in self.inputs.items():
            pinned = quoted(f"{RESERVED_PREFIX}pinned_{name.lower()}")
            defined.append(f"{pinned} AS ({rows})")
            sides = (quoted(f"{part}_{name.lower()}") for part in ("before", "after", "gone", "came"))
            defined += [f"{side} AS (SELECT * FROM {pinned})" for side in sides]  # nosec B608  # quoted
        all_of_them = " UNION ALL ".join(f"SELECT 1 FROM ({sql})" for sql in found)  # nosec B608  # our own
        try:
            _ = spark.sql(f"WITH {', '.join(defined)} {all_of_them}").schema if found else None
        except AnalysisException as error:
            raise NotIncrementalError(
                f"Spark rejects what would find its units ({condition_of(error)})",
                "give the columns of its derived tables names of their own, and types that can be compared",
            ) from error
        return found

    def restrictions(self) -> dict[str, tuple[str, frozenset[int]]]:
        """Return what of its inputs some units need; see `units.restriction`.

        Raises:
            NotIncrementalError
        """
        with shape.not_too_deep():
            return restrictions(self.query, {position: number for number, position in enumerate(self.units)})


def followed(
    spark: SparkSession, plans: Plans, sql: str, inputs: Mapping[str, tuple[str, StructType]], key: Sequence[str]
) -> Followed:
    """Return a query whose changes can be computed from those of its inputs.

    Args:
        sql: The author's.
        inputs: Each input's rows as SQL, and their columns.
        key: Of the table.

    Raises:
        NotIncrementalError: If they cannot be, with the reason.
    """
    columns = {name: {c.name: _type_name(c.dataType) for c in of} for name, (_, of) in inputs.items()}
    query = shape.parsed(sql, columns)
    with shape.not_too_deep():
        ties.find(query)
        possible, explicit, num_grouped = shape.unit_columns(query), shape.explicit(query), shape.num_grouped(query)
    pinned = {name: rows for name, (rows, _) in inputs.items()}
    author, ours = (pinned_sql(text, pinned) for text in (sql, explicit))
    found, understood = (plans.explained(text) for text in (author, ours))
    if optimized(found) != optimized(understood) or num_aggregates(understood) != num_grouped:
        raise NotIncrementalError("Spark and this package understand the query differently")
    result = spark.sql(author).schema
    if not _are_called(shape.named(query), result.names):
        raise NotIncrementalError("Spark and this package understand the query differently")
    units = [n for n in shape.sequence(query, key) if n in possible and _can_name_units(result[n].dataType)]
    if not units:
        raise NotIncrementalError(
            "no column of the key says which rows of the inputs a row depends on",
            "put a column into the key that is read from an input, and grouped or partitioned by",
        )
    return Followed(query, result, tuple(units), pinned)


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a query at the two ends of a change.

    Attributes:
        name: As in the query.
        before, after: Its rows, as SQL.
        rows: Those after.
        changed: Those that went and came, (*columns, _mv_sign int); None if it has not changed.
    """

    name: str
    before: str
    after: str
    rows: DataFrame
    changed: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class Touched:
    """Units that may differ.

    Attributes:
        units: (_mv_unit_0, _mv_unit_1, ...), each once; kept, so that they are computed once.
        by_input: How many of them changes of each input touch, or of several together.
    """

    units: DataFrame
    num_units: int
    by_input: Mapping[str, int]


@dataclass(slots=True)
class Kept:
    """What Spark keeps while a change is computed."""

    spark: SparkSession
    views: list[str]
    frames: list[DataFrame]

    def view(self, rows: DataFrame) -> str:
        """Return SQL for rows."""
        name = f"{RESERVED_PREFIX}rows_{uuid4().hex}"
        rows.createOrReplaceTempView(name)
        self.views.append(name)
        return f"SELECT * FROM {name}"  # nosec B608  # our own name

    def once(self, rows: DataFrame) -> DataFrame:
        """Return rows that are computed once."""
        self.frames.append(rows.persist())
        return rows

    def forget(self) -> None:
        """Drop all of it; over Spark Connect views are looked up whenever their rows are read."""
        while self.views:
            self.spark.catalog.dropTempView(self.views.pop())
        while self.frames:
            self.frames.pop().unpersist()


def touched(of: Followed, inputs: Sequence[Input], kept: Kept) -> Touched:
    """Return the units that changes of the inputs can have touched.

    Cost:
        Two jobs: the inputs that have not changed are joined with changed rows.
    """

    def name(relation: str, part: Part) -> str:
        return f"{RESERVED_PREFIX}{part}_{relation}"

    relations: dict[str, str] = {}
    for each in inputs:
        lower = each.name.lower()
        relations |= {name(lower, "before"): each.before, name(lower, "after"): each.after}
        if each.changed is not None:
            signs: tuple[tuple[Part, int], ...] = (("gone", -1), ("came", 1))
            for part, sign in signs:
                rows = each.changed.where(F.col(corrections.SIGN) == sign).drop(corrections.SIGN)
                relations[name(lower, part)] = kept.view(rows)
    defined = ", ".join(f"{quoted(each)} AS ({rows})" for each, rows in relations.items())
    changed = [each.name for each in inputs if each.changed is not None]
    types = [of.columns[position].dataType for position in of.units]
    parts = []
    for query in of.affected(changed, name):
        found = kept.spark.sql(f"WITH {defined} {query.sql}")
        columns = [
            F.col(quoted(c)).cast(kind).alias(_UNIT + str(n))
            for n, (c, kind) in enumerate(zip(found.columns, types, strict=True))
        ]
        parts.append(found.select(*columns, F.lit(" and ".join(query.names)).alias(_BY)))
    by_input = kept.once(reduce(DataFrame.unionAll, parts).distinct())
    counts = {row[0]: row[1] for row in by_input.groupBy(_BY).count().collect()}
    units = by_input.drop(_BY)
    if len(counts) < 2:
        return Touched(units, sum(counts.values()), counts)
    units = kept.once(units.distinct())
    return Touched(units, units.count(), counts)


def signed(of: Followed, sql: str, inputs: Sequence[Input], main: DataFrame, found: Touched, kept: Kept) -> DataFrame:
    """Return main's rows of the affected units, and those that the query has of them now.

    Args:
        sql: The author's.
        main: The query's rows before.
        found: The affected units.

    Returns:
        (*columns, _mv_sign int); lazy.

    Cost:
        The query over what its inputs have of these units, and a scan of main.
    """
    needed = of.restrictions()
    pinned = {}
    for each in inputs:
        column, numbers = needed.get(each.name.lower(), ("", frozenset()))
        kinds = {each.rows.schema[name].dataType for name in each.rows.columns if name.lower() == column}
        # The parts of a UNION may have other types than its result.
        if kinds and kinds == {found.units.schema[_UNIT + str(number)].dataType for number in numbers}:
            pinned[each.name] = kept.view(_with_values(each.rows, column, found, sorted(numbers)))
        else:
            pinned[each.name] = each.after
    now = kept.spark.sql(pinned_sql(sql, pinned))
    names = [quoted(name) for name in now.columns]
    named = F.broadcast(found.units) if found.num_units <= _MAX_BROADCAST else found.units
    signs = []
    for rows, sign in ((main.select(*names), -1), (now, 1)):
        same = (rows[quoted(of.columns[p].name)].eqNullSafe(named[_UNIT + str(n)]) for n, p in enumerate(of.units))
        signs.append(
            rows.join(named, reduce(Column.__and__, same), "left_semi").withColumn(corrections.SIGN, F.lit(sign))
        )
    return reduce(DataFrame.unionByName, signs)


def net(changed: DataFrame, changes: Changeset) -> DataFrame:
    """Return changed rows of an input without those that went and came, if these are among them.

    Args:
        changed: (*columns, _mv_sign int).
        changes: What the input has shown of them: rows of files that came and went may be in both.
    """
    is_listed = not isinstance(changes, SignedRows | Upserts) or changes.in_files is None
    if is_listed or _NOT_GROUPED.search(changed.drop(corrections.SIGN).schema.simpleString()):
        return changed
    columns = [quoted(name) for name in changed.columns if name != corrections.SIGN]
    summed = changed.groupBy(*columns).agg(F.sum(corrections.SIGN).alias(corrections.SIGN))
    return summed.where(f"{corrections.SIGN} <> 0").withColumn(corrections.SIGN, F.signum(corrections.SIGN).cast("int"))


def _with_values(rows: DataFrame, column: str, found: Touched, numbers: Sequence[int]) -> DataFrame:
    """Return the rows in which a column has a value of some unit columns."""
    actual = quoted(next(name for name in rows.columns if name.lower() == column))
    each = (found.units.select(F.col(_UNIT + str(number)).alias(_UNIT)) for number in numbers)
    values = reduce(DataFrame.unionAll, each).distinct()
    literals = _literals(values)
    if literals is None:
        is_small = found.num_units * len(numbers) <= _MAX_BROADCAST
        named = F.broadcast(values) if is_small else values
        return rows.join(named, rows[actual].eqNullSafe(named[_UNIT]), "left_semi")
    of, has_null = literals
    is_one = F.col(actual).isin(of)
    return rows.where(is_one | F.col(actual).isNull() if has_null else is_one)


def _literals(values: DataFrame) -> tuple[list[Column], bool] | None:
    """Return values as they are written into a condition, and whether NULL is one.

    Returns:
        None if they are many, or Python would carry another one.
    """
    value, is_carried = F.col(_UNIT), F.lit(True)
    read: Callable[[object], Column] = F.lit
    match values.schema[_UNIT].dataType:
        case IntegralType() | DecimalType() | BooleanType():
            pass
        case DateType():  # Python has no year 10,000, and Java another calendar before 1582
            value, read = F.unix_date(value), lambda day: F.date_from_unix_date(F.lit(day))
        case StringType():
            is_carried = F.coalesce(F.is_valid_utf8(value), is_carried)
            value = F.when(is_carried, value)
        case _:
            return None
    found = values.select(value, is_carried).limit(_MAX_VALUES + 1).collect()
    if len(found) > _MAX_VALUES or not all(row[1] for row in found):
        return None
    return [read(row[0]) for row in found if row[0] is not None], any(row[0] is None for row in found)


def _can_name_units(kind: object) -> bool:
    """True if two values of a type are equal in a join exactly if they are the same."""
    if isinstance(kind, StringType):
        return kind == StringType()  # no other collation
    return isinstance(kind, AtomicType) and not isinstance(kind, FloatType | DoubleType)


def _type_name(kind: DataType) -> str:
    """Return a type as sqlglot may know it; of a collation it would make plain text."""
    return "unknown" if "collate" in kind.simpleString() else kind.simpleString()


def _are_called(names: Sequence[str], columns: Sequence[str]) -> bool:
    """True if Spark finds the columns that were read, but for the names of those that the query gives none."""
    pairs = zip(names, columns, strict=False)
    are_same = all(not n or _NOT_GIVEN.fullmatch(n) or n.lower() == c.lower() for n, c in pairs)
    return len(names) == len(columns) and are_same

"""Evaluate a table's checks: as conditions of rows, and over all rows that were staged; count a guard's NULLs there.

All checks but `unique` and `references`, and all counts of NULLs, are columns of one aggregate, which reads the columns
that they name and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NumericType

from airflow_mv_provider.core.approval.check import ALL, CHANGED, CheckResult
from airflow_mv_provider.core.definition.checks import Check
from airflow_mv_provider.core.definition.problems import nearest
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.guard import NullCount
from airflow_mv_provider.exceptions import (
    CheckInvalidError,
    DefinitionError,
    MvError,
    SourceChangedError,
    SourceFileError,
    one_line,
)
from airflow_mv_provider.spark.errors import condition_of, translated
from airflow_mv_provider.spark.layout import any_null, columns
from airflow_mv_provider.spark.quality.failing import is_true

_MAX_MESSAGE = 300
# Conditions of errors that an expression raises for a row's values.
_OF_VALUES = ("ARITHMETIC_OVERFLOW", "CAST_", "DATETIME_", "DIVIDE_BY_ZERO", "INVALID_", "NUMERIC_", "USER_RAISED")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The results of all checks, in the definition's order, and the NULLs of the columns that a guard names."""

    checks: tuple[CheckResult, ...]
    nulls: tuple[NullCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Referenced:
    """Another table as a `references` check sees it: its rows at the version of its last publish."""

    rows: DataFrame
    version: int
    location: str


def is_broken(check: Check) -> Column:
    """Return the condition that a row breaks a check of rows; never NULL.

    A row for which SQL of severity `quarantine` raises breaks it too; of another severity, the evaluation raises.
    """
    if check.expression is not None and check.severity == "quarantine":
        return ~is_true(check.expression)
    return ~F.coalesce(_holds(check), F.lit(True))


def _holds(check: Check) -> Column:
    if check.not_null is not None:
        return ~any_null(check.not_null)
    if check.accepted_values is not None:
        [column] = columns([check.accepted_values.column])
        return column.cast("string").isin(*check.accepted_values.texts)
    if check.matches is not None:
        [column] = columns([check.matches.column])
        return column.cast("string").rlike(rf"\A(?:{check.matches.pattern})\z")
    return F.expr(f"({check.expression}\n)")


def _expected(check: Check) -> Column:
    return F.expr(f"({check.expect}\n)")  # the line break ends a comment


def passing(rows: DataFrame, table: RefreshableTable) -> DataFrame:
    """Return the rows that no check of severity `quarantine` leaves out."""
    checks = table.quarantining
    if not checks:
        return rows
    check_valid(rows, table.name, checks)
    return rows.where(~reduce(Column.__or__, map(is_broken, checks)))


def check_valid(
    rows: DataFrame, name: str, checks: Sequence[Check], others: Mapping[str, Referenced] | None = None
) -> None:
    """Check that these checks can be evaluated over rows with these columns; runs no job.

    others : the tables that they reference, by name
    raises : CheckInvalidError, naming the check
    """
    known = {column.lower() for column in rows.columns}
    for check in checks:
        if unknown := [column for column in check.columns if column.lower() not in known]:
            problem = f"the source has no column {unknown[0]!r}{nearest(unknown[0], rows.columns)}."
            raise CheckInvalidError(name, f"check {check.title}: {problem}")
        if check.references is not None:
            _check_reference(rows, name, check, (others or {})[check.references.table].rows)
    written = [check for check in checks if check.references is None and check.unique is None]
    if not _are_conditions(rows, written):
        for check in written:
            _check_condition(rows, name, check)


def _are_conditions(rows: DataFrame, checks: Sequence[Check]) -> bool:
    """True if Spark accepts all checks together; analysing each one alone takes longer than evaluating them all."""
    of_rows = [_holds(check) for check in checks if check.expect is None]
    of_all = [_expected(check) for check in checks if check.expect is not None]
    try:
        fields = rows.select(*_named(of_rows)).schema.fields if of_rows else []
        fields = [*fields, *(rows.agg(*_named(of_all)).schema.fields if of_all else [])]
        if of_rows:
            rows.where(reduce(Column.__and__, of_rows)).schema  # noqa: B018  # unlike SELECT, WHERE refuses an aggregate
    except PySparkException:
        return False
    return all(field.dataType.simpleString() == "boolean" for field in fields)


def _check_condition(rows: DataFrame, name: str, check: Check) -> None:
    """Check that Spark accepts a check, and that it is a condition.

    raises : CheckInvalidError, naming the check
    """
    try:
        of_all = rows.agg(_expected(check)) if check.expect is not None else None
        field = (rows.select(_holds(check)) if of_all is None else of_all).schema.fields[0]
        if of_all is None and field.dataType.simpleString() == "boolean":
            rows.where(_holds(check)).schema  # noqa: B018
    except PySparkException as error:
        problem = one_line(str(error), _MAX_MESSAGE)
        raise CheckInvalidError(name, f"check {check.title} cannot be evaluated: {problem}") from error
    if (kind := field.dataType.simpleString()) != "boolean":
        raise CheckInvalidError(name, f"check {check.title}: expected a condition, found {kind}.")


def _check_reference(rows: DataFrame, name: str, check: Check, other: DataFrame) -> None:
    """Check that the other table has the key, and that its values can be equal to the column's."""
    assert check.references is not None
    key, table = check.references.key, check.references.table
    if key.lower() not in {column.lower() for column in other.columns}:
        problem = f"table {table} has no column {key!r}{nearest(key, other.columns)}."
        raise CheckInvalidError(name, f"check {check.title}: {problem}")
    here, there = _type(rows, check.references.column), _type(other, key)
    if here != there and not (isinstance(here, NumericType) and isinstance(there, NumericType)):
        kinds = f"{check.references.column} is a {here.simpleString()}, {key} of {table} a {there.simpleString()}"
        raise CheckInvalidError(name, f"check {check.title}: {kinds}.")


def _type(rows: DataFrame, column: str) -> DataType:
    return next(field.dataType for field in rows.schema.fields if field.name.lower() == column.lower())


def check_guarded(rows: DataFrame, table: RefreshableTable) -> None:
    """Check that rows with these columns have those whose NULLs a guard limits; runs no job.

    raises : DefinitionError
    """
    known = {column.lower() for column in rows.columns}
    if unknown := [name for name in table.guards.max_null_fraction if name.lower() not in known]:
        problem = f"the source has no column {unknown[0]!r}{nearest(unknown[0], rows.columns)}."
        raise DefinitionError(table.name, f"guard max_null_fraction: {problem}")


def evaluated(
    rows: DataFrame, table: RefreshableTable, of: str = ALL, others: Mapping[str, Referenced] | None = None
) -> Evaluated:
    """Return the results of all checks, and how many NULLs each guarded column has.

    rows    : (*columns); only part of the table's rows if `of` is not ALL, which leaves out checks of all rows, and the
              NULLs of CHANGED rows
    others  : the tables that checks reference, by name
    cost    : a scan of the columns that checks and the guard name, and one, with a shuffle, for each `unique` and each
              `references`, which scans the other table's column too; nothing if there are none
    raises  : CheckInvalidError, also for an expression that fails for a row's values; DefinitionError, for a column
    """
    checks = [check for check in table.checks if of == ALL or not check.is_of_all_rows]
    guarded = () if of == CHANGED else tuple(table.guards.max_null_fraction)
    if not checks and not guarded:
        return Evaluated(tuple(_skipped(check, of) for check in table.checks))
    check_valid(rows, table.name, checks, others)
    check_guarded(rows, table)
    counted = {check.title: _number(check) for check in checks if check.unique is None and check.references is None}
    try:
        with translated(table.name):
            named = _named((*counted.values(), *(F.count_if(column.isNull()) for column in columns(guarded))))
            num_rows, *numbers = rows.agg(F.count(F.lit(1)), *named).collect()[0]
            found = dict(zip(counted, numbers[: len(counted)], strict=True))
            num_null = numbers[len(counted) :]
            found |= {check.title: _num_doubled(rows, check) for check in checks if check.unique is not None}
            found |= {c.title: _num_dangling(rows, table, c, others) for c in checks if c.references is not None}
    except MvError as error:
        if error.__cause__ is None or not condition_of(error.__cause__).startswith(_OF_VALUES):
            raise  # nothing that the definition could mend
        raise CheckInvalidError(table.name, f"its checks cannot be evaluated: {error.problem}") from error
    results = tuple(
        CheckResult(check.title, check.rule, _text(check, others), check.severity, of, num_rows, found[check.title])
        if check.title in found
        else _skipped(check, of)
        for check in table.checks
    )
    nulls = zip(guarded, num_null, strict=True)
    return Evaluated(results, tuple(NullCount(column, number, num_rows) for column, number in nulls))


def _named(numbers: Iterable[Column]) -> list[Column]:
    return [number.alias(f"c{i}") for i, number in enumerate(numbers)]


def _number(check: Check) -> Column:
    if check.expect is not None:
        return F.when(F.coalesce(_expected(check), F.lit(False)), 0).otherwise(1)
    return F.count_if(is_broken(check))


def _num_doubled(rows: DataFrame, check: Check) -> int:
    names = list(check.unique or ())
    by = rows.where(~any_null(names)).groupBy(*columns(names))
    return by.agg(F.count(F.lit(1)).alias("_mv_number")).where(F.col("_mv_number") > 1).count()


def _num_dangling(
    rows: DataFrame, table: RefreshableTable, check: Check, others: Mapping[str, Referenced] | None
) -> int:
    """Return how many rows have a value that the other table lacks.

    raises : CheckInvalidError, if that one's files are gone
    """
    assert check.references is not None
    other = (others or {})[check.references.table]
    [here], [there] = columns([check.references.column]), columns([check.references.key])
    values = rows.where(here.isNotNull()).select(here.alias("_mv_here"))
    known = other.rows.select(there.alias("_mv_there"))
    try:
        with translated(table.name):
            return values.join(known, F.col("_mv_here") == F.col("_mv_there"), "left_anti").count()
    except (SourceChangedError, SourceFileError) as error:
        if other.location.removeprefix("file:") not in error.problem:
            raise  # it is a file of the source
        where = f"check {check.title} cannot be evaluated over {check.references.table} at version {other.version}"
        raise CheckInvalidError(table.name, f"{where}: {error.problem}", hint="Refresh that table.") from error


def _text(check: Check, others: Mapping[str, Referenced] | None) -> str:
    """Return what a check demands, with the version of another table that was looked at."""
    if check.references is None:
        return check.text
    return f"{check.text} (version {(others or {})[check.references.table].version})"


def _skipped(check: Check, of: str) -> CheckResult:
    why = f"the check is about all rows, and only {of} were read"
    return CheckResult(check.title, check.rule, check.text, check.severity, of, skipped=why)

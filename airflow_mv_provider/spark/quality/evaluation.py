"""Evaluate a table's checks: as conditions of rows, and over all rows that were staged; count a guard's NULLs there.

All checks but `unique`, and all counts of NULLs, are columns of one aggregate, which reads the columns that they name
and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.approval.check import ALL, CHANGED, CheckResult
from airflow_mv_provider.core.definition.checks import Check
from airflow_mv_provider.core.definition.problems import nearest
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.guard import NullCount
from airflow_mv_provider.exceptions import CheckInvalidError, DefinitionError, MvError, one_line
from airflow_mv_provider.spark.errors import condition_of, translated
from airflow_mv_provider.spark.layout import any_null, columns

_MAX_MESSAGE = 300
# Conditions of errors that an expression raises for a row's values.
_OF_VALUES = ("ARITHMETIC_OVERFLOW", "CAST_", "DATETIME_", "DIVIDE_BY_ZERO", "INVALID_", "NUMERIC_", "USER_RAISED")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The results of all checks, in the definition's order, and the NULLs of the columns that a guard names."""

    checks: tuple[CheckResult, ...]
    nulls: tuple[NullCount, ...] = ()


def is_broken(check: Check) -> Column:
    """Return the condition that a row breaks a check of rows; never NULL."""
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
    return F.expr(f"({check.expression}\n)")  # the line break ends a comment


def passing(rows: DataFrame, table: RefreshableTable) -> DataFrame:
    """Return the rows that no check of severity `quarantine` leaves out."""
    checks = table.quarantining
    if not checks:
        return rows
    check_valid(rows, table.name, checks)
    return rows.where(~reduce(Column.__or__, map(is_broken, checks)))


def check_valid(rows: DataFrame, name: str, checks: Sequence[Check]) -> None:
    """Check that these checks can be evaluated over rows with these columns; runs no job.

    raises : CheckInvalidError, naming the check
    """
    known = {column.lower() for column in rows.columns}
    for check in checks:
        if unknown := [column for column in check.columns if column.lower() not in known]:
            problem = f"the source has no column {unknown[0]!r}{nearest(unknown[0], rows.columns)}."
            raise CheckInvalidError(name, f"check {check.title}: {problem}")
        try:
            field = _evaluated(rows, check).schema.fields[0]
            if not check.is_of_all_rows and field.dataType.simpleString() == "boolean":
                rows.where(_holds(check)).schema  # noqa: B018  # unlike SELECT, WHERE refuses an aggregate
        except PySparkException as error:
            problem = one_line(str(error), _MAX_MESSAGE)
            raise CheckInvalidError(name, f"check {check.title} cannot be evaluated: {problem}") from error
        if (kind := field.dataType.simpleString()) != "boolean":
            raise CheckInvalidError(name, f"check {check.title}: expected a condition, found {kind}.")


def check_guarded(rows: DataFrame, table: RefreshableTable) -> None:
    """Check that rows with these columns have those whose NULLs a guard limits; runs no job.

    raises : DefinitionError
    """
    known = {column.lower() for column in rows.columns}
    if unknown := [name for name in table.guards.max_null_fraction if name.lower() not in known]:
        problem = f"the source has no column {unknown[0]!r}{nearest(unknown[0], rows.columns)}."
        raise DefinitionError(table.name, f"guard max_null_fraction: {problem}")


def _evaluated(rows: DataFrame, check: Check) -> DataFrame:
    if check.expect is not None:
        return rows.agg(F.expr(f"({check.expect}\n)"))
    return rows.select(F.lit(True) if check.unique is not None else _holds(check))


def evaluated(rows: DataFrame, table: RefreshableTable, of: str = ALL) -> Evaluated:
    """Return the results of all checks, and how many NULLs each guarded column has.

    rows    : (*columns); only part of the table's rows if `of` is not ALL, which leaves out checks of all rows, and the
              NULLs of CHANGED rows
    cost    : a scan of the columns that checks and the guard name, and one, with a shuffle, for each `unique`; nothing
              if there are none
    raises  : CheckInvalidError, also for an expression that fails for a row's values; DefinitionError, for a column
    """
    checks = [check for check in table.checks if of == ALL or not check.is_of_all_rows]
    guarded = () if of == CHANGED else tuple(table.guards.max_null_fraction)
    if not checks and not guarded:
        return Evaluated(tuple(_skipped(check, of) for check in table.checks))
    check_valid(rows, table.name, checks)
    check_guarded(rows, table)
    counted = {check.title: _number(check) for check in checks if check.unique is None}
    try:
        with translated(table.name):
            named = _named((*counted.values(), *(F.count_if(column.isNull()) for column in columns(guarded))))
            num_rows, *numbers = rows.agg(F.count(F.lit(1)), *named).collect()[0]
            found = dict(zip(counted, numbers[: len(counted)], strict=True))
            num_null = numbers[len(counted) :]
            found |= {check.title: _num_doubled(rows, check) for check in checks if check.unique is not None}
    except MvError as error:
        if error.__cause__ is None or not condition_of(error.__cause__).startswith(_OF_VALUES):
            raise  # nothing that the definition could mend
        raise CheckInvalidError(table.name, f"its checks cannot be evaluated: {error.problem}") from error
    results = tuple(
        CheckResult(check.title, check.rule, check.text, check.severity, of, num_rows, found[check.title])
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
        holds = F.expr(f"({check.expect}\n)")
        return F.when(F.coalesce(holds, F.lit(False)), 0).otherwise(1)
    return F.count_if(is_broken(check))


def _num_doubled(rows: DataFrame, check: Check) -> int:
    names = list(check.unique or ())
    by = rows.where(~any_null(names)).groupBy(*columns(names))
    return by.agg(F.count(F.lit(1)).alias("_mv_number")).where(F.col("_mv_number") > 1).count()


def _skipped(check: Check, of: str) -> CheckResult:
    why = f"it is about all rows, and only {of} were read"
    return CheckResult(check.title, check.rule, check.text, check.severity, of, skipped=why)

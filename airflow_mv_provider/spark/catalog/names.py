"""Spark's catalog: what its names lead to, and the names of mains in it; the only module that asks the catalog.

Nothing is opened or written by a name (reasons: `core/catalog`). Every statement here changes the catalog only: the
table that is registered is there already, and a name that is dropped is that of an external table, whose files stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from airflow_mv_provider.core.catalog.entry import Entry, obstacle, parsed, quoted_name, registering, schema_of
from airflow_mv_provider.core.definition.identifier import literal
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.exceptions import (
    CatalogUnavailableError,
    DefinitionError,
    MvError,
    NameTakenError,
    SettingError,
)
from airflow_mv_provider.spark.errors import FROM_SPARK, condition_of, first_line, translate

_HINT = (
    "Start Spark with a Hive metastore: spark.sql.catalogImplementation=hive in spark-defaults.conf, its address in"
    " hive-site.xml; see docs/catalogs.md."
)


def entry(spark: SparkSession, name: str) -> Entry | None:
    """Return what the catalog has under a name, None if nothing.

    cost   : one question to the catalog, about 0.05 s
    raises : SettingError, if this Spark forgets names when it ends; CatalogUnavailableError
    """
    check_persistent(spark, name)
    # Unlike DESCRIBE, this asks the catalog alone: the table's files may be gone.
    asked = f"SHOW TABLE EXTENDED IN {quoted_name(schema_of(name))} LIKE {literal(name.rpartition('.')[2])}"
    try:
        rows = [row for row in spark.sql(asked).collect() if not row.isTemporary]
    except FROM_SPARK as error:
        if condition_of(error).startswith("SCHEMA_NOT_FOUND"):
            return None
        raise _not_answered(error, name) from error
    return parsed(name, rows[0].information) if rows else None


def check_persistent(spark: SparkSession, name: str) -> None:
    """Check that other processes see the names of this session's catalog.

    raises : SettingError
    """
    if spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory":
        raise SettingError(name, "this Spark has no metastore: it forgets all names when it ends.", hint=_HINT)


def register(spark: SparkSession, name: str, table: TableRef) -> None:
    """Give the Delta table at its location a name; does nothing if it has it already.

    raises : NameTakenError, if the name leads to something else; DefinitionError, if its schema is missing
    """
    with _answered(name):
        spark.sql(registering(name, table.location))
    _check(spark, name, table)


def unregister(spark: SparkSession, name: str, table: TableRef) -> bool:
    """Drop a name if it leads to this table, whose files stay; return False if it does not, and is left.

    Between the question and the answer somebody could give the name to a managed table, whose files would go: Spark has
    no statement that drops a name on a condition.
    """
    found = entry(spark, name)
    if found is None or obstacle(found, table.location) is not None:
        return False
    drop(spark, name)
    return True


def drop(spark: SparkSession, name: str) -> None:
    """Drop a name that was just seen to be an external table's."""
    with _answered(name):
        spark.sql(f"DROP TABLE IF EXISTS {quoted_name(name)}")


def _check(spark: SparkSession, name: str, table: TableRef) -> None:
    found = entry(spark, name)
    problem = f"{name} is not there after it was registered." if found is None else obstacle(found, table.location)
    if problem is not None:
        raise NameTakenError(name, problem)


@contextmanager
def _answered(name: str) -> Iterator[None]:
    try:
        yield
    except FROM_SPARK as error:
        if condition_of(error).startswith("SCHEMA_NOT_FOUND"):
            hint = f"Run `CREATE SCHEMA {quoted_name(schema_of(name))}`, or change the definition's catalog_name."
            raise DefinitionError(name, f"the catalog has no schema {schema_of(name)}.", hint=hint) from error
        raise _not_answered(error, name) from error


def _not_answered(error: BaseException, name: str) -> MvError:
    found = translate(error, name)
    if "HiveException" in str(error) or "MetaException" in str(error):
        return CatalogUnavailableError(name, f"the catalog does not answer: {first_line(str(error))}.")
    return found

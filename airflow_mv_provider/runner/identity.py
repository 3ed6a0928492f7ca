"""Check which table is at a location: main carries an identity, and its registration must have the same one."""

from __future__ import annotations

import logging
from dataclasses import replace

from airflow_mv_provider.core.deployment_checks import check_log_store, log_store_confs
from airflow_mv_provider.core.location import TableRef, is_table_uuid, main_location
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import MainNotOursError, TableConflictError
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.naming import check_name, named
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.delta import NAME_PROPERTY, UUID_PROPERTY, Main, detail

log = logging.getLogger(__name__)

UNIDENTIFIED = ""


def identified(context: Context, table: TableRecord) -> tuple[TableRecord, bool]:
    """Return the table with the identity that main carries, and whether main exists.

    raises : MainNotOursError, MainUnsupportedError, TableConflictError, NameGoneError, NameTakenError
    """
    confs = {name: context.spark.conf.get(name, None) for name in log_store_confs(table.location)}
    check_log_store(table.location, confs, is_single_driver=context.settings.is_s3_single_driver)
    main = Main(context.spark, table.main, table.uuid)
    found = main.properties()
    if found is None:
        _check_not_moved(context, table)
        check_name(main, table, None)
        return table, False
    carried = found.get(UUID_PROPERTY)
    if carried is None and not table.definition.adopt and not main.is_claimed:
        raise MainNotOursError(table.name, f"{table.main} holds a Delta table that this package did not create.")
    if carried is None:
        with durable(Write.ADOPT):
            main.adopt()
    elif not is_table_uuid(carried):
        raise MainNotOursError(table.name, f"its property {UUID_PROPERTY} is not a valid identity.", hint="Unset it.")
    elif carried != table.uuid:
        context.store.registry.adopt_uuid(table, carried)
        # The database was lost, or the warehouse was copied: from here both look the same.
        log.warning(
            "%s: %s has the identity %s from another metadata database and keeps it. If it is a copy whose original is "
            "in use, give it its own: ALTER TABLE %s UNSET TBLPROPERTIES ('%s'), then apply it with `adopt: true`.",
            *(table.name, table.main, carried, table.main.sql, UUID_PROPERTY),
        )
        table = replace(table, uuid=carried)
    named(main, table, found.get(NAME_PROPERTY))
    return table, True


def identity_at(context: Context, main: TableRef) -> str | None:
    """Return the identity of a table; UNIDENTIFIED if there are files without one, None if there are none."""
    found = detail(context.spark, main)
    if found is None:
        return UNIDENTIFIED if storage.has_files(context.spark, main.location) else None
    return found.properties.get(UUID_PROPERTY, UNIDENTIFIED)


def _check_not_moved(context: Context, table: TableRecord) -> None:
    """Check that a missing main was not moved to the settings' warehouse; else it would be created a second time.

    raises : TableConflictError, if it was
    """
    warehouse = context.settings.warehouse
    if warehouse is None:
        return
    elsewhere = TableRef(main_location(warehouse, table.name))
    if elsewhere != table.main and identity_at(context, elsewhere) == table.uuid:
        raise TableConflictError(
            table.name,
            f"the table is registered at {table.location}, which is empty, but it was found at {elsewhere}.",
            hint=f"If the warehouse was moved, run `amv relocate {table.name} --warehouse {warehouse}`.",
        )

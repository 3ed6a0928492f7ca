"""The name of a main in Spark's catalog: register it, notice when it leads elsewhere, drop it.

    register   the name in the catalog, which leads to main's location from then on                     register_name
    record     the name in a property of main, so that it is noticed if it is dropped or renamed         record_name
    unregister the name, if it still leads to main                                                       unregister_name
    follow     the name to main's new location, once nothing is at the old one                           move_name

Each is repeatable, and none writes to the table that a name leads to. They need no ownership, since every process
registers the same. A table without `catalog_name` never asks the catalog.
"""

from __future__ import annotations

import logging

from airflow_mv_provider.core.catalog.entry import EXTERNAL, NameStep, name_step, obstacle
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import NameTakenError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.catalog import names
from airflow_mv_provider.spark.delta import NAME_PROPERTY, Main, detail

_NOT_REGISTERED = ""

log = logging.getLogger(__name__)


def named(main: Main, table: TableRecord, recorded: str | None) -> None:
    """Register main's name, which exists; does nothing if that was done.

    recorded : the name that main's properties have
    raises   : NameGoneError, NameTakenError, SettingError, DefinitionError, CatalogUnavailableError
    """
    step = check_name(main, table, recorded)
    name = table.definition.catalog_name
    if name is None or step is NameStep.NOTHING:
        return
    if step is NameStep.REGISTER:
        with durable(Write.REGISTER_NAME):
            names.register(main.spark, name, main.ref)
    with durable(Write.RECORD_NAME):
        main.enable({NAME_PROPERTY: name})


def check_name(main: Main, table: TableRecord, recorded: str | None) -> NameStep:
    """Return what has to be done about main's name, which may not exist yet; see `named`."""
    name = table.definition.catalog_name
    if name is None:
        return NameStep.NOTHING
    return name_step(table.name, name, names.entry(main.spark, name), main.ref.location, recorded)


def unregister(main: Main, table: TableRecord, name: str) -> bool:
    """Drop main's name; return False, and leave it, if the name resolves to another table.

    raises : SettingError, if this Spark has no metastore; CatalogUnavailableError
    """
    with durable(Write.UNREGISTER_NAME):
        _expect_none(main, name)
        is_done = names.unregister(main.spark, name, main.ref)
    if not is_done:
        log.info("%s: %s does not lead to %s, so this name is not dropped.", table.name, name, main.ref)
    return is_done


def follow(main: Main, table: TableRecord) -> None:
    """Make main's name lead to main, which was moved, unless something is where it leads to.

    raises : NameTakenError, if the name leads to another table, or to one that is still there
    """
    name = table.definition.catalog_name
    if name is None:
        return
    if (found := names.entry(main.spark, name)) is None:
        if (main.properties() or {}).get(NAME_PROPERTY) == _NOT_REGISTERED:
            named(main, table, _NOT_REGISTERED)  # a relocation died after it had dropped the name
        return  # otherwise the next refresh registers it, or says that it is gone
    if (problem := obstacle(found, main.ref.location)) is None:
        return
    if found.type != EXTERNAL or not found.is_delta or found.location is None or _is_there(main, found.location):
        raise NameTakenError(table.name, problem)
    if main.properties() is None:
        return
    with durable(Write.MOVE_NAME):  # ALTER TABLE ... SET LOCATION needs the old files
        _expect_none(main, name)
        names.drop(main.spark, name)
    named(main, table, _NOT_REGISTERED)


def _expect_none(main: Main, name: str) -> None:
    """Record in main, if it is there, that its name is to be registered again where it is missing from now on."""
    if (main.properties() or {}).get(NAME_PROPERTY) == name:
        main.enable({NAME_PROPERTY: _NOT_REGISTERED})


def _is_there(main: Main, location: str) -> bool:
    return detail(main.spark, TableRef(location)) is not None or storage.has_files(main.spark, location)

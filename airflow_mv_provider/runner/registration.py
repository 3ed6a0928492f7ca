"""Register definitions: the only operation of the runner without Spark, so this module does not import PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.location import check_apart, main_location, source_location
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import SettingError, TableConflictError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.settings import Settings

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store


def register(store: Store, settings: Settings, definition: RefreshableTable) -> TableRecord:
    """Register a table, or update its definition; a running refresh keeps the definition that it began with.

    raises : UnsafeLocationError, TableConflictError, SettingError
    """
    warehouse, location = place_of(settings, definition)
    if definition.catalog_name is not None:
        _check_free(store, definition)
    with durable(Write.REGISTER):
        return store.registry.register(definition, warehouse=warehouse, location=location)


def place_of(settings: Settings, definition: RefreshableTable) -> tuple[str, str]:
    """Return the warehouse of the settings, and where main of a table lies in it, apart from the table's sources.

    raises : SettingError, if no warehouse is set; UnsafeLocationError
    """
    warehouse = warehouse_of(settings)
    location = main_location(warehouse, definition.name)
    for path in definition.source.paths:
        check_apart(location, source_location(path, warehouse, settings.source_roots))
    return warehouse, location


def warehouse_of(settings: Settings) -> str:
    """Return where new tables lie.

    raises : SettingError, if no place is set
    """
    if settings.warehouse is None:
        raise SettingError("warehouse", "none is set.", hint="Give --warehouse DIR or set AMV_WAREHOUSE.")
    return settings.warehouse


def _check_free(store: Store, definition: RefreshableTable) -> None:
    """Refuse a name of the catalog that another table's definition has; the catalog decides a race.

    raises : TableConflictError
    """
    for other in store.tables():
        if other.definition.catalog_name == definition.catalog_name and other.name != definition.name:
            problem = f"{definition.catalog_name} is the catalog_name of {other.name}."
            raise TableConflictError(definition.name, problem, hint="Choose another catalog_name.")

"""Migrations of the metadata database as part of `airflow db migrate`.

Switched on by naming `MvDBManager` in `[database] external_db_managers`; not by itself, because then a metadata
database that cannot be reached would keep Airflow from migrating its own. `airflow db check-migrations` then waits for
both, and `airflow db reset` leaves these tables alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.utils.db_manager import BaseDBManager
from sqlalchemy import MetaData

from airflow_mv_provider.exceptions import DatabaseVersionError
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.metadata import migrations


class MvDBManager(BaseDBManager):
    """Migrate the metadata database that `[mv]`, `AMV_*` or the connection `mv_state_default` names."""

    metadata = MetaData()  # none of the tables need be in Airflow's own database
    migration_dir = str(Path(migrations.__file__).parent)
    version_table_name = migrations.VERSION_TABLE
    supports_table_dropping = False

    def initdb(self, use_migration_files: bool = False) -> None:
        """Create the tables; arguments as Airflow's."""
        self.upgradedb()

    def upgradedb(self, *args: Any, **kwargs: Any) -> None:
        """Bring the database to this package's version."""
        from airflow_mv_provider.runner.local import migrate_database

        version = migrate_database(MvHook().settings())
        self.log.info("The metadata database of refreshable tables is at version %s", version)

    def check_migration(self) -> bool:
        """Return whether the database is at this package's version."""
        from airflow_mv_provider.runner.local import open_database

        engine = open_database(MvHook().settings())
        try:
            migrations.check(engine)
        except DatabaseVersionError:
            return False
        finally:
            engine.dispose()
        return True

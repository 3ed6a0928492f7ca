"""Alembic's environment: runs on the connection that `migrate` passes."""

from __future__ import annotations

from alembic import context

from airflow_mv_provider.metadata.migrations import VERSION_TABLE
from airflow_mv_provider.metadata.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()

"""Indexes for the newest refreshes of an outcome, and for those that began long ago"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.drop_index("refresh_by_table", "refresh")
    op.create_index("refresh_by_table", "refresh", ["table_id", "number", "outcome"])
    op.create_index("refresh_by_outcome", "refresh", ["table_id", "outcome", "is_whole", "number"])
    op.create_index("refresh_by_time", "refresh", ["table_id", "started_ms"])

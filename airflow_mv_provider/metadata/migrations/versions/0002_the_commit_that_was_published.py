"""The commit that was published, instead of main's id

The column's present values are not marks of commits, so the next refresh of each table compares with main itself, once.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("ALTER TABLE refresh_state RENAME COLUMN published_delta_id TO published_commit")

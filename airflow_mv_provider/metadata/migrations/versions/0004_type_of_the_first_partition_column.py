"""The type of the first partition column, by which its values are ordered; the next seal of each table writes it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("refresh_state", sa.Column("partition_type", sa.String(32), nullable=True))

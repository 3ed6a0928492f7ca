"""Some of the rows that a refresh changes, kept with its history"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "refresh_sample",
        sa.Column("refresh_id", sa.String(32), sa.ForeignKey("refresh.id"), primary_key=True),
        sa.Column("merge_round", sa.BigInteger(), nullable=False),
        sa.Column("sample", sa.JSON(), nullable=False),
    )

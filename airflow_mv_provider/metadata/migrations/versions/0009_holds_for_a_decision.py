"""Refreshes that are held for a decision, and what was decided"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("refresh", sa.Column("is_hold_requested", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "refresh_hold",
        sa.Column("refresh_id", sa.String(32), sa.ForeignKey("refresh.id"), primary_key=True),
        sa.Column("merge_round", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("guards", sa.JSON(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("decision", sa.String(16)),
        sa.Column("decided_ms", sa.BigInteger()),
        sa.Column("decided_by", sa.Text()),
        sa.Column("note", sa.Text()),
    )

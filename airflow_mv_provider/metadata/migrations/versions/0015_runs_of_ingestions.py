"""Runs of ingestions"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "ingestion_run",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("ingestion", sa.String(100), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("owner_key", sa.Text(), nullable=False),
        sa.Column("trigger", sa.String(32), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_ms", sa.BigInteger(), nullable=True),
        sa.Column("tables", sa.JSON(), nullable=False),
        sa.Column("released", sa.JSON(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
    )
    op.create_index("ingestion_run_by_name", "ingestion_run", ["ingestion", "number"])

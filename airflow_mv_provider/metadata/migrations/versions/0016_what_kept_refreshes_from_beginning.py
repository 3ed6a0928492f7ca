"""What kept refreshes from beginning"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "table_obstacle",
        sa.Column(
            "table_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.ForeignKey("refreshable_table.id"),
            primary_key=True,
        ),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("num_tries", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=False),
    )

"""The newest audit of each table"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "table_audit",
        sa.Column(
            "table_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.ForeignKey("refreshable_table.id"),
            primary_key=True,
        ),
        sa.Column("audit_id", sa.String(32), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("found", sa.JSON(), nullable=False),
        sa.Column("repaired_by", sa.String(32), nullable=True),
    )

"""What has happened to rows that somebody asked about on the page"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "row_answer",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("table_id", _ID, sa.ForeignKey("refreshable_table.id"), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("is_error", sa.Boolean(), nullable=False),
    )
    op.create_index("row_answer_by_table", "row_answer", ["table_id", "at_ms"])

"""Rows of main whose deletes an approval has left out"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("refresh", sa.Column("num_kept", sa.BigInteger()))
    op.add_column("refresh_state", sa.Column("num_kept", sa.BigInteger(), nullable=False, server_default="0"))

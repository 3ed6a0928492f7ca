"""Refreshes that brought rows from elsewhere than the table's own source: rollbacks and loads"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("refresh", sa.Column("is_of_source", sa.Boolean(), nullable=False, server_default=sa.true()))

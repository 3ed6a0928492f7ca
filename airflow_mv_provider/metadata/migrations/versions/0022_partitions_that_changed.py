"""In how many partitions a refresh changed a row, and its NULLs: guards compare the next ones with them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.add_column("refresh", sa.Column("partitions_changed", sa.BigInteger(), nullable=True))
    op.add_column("refresh", sa.Column("null_counts", sa.JSON(), nullable=True))

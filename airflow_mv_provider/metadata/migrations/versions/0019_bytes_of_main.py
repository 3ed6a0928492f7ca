"""How many bytes main has, as of its last publish"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("refresh_state", sa.Column("main_bytes", sa.BigInteger(), nullable=True))

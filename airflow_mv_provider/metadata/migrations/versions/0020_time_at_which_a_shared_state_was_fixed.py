"""When the state of the source was fixed, if that was before the refresh began"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("refresh", sa.Column("checked_ms", sa.BigInteger(), nullable=True))

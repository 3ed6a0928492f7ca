"""The refreshes whose digests a publish has made obsolete: the digests of main may lie in several layers"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("refresh", sa.Column("outdated_layers", sa.JSON(), nullable=True))

"""When the source came to the state that a refresh found"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("refresh", sa.Column("source_ms", sa.BigInteger(), nullable=True))

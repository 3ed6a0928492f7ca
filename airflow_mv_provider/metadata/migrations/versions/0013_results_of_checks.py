"""The results of a definition's checks, in the history of refreshes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("refresh", sa.Column("checks", sa.JSON(), nullable=True))

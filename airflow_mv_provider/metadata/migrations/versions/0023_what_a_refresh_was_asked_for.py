"""Whether a comparison or a reload was asked for: a refresh that is repeated is asked for the same"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    for name in ("is_forced", "is_reload"):
        op.add_column("refresh", sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false()))

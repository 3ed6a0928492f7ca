"""The order in which a table's refreshes began, as a number: a clock may have been set back

Existing refreshes are numbered by their start times, the only order known for them.
"""

from __future__ import annotations

from itertools import count, groupby

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("refresh", sa.Column("number", sa.BigInteger(), nullable=False, server_default="0"))
    db = op.get_bind()
    refresh = sa.table("refresh", *map(sa.column, ("id", "table_id", "number", "started_ms", "epoch")))
    began = sa.select(refresh.c.id, refresh.c.table_id).order_by(
        refresh.c.table_id, refresh.c.started_ms, refresh.c.epoch, refresh.c.id
    )
    for _, rows in groupby(db.execute(began).all(), key=lambda row: row.table_id):
        numbered = [{"of": row.id, "nth": nth} for row, nth in zip(rows, count(1), strict=False)]
        db.execute(
            sa.update(refresh).where(refresh.c.id == sa.bindparam("of")).values(number=sa.bindparam("nth")), numbered
        )
    for name, table, columns in (
        ("refresh_by_table", "refresh", ["table_id", "number", "outcome", "is_whole"]),
        ("refresh_by_owner", "refresh", ["owner_key", "number"]),
        ("refresh_attempt_by_owner", "refresh_attempt", ["owner_key", "epoch"]),
    ):
        op.drop_index(name, table)
        op.create_index(name, table, columns)

"""A second sum of hashes in what is sealed and published

It is unknown for existing data. Published digests are deleted, so the next refresh of each table reads main, once. A
running refresh that has not been compared is given up, and the next one reads the source again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    db = op.get_bind()
    db.execute(sa.text("UPDATE refresh_state SET published_digests = NULL"))
    refresh = sa.table("refresh", sa.column("id"), sa.column("seal", sa.JSON))
    for refresh_id in db.scalars(sa.select(refresh.c.id)).all():
        seal = db.scalar(sa.select(refresh.c.seal).where(refresh.c.id == refresh_id))
        if seal is not None:
            db.execute(sa.update(refresh).where(refresh.c.id == refresh_id).values(seal=seal | {"mixed": 0}))

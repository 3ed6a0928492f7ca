"""How long a lease, and a waiter's ticket, was given for; a lease for read-only refreshes; a person's word on an owner

An existing lease counts as one of an hour, the longest default; only a setting could have made one longer.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("ALTER TABLE refresh_state ADD COLUMN lease_ms BIGINT NOT NULL DEFAULT 3600000")
    op.execute("ALTER TABLE refresh_ticket ADD COLUMN patience_ms BIGINT NOT NULL DEFAULT 3600000")
    op.execute("ALTER TABLE refresh ADD COLUMN lease_expires_ms BIGINT NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE refresh ADD COLUMN lease_ms BIGINT NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE refresh_attempt ADD COLUMN note TEXT")

"""All tables"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "ingestion_run",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("ingestion", sa.String(length=100), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("owner_key", sa.Text(), nullable=False),
        sa.Column("trigger", sa.String(length=32), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_ms", sa.BigInteger(), nullable=True),
        sa.Column("tables", sa.JSON(), nullable=False),
        sa.Column("released", sa.JSON(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ingestion_run_by_name", "ingestion_run", ["ingestion", "number"], unique=False)
    op.create_table(
        "refreshable_table",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=400), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("warehouse", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("content_hash", sa.String(length=16), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("location"),
        sa.UniqueConstraint("name"),
        sa.UniqueConstraint("uuid"),
    )
    op.create_table(
        "partition_totals",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("num_rows", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.BigInteger(), nullable=False),
        sa.Column("mixed", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("table_id", "partition"),
    )
    op.create_table(
        "refresh",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner_key", sa.Text(), nullable=False),
        sa.Column("trigger", sa.String(length=32), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("definition_fingerprint", sa.String(length=16), nullable=False),
        sa.Column("overrides", sa.JSON(), nullable=False),
        sa.Column("scope", sa.JSON(), nullable=True),
        sa.Column("is_whole", sa.Boolean(), nullable=False),
        sa.Column("is_of_source", sa.Boolean(), nullable=False),
        sa.Column("frozen", sa.JSON(), nullable=False),
        sa.Column("schema_changes", sa.JSON(), nullable=False),
        sa.Column("checks", sa.JSON(), nullable=True),
        sa.Column("null_counts", sa.JSON(), nullable=True),
        sa.Column("is_read_only", sa.Boolean(), nullable=False),
        sa.Column("is_hold_requested", sa.Boolean(), nullable=False),
        sa.Column("is_forced", sa.Boolean(), nullable=False),
        sa.Column("is_reload", sa.Boolean(), nullable=False),
        sa.Column("lease_expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("lease_ms", sa.BigInteger(), nullable=False),
        sa.Column("lower", sa.BigInteger(), nullable=True),
        sa.Column("upper", sa.BigInteger(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("source_fingerprint", sa.String(length=16), nullable=True),
        sa.Column("checked_ms", sa.BigInteger(), nullable=True),
        sa.Column("source_ms", sa.BigInteger(), nullable=True),
        sa.Column("strategy", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("estimates", sa.JSON(), nullable=False),
        sa.Column("wanted_strategy", sa.String(length=16), nullable=False),
        sa.Column("seal", sa.JSON(), nullable=True),
        sa.Column("outdated_kept", sa.JSON(), nullable=True),
        sa.Column("merge_round", sa.BigInteger(), nullable=False),
        sa.Column("has_committed", sa.Boolean(), nullable=False),
        sa.Column("rows_inserted", sa.BigInteger(), nullable=False),
        sa.Column("rows_updated", sa.BigInteger(), nullable=False),
        sa.Column("rows_deleted", sa.BigInteger(), nullable=False),
        sa.Column("rows_unchanged", sa.BigInteger(), nullable=False),
        sa.Column("rows_rejected", sa.BigInteger(), nullable=False),
        sa.Column("num_kept", sa.BigInteger(), nullable=True),
        sa.Column("bytes_main", sa.BigInteger(), nullable=False),
        sa.Column("bytes_staging", sa.BigInteger(), nullable=False),
        sa.Column("main_version", sa.BigInteger(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_ms", sa.BigInteger(), nullable=True),
        sa.Column("phase_seconds", sa.JSON(), nullable=False),
        sa.Column("partitions", sa.JSON(), nullable=False),
        sa.Column("partitions_changed", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("refresh_by_outcome", "refresh", ["table_id", "outcome", "is_whole", "number"], unique=False)
    op.create_index("refresh_by_owner", "refresh", ["owner_key", "number"], unique=False)
    op.create_index("refresh_by_table", "refresh", ["table_id", "number", "outcome"], unique=False)
    op.create_index("refresh_by_time", "refresh", ["table_id", "started_ms"], unique=False)
    op.create_table(
        "refresh_definition",
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("fingerprint", sa.String(length=16), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("table_id", "fingerprint"),
    )
    op.create_table(
        "refresh_state",
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("refresh_id", sa.String(length=32), nullable=True),
        sa.Column("owner_key", sa.Text(), nullable=True),
        sa.Column("owner_process", sa.Text(), nullable=True),
        sa.Column("owned_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("lease_expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("lease_ms", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested_ms", sa.BigInteger(), nullable=True),
        sa.Column("cancel_requested_by", sa.Text(), nullable=True),
        sa.Column("published_upper", sa.BigInteger(), nullable=False),
        sa.Column("published_version", sa.BigInteger(), nullable=True),
        sa.Column("published_commit", sa.Text(), nullable=True),
        sa.Column("published_hash", sa.String(length=16), nullable=True),
        sa.Column("published_totals", sa.JSON(), nullable=True),
        sa.Column("covered", sa.JSON(), nullable=False),
        sa.Column("partition_type", sa.String(length=32), nullable=True),
        sa.Column("is_main_trusted", sa.Boolean(), nullable=False),
        sa.Column("paused_ms", sa.BigInteger(), nullable=True),
        sa.Column("paused_by", sa.Text(), nullable=True),
        sa.Column("dropping_ms", sa.BigInteger(), nullable=True),
        sa.Column("tickets_given", sa.BigInteger(), nullable=False),
        sa.Column("num_kept", sa.BigInteger(), nullable=False),
        sa.Column("main_bytes", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("table_id"),
    )
    op.create_table(
        "refresh_ticket",
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("caller_key", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("trigger", sa.String(length=32), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("joined_refresh", sa.String(length=32), nullable=True),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("patience_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("table_id", "caller_key"),
    )
    op.create_table(
        "row_answer",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("is_error", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("row_answer_by_table", "row_answer", ["table_id", "at_ms"], unique=False)
    op.create_table(
        "source_binding",
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("upper", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fingerprint", sa.String(length=16), nullable=False),
        sa.Column("bound_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("table_id", "upper"),
    )
    op.create_table(
        "source_frontier",
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("fingerprint", sa.String(length=16), nullable=False),
        sa.Column("frontier", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("table_id", "fingerprint"),
    )
    op.create_table(
        "table_audit",
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("audit_id", sa.String(length=32), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("found", sa.JSON(), nullable=False),
        sa.Column("repaired_by", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("table_id"),
    )
    op.create_table(
        "table_obstacle",
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("num_tries", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["refreshable_table.id"],
        ),
        sa.PrimaryKeyConstraint("table_id", "number"),
    )
    op.create_table(
        "refresh_attempt",
        sa.Column("refresh_id", sa.String(length=32), nullable=False),
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("owner_key", sa.Text(), nullable=False),
        sa.Column("owner_process", sa.Text(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("chunks", sa.BigInteger(), nullable=False),
        sa.Column("phase_seconds", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["refresh_id"],
            ["refresh.id"],
        ),
        sa.PrimaryKeyConstraint("refresh_id", "epoch"),
    )
    op.create_index("refresh_attempt_by_owner", "refresh_attempt", ["owner_key", "epoch"], unique=False)
    op.create_table(
        "refresh_chunk",
        sa.Column("refresh_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("is_whole_table", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("merge_round", sa.BigInteger(), nullable=True),
        sa.Column("base_version", sa.BigInteger(), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("num_rows", sa.BigInteger(), nullable=True),
        sa.Column("digest", sa.BigInteger(), nullable=True),
        sa.Column("num_bytes", sa.BigInteger(), nullable=True),
        sa.Column("committed_version", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["refresh_id"],
            ["refresh.id"],
        ),
        sa.PrimaryKeyConstraint("refresh_id", "number"),
    )
    op.create_table(
        "refresh_hold",
        sa.Column("refresh_id", sa.String(length=32), nullable=False),
        sa.Column("merge_round", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("guards", sa.JSON(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("decision", sa.String(length=16), nullable=True),
        sa.Column("decided_ms", sa.BigInteger(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["refresh_id"],
            ["refresh.id"],
        ),
        sa.PrimaryKeyConstraint("refresh_id", "merge_round"),
    )
    op.create_table(
        "refresh_progress",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("refresh_id", sa.String(length=32), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("chunk", sa.BigInteger(), nullable=False),
        sa.Column("sealed_rows", sa.BigInteger(), nullable=False),
        sa.Column("sealed_digest", sa.BigInteger(), nullable=False),
        sa.Column("sealed_mixed", sa.BigInteger(), nullable=False),
        sa.Column("is_completed", sa.Boolean(), nullable=False),
        sa.Column("main_rows", sa.BigInteger(), nullable=False),
        sa.Column("rows_inserted", sa.BigInteger(), nullable=False),
        sa.Column("rows_updated", sa.BigInteger(), nullable=False),
        sa.Column("rows_deleted", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["refresh_id"],
            ["refresh.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("refresh_id", "partition"),
    )
    op.create_index("refresh_progress_chunk", "refresh_progress", ["refresh_id", "chunk"], unique=False)
    op.create_index("refresh_progress_completed", "refresh_progress", ["refresh_id", "is_completed"], unique=False)
    op.create_table(
        "refresh_sample",
        sa.Column("refresh_id", sa.String(length=32), nullable=False),
        sa.Column("merge_round", sa.BigInteger(), nullable=False),
        sa.Column("sample", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["refresh_id"],
            ["refresh.id"],
        ),
        sa.PrimaryKeyConstraint("refresh_id"),
    )

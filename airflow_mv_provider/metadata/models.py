"""The tables of the metadata database. Times are integers: milliseconds since the epoch, by the database's clock."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# SQLite makes only INTEGER an alias of the rowid; PostgreSQL needs the larger range.
_Id = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, int: BigInteger, str: Text}  # noqa: RUF012


class RefreshableTableRow(Base):
    """A registered definition. `uuid` is also stored in main itself."""

    __tablename__ = "refreshable_table"

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    name: Mapped[str] = mapped_column(String(400), unique=True)
    uuid: Mapped[str] = mapped_column(String(36), unique=True)
    warehouse: Mapped[str]
    location: Mapped[str] = mapped_column(Text, unique=True)
    definition: Mapped[dict[str, Any]]
    content_hash: Mapped[str] = mapped_column(String(16))
    created_ms: Mapped[int]
    updated_ms: Mapped[int]


class RefreshStateRow(Base):
    """One row per table: the owner at work, the phase, and the state of main at its last publish."""

    __tablename__ = "refresh_state"

    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"), primary_key=True)
    phase: Mapped[str] = mapped_column(String(16))
    epoch: Mapped[int]
    refresh_id: Mapped[str | None] = mapped_column(String(32))
    owner_key: Mapped[str | None]
    owner_process: Mapped[str | None]
    owned_since_ms: Mapped[int | None]
    lease_expires_ms: Mapped[int]
    lease_ms: Mapped[int]  # its length: it began this long before it expires
    cancel_requested_ms: Mapped[int | None]
    cancel_requested_by: Mapped[str | None]
    published_upper: Mapped[int]
    published_version: Mapped[int | None]
    published_commit: Mapped[str | None]
    published_hash: Mapped[str | None] = mapped_column(String(16))
    published_totals: Mapped[dict[str, Any] | None]  # of all rows of main; by partition in `partition_totals`
    covered: Mapped[list[Any]]
    partition_type: Mapped[str | None] = mapped_column(String(32))  # type of the first partition column
    is_main_trusted: Mapped[bool]
    paused_ms: Mapped[int | None]  # here and not with the definition: one compare-and-set on this row decides
    paused_by: Mapped[str | None]
    dropping_ms: Mapped[int | None]
    tickets_given: Mapped[int]
    num_kept: Mapped[int]  # rows of main that the source had no longer at the last publish: their deletes were left out
    main_bytes: Mapped[int | None]  # of main's data files at `published_version`; None if they are not known


class RefreshTicketRow(Base):
    """A caller that waits for a table; the least number that is still renewed is admitted first."""

    __tablename__ = "refresh_ticket"

    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"), primary_key=True)
    caller_key: Mapped[str] = mapped_column(Text, primary_key=True)
    number: Mapped[int]
    process: Mapped[str]
    trigger: Mapped[str] = mapped_column(String(32))
    user_name: Mapped[str | None]
    joined_refresh: Mapped[str | None] = mapped_column(String(32))  # if it publishes, its report is the answer
    since_ms: Mapped[int]
    expires_ms: Mapped[int]
    patience_ms: Mapped[int]  # the time for which it was issued or renewed


class SourceFrontierRow(Base):
    """A source's frontier, stored once: a listing of files is large. Removed when no binding references it."""

    __tablename__ = "source_frontier"

    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(16), primary_key=True)
    frontier: Mapped[dict[str, Any]]


class SourceBindingRow(Base):
    """The frontier of version `upper` of a table's source. Kept for the last publish and the newest version only."""

    __tablename__ = "source_binding"

    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"), primary_key=True)
    upper: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    fingerprint: Mapped[str] = mapped_column(String(16))
    bound_ms: Mapped[int]


class RefreshDefinitionRow(Base):
    """A definition that refreshes of a table began with, stored once. Removed when no refresh references it."""

    __tablename__ = "refresh_definition"

    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(16), primary_key=True)
    definition: Mapped[dict[str, Any]]


class RefreshRow(Base):
    """One refresh: its plan and its outcome."""

    __tablename__ = "refresh"
    __table_args__ = (
        # They contain all conditions of the queries for the newest ones, so no other row is read; see `newest`.
        Index("refresh_by_table", "table_id", "number", "outcome"),
        Index("refresh_by_outcome", "table_id", "outcome", "is_whole", "number"),
        Index("refresh_by_time", "table_id", "started_ms"),
        Index("refresh_by_owner", "owner_key", "number"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"))
    number: Mapped[int]  # order in which the table's refreshes began; not a time, because a clock may be set back
    outcome: Mapped[str] = mapped_column(String(16))
    phase: Mapped[str] = mapped_column(String(16))
    epoch: Mapped[int]
    owner_key: Mapped[str]
    trigger: Mapped[str] = mapped_column(String(32))
    user_name: Mapped[str | None]
    note: Mapped[str | None]  # why it was requested, in the requester's words
    definition_fingerprint: Mapped[str] = mapped_column(String(16))
    overrides: Mapped[list[Any]]
    scope: Mapped[dict[str, Any] | None]
    is_whole: Mapped[bool]  # its scope is the whole table, or everything stale in it
    is_of_source: Mapped[bool]  # its rows are those of the table's own source; not so after a rollback or a load
    frozen: Mapped[list[Any]]
    schema_changes: Mapped[list[Any]]
    checks: Mapped[list[Any] | None]  # the results of the definition's checks, written with the seal
    null_counts: Mapped[list[Any] | None]  # of the columns that a guard names, written with the seal
    is_read_only: Mapped[bool]
    is_hold_requested: Mapped[bool]  # its caller wants a decision before it publishes
    is_forced: Mapped[bool]  # its caller wants everything compared
    is_reload: Mapped[bool]  # its caller wants a log read from its start
    lease_expires_ms: Mapped[int]  # only for a read-only refresh, which owns no table
    lease_ms: Mapped[int]
    lower: Mapped[int | None]
    upper: Mapped[int | None]
    source: Mapped[str | None]  # its frontier, in words
    source_fingerprint: Mapped[str | None] = mapped_column(String(16))
    checked_ms: Mapped[int | None]  # when that state was fixed, if it was before `started_ms`: for several tables
    source_ms: Mapped[int | None]  # when the source came to that state; None if its states have no time of their own
    strategy: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[str | None]
    estimates: Mapped[list[Any]]
    wanted_strategy: Mapped[str] = mapped_column(String(16))
    seal: Mapped[dict[str, Any] | None]
    outdated_kept: Mapped[list[Any] | None]  # refreshes whose kept files nobody needs since this publish
    merge_round: Mapped[int]
    has_committed: Mapped[bool]  # main holds a commit of it: from then on it can only be completed
    rows_inserted: Mapped[int]
    rows_updated: Mapped[int]
    rows_deleted: Mapped[int]
    rows_unchanged: Mapped[int]
    rows_rejected: Mapped[int]
    num_kept: Mapped[int | None]  # deletes that were left out; None without such a decision
    bytes_main: Mapped[int]
    bytes_staging: Mapped[int]
    main_version: Mapped[int | None]
    started_ms: Mapped[int]
    finished_ms: Mapped[int | None]
    phase_seconds: Mapped[dict[str, Any]]
    partitions: Mapped[list[Any]]
    partitions_changed: Mapped[int | None]  # in how many a row was changed; None if it did not publish
    error: Mapped[dict[str, Any] | None]


class RefreshAttemptRow(Base):
    """One epoch of a refresh: the process that worked under it."""

    __tablename__ = "refresh_attempt"
    __table_args__ = (Index("refresh_attempt_by_owner", "owner_key", "epoch"),)

    refresh_id: Mapped[str] = mapped_column(ForeignKey("refresh.id"), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    phase: Mapped[str] = mapped_column(String(16))
    owner_key: Mapped[str]
    owner_process: Mapped[str]
    started_ms: Mapped[int]
    chunks: Mapped[int]  # number of chunks that it recorded
    phase_seconds: Mapped[dict[str, Any]]
    note: Mapped[str | None]  # the person who declared this process dead, and why


class RefreshHoldRow(Base):
    """One hold of a refresh for a person's decision, and the decision. Kept with the refresh's history."""

    __tablename__ = "refresh_hold"

    refresh_id: Mapped[str] = mapped_column(ForeignKey("refresh.id"), primary_key=True)
    merge_round: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    reason: Mapped[str]
    guards: Mapped[list[Any]]  # those that refused; an approval overrides them
    since_ms: Mapped[int]
    until_ms: Mapped[int]
    decision: Mapped[str | None] = mapped_column(String(16))
    decided_ms: Mapped[int | None]
    decided_by: Mapped[str | None]
    note: Mapped[str | None]  # why, in the decider's words


class RefreshSampleRow(Base):
    """Some rows of a refresh's difference, of its newest round that was sampled. Kept with the refresh's history."""

    __tablename__ = "refresh_sample"

    refresh_id: Mapped[str] = mapped_column(ForeignKey("refresh.id"), primary_key=True)
    merge_round: Mapped[int]
    sample: Mapped[dict[str, Any]]


class TableAuditRow(Base):
    """A table's newest audit. What it compared is in the history, as read-only refreshes."""

    __tablename__ = "table_audit"

    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"), primary_key=True)
    audit_id: Mapped[str] = mapped_column(String(32))
    at_ms: Mapped[int]
    user_name: Mapped[str | None]
    found: Mapped[dict[str, Any]]
    repaired_by: Mapped[str | None] = mapped_column(String(32))  # the refresh that has repaired what it found


class RowAnswerRow(Base):
    """What has happened to a row that somebody asked about; the newest ten of a table."""

    __tablename__ = "row_answer"
    __table_args__ = (Index("row_answer_by_table", "table_id", "at_ms"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"))
    at_ms: Mapped[int]
    user_name: Mapped[str | None]
    asked: Mapped[str]  # the key, and the column if it was about one
    answer: Mapped[str]  # as text; sensitive values are hashed
    is_error: Mapped[bool]


class RefreshProgressRow(Base):
    """One partition of a running refresh: sealed, then compared. Removed when the refresh ends."""

    __tablename__ = "refresh_progress"
    __table_args__ = (
        UniqueConstraint("refresh_id", "partition"),
        Index("refresh_progress_chunk", "refresh_id", "chunk"),
        Index("refresh_progress_completed", "refresh_id", "is_completed"),  # covering index for the list of all tables
    )

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    refresh_id: Mapped[str] = mapped_column(ForeignKey("refresh.id"))
    partition: Mapped[str]
    chunk: Mapped[int]
    sealed_rows: Mapped[int]
    sealed_digest: Mapped[int]
    sealed_mixed: Mapped[int]
    is_completed: Mapped[bool]
    main_rows: Mapped[int]
    rows_inserted: Mapped[int]
    rows_updated: Mapped[int]
    rows_deleted: Mapped[int]


class PartitionTotalsRow(Base):
    """The totals of one natural partition of main, as of its last publish."""

    __tablename__ = "partition_totals"
    __table_args__ = (UniqueConstraint("table_id", "partition"),)

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"))
    partition: Mapped[str]
    num_rows: Mapped[int]
    digest: Mapped[int]
    mixed: Mapped[int]


class RefreshChunkRow(Base):
    """One chunk of a running refresh; `base_version` is set once its corrections are recorded."""

    __tablename__ = "refresh_chunk"

    refresh_id: Mapped[str] = mapped_column(ForeignKey("refresh.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    is_whole_table: Mapped[bool]
    epoch: Mapped[int | None]
    merge_round: Mapped[int | None]
    base_version: Mapped[int | None]
    path: Mapped[str | None]
    num_rows: Mapped[int | None]
    digest: Mapped[int | None]
    num_bytes: Mapped[int | None]
    committed_version: Mapped[int | None]


class IngestionRunRow(Base):
    """One run of an ingestion: the state in which it read all its tables, and what became of each. Some are kept."""

    __tablename__ = "ingestion_run"
    __table_args__ = (Index("ingestion_run_by_name", "ingestion", "number"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    ingestion: Mapped[str] = mapped_column(String(100))
    number: Mapped[int]  # order in which the ingestion's runs began
    state: Mapped[str]  # in words
    owner_key: Mapped[str]
    trigger: Mapped[str] = mapped_column(String(32))
    user_name: Mapped[str | None]
    started_ms: Mapped[int]
    finished_ms: Mapped[int | None]
    tables: Mapped[list[Any]]
    released: Mapped[dict[str, Any] | None]  # what was published upstream
    error: Mapped[dict[str, Any] | None]  # why nothing was


class TableObstacleRow(Base):
    """What has kept refreshes of a table from beginning: one error, met at one or several tries. Some are kept."""

    __tablename__ = "table_obstacle"

    table_id: Mapped[int] = mapped_column(ForeignKey("refreshable_table.id"), primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    since_ms: Mapped[int]
    last_ms: Mapped[int]
    ended_ms: Mapped[int | None]  # when a refresh began again
    num_tries: Mapped[int]
    error: Mapped[dict[str, Any]]

"""The values that the store writes into rows, separate from the transactions that write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, func, literal, select

from airflow_mv_provider.core.claim import Claim
from airflow_mv_provider.core.frontier import fingerprint
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import MAX_PARTITIONS_IN_HISTORY, ErrorReport, Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.recorded import PartitionCounts
from airflow_mv_provider.core.state import Caller, Ownership, RefreshRecord
from airflow_mv_provider.metadata.models import RefreshableTableRow as Table
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State

NO_OWNER: dict[str, Any] = {
    **dict.fromkeys(("refresh_id", "owner_key", "owner_process", "owned_since_ms")),
    **dict.fromkeys(("cancel_requested_ms", "cancel_requested_by")),
    **dict.fromkeys(("lease_expires_ms", "lease_ms"), 0),
}
NEVER_REFRESHED: dict[str, Any] = NO_OWNER | {
    "phase": Phase.NORMAL,
    "epoch": 0,
    "published_upper": 0,
    **dict.fromkeys(("published_version", "published_commit", "published_hash", "published_totals")),
    "covered": [],
    "partition_type": None,
    "is_main_trusted": False,
    **dict.fromkeys(("paused_ms", "paused_by", "dropping_ms")),
    "tickets_given": 0,
    "num_kept": 0,
    "main_bytes": None,
}
NOT_COMPARED: dict[str, Any] = {
    "is_completed": False,
    **dict.fromkeys(("main_rows", "rows_inserted", "rows_updated", "rows_deleted"), 0),
}


def checked_source_ms(refresh: type[Refresh] = Refresh) -> ColumnElement[int]:
    """Return when a refresh looked at its source: about when it began, unless the state had been fixed before."""
    return func.coalesce(refresh.checked_ms, refresh.started_ms)


def is_around(location: str) -> ColumnElement[bool]:
    """Return the condition that another table's main lies inside `location`, or around it."""
    inside = Table.location.startswith(f"{location}/", autoescape=True)
    # Not LIKE: an underscore in the column's value would match any character.
    return inside | (func.substr(literal(location), 1, func.length(Table.location) + 1) == Table.location.concat("/"))


def is_lease_live(expires_ms: Any, length_ms: Any, now: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a lease of this length is held now.

    A lease starts `length_ms` before it expires. A start that lies more than `length_ms` in the future shows that the
    clock was set back after the grant. Such a lease does not count, or a dead owner would hold its table until the
    clock reaches that time again. A live owner renews its lease, and the new one counts.
    """
    return and_(expires_ms - 2 * length_ms < now, expires_ms > now)


def is_owner_live(now: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a state row's lease is held now."""
    return is_lease_live(State.lease_expires_ms, State.lease_ms, now)


def lease(now: ColumnElement[int], length_ms: int) -> dict[str, Any]:
    """Return the values that grant or renew a lease from now on."""
    return {"lease_expires_ms": now + length_ms, "lease_ms": length_ms}


def is_owned(own: Ownership) -> tuple[ColumnElement[bool], ...]:
    """Return the condition that `own` still owns its state row."""
    return State.table_id == own.table_id, State.refresh_id == own.refresh_id, State.epoch == own.epoch


def is_unchanged_from(claim: Claim, table_id: int, now: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
    """Return the condition that a table's state row is as a claim expects; `Claim.holds` in SQL."""
    expected = [State.table_id == table_id]
    if claim.phases is not None:
        expected.append(State.phase.in_(sorted(claim.phases)))
    if claim.epoch is not None:
        expected.append(State.epoch == claim.epoch)
    if claim.refresh_id is not None:
        expected.append(State.refresh_id == claim.refresh_id)
    if claim.held_by is not None:
        expected.append((State.owner_key == claim.held_by) | ~is_owner_live(now))
    if claim.needs_open:
        expected += [State.paused_ms.is_(None), State.dropping_ms.is_(None)]
    return tuple(expected)


def becomes(claim: Claim) -> dict[str, Any]:
    """Return the values that a claim writes into the state row, without times and names; `Claim.after` in SQL."""
    values: dict[str, Any] = {}
    if claim.to_phase is not None:
        values |= {"phase": claim.to_phase} | (NO_OWNER if claim.to_phase is Phase.NORMAL else {})
    if claim.to_refresh_id is not None:
        values["refresh_id"] = claim.to_refresh_id
    if claim.to_owner is not None:
        values |= {"epoch": claim.to_owner.epoch, "owner_key": claim.to_owner.key}
    if claim.ends_lease:
        values |= {"lease_expires_ms": 0, "lease_ms": 0}
    return values


def new_owner(caller: Caller, now: ColumnElement[int], lease_ms: int) -> dict[str, Any]:
    """Return the values that an acquire or a hand-over writes into the state row in addition to its claim."""
    return {"owner_process": caller.process, "owned_since_ms": now} | lease(now, lease_ms)


def partition_report(name: str, counts: Counts) -> dict[str, Any]:
    """Return the history's facts about one partition."""
    return {
        "partition": name,
        "rows_inserted": counts.inserted,
        "rows_updated": counts.updated,
        "rows_deleted": counts.deleted,
        "rows_unchanged": counts.unchanged,
    }


def added(counts: Counts, bytes_main: int) -> dict[str, Any]:
    """Return a refresh's counts with these added to them."""
    return {
        "rows_inserted": Refresh.rows_inserted + counts.inserted,
        "rows_updated": Refresh.rows_updated + counts.updated,
        "rows_deleted": Refresh.rows_deleted + counts.deleted,
        "bytes_main": Refresh.bytes_main + bytes_main,
    }


def new_refresh(refresh: RefreshRecord, caller: Caller, outcome: Outcome, now: ColumnElement[int]) -> dict[str, Any]:
    """Return the row of a new refresh, without its phase and epoch; the table's state row must be locked."""
    zeros = dict.fromkeys(
        (
            *("merge_round", "rows_inserted", "rows_updated", "rows_deleted", "rows_unchanged"),
            *("rows_rejected", "bytes_main", "bytes_staging"),
        ),
        0,
    )
    before = select(func.coalesce(func.max(Refresh.number), 0)).where(Refresh.table_id == refresh.table_id)
    return zeros | {
        "id": refresh.id,
        "table_id": refresh.table_id,
        "number": before.scalar_subquery() + 1,
        "outcome": outcome,
        "owner_key": caller.key,
        "trigger": caller.trigger,
        "user_name": caller.user,
        "note": refresh.note,
        "definition_fingerprint": refresh.definition.fingerprint,
        "overrides": list(refresh.overrides),
        "scope": None if refresh.scope.is_everything else refresh.scope.to_json(),
        "is_whole": refresh.scope.is_whole,
        "is_of_source": refresh.is_of_source,
        "frozen": [],
        "schema_changes": [],
        "is_read_only": outcome is Outcome.DIFFERENCES,
        "is_hold_requested": refresh.is_hold_requested,
        "is_forced": refresh.is_forced,
        "is_reload": refresh.is_reload,
        "lease_expires_ms": 0,
        "lease_ms": 0,
        "lower": refresh.batch.lower if refresh.batch else None,
        "upper": refresh.batch.upper if refresh.batch else None,
        "source": refresh.frontier.describe(),
        "source_fingerprint": fingerprint(refresh.frontier),
        "checked_ms": refresh.checked_ms,
        "source_ms": refresh.source_ms,
        "has_committed": False,
        "strategy": refresh.choice.strategy,
        "reason": refresh.choice.reason,
        "wanted_strategy": refresh.choice.wanted,
        "estimates": [asdict(each) for each in refresh.choice.estimates],
        "phase_seconds": {},
        "partitions": [],
        "started_ms": now,
    }


def most_changed(partitions: Sequence[PartitionCounts]) -> list[PartitionCounts]:
    """Return as many partitions as the history keeps, in their order; those with changed rows before all others."""
    first = sorted(range(len(partitions)), key=lambda i: (not partitions[i].counts.changes, i))
    return [partitions[i] for i in sorted(first[:MAX_PARTITIONS_IN_HISTORY])]


def stored_error(stored: Mapping[str, Any] | None) -> ErrorReport | None:
    """Return an error as its report's JSON has it; None if there is none."""
    return ErrorReport(**stored) if stored else None


def maybe_iso(ms: int | None) -> str | None:
    """Return `iso(ms)`; None if `ms` is None."""
    return None if ms is None else iso(ms)


def iso(ms: int) -> str:
    """Return a time of the database as shown to people and programs: ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")

"""Copies of a lake whose tables are in the middle of something: its files, and the rows of its database."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from airflow_mv_provider.core.fence import parse_note
from airflow_mv_provider.metadata.models import Base
from tests.scenarios.conftest import log_of

Rows = dict[str, list[dict[str, Any]]]
_DRAWN = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_COMPARED = re.compile(
    r".*_ms|.*_seconds|epoch|lease.*|owner_.*|bytes_.*|num_bytes"
    # What only reports show: a refresh that is concluded from main's log has the counts that were recorded till then.
    r"|rows_.*|partitions|chunks|reason|estimates|error|user_name|note"
)


def dump(lake: Any) -> Rows:
    """Read every row of the database, as a backup does."""
    with lake.store.engine.begin() as db:
        return {
            table.name: [dict(row) for row in db.execute(table.select()).mappings()]
            for table in Base.metadata.sorted_tables
        }


def put_back(lake: Any, rows: Rows) -> None:
    """Replace every row of the database by those of a backup."""
    with lake.store.engine.begin() as db:
        for table in reversed(Base.metadata.sorted_tables):
            db.execute(table.delete())
        for table in Base.metadata.sorted_tables:
            if rows[table.name]:
                db.execute(table.insert(), rows[table.name])
    lake.clock.pass_ms(lake.settings.lease_ms + 1)


def copied(rows: Rows, origin: Path, place: Path) -> Rows:
    """Return a backup of the lake at `origin` as that of its copy at `place`: rows hold paths."""
    found: Rows = json.loads(json.dumps(rows).replace(str(origin), str(place)))
    return found


def standing(lake: Any) -> str:
    """Return the database's rows and what lies in the warehouse, without times, epochs, and ids that were drawn."""
    kept = {name: [_without_drawn(row) for row in rows] for name, rows in dump(lake).items()}
    of_database = {name: sorted(rows, key=lambda row: _DRAWN.sub("", json.dumps(row))) for name, rows in kept.items()}
    uuid = next(iter(of_database["refreshable_table"]))["uuid"]
    notes = [parse_note(commit.get("userMetadata"), uuid) for commit in log_of(lake, "commitInfo")]
    commits = [note and (note.step, note.refresh_id) for note in notes]
    workspaces = sorted({str(Path(file).parent) for file in lake.workspaces()})
    written = json.dumps([of_database, commits, workspaces], sort_keys=True).replace(str(lake.root.parent), "")
    ids: dict[str, str] = {}
    return _DRAWN.sub(lambda found: ids.setdefault(found.group(), f"id {len(ids)}"), written)


def _without_drawn(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a row what differs from run to run; numbers of rows differ from database to database."""
    numbers = {name for name in ("id", "table_id") if isinstance(row.get(name), int)}
    return {name: row[name] for name in sorted(row) if name not in numbers and not _NOT_COMPARED.fullmatch(name)}

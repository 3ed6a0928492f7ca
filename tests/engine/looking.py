"""What the tests of commands that only look share: nothing may have changed, and old files may be gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from sqlalchemy import text


def state_of(lake: Any) -> Any:
    """Everything that a command which only looks must leave as it is."""
    with lake.store.engine.begin() as db:
        kept = ("refreshable_table", "refresh_state", "refresh_progress", "refresh_chunk", "source_binding")
        rows = {name: db.execute(text(f"SELECT * FROM {name}")).all() for name in kept}
    return lake.rows(), lake.versions(), lake.workspaces(), rows


def remove_files(place: Path, version: int) -> None:
    """Remove the files that only this version has, as VACUUM does."""
    then, now = (
        set(DeltaTable(str(place), version=at).file_uris()) for at in (version, DeltaTable(str(place)).version())
    )
    for file in then - now:
        Path(file.removeprefix("file://")).unlink()

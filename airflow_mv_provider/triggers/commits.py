"""An asset watcher's trigger that fires when a Delta table gets a commit that changed its data.

    asset_state_store["delta_version"]    the newest commit that was examined; the watermark

The trigger sends the event, and stores the watermark once Airflow has had time to store that. A triggerer that dies in
between sends the event again, and the resulting run finds nothing new. The first check stores the table's present
version as the watermark, without an event. Before Airflow 3.3 a trigger has no such store: its first check is an event,
since it does not know what came before it, and it keeps the watermark in its memory and does not end.

The log's JSON files are read through Airflow's object storage (local paths need nothing; s3, gs and abfs need the
fsspec file system of Airflow's own providers), in a thread, because such reads block.

The `deltalake` package is not needed for this: the event depends on a few lines of JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from airflow.sdk import Asset, AssetWatcher, ObjectStoragePath
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_mv_provider.asset import source_asset_uri
from airflow_mv_provider.core.commits import LOG, NewCommits, commit_name, commit_of, new_commits
from airflow_mv_provider.core.location import source_location
from airflow_mv_provider.exceptions import ArgumentError, MvError, SettingError
from airflow_mv_provider.hooks.mv import MvHook

MIN_INTERVAL_S = 10.0
_WATERMARK = "delta_version"
_NO_TABLE = -1


class DeltaCommitTrigger(BaseEventTrigger):
    """Fire once when a Delta table has new commits that changed its data; Airflow then starts the trigger again.

    Args:
        path: As in a definition: relative to the warehouse, or absolute under it or another allowed root.
        poke_interval: Seconds between two checks, at least ten.
        conn_id: Airflow connection to the storage.
        mv_conn_id: Connection that supplies the warehouse; see `hooks.mv`.
    """

    sent_within_s: ClassVar[float] = 10.0

    def __init__(
        self,
        path: str,
        poke_interval: float = 60.0,
        conn_id: str | None = None,
        mv_conn_id: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if poke_interval < MIN_INTERVAL_S:
            raise ArgumentError("DeltaCommitTrigger", f"poke_interval is below {MIN_INTERVAL_S:.0f} s.")
        self.path, self.poke_interval = path, poke_interval
        self.conn_id, self.mv_conn_id = conn_id, mv_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        values = {"path": self.path, "poke_interval": self.poke_interval}
        values |= {"conn_id": self.conn_id, "mv_conn_id": self.mv_conn_id}
        return f"{type(self).__module__}.{type(self).__qualname__}", values

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the table's log, and yield one event when a commit has changed data."""
        location: str | None = None
        since = await self._watermark()
        has_store = self._store() is not None
        while True:
            try:
                location = location or await self._location()
                found = await asyncio.to_thread(new_commits_since, location, since, self.conn_id)
            except (MvError, OSError) as error:  # an unreachable storage or database may recover
                self.log.warning("%s: cannot be read now: %s", self.path, error)
                await asyncio.sleep(self.poke_interval)
                continue
            if found is None and since is None:
                since = _NO_TABLE  # so that its first commit is new
                await self._remember(since)
            is_event = found is not None and (found.has_data or (since is None and not has_store))
            if found is not None and is_event:
                yield TriggerEvent(_facts(self.path, since, found))  # type: ignore[no-untyped-call]
                if has_store:
                    await asyncio.sleep(self.sent_within_s)  # Airflow's triggerer only takes it into memory at first
            if found is not None and found.version != since:
                since = found.version
                await self._remember(since)
            if is_event and has_store:
                return
            await asyncio.sleep(self.poke_interval)

    async def _location(self) -> str:
        settings = await MvHook(self.mv_conn_id).asettings(opens_database=False)
        if settings.warehouse is None:
            raise SettingError("warehouse", "none is set.", hint="Set `[mv] warehouse` for the triggerer, too.")
        return source_location(self.path, settings.warehouse, settings.source_roots)

    def _store(self) -> Any:
        return getattr(self, "asset_state_store", None)

    async def _watermark(self) -> int | None:
        if (store := self._store()) is None:
            return None
        found = await store.aget(_WATERMARK)
        return found if isinstance(found, int) else None

    async def _remember(self, version: int) -> None:
        if (store := self._store()) is not None:
            await store.aset(_WATERMARK, version)


def new_commits_since(location: str, since: int | None, conn_id: str | None = None) -> NewCommits | None:
    """Return the new commits in the log of the table at `location`; None if there is no table. Blocks.

    Args:
        since: The newest commit at the last check.
    """
    log = ObjectStoragePath(f"{location.rstrip('/')}/{LOG}", conn_id=conn_id)
    if not log.exists():
        return None
    versions = [version for file in log.iterdir() if (version := commit_of(file.name)) is not None]
    return new_commits(versions, since, lambda version: str((log / commit_name(version)).read_text()))


def delta_asset(
    path: str,
    *,
    name: str | None = None,
    poke_interval: float = 60.0,
    conn_id: str | None = None,
    mv_conn_id: str | None = None,
) -> Asset:
    """Return an asset for a Delta table that other programs write: `DAG(schedule=delta_asset("raw/orders"))`.

    Args:
        path: As in the source of a definition.
        name: Name of the asset; default `delta:<path>`.
        poke_interval, conn_id, mv_conn_id: See `DeltaCommitTrigger`.
    """
    trigger = DeltaCommitTrigger(path, poke_interval, conn_id, mv_conn_id)
    watcher = AssetWatcher(name="delta-commits", trigger=trigger)
    return Asset(name=name or f"delta:{path}", uri=source_asset_uri(path), watchers=[watcher])


def _facts(path: str, since: int | None, found: NewCommits) -> dict[str, Any]:
    facts = {"path": path, "version": found.version, "since": since, "changed": list(found.changed)}
    return facts | {"operations": list(found.operations), "is_gap": found.is_gap}

"""Prepare a machine for fast starts of Spark: fetch Delta's jars, and let a JVM archive the classes of a refresh.

Refreshes a table of ten rows in a temporary directory, three times. The JVM writes the archive when it ends.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from airflow_mv_provider import definition_file
from airflow_mv_provider.exceptions import EngineError
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.spark.session import end_local, local_session, warm_start
from airflow_mv_provider.spark.warm_start import WarmStart

_NAME = "ten_rows"
_DEFINITION = f"""
tables:
  - name: {_NAME}
    source: {{type: files, path: raw/*.csv, format: csv, schema: "id BIGINT, v STRING"}}
    key: [id]
"""
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class WarmedUp:
    """What is there for later starts. `is_new` is False if it was there before."""

    archive: Path
    num_bytes: int
    is_new: bool


def warm_up(*, is_repeated: bool = False) -> WarmedUp:
    """Fetch the jars and write the archive, unless they are there; this process cannot use Spark afterwards.

    is_repeated : write them again
    cost        : half a minute of two cores, and 87 MB from Maven on a machine that lacks the jars
    raises      : EngineError, if the JVM leaves no archive; DependencyError, if Java is missing
    """
    start = warm_start()
    if is_repeated:
        start.archive.unlink(missing_ok=True)
    is_new = not start.is_complete
    if is_new:
        _record(start)
    return WarmedUp(start.archive, start.archive.stat().st_size, is_new)


def _record(start: WarmStart) -> None:
    start.archive.unlink(missing_ok=True)
    partial = start.directory / f"{start.key}.{os.getpid()}.jsa.partial"
    try:
        start.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="amv-warm-up-") as home:
            local_session("amv warm-up", java_options=f'"-XX:ArchiveClassesAtExit={partial}"')
            try:
                _refresh_in(Path(home))
            finally:
                end_local(_PATIENCE_S)  # a JVM that ends later would write the archive after its removal below
        partial.replace(start.archive)
        start.remove_former()
    except OSError as error:
        problem = f"the JVM's archive of classes cannot be written in {start.directory}: {error.strerror}."
        hint = "Set XDG_CACHE_HOME to a directory with 200 MB of free space. Everything works without the archive."
        raise EngineError("Spark", problem, hint=hint) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _refresh_in(home: Path) -> None:
    settings = Settings(f"sqlite:///{home / 'mv.db'}", str(home))
    refresher = Refresher(open_store(settings), settings, local_session)
    refresher.apply(*definition_file.parse(_DEFINITION))
    (home / "raw").mkdir()
    for value in ("first", "second", "second"):
        rows = [f"{id},{value if id < 2 else 'as ever'}" for id in range(10)]
        (home / "raw" / "ten.csv").write_text("\n".join(["id,v", *rows]) + "\n", encoding="utf-8")
        refresher.refresh(_NAME, command_line_caller())

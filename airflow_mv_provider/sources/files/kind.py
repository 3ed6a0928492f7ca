"""What files can do as source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.kinds import SourceKind
from airflow_mv_provider.sources.files.frontier import FilesFrontier
from airflow_mv_provider.sources.files.model import Files

if TYPE_CHECKING:
    from airflow_mv_provider.sources.files.reader import FilesReader


def _reader() -> type[FilesReader]:
    from airflow_mv_provider.sources.files.reader import FilesReader

    return FilesReader


KIND = SourceKind(
    model=Files,
    frontier=FilesFrontier,
    reader=_reader,
    is_repeatable=True,
    is_cheap_to_probe=True,
    identifies_files=True,
)

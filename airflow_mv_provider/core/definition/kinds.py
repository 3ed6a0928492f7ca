"""The registry of source kinds. A kind is one folder, `sources/<kind>/`, and adding the folder adds the kind:

    model.py      what users write: a pydantic model, derived from `core.definition.source.Source`
    frontier.py   what identifies the source's state: a value, derived from `core.frontier.Frontier`
    reader.py     how it is probed and read with Spark: derived from `sources.reader.SourceReader`
    kind.py       `KIND`: these three, and what the kind can do

All other modules ask for a capability and not for a kind. Importing the registry, the models and the frontiers loads
no PySpark; a kind's reader is imported when a source of this kind is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow_mv_provider.core.definition.source import Source
from airflow_mv_provider.core.frontier import Frontier

_PACKAGE = __package__.partition(".")[0]
_SOURCES = Path(__file__).parents[2] / "sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """One kind of source, and what it can do.

    Attributes:
        model: What users write; its field `type` has the kind's name as default.
        frontier: What identifies such a source's state; `NoFrontier` if nothing does.
        reader: Imports and returns the `SourceReader`, which needs PySpark.
        is_repeatable: Two reads at one frontier return the same rows, or `verify` fails.
        keeps_versions: Also after the source has changed, and as cheaply as from a copy; so nothing is copied.
        is_cheap_to_probe: Few rows in main mean that the source's log or listing is short too.
        identifies_files: The reader knows which file each row lies in, so that `amv why` can name it.
        has_triggers: Its one path is a Delta table, whose commits Airflow can wait for (`schedule: source`).
        lists_upserts: The reader can return the rows that came or changed between two frontiers, and count all rows,
            but not list the deleted ones.
        is_log: The reader returns the last events of keys between two frontiers; other rows are those of main.
        shared: Imports and returns the `SharedState` in which several sources of a connection are read; None if this
            kind cannot be an ingestion's.
        needs_credentials: The reader takes, as one more argument, the credentials of `Source.connection_id`.
    """

    model: type[Source]
    frontier: type[Frontier]
    reader: Callable[[], type[Any]]
    shared: Callable[[], type[Any]] | None = None
    is_repeatable: bool = False
    keeps_versions: bool = False
    is_cheap_to_probe: bool = False
    identifies_files: bool = False
    has_triggers: bool = False
    lists_upserts: bool = False
    is_log: bool = False
    needs_credentials: bool = False

    @property
    def name(self) -> str:
        """The kind's name: the value of `type` in a definition, and its folder."""
        return str(self.model.model_fields["type"].default)


@cache
def kinds() -> tuple[SourceKind, ...]:
    """Return every kind: first those whose sources are repeatable, then by name."""
    folders = sorted(path.parent.name for path in _SOURCES.glob("*/kind.py"))
    found: list[SourceKind] = [import_module(f"{_PACKAGE}.sources.{folder}.kind").KIND for folder in folders]
    return tuple(sorted(found, key=lambda kind: (not kind.is_repeatable, kind.name)))


def kind_of_source(source: Source) -> SourceKind:
    """Return the kind of a definition's source."""
    return next(kind for kind in kinds() if isinstance(source, kind.model))


def frontier_from_json(stored: Mapping[str, Any]) -> Frontier:
    """Return the frontier that `Frontier.to_json` stored.

    Raises:
        ValueError: If no kind has frontiers of this type.
    """
    frontier = next((kind.frontier for kind in kinds() if kind.frontier.type == stored["type"]), None)
    if frontier is None:
        raise ValueError(f"no frontier is of type {stored['type']!r}")
    return frontier.from_json(stored)

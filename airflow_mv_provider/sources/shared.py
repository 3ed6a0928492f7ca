"""One state of a server, in which the sources of several tables are read: the tables of an ingestion.

    hold      fixes the state; a source for which that fails is in `errors`, and the others can be read
    close     the state need not be held any more; every table that was read has its rows
    release   commits to the server how far all tables are, so that it need not keep what came before

A table's reader takes the state by `SourceReader.share`. Nothing that `release` has written is ever read back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from airflow_mv_provider.core.definition.source import Source
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.exceptions import MvError
from airflow_mv_provider.sources.credentials import Credentials

SourceT = TypeVar("SourceT", bound=Source)


class SharedState(ABC, Generic[SourceT]):
    """What several sources of one connection share.

    sources : by the names of their tables
    errors  : why a table cannot be read in this state; known after `hold`
    raises  : ConnectionUnknownError, DefinitionError
    """

    def __init__(self, sources: Mapping[str, SourceT], credentials: Credentials) -> None:
        self.sources = sources
        self.credentials = credentials
        self.errors: dict[str, MvError] = {}

    @abstractmethod
    def hold(self) -> None:
        """Fix one state for all sources.

        raises : SourceUnavailableError, SourceDeniedError: no source can be read
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the state in a few words; called after `hold`."""

    @abstractmethod
    def holds(self, table: str, frontier: Frontier) -> bool:
        """True if a frontier of a table's source is of this state; called after `hold`."""

    def close(self) -> None:
        """Release what `hold` has fixed; nothing happens if there is nothing."""
        return

    def release(self, group: str, published: Mapping[str, Frontier | None]) -> dict[str, Any]:
        """Publish on the server how far all tables are, if it keeps anything for them.

        published : the frontier of each table's last publish; None for a table without one
        returns   : what was written
        raises    : SourceUnavailableError, SourceDeniedError
        """
        return {}

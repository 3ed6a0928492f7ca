"""What a database has to answer about a source, whatever its product is, and the SQL that all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

from airflow_mv_provider.exceptions import DefinitionError, InexactColumnError, MvError
from airflow_mv_provider.sources.jdbc.exact import Column
from airflow_mv_provider.sources.jdbc.frontier import JdbcFrontier
from airflow_mv_provider.sources.jdbc.model import Jdbc

ROWS = "mv_rows"
SPLIT = "mv_split"


def quoted(name: str) -> str:
    """Return a name as the standard of SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Found:
    """The source as it is now.

    num_bytes : about how much there is to read; None if unknown
    """

    frontier: JdbcFrontier
    columns: tuple[Column, ...]
    num_bytes: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """How Spark reads the source, from one state of the database.

    source     : the table, or the query in parentheses
    predicates : conditions on `SPLIT` that each row fulfils exactly one of, one for each part; none for one part
    split      : the expression behind `SPLIT`
    guard      : a condition that always holds, or raises because another server answers than the one of `found`
    options    : of Spark's JDBC reader; one of them is the password
    """

    found: Found
    url: str
    driver: str
    source: str
    options: Mapping[str, str] = field(repr=False)
    split: str | None = None
    predicates: tuple[str, ...] = ()
    guard: str | None = None

    def relation(self, condition: str | None = None) -> str:
        """Return the subquery that Spark selects from, in which columns are called c0, c1, ...

        condition : in the database's SQL, which rows; None for all
        """
        columns = [f"{column.sql} AS c{i}" for i, column in enumerate(self.found.columns)]
        columns += [f"{self.split} AS {SPLIT}"] if self.split else []
        # The author's, for the rest quoted names.
        conditions = [f"({each})" for each in (condition, self.guard) if each is not None]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"(SELECT {', '.join(columns)} FROM {self.source} AS mv_source{where}) AS {ROWS}"  # nosec B608  # see above


class Dialect(ABC):
    """One product's database, of one source. `hold` keeps a connection until `release`."""

    _source: Jdbc
    _quoted: Callable[[str], str] = staticmethod(quoted)
    obstacle = "changed rows are found in PostgreSQL only"
    """Why the rows that changed between two states cannot be found, unless it is a `FollowedDialect`."""

    @abstractmethod
    def inspect(self) -> Found:
        """Return the source's present state and columns, with a connection that is closed again.

        raises : SourceUnavailableError, SourceDeniedError, SourceNotFoundError, InexactColumnError, DefinitionError
        """

    @abstractmethod
    def hold(self) -> Reading:
        """Fix one state of the source for all reads until `release`; raises the errors of `inspect`."""

    @abstractmethod
    def check(self) -> None:
        """Check that the state of `hold` is still held.

        raises : SnapshotLostError
        """

    @abstractmethod
    def release(self) -> None:
        """Release what `hold` has fixed; nothing happens if there is nothing."""

    def _relation(self) -> str:
        """Return the table, or the query in parentheses."""
        if self._source.query is not None:
            return f"({self._source.query}\n)"
        return ".".join(self._quoted(part) for part in (self._source.table or "").split("."))


class ServerDialect(Dialect):
    """A database that a client connects to; `hold` keeps one of its connections open."""

    _holder: Any = None

    def release(self) -> None:
        """See `Dialect`."""
        if self._holder is not None:
            with suppress(Exception):  # it may have been ended
                self._holder.close()
            self._holder = None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate the client's errors; from None, because a connection's error may quote its address."""
        is_holding = self._holder is not None
        try:
            yield
        except MvError:
            self.release()
            raise
        except Exception as error:
            self.release()
            found = self._translated(error, is_holding=is_holding)
            if found is None:
                raise
            raise found from None

    @abstractmethod
    def _translated(self, error: Exception, *, is_holding: bool) -> MvError | None:
        """Return what to raise for one of the client's errors, without secrets; None for another's."""


class FollowedDialect(Dialect):
    """A database that shows which rows came or changed."""

    @abstractmethod
    def change_obstacle(self, since: JdbcFrontier, until: JdbcFrontier) -> str | None:
        """Return why the rows that changed between two states of this database cannot be found; None if they can."""

    @abstractmethod
    def changed(self, since: JdbcFrontier, last: int | Decimal | None) -> str:
        """Return a condition that holds for each row of the state of `hold` that came or changed after `since`.

        last : the greatest watermark in main: days or microseconds since 1970, or a number; None if there is none
        """

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows in the state of `hold`; raises the errors of `inspect`."""

    @abstractmethod
    def is_unique(self, columns: Sequence[str]) -> bool:
        """Return whether the database allows no two rows with equal values of these columns."""


def check_known(columns: Sequence[str], named: Mapping[str, str]) -> None:
    """Refuse a definition whose `columns` names one that the source lacks.

    raises : DefinitionError
    """
    if missing := [name for name in named if name not in columns]:
        problem = f"`columns` names {missing[0]!r}, which is not among {', '.join(columns)}."
        raise DefinitionError("source", problem)


def check_names(columns: Sequence[str]) -> None:
    """Refuse columns whose names Spark cannot tell apart.

    Raises:
        DefinitionError: Two names are equal, but for upper and lower case.
    """
    named: dict[str, str] = {}
    for name in columns:
        other = named.get(name.lower())
        if other is not None:
            which = (
                f"two columns are named {name!r}" if name == other else f"{other!r} and {name!r} are one name to Spark"
            )
            hint = "Give each column of the `query` a name of its own: `expression AS name`."
            raise DefinitionError("source", f"{which}.", hint=hint)
        named[name.lower()] = name


def check_exact(inexact: Sequence[tuple[str, str]], without_text: Sequence[tuple[str, str]] = ()) -> None:
    """Refuse columns of types that Spark cannot take exactly.

    Args:
        inexact: Name and type of each that may be taken as STRING.
        without_text: Of each whose text is not exact either.

    Raises:
        InexactColumnError: There are such columns.
    """
    found = [*without_text, *inexact]
    if not found:
        return
    shown = ", ".join(f"{name} ({kind or 'no type'})" for name, kind in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    named = ", ".join(f"{name}: STRING" for name, _ in inexact[:5])
    hint = (
        f"Give the types in the source: `columns: {{{named}}}`, or of numbers DECIMAL(p,s). STRING takes every number,"
        " date and text exactly."
    )
    if without_text:
        first = without_text[0][0]
        hint = f"Convert {first} in a `query`, or leave it out: its type, or the wanted one, has no exact text."
    problem = f"Spark has no exact type for {shown}{more}."
    raise InexactColumnError("source", problem, hint=hint, columns=[name for name, _ in found])


def parts(least: int, most: int, num_parts: int, bound: str) -> tuple[str, ...]:
    """Return conditions on `SPLIT`, of which each row fulfils exactly one, for ranges of equal length.

    bound : the database's expression of a bound, a format string
    """
    length = most - least + 1
    inner = sorted({least + length * i // num_parts for i in range(1, num_parts)} - {least})
    if not inner:
        return ()
    bounds = [bound.format(f"({value})") for value in inner]
    ranges = [f"{SPLIT} >= {low} AND {SPLIT} < {high}" for low, high in pairwise(bounds)]
    return (f"{SPLIT} < {bounds[0]} OR {SPLIT} IS NULL", *ranges, f"{SPLIT} >= {bounds[-1]}")

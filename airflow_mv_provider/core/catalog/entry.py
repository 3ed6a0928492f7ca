"""Names in Spark's catalog: what one leads to, and what a refresh does about the name of its main.

    catalog.schema.table ──▶ entry: type, format, location ──▶ the Delta table that lies there

A name only leads to a location. Tables are always opened, written and deleted by their location: between two statements
a name can be given to another table. The name of a main is an external table of the catalog, so nothing is deleted when
it is dropped. Main records in a property of its own that it has been registered; a name that is missing afterwards was
dropped or renamed by somebody.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_mv_provider.core.definition.identifier import literal, quoted
from airflow_mv_provider.core.location import one_spelling
from airflow_mv_provider.exceptions import NameGoneError, NameTakenError

EXTERNAL = "EXTERNAL"
_DELTA = "delta"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a catalog says about one of its names.

    type     : EXTERNAL, MANAGED or VIEW, as Spark calls them
    format   : delta, parquet, hive and so on; empty for a view
    location : where its files lie; None for a view
    """

    name: str
    type: str
    format: str
    location: str | None

    def leads_to(self, location: str) -> bool:
        """True if its files lie at `location`, however that is spelled."""
        return self.location is not None and one_spelling(self.location) == one_spelling(location)

    @property
    def is_delta(self) -> bool:
        """True if it is a Delta table."""
        return self.format == _DELTA and self.location is not None

    def describe(self) -> str:
        """Return what it is in a few words."""
        if self.location is None:
            return f"a {self.type.lower()}"
        kind = "an external" if self.type == EXTERNAL else "a managed"
        return f"{kind} {self.format or 'unknown'} table at {one_spelling(self.location)}"


def parsed(name: str, text: str) -> Entry:
    """Return the entry that `SHOW TABLE EXTENDED` describes, one fact a line.

    A comment or a property may have lines of its own; type and format come before them.
    """
    facts: dict[str, str] = {}
    for fact, found, value in (line.partition(": ") for line in text.splitlines()):
        if found:
            facts.setdefault(fact, value.strip())
    return Entry(name, facts.get("Type", ""), facts.get("Provider", "").lower(), facts.get("Location"))


class NameStep(StrEnum):
    """What is to be done about the name of a main."""

    NOTHING = "nothing"
    REGISTER = "register"  # in the catalog, and then in main's property
    RECORD = "record"  # in main's property: the process that registered it died before that, or a person did it


def name_step(table: str, name: str, entry: Entry | None, location: str, recorded: str | None) -> NameStep:
    """Decide what is to be done about the name of a main.

    entry    : what the catalog has under the name
    location : main's
    recorded : the name that main says it was registered under; None if it says nothing, or there is no main yet
    raises   : NameGoneError, NameTakenError
    """
    if entry is None:
        if recorded != name:
            return NameStep.REGISTER
        problem = f"the catalog has no {name} any more: it was dropped or renamed. The table is still at {location}."
        hint = f"If by mistake, run `{registering(name, location)}`; if not, change `catalog_name` in the definition."
        raise NameGoneError(table, problem, hint=hint)
    if (other := obstacle(entry, location)) is not None:
        raise NameTakenError(table, other)
    return NameStep.NOTHING if recorded == name else NameStep.RECORD


def obstacle(entry: Entry, location: str) -> str | None:
    """Return why a name is not that of the main at `location`; None if it is."""
    if entry.is_delta and entry.type == EXTERNAL and entry.leads_to(location):
        return None
    return f"{entry.name} is {entry.describe()}, expected an external delta table at {location}."


def registering(name: str, location: str) -> str:
    """Return the statement that gives the table at `location` a name."""
    return f"CREATE TABLE IF NOT EXISTS {quoted_name(name)} USING delta LOCATION {literal(location)}"


def quoted_name(name: str) -> str:
    """Return a name of a catalog as SQL."""
    return ".".join(map(quoted, name.split(".")))


def schema_of(name: str) -> str:
    """Return the name of the schema that a name lies in."""
    return name.rpartition(".")[0]

"""What every kind of source has in its definition. The kinds themselves are in `sources/<kind>/model.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)

from airflow_mv_provider.core.definition.identifier import check_column_name

_CONN_ID = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"  # a part of an environment variable's name
_NOT_SET: tuple[Any, ...] = (None, False, {})


def _is_id(conn_id: str) -> str:
    if not re.fullmatch(_CONN_ID, conn_id):
        raise ValueError("this is not a connection's id: letters, digits and underscores")
    return conn_id


ConnectionId = Annotated[str, AfterValidator(_is_id), Field(json_schema_extra={"pattern": _CONN_ID})]


class Part(BaseModel):
    """A part of a definition: an unknown key is an error, and its values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SparsePart(Part):
    """A part without some of its fields in a document while they are not set: older documents keep their hash."""

    omitted: ClassVar[frozenset[str]] = frozenset()  # these fields

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = serialized(self)
        return {name: value for name, value in found.items() if name not in self.omitted or value not in _NOT_SET}


def requires_type(schema: dict[str, Any]) -> None:
    """Require `type` of a source in a document, although Python's classes set it: it decides what other keys mean."""
    schema["required"] = [*schema.get("required", ()), "type"]


class Ingested(Part):
    """The mark of a source that is an output of an ingestion; `core.definition.ingestion` sets it.

    Attributes:
        group: The consumer group to which is published how far all outputs of the ingestion are.
    """

    name: str
    output: str
    group: str | None = None


class Source(SparsePart):
    """The base of every kind's model, which has a field `type` with one literal, the kind's name, as its default."""

    model_config = ConfigDict(json_schema_extra=requires_type)

    first: ClassVar[str]  # the field that Python's callers pass as the positional argument
    not_content: ClassVar[frozenset[str]] = frozenset({"watermark"})  # fields that decide how changes are found, only

    select: tuple[str, ...] | None = Field(
        default=None,
        description="The projection: one SQL expression per column. Trusted, as all of a definition is.",
        examples=[["order_id", "upper(country) AS country"]],
    )
    watermark: str | None = Field(
        default=None,
        description="A column, after the projection, that grows with every change. The author guarantees that every row"
        " that is new or changed since the last refresh has NULL there, or at least the greatest value in the table.",
        examples=["updated_at"],
    )

    def __init__(self, first: str | None = None, /, **data: Any) -> None:
        super().__init__(**(data if first is None else {self.first: first, **data}))

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that it reads, as written in the definition; empty if the definition names none."""
        return ()

    @property
    def named_paths(self) -> Mapping[str, str]:
        """The paths of what it reads, by the names that its SQL has for them; of a source that is one place, ""."""
        return {}

    @property
    def dataset(self) -> str | None:
        """What it reads where its connection leads to: a table or a topic; None for a query or without a connection."""
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """The tables of Spark's catalog that it reads by their names; empty if the definition names none."""
        return ()

    @property
    def reads(self) -> str:
        """What it reads if that is no path, in a few words: the value of `first`, unless a kind has more to say."""
        return str(getattr(self, self.first))

    @property
    def connection_id(self) -> str | None:
        """The id of the connection that its reader needs; None for a kind that needs none."""
        return None

    @property
    def ingested(self) -> Ingested | None:
        """The ingestion whose output it is; None for a source of its own."""
        return None

    @property
    def is_complete(self) -> bool:
        """True if the source alone gives all rows of the table; False if only together with what main has already."""
        return True

    @property
    def is_text(self) -> bool:
        """True if its rows have to be parsed from text, which takes longer than reading columns."""
        return False

    @field_validator("watermark")
    @classmethod
    def _is_column(cls, column: str | None) -> str | None:
        return None if column is None else check_column_name(column)


class PathSource(Source):
    """The base of kinds that read one path."""

    first = "path"

    path: str = Field(
        description="Relative to the warehouse, or absolute under an allowed root.", examples=["raw/orders/*.csv"]
    )

    @property
    def paths(self) -> tuple[str, ...]:
        """See `Source`."""
        return (self.path,)

    @property
    def named_paths(self) -> Mapping[str, str]:
        """See `Source`."""
        return {"": self.path}

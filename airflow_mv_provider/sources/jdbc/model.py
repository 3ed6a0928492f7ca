"""A table or a query of a database as the definition's source."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from airflow_mv_provider.core.definition.source import ConnectionId, Ingested, Part, Source, requires_type

_BEGINS_QUERY = re.compile(r"(?>\s+|--[^\n]*\n|/\*.*?\*/)*+(?:\(|(?:select|with|values)\b)", re.IGNORECASE | re.DOTALL)
_TYPE = r"^(STRING|BOOLEAN|INT|BIGINT|DOUBLE|DATE|TIMESTAMP|DECIMAL\((3[0-8]|[12]\d|[1-9]),(3[0-8]|[12]?\d)\))$"


def _needs_one(schema: dict[str, Any]) -> None:
    requires_type(schema)
    named = {"type": "string"}
    schema["oneOf"] = [{"required": [name], "properties": {name: named}} for name in ("table", "query")]


class Split(Part):
    """How a source is read by several connections at once."""

    column: str = Field(
        description="A column of whole numbers, dates or timestamps; an index on it makes parts cheap.", examples=["id"]
    )
    parts: int = Field(
        ge=2, le=64, strict=True, description="At most so many connections read at the same time.", examples=[4]
    )


class Jdbc(Source):
    """A table or a query of a PostgreSQL, MariaDB or SQLite database, read with Spark."""

    model_config = ConfigDict(json_schema_extra=_needs_one)

    first = "conn_id"
    not_content = Source.not_content | {"split", "fetch_size", "read_timeout", "unchanged", "changes", "overlap"}
    not_content |= {"ingestion"}
    omitted = frozenset({"ingestion"})

    type: Literal["jdbc"] = "jdbc"
    conn_id: ConnectionId = Field(
        description="Airflow's connection, of type postgres, mysql or sqlite; on the command line AIRFLOW_CONN_<ID>.",
        examples=["shop"],
    )
    table: str | None = Field(
        default=None, description="schema.name, spelt as in the database. Or `query`.", examples=["public.orders"]
    )
    query: str | None = Field(
        default=None,
        description="One SELECT, in the database's own SQL.",
        examples=["SELECT id, total FROM orders WHERE total > 0"],
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Column → type, for those that have no exact type in Spark: STRING, BOOLEAN, INT, BIGINT, DOUBLE,"
        " DATE, TIMESTAMP or DECIMAL(p,s). A value that does not fit exactly is an error.",
        json_schema_extra={"additionalProperties": {"type": "string"}},
        examples=[{"price": "DECIMAL(10,2)"}],
    )
    split: Split | None = Field(
        default=None,
        description="Read in parts; without it by one connection.",
        examples=[{"column": "id", "parts": 4}],
    )
    fetch_size: int = Field(
        default=10_000, ge=1, le=1_000_000, strict=True, description="Rows that a connection holds in memory."
    )
    read_timeout: int = Field(
        default=900,
        ge=1,
        le=24 * 3600,
        strict=True,
        description="For how many seconds the database may send nothing, also while it sorts or counts; then the"
        " refresh fails.",
    )
    unchanged: Literal["snapshot", "compare"] | None = Field(
        default=None,
        description="snapshot: an unchanged database means unchanged rows; of a view or a query its author has to"
        " guarantee that. compare: read each time. By default snapshot for a table, else compare.",
    )

    changes: Literal["none", "xmin", "watermark"] | None = Field(
        default=None,
        description="How changed rows are found. xmin: PostgreSQL's own mark of the transaction that wrote a row."
        " watermark: the column of that name, less `overlap`. none: all rows are read and compared. By default"
        " watermark if there is one, else none.",
    )
    overlap: int | None = Field(
        default=None,
        ge=0,
        strict=True,
        description="How far below the greatest watermark in the table a new or changed row may be, because a"
        " transaction commits late: seconds for dates and timestamps, 3600 by default; required for numbers.",
        examples=[600],
    )

    ingestion: SkipJsonSchema[Ingested | None] = Field(default=None, description="Set by `type: output`.")

    @property
    def change_method(self) -> Literal["none", "xmin", "watermark"]:
        """How changed rows are found."""
        return self.changes or ("none" if self.watermark is None else "watermark")

    @property
    def reads(self) -> str:
        """See `Source`."""
        return f"{self.conn_id}: {self.table or 'a query'}"

    @property
    def dataset(self) -> str | None:
        """See `Source`."""
        return self.table

    @property
    def connection_id(self) -> str:
        """See `Source`."""
        return self.conn_id

    @property
    def ingested(self) -> Ingested | None:
        """See `Source`."""
        return self.ingestion

    @field_validator("table")
    @classmethod
    def _is_table(cls, table: str | None) -> str | None:
        if table is not None and not all(part.strip() and part.isprintable() for part in table.split(".")):
            raise ValueError(f"{table[:60]!r} is not of the form schema.name")
        if table is not None and table.count(".") > 1:
            raise ValueError(f"{table[:60]!r} has more than two parts; use `query` for a name with a dot")
        return table

    @field_validator("query")
    @classmethod
    def _is_query(cls, query: str | None) -> str | None:
        if query is not None and not _BEGINS_QUERY.match(query):
            raise ValueError("expected one query: SELECT, WITH or VALUES")
        return None if query is None else query.rstrip().rstrip(";")

    @field_validator("columns")
    @classmethod
    def _have_types(cls, columns: dict[str, str]) -> dict[str, str]:
        found = {name: re.sub(r"\s+", "", kind).upper() for name, kind in columns.items()}
        for name, kind in found.items():
            if not (matched := re.fullmatch(_TYPE, kind)):
                known = "STRING, BOOLEAN, INT, BIGINT, DOUBLE, DATE, TIMESTAMP or DECIMAL(p,s)"
                raise ValueError(f"{columns[name][:60]!r} of column {name[:60]!r} is none of {known}")
            if matched.group(2) and int(matched.group(3)) > int(matched.group(2)):
                raise ValueError(f"{kind} of column {name[:60]!r} has more decimals than digits")
        return found

    @model_validator(mode="after")
    def _has_one(self) -> Jdbc:
        if (self.table is None) == (self.query is None):
            raise ValueError("a source needs either a table or a query")
        return self

    @model_validator(mode="after")
    def _has_changes(self) -> Jdbc:
        if (self.change_method == "watermark") != (self.watermark is not None):
            raise ValueError("changes: watermark needs a watermark, and only that has one")
        if self.overlap is not None and self.watermark is None:
            raise ValueError("overlap needs a watermark")
        if self.change_method == "xmin" and self.table is None:
            raise ValueError("changes: xmin needs a table: the rows of a query have no xmin")
        selected = None if self.select is None else {each.strip().strip("`") for each in self.select}
        if self.watermark is not None and selected is not None and not selected & {self.watermark, "*"}:
            raise ValueError(
                "select has to contain the watermark, unchanged: the database looks for changed rows by it"
            )
        return self

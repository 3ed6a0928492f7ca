"""A batch data source of Spark as the definition's source: its name, and the options that it may have.

An option can name a file, a host or a class, so only those that are known to be harmless are allowed: for some
connectors here, for others where the refresh runs (AMV_SPARK_OPTIONS). A Python class is the author's own code, as a
source's function is, and takes any option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from airflow_mv_provider.core.definition.source import ConnectionId, Source
from airflow_mv_provider.core.secret import may_be_secret

_FORMAT = r"^[A-Za-z_][\w.-]*(:[A-Za-z_]\w*)?$"
_OPTION = re.compile(r"[A-Za-z_][\w.-]{0,99}")
_PART = re.compile(r"login|password|host|port|schema|extra\.[\w.-]{1,100}")
_SECRET_IN_VALUE = re.compile(r"://[^/\s]*:[^/\s]*@|(passw(or)?d|pwd|secret)\s*=\s*\S", re.IGNORECASE)
# What reads these exactly, or refuses a bad record that Spark's own reader would let pass.
_OWN = {"delta": "delta", "jdbc": "jdbc", **dict.fromkeys(("csv", "json", "orc", "parquet"), "files")}
_SNOWFLAKE = frozenset(
    {
        *("sfUrl", "sfUser", "sfPassword", "sfDatabase", "sfSchema", "sfWarehouse", "sfRole", "pem_private_key"),
        *("dbtable", "query", "keep_column_case"),
    }
)
OPTIONS: Mapping[str, frozenset[str]] = {
    "avro": frozenset({"avroSchema"}),
    "text": frozenset({"wholetext", "lineSep"}),
    "snowflake": _SNOWFLAKE,
    "net.snowflake.spark.snowflake": _SNOWFLAKE,
    "bigquery": frozenset(
        {"credentials", "table", "query", "dataset", "project", "parentProject", "filter", "viewsEnabled"}
    ),
    "mongodb": frozenset({"connection.uri", "database", "collection", "aggregation.pipeline"}),
}


class SparkSource(Source):
    """A batch data source of Spark by its name: a connector whose jar Spark has, or a class of Python."""

    first = "format"

    type: Literal["spark"] = "spark"
    watermark: None = Field(default=None, description="A data source of Spark cannot have one.")
    format: str = Field(
        description="The data source's name, or `module:Class` of a Python data source.",
        json_schema_extra={"pattern": _FORMAT},
        examples=["snowflake"],
    )
    path: str | None = Field(
        default=None,
        description="For a format of files: relative to the warehouse, or absolute under an allowed root.",
        examples=["raw/orders.xml"],
    )
    options: dict[str, str] = Field(
        default_factory=dict,
        description="Options of its reader, from the list of allowed ones; addresses and secrets are not among them.",
        examples=[{"dbtable": "ORDERS"}],
    )
    conn_id: ConnectionId | None = Field(
        default=None,
        description="Airflow's connection for `credentials`; on the command line AIRFLOW_CONN_<ID>.",
        examples=["snowflake"],
    )
    credentials: dict[str, str] = Field(
        default_factory=dict,
        description="Option → part of the connection: login, password, host, port, schema or extra.<name>.",
        examples=[{"sfUrl": "host"}],
    )
    version: dict[str, str] | None = Field(
        default=None,
        description="Options, instead of `options`, of a read that returns one row: while it is the same, the rows are"
        " the same, which the author guarantees. Without it all rows are read and compared each time.",
        examples=[{"query": "SELECT max(updated_at) FROM orders"}],
    )

    @property
    def paths(self) -> tuple[str, ...]:
        """See `Source`."""
        return () if self.path is None else (self.path,)

    @property
    def connection_id(self) -> str | None:
        """See `Source`."""
        return self.conn_id

    @property
    def is_python(self) -> bool:
        """True if the format is a class of Python."""
        return ":" in self.format

    @property
    def option_names(self) -> frozenset[str]:
        """The names of all options that its reads are given."""
        return frozenset({*self.options, *self.credentials, *(self.version or {})})

    @field_validator("format")
    @classmethod
    def _is_format(cls, name: str) -> str:
        if not re.fullmatch(_FORMAT, name):
            raise ValueError(f"{name[:60]!r} is not the name of a data source")
        if (kind := _OWN.get(name.lower())) is not None:
            raise ValueError(f"{name} has a type of its own: type: {kind}")
        return name

    @field_validator("options", "credentials", "version")
    @classmethod
    def _have_names(cls, options: dict[str, str] | None) -> dict[str, str] | None:
        for name in options or {}:
            if not _OPTION.fullmatch(name):
                raise ValueError(f"{name[:60]!r} is not the name of an option")
            if name.lower() in ("path", "paths"):
                raise ValueError(f"{name} is not an option: write it next to `format`")
        return options

    @field_validator("options", "version")
    @classmethod
    def _have_no_secret(cls, options: dict[str, str] | None) -> dict[str, str] | None:
        for name, value in (options or {}).items():
            if may_be_secret(name, "") or _SECRET_IN_VALUE.search(value):
                raise ValueError(f"{name} may be a secret: take it from a connection, by `credentials`")
        return options

    @field_validator("credentials")
    @classmethod
    def _are_parts(cls, credentials: dict[str, str]) -> dict[str, str]:
        for name, part in credentials.items():
            if not _PART.fullmatch(part):
                known = "login, password, host, port, schema or extra.<name>"
                raise ValueError(f"{name} has {part[:60]!r}, which is none of {known}")
        return credentials

    @field_validator("watermark", mode="before")
    @classmethod
    def _is_read_whole(cls, column: object) -> None:
        if column is not None:
            raise ValueError("a data source of Spark cannot have a watermark: two reads of it are of different times")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if bool(self.credentials) != (self.conn_id is not None):
            raise ValueError("conn_id and credentials belong together")
        if self.version is not None and self.path is not None:
            raise ValueError("version is for a source without a path")
        if twice := sorted(self.credentials.keys() & {*self.options, *(self.version or {})}):
            raise ValueError(f"{twice[0]} is among the options and the credentials")
        return self


def option_obstacle(source: SparkSource, allowed: str) -> str | None:
    """Return why a source may not have its options; None if it may.

    Args:
        allowed: Further options where the refresh runs: `format=option,option;format=option`.
    """
    if source.is_python:
        return None
    known = set(OPTIONS.get(source.format, ()))
    for each in allowed.split(";"):
        name, _, options = each.partition("=")
        if name.strip() == source.format:
            known |= {option.strip() for option in options.split(",")}
    if not (refused := sorted(source.option_names - known)):
        return None
    those = f"allowed are {', '.join(sorted(known))}" if known else "none is allowed yet"
    return f"{refused[0]} is not among the allowed options of {source.format}: {those}"

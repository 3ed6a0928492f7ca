"""A topic of Kafka as the definition's source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from airflow_mv_provider.core.definition.problems import nearest
from airflow_mv_provider.core.definition.source import ConnectionId, Ingested, Source, SparsePart, requires_type
from airflow_mv_provider.sources.files.model import OPTIONS, option_value

Format = Literal["json", "csv", "avro", "protobuf"]
_TOPIC = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$"  # as Kafka has it
# A record is one line in UTF-8 without a header, and no record is passed over.
_CSV = OPTIONS["csv"] - {"header", "comment", "encoding", "charset", "multiLine", "lineSep"}
# What each format needs to be decoded.
_NEEDS: Mapping[str, str] = {"json": "schema", "csv": "schema", "avro": "schema_file", "protobuf": "schema_file"}
_MESSAGE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
# Options of Spark's reader that read without an end, other topics, or other offsets than those that are pinned.
_OF_SPARK = re.compile(
    r"subscribe(pattern)?|assign|(starting|ending)(offsets(bytimestamp.*)?|timestamp)|failondataloss|groupidprefix"
    r"|minpartitions|maxoffsetspertrigger|minoffsetspertrigger|maxtriggerdelay|includeheaders|trigger|group(\.|_)?id"
)
_ELSEWHERE = "not part of a definition: address and security come from the connection"


def _requires_by_format(schema: dict[str, Any]) -> None:
    requires_type(schema)
    schema["allOf"] = [
        {
            "if": {"properties": {"format": {"const": name}}, "required": ["format"] if name != "json" else []},
            "then": {"required": [needed, "message"] if name == "protobuf" else [needed]},
        }
        for name, needed in _NEEDS.items()
    ]


def _check_encoding(what: Kafka | RecordKey) -> None:
    """Check that what is given is what a format needs.

    raises : ValueError
    """
    kind, schema, schema_file, options = what.format, what.schema_, what.schema_file, what.options
    for name, value in (("schema", schema), ("schema_file", schema_file)):
        if name == _NEEDS[kind] and value is None:
            raise ValueError(f"format {kind} needs {name}")
        if name != _NEEDS[kind] and value is not None:
            raise ValueError(f"format {kind} takes no {name}, but {_NEEDS[kind]}")
    if schema is not None and not schema.strip():
        raise ValueError("schema: it names no column")
    if schema_file is not None and (not schema_file.strip() or re.search(r"[*?\[{]", schema_file)):
        raise ValueError("schema_file: expected the path of one file")
    if (what.message is not None) != (kind == "protobuf"):
        needs = "needs" if kind == "protobuf" else "takes no"
        raise ValueError(f"format {kind} {needs} message")
    if what.message is not None and not re.fullmatch(_MESSAGE, what.message):
        raise ValueError("message: expected the full name of one message, as shop.Order")
    if options and kind != "csv":
        raise ValueError(f"format {kind} takes no options")
    if unknown := sorted(name for name in options if name not in _CSV):
        raise ValueError(f"unknown or forbidden options: {', '.join(unknown)}{nearest(unknown[0], _CSV)}")


def _option_values(options: object) -> object:
    return {k: option_value(k, v) for k, v in options.items()} if isinstance(options, dict) else options


class RecordKey(SparsePart):
    """How the keys of records are encoded, where that is not as in their values."""

    omitted = frozenset({"message"})

    format: Format = Field(description="How keys are encoded.")
    schema_: str | None = Field(
        default=None, alias="schema", description="The key's columns, of csv in their order.", examples=["id BIGINT"]
    )
    schema_file: str | None = Field(default=None, description="As the source's.", examples=["schemas/order_key.avsc"])
    message: str | None = Field(default=None, description="As the source's.", examples=["shop.OrderKey"])
    options: dict[str, str] = Field(default_factory=dict, description="As the source's.", examples=[{"sep": ";"}])

    _are_texts = field_validator("options", mode="before")(_option_values)

    @model_validator(mode="after")
    def _has_what_its_format_takes(self) -> Self:
        _check_encoding(self)
        return self


class Kafka(Source):
    """A topic, of which each refresh reads what came since the last publish, up to an end that is pinned before."""

    model_config = ConfigDict(json_schema_extra=_requires_by_format)

    first = "topic"
    # Another address of the same cluster is the same source; which cluster answers is part of the frontier.
    not_content = Source.not_content | {"conn_id", "complete", "ingestion", "max_records", "read_timeout"}
    omitted = frozenset({"schema_file", "message", "options", "record_key", "registry", "max_records", "ingestion"})

    type: Literal["kafka"] = "kafka"
    watermark: None = Field(default=None, description="A topic cannot have one.")
    topic: str = Field(
        description="One topic, by its name.", json_schema_extra={"pattern": _TOPIC}, examples=["shop.public.orders"]
    )
    conn_id: ConnectionId = Field(
        description="Airflow's connection, of type kafka; on the command line AIRFLOW_CONN_<ID>.",
        examples=["kafka"],
    )
    format: Format = Field(
        default="json", description="How values are encoded, and keys too unless `record_key` is set."
    )
    envelope: Literal["none", "upsert", "debezium"] = Field(
        description="none: each record is a row. upsert: the last record of a key is its row, one without a value"
        " deletes it. debezium: change events of a table."
    )
    schema_: str | None = Field(
        default=None,
        alias="schema",
        description="json, csv: the columns of a row and their types; a field that it lacks is an error.",
        examples=["id BIGINT, total DECIMAL(10,2)"],
    )
    schema_file: str | None = Field(
        default=None,
        description="avro: the file of the schema with which values were written, as JSON. protobuf: the descriptor"
        " file that protoc writes. Relative to the warehouse, or absolute under an allowed root.",
        examples=["schemas/order.avsc"],
    )
    message: str | None = Field(
        default=None,
        description="protobuf: the message of a value by its full name, as shop.Order.",
        json_schema_extra={"pattern": _MESSAGE},
        examples=["shop.Order"],
    )
    options: dict[str, str] = Field(
        default_factory=dict, description="csv: options of Spark's reader.", examples=[{"sep": ";"}]
    )
    record_key: RecordKey | None = Field(
        default=None,
        description="upsert, and debezium in avro: how keys are encoded. Required unless both are json.",
        examples=[{"format": "csv", "schema": "id BIGINT"}],
    )
    registry: bool = Field(
        default=False,
        strict=True,
        description="avro: records begin with the id of their schema, which the registry of the connection has"
        " (`schema.registry.url` in its extra); rows are read as of `schema_file`.",
    )
    complete: bool = Field(
        default=False,
        strict=True,
        description="The author guarantees that the topic, read from its start, gives the whole table. `--reload`"
        " needs it.",
    )
    max_records: int | None = Field(
        default=None,
        ge=1,
        strict=True,
        description="How many records a refresh takes at most; the next ones take the rest. A reload takes all.",
        examples=[1_000_000],
    )
    ingestion: SkipJsonSchema[Ingested | None] = Field(default=None, description="Set by `type: output`.")
    read_timeout: int = Field(
        default=120,
        ge=1,
        le=3600,
        strict=True,
        description="For how many seconds a broker may not answer; then the refresh fails.",
    )

    _are_texts = field_validator("options", mode="before")(_option_values)

    @model_validator(mode="before")
    @classmethod
    def _names_no_option_of_others(cls, data: Any) -> Any:
        for name in data if isinstance(data, dict) else ():
            low = str(name).lower()
            if low.startswith(("kafka.", "sasl.", "ssl.", "security.")) or low == "bootstrap.servers":
                raise ValueError(f"{str(name)[:60]}: {_ELSEWHERE}")
            if _OF_SPARK.fullmatch(low):
                raise ValueError(f"{str(name)[:60]}: what is read is pinned by each refresh, from where the last ended")
        return data

    @property
    def paths(self) -> tuple[str, ...]:
        """The files with schemas, that of values first; see `Source`."""
        return tuple(path for path in (self.schema_file, self.key_schema_file) if path is not None)

    @property
    def key_schema_file(self) -> str | None:
        """The file with the schema of keys; None if they need none."""
        return None if self.record_key is None else self.record_key.schema_file

    @property
    def dataset(self) -> str:
        """See `Source`."""
        return self.topic

    @property
    def connection_id(self) -> str:
        """See `Source`."""
        return self.conn_id

    @property
    def ingested(self) -> Ingested | None:
        """See `Source`."""
        return self.ingestion

    @property
    def is_complete(self) -> bool:
        """See `Source`."""
        return self.complete

    @field_validator("topic")
    @classmethod
    def _is_topic(cls, topic: str) -> str:
        if not re.fullmatch(_TOPIC, topic):
            raise ValueError(
                f"{topic[:60]!r} is not the name of one topic: letters, digits, dots, dashes and underscores"
            )
        return topic

    @field_validator("watermark", mode="before")
    @classmethod
    def _has_positions(cls, column: object) -> None:
        if column is not None:
            raise ValueError("a topic has no watermark: its offsets show what is new")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.select is not None and not self.select:
            raise ValueError("select names no column")
        _check_encoding(self)
        if self.ingestion is not None and self.max_records is not None:
            raise ValueError("max_records would end each table of an ingestion at another state: leave it out")
        if self.registry and self.format != "avro":
            raise ValueError(f"records of a schema registry are read in avro, not in {self.format}")
        key = None if self.record_key is None else self.record_key.format
        match self.envelope:
            case "none":
                if key is not None:
                    raise ValueError("envelope none does not read keys: leave out record_key")
            case "upsert":
                if key is None and self.format != "json":
                    raise ValueError(f"format {self.format} needs record_key: a record without a value has only a key")
            case "debezium":
                if self.format not in ("json", "avro"):
                    raise ValueError(f"Debezium's events are read in json or avro, not in {self.format}")
                if key != (None if self.format == "json" else "avro"):
                    raise ValueError("keys of Debezium's events are as their values: record_key in avro, none in json")
        return self

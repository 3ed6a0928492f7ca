"""A topic of Kafka as the definition's source."""

from __future__ import annotations

import re
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from airflow_mv_provider.core.definition.source import Source, requires_type

_CONN_ID = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"  # a part of an environment variable's name
_TOPIC = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$"  # as Kafka has it
# Options of Spark's reader that read without an end, other topics, or other offsets than those that are pinned.
_OF_SPARK = re.compile(
    r"subscribe(pattern)?|assign|(starting|ending)(offsets(bytimestamp.*)?|timestamp)|failondataloss|groupidprefix"
    r"|minpartitions|maxoffsetspertrigger|minoffsetspertrigger|maxtriggerdelay|includeheaders|trigger|group(\.|_)?id"
)
_ELSEWHERE = "it is no part of a definition: address and security come from the connection"


def _has_no_options_of_others(schema: dict[str, Any]) -> None:
    requires_type(schema)


class Kafka(Source):
    """A topic, of which each refresh reads what came since the last publish, up to an end that is pinned before."""

    model_config = ConfigDict(json_schema_extra=_has_no_options_of_others)

    first = "topic"
    # Another address of the same cluster is the same source; which cluster answers is part of the frontier.
    not_content = Source.not_content | {"conn_id", "complete", "read_timeout"}

    type: Literal["kafka"] = "kafka"
    topic: str = Field(description="One topic, by its name.", json_schema_extra={"pattern": _TOPIC})
    conn_id: str = Field(
        description="Airflow's connection, of type kafka; on the command line AIRFLOW_CONN_<ID>.",
        json_schema_extra={"pattern": _CONN_ID},
    )
    format: Literal["json"] = Field(default="json", description="How values and keys are encoded.")
    envelope: Literal["none", "upsert", "debezium"] = Field(
        description="none: each record is a row. upsert: the last record of a key is its row, one without a value"
        " deletes it. debezium: change events of a table."
    )
    schema_: str = Field(
        alias="schema", description="The columns of a row and their types; a field that it lacks is an error."
    )
    complete: bool = Field(
        default=False,
        strict=True,
        description="The author guarantees that the topic, read from its start, gives the whole table. `--reload`"
        " needs it.",
    )
    read_timeout: int = Field(
        default=120,
        ge=1,
        le=3600,
        strict=True,
        description="For how many seconds a broker may not answer; then the refresh fails.",
    )

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
    def connection_id(self) -> str:
        """See `Source`."""
        return self.conn_id

    @property
    def is_complete(self) -> bool:
        """See `Source`."""
        return self.complete

    @field_validator("topic")
    @classmethod
    def _is_topic(cls, topic: str) -> str:
        if not re.fullmatch(_TOPIC, topic):
            raise ValueError(f"{topic[:60]!r} is no name of one topic: letters, digits, dots, dashes and underscores")
        return topic

    @field_validator("conn_id")
    @classmethod
    def _is_id(cls, conn_id: str) -> str:
        if not re.fullmatch(_CONN_ID, conn_id):
            raise ValueError("it is not a connection's id: letters, digits and underscores")
        return conn_id

    @field_validator("schema_")
    @classmethod
    def _has_columns(cls, ddl: str) -> str:
        if not ddl.strip():
            raise ValueError("it names no column")
        return ddl

    @field_validator("watermark")
    @classmethod
    def _has_positions(cls, column: str | None) -> None:
        if column is not None:
            raise ValueError("a topic has no watermark: its offsets show what is new")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.select is not None and not self.select:
            raise ValueError("select names no column")
        return self

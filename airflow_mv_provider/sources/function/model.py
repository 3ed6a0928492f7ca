"""A Python function as the definition's source."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from airflow_mv_provider.core.definition.source import Source

_CALLABLE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"


class Function(Source):
    """A Python function that takes the Spark session and returns a DataFrame."""

    first = "callable"

    type: Literal["function"] = "function"
    watermark: None = Field(default=None, description="A function cannot have one.")
    callable: str = Field(
        description="`module:function`, importable where the refresh runs.",
        json_schema_extra={"pattern": _CALLABLE},
        examples=["shop.sources:rates"],
    )

    @field_validator("callable")
    @classmethod
    def _is_named(cls, name: str) -> str:
        if not re.fullmatch(_CALLABLE, name):
            raise ValueError(f"{name[:60]!r} is not of the form module:function")
        return name

    @field_validator("watermark", mode="before")
    @classmethod
    def _is_read_whole(cls, column: object) -> None:
        if column is not None:
            raise ValueError("a function cannot have a watermark: what it reads is not pinned")

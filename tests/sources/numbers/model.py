"""Numbers as the definition's source."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from airflow_mv_provider.core.definition.source import Source


class Numbers(Source):
    """The whole numbers from 0."""

    type: Literal["numbers"] = "numbers"
    below: int = Field(ge=0, strict=True, description="The first number that it has not.")

"""The section `dags:` of a definition file, beside `tables:`. The command line checks it and otherwise ignores it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import Field, ValidationError, field_validator, model_validator

from airflow_mv_provider.core.definition.problems import Problem, kind_of, nearest, problems_of, sentence
from airflow_mv_provider.core.definition.source import Part
from airflow_mv_provider.core.scope.interval import Grain
from airflow_mv_provider.exceptions import DefinitionError

if TYPE_CHECKING:
    from airflow_mv_provider.core.definition.ingestion import Ingestion
    from airflow_mv_provider.core.definition.table import RefreshableTable


_YEAR_S = 31_622_400.0
_DAG_ID = r"^[A-Za-z0-9_.~-]+$"


class DagOptions(Part):
    """The DAG of one table, or of an ingestion."""

    dag_id: str | None = Field(
        default=None,
        max_length=250,
        description="Its id; by default `refresh_` and the table's name.",
        json_schema_extra={"pattern": _DAG_ID},
        examples=["orders_hourly"],
    )
    schedule: str | None = Field(
        default=None,
        min_length=1,
        description="A cron expression or preset; `source` for each commit with data on a Delta source; null for manual"
        " runs only.",
        examples=["@hourly"],
    )
    after: tuple[str, ...] = Field(
        default=(), description="Tables whose publishing starts a run; replaces a schedule.", examples=[["customers"]]
    )
    start_date: date = Field(default=date(2026, 1, 1), description="No interval before it; backfills begin here.")
    timezone: str = Field(default="UTC", min_length=1, description="The time zone of the schedule and the intervals.")
    catchup: bool = Field(default=False, strict=True, description="Run every interval since start_date.")
    interval: Grain | None = Field(
        default=None,
        description="How long one value of the first partition column lasts: each run refreshes its own interval, and a"
        " backfill the requested ones.",
    )
    interval_format: str | None = Field(
        default=None,
        min_length=1,
        description="strftime format of that column's values; ISO dates by default.",
        examples=["%Y-%m"],
    )
    tasks: Literal["phases", "one", "submit"] | None = Field(
        default=None,
        description="One task; a task for each phase, which Airflow shows and retries by itself; or one task that"
        " submits a Spark driver. By default one for a table, and phases for an ingestion.",
        examples=["phases"],
    )
    spark_conn_id: str = Field(default="spark_default", description="For `tasks: submit`.")
    max_active_runs: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        strict=True,
        description="Limit of concurrent scheduled and manual runs.",
        examples=[1],
    )
    retries: int = Field(
        default=2,
        ge=0,
        le=1_000_000,
        strict=True,
        description="How often a failed task is tried again, if that may help.",
    )
    retry_delay_s: float = Field(default=60.0, ge=0.0, le=_YEAR_S, description="Seconds between the tries.")
    queue_timeout_s: float | None = Field(
        default=None,
        ge=0.0,
        le=_YEAR_S,
        description="How long a task waits for a table that another owner refreshes.",
        examples=[3600.0],
    )
    pool: str | None = Field(
        default=None, min_length=1, description="The Airflow pool of its tasks.", examples=["spark"]
    )
    tags: tuple[str, ...] = Field(default=(), description="Its tags, beside `mv`.", examples=[["shop"]])
    description: str | None = Field(
        default=None, description="What Airflow shows as its description.", examples=["Orders of the shop"]
    )

    @field_validator("dag_id")
    @classmethod
    def _is_id(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(_DAG_ID, name):
            raise ValueError(f"{name[:60]!r} is not a DAG id: use letters, digits, and any of _ . ~ -")
        return name

    @field_validator("timezone")
    @classmethod
    def _is_timezone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"{name[:60]!r} is not a time zone{nearest(name, available_timezones())}") from error
        return name

    @field_validator("tags")
    @classmethod
    def _fit(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if any(not 0 < len(tag) <= 100 for tag in tags):
            raise ValueError("a tag has 1 to 100 characters")
        return tags

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.after and self.schedule:
            raise ValueError("after replaces a schedule: give only one of them")
        if self.interval_format is not None and self.interval is None:
            raise ValueError("interval_format needs interval")
        if self.interval is not None and (self.after or self.schedule in (None, "source")):
            raise ValueError("interval needs a schedule by time: other runs have no interval")
        return self


def options_of(
    document: object, tables: Sequence[RefreshableTable], ingestions: Sequence[Ingestion] = ()
) -> tuple[dict[str, DagOptions], dict[str, DagOptions]]:
    """Return the options of the DAGs of tables and of ingestions, by name.

    A table of an ingestion is refreshed by the ingestion's DAG, and has its own only if `tables` names it.

    Args:
        document: The value of `dags`: `{"defaults": {...}, "tables": {...}, "ingestions": {...}}`.

    Raises:
        DefinitionError: Also for a name that the file does not define, and for options that do not fit it.
    """
    if document is None:
        document = {}
    if not isinstance(document, Mapping) or not set(document) <= {"defaults", "tables", "ingestions"}:
        raise DefinitionError("dags", "expected `defaults`, `tables` and `ingestions`.")
    defaults, own, groups = (document.get(name) or {} for name in ("defaults", "tables", "ingestions"))
    if not all(isinstance(each, Mapping) for each in (defaults, own, groups)):
        raise DefinitionError("dags", "`defaults`, `tables` and `ingestions` are mappings.")
    _check_known("tables", "a table", own, [table.name for table in tables])
    _check_known("ingestions", "an ingestion", groups, [each.name for each in ingestions])
    of_tables = {
        table.name: _options(table, defaults, own.get(table.name) or {})
        for table in tables
        if table.source.ingested is None or table.name in own
    }
    return of_tables, {each.name: _of_group(each, defaults, groups.get(each.name) or {}) for each in ingestions}


def _check_known(section: str, what: str, named: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := sorted(set(map(str, named)) - set(known)):
        text = f"{unknown[0][:60]!r} is not {what} of this file{nearest(unknown[0], known)}"
        problem = Problem((section, unknown[0]), text)
        raise DefinitionError("dags", f"{problem.text}.", problems=(problem,))


def _of_group(ingestion: Ingestion, defaults: Mapping[str, Any], own: object) -> DagOptions:
    found = _parsed(ingestion.name, defaults, own)
    where = f"dags of {ingestion.name!r}"
    if found.interval is not None:
        raise DefinitionError(where, "an ingestion has no intervals: leave interval out.")
    if found.schedule == "source":
        raise DefinitionError(where, "schedule: source needs a Delta source.")
    if found.tasks == "submit":
        raise DefinitionError(where, "an ingestion is not submitted: give tasks: phases, or one.")
    return found


def _parsed(name: str, defaults: Mapping[str, Any], own: object) -> DagOptions:
    where = f"dags of {name!r}"
    if not isinstance(own, Mapping):
        raise DefinitionError(where, f"expected a mapping, found {kind_of(own)}.")
    try:
        return DagOptions.model_validate({**defaults, **own})
    except ValidationError as error:
        problems = problems_of(error, DagOptions)
        raise DefinitionError(where, sentence(problems), table=name, problems=problems) from error


def _options(table: RefreshableTable, defaults: Mapping[str, Any], own: object) -> DagOptions:
    where, found = f"dags of {table.name!r}", _parsed(table.name, defaults, own)
    if found.interval is not None and not table.partition_by:
        raise DefinitionError(where, "interval needs a table with partition_by.")
    if found.schedule == "source" and not (table.source_kind.has_triggers and table.source.paths):
        raise DefinitionError(where, "schedule: source needs a Delta source with a path.")
    return found


def dags_schema() -> dict[str, Any]:
    """Return the JSON Schema of `dags`.

    It has no rules between options: those apply after the defaults and a table's own options are merged.
    """
    options = DagOptions.model_json_schema(by_alias=True)
    return {
        "type": "object",
        "description": "A DAG for each table and each ingestion, made by `operators.factory.refresh_dags`.",
        "additionalProperties": False,
        "properties": {
            "defaults": options,
            "tables": {"type": "object", "additionalProperties": options},
            "ingestions": {"type": "object", "additionalProperties": options},
        },
    }

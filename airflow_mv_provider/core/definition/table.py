"""A table's definition: one pydantic model behind Python, YAML and the JSON Schema for editors."""

from __future__ import annotations

import hashlib
import json
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from airflow_mv_provider.core.definition.checks import Check
from airflow_mv_provider.core.definition.evolution import LostColumn, Policy
from airflow_mv_provider.core.definition.freshness import Freshness
from airflow_mv_provider.core.definition.guards import Guards
from airflow_mv_provider.core.definition.history import History
from airflow_mv_provider.core.definition.identifier import check_catalog_name, check_columns, check_table_name
from airflow_mv_provider.core.definition.kinds import SourceKind, kind_of_source, kinds
from airflow_mv_provider.core.definition.problems import kind_of, problems_of, sentence
from airflow_mv_provider.core.definition.source import Part, Source
from airflow_mv_provider.core.strategy_names import RequestedStrategy
from airflow_mv_provider.exceptions import DefinitionError

Approval = Literal["never", "guards", "schema", "always"]
if TYPE_CHECKING:
    AnySource = Source
else:
    AnySource = Annotated[reduce(or_, [kind.model for kind in kinds()]), Field(discriminator="type")]


class ErrorTable(Part):
    """Records of the source that cannot be rows of the table are kept beside it, in `<table>__errors`."""

    max_rows: int = Field(default=1000, ge=1, le=10**9, strict=True, description="Fail if more are rejected.")


def _allowed_combinations(schema: dict[str, Any]) -> None:
    """Add the rules of `RefreshableTable._fits_together` to the JSON Schema."""
    schema["properties"]["history"]["anyOf"].append({"type": "boolean"})
    partitioned = {"required": ["partition_by"], "properties": {"partition_by": {"minItems": 1}}}
    schema["allOf"] = [
        {"if": {"required": [name], "properties": {name: value}}, "then": partitioned}
        for name, value in (("publish", {"const": "progressive"}), ("frozen_before", {"type": "string"}))
    ]
    last_wins = {"required": ["on_conflict"], "properties": {"on_conflict": {"const": "overwrite"}}}
    ordered = {"required": ["order_by"], "properties": {"order_by": {"minItems": 1}}}
    chooses = {"required": ["on_conflict"], "properties": {"on_conflict": {"enum": ["overwrite", "ignore", "keep"]}}}
    schema["allOf"] += [{"if": last_wins, "then": ordered}, {"if": ordered, "then": chooses}]
    loses = {"required": ["on_lost_column"], "properties": {"on_lost_column": {"enum": ["keep", "drop"]}}}
    adds = {"required": ["schema_policy"], "properties": {"schema_policy": {"enum": ["add", "evolve"]}}}
    drops = {"required": ["on_lost_column"], "properties": {"on_lost_column": {"const": "drop"}}}
    rewritable = {"properties": {"publish": {"const": "atomic"}, "frozen_before": {"type": "null"}}}
    schema["allOf"] += [{"if": loses, "then": adds}, {"if": drops, "then": rewritable}]
    decided = {"required": ["approval"], "properties": {"approval": {"enum": ["guards", "schema", "always"]}}}
    schema["allOf"].append({"if": decided, "then": {"properties": {"publish": {"const": "atomic"}}}})
    changes_only = {
        "publish": {"const": "atomic"},
        "verify_every": {"type": "null"},
        "on_conflict": {"const": "fail"},
        "frozen_before": {"type": "null"},
    }
    for kind in kinds():
        if kind.is_log:
            is_kind = {"required": ["source"], "properties": {"source": {"properties": {"type": {"const": kind.name}}}}}
            schema["allOf"].append({"if": is_kind, "then": {"properties": changes_only}})
    collects = {"required": ["errors"], "properties": {"errors": {"type": "object"}}}
    for kind in kinds():
        if not (kind.is_repeatable or kind.is_log):
            readable = {"properties": {"source": {"properties": {"type": {"not": {"const": kind.name}}}}}}
            schema["allOf"].append({"if": collects, "then": readable})


class RefreshableTable(Part):
    """A Delta table that is kept equal to its source."""

    model_config = ConfigDict(json_schema_extra=_allowed_combinations)

    name: str = Field(
        description="One to three parts joined by dots; the table's path under the warehouse.", examples=["shop.orders"]
    )
    source: AnySource = Field(
        description="Where its rows come from; `type` names the kind of source.",
        examples=[{"type": "delta", "path": "raw/orders"}],
    )
    key: tuple[str, ...] = Field(
        min_length=1, description="Columns whose values identify a row.", examples=[["order_id"]]
    )
    partition_by: tuple[str, ...] = Field(
        default=(), description="Natural partition columns of the table.", examples=[["month"]]
    )
    publish: Literal["atomic", "progressive"] = Field(
        default="atomic",
        description="One commit for everything, or one for each chunk of partitions as soon as it is ready.",
    )
    on_conflict: Literal["fail", "overwrite", "ignore", "keep"] = Field(
        default="fail",
        description="Two rows of the source with one key: an error, the last by order_by, or the table's own row;"
        " keep: the table's row for a key stays, even if the source has the key once.",
    )
    order_by: tuple[str, ...] = Field(
        default=(),
        description="Which of two rows with one key comes later; needed for on_conflict: overwrite.",
        examples=[["updated_at"]],
    )
    concurrency: Literal["reject", "queue", "join"] = Field(
        default="reject",
        description="A second caller, while another one refreshes the table, is rejected, queued, or joined to the"
        " running refresh if both read the same.",
    )
    schema_policy: Policy = Field(
        default="fail",
        description="Columns of the source that the table lacks: an error, ignored, added to it, or added and its types"
        " widened.",
    )
    on_lost_column: LostColumn = Field(
        default="fail",
        description="A column of the table that the source no longer has, if schema_policy adds columns: an error, kept"
        " as it is, or dropped, which rewrites the table.",
    )
    frozen_before: str | None = Field(
        default=None,
        min_length=1,
        description="Partitions with a lower first column are not changed; differences there are only reported.",
        examples=["2024-01-01"],
    )
    errors: ErrorTable | None = Field(
        default=None,
        description="Keep records that cannot be decoded or have no key in an error table, instead of failing.",
        examples=[{"max_rows": 100}],
    )
    strategy: RequestedStrategy = Field(
        default="auto",
        description="How the table is brought up to date: by the cheapest strategy, or by this one wherever possible.",
    )
    strict: bool = Field(
        default=False,
        strict=True,
        description="Fail if the strategy is not possible, instead of reading and comparing everything.",
    )
    verify_every: int | None = Field(
        default=None,
        ge=1,
        le=10**6,
        strict=True,
        description="Each time after so many states of the source, a refresh that reads only what changed also reads"
        " all of the source and checks that both lead to the same rows. Never by default.",
        examples=[50],
    )
    freshness: Freshness | None = Field(
        default=None, description="When the table counts as late; never by default.", examples=[{"target": "6h"}]
    )
    guards: Guards = Field(
        default=Guards(),
        description="Limits on what one refresh may change.",
        examples=[{"max_deleted_fraction": 0.1, "min_rows": 1000}],
    )
    checks: tuple[Check, ...] = Field(
        default=(),
        max_length=100,
        description="Rules that the source's rows must keep before they are published.",
        examples=[[{"not_null": ["customer_id"]}]],
    )
    approval: Approval = Field(
        default="never",
        description="Which refreshes wait for a person's decision before they change the table: none, those that a"
        " guard refuses, these and those that change columns, or all.",
    )
    hold_for: int = Field(
        default=24 * 3600,
        ge=60,
        le=30 * 24 * 3600,
        strict=True,
        description="For how many seconds a refresh waits for a decision; then it is abandoned.",
    )
    when_held: Literal["wait", "supersede"] = Field(
        default="wait",
        description="A newer refresh, while one awaits approval, waits for it; or it ends that one, if the"
        " source or the definition has changed since.",
    )
    samples: Literal["decisions", "always"] = Field(
        default="decisions",
        description="Of which refreshes some changed rows are kept for later: those that await approval or that a"
        " guard refuses, or all; the latter costs a scan of the table each time.",
    )
    sensitive: tuple[str, ...] = Field(
        default=(),
        description="Columns whose values are shown and kept only as hashes when changed rows are.",
        examples=[["email"]],
    )
    track_changes: bool = Field(
        default=False,
        strict=True,
        description="The table keeps a change data feed of its own, from its creation or from the next publish on, so"
        " that `amv why` reads one feed instead of old versions. Each changed row is then written twice.",
    )
    history: History | None = Field(
        default=None,
        description="Keep every version of every row in a second table, `<table>__history`: true, or how.",
        examples=[{"deletes": "mark", "keep": "730d"}],
    )
    chunk_rows: int = Field(
        default=5_000_000,
        ge=1,
        le=10**12,
        strict=True,
        description="With publish: progressive, rows that are committed in one step.",
    )
    catalog_name: str | None = Field(
        default=None,
        description="A name in Spark's catalog for the table, which lies at its path all the same:"
        " spark_catalog.schema.table.",
        examples=["spark_catalog.shop.orders"],
    )
    adopt: bool = Field(default=False, strict=True, description="Take over a Delta table that exists at the location.")

    @field_validator("source", mode="before")
    @classmethod
    def _has_names(cls, source: object) -> object:
        if isinstance(source, dict) and not all(isinstance(name, str) for name in source):
            raise ValueError("a name in it is not a string: put it in quotes")
        return source

    @field_validator("history", mode="before")
    @classmethod
    def _has_history(cls, history: object) -> object:
        return ({} if history else None) if isinstance(history, bool) else history

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        return check_table_name(name)

    @field_validator("catalog_name")
    @classmethod
    def _is_catalog_name(cls, name: str | None) -> str | None:
        return None if name is None else check_catalog_name(name)

    @field_validator("key", "partition_by", "order_by", "sensitive")
    @classmethod
    def _are_columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return check_columns(columns)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.publish == "progressive" and not self.partition_by:
            raise ValueError("a progressive table needs partition_by: each of its commits brings whole partitions")
        if self.on_conflict == "overwrite" and not self.order_by:
            raise ValueError("on_conflict: overwrite needs order_by, which decides which of two rows is the last")
        if self.order_by and self.on_conflict == "fail":
            raise ValueError("order_by needs on_conflict: overwrite, ignore or keep")
        if self.frozen_before is not None and not self.partition_by:
            raise ValueError("frozen_before needs partition_by: it is a bound of the first partition column")
        if self.publish == "progressive" and self.approval != "never":
            raise ValueError("approval needs publish: atomic: a progressive table changes before all is compared")
        self._check_checks()
        if self.on_lost_column != "fail" and self.schema_policy not in ("add", "evolve"):
            raise ValueError("on_lost_column needs schema_policy: add or evolve")
        if self.on_lost_column == "drop" and (self.publish == "progressive" or self.frozen_before is not None):
            raise ValueError(
                "on_lost_column: drop rewrites the table, so publish: progressive and frozen_before exclude it"
            )
        if self.errors is not None and not (self.source_kind.is_repeatable or self.source_kind.is_log):
            kind = self.source_kind.name
            raise ValueError(f"errors needs a deterministic source: the rows of a {kind} may differ at each read")
        if self.source_kind.is_log:
            self._fits_log()
        if self.catalog_name is not None and self.catalog_name in self.source.names:
            raise ValueError("its catalog_name is its source's: a table cannot be made of itself")
        return self

    def _check_checks(self) -> None:
        titles = [check.title for check in self.checks]
        if twice := next((title for title in titles if titles.count(title) > 1), None):
            raise ValueError(f"two checks are called {twice!r}: give each a name")
        if any(check.references is not None and check.references.table == self.name for check in self.checks):
            raise ValueError("a check cannot reference its own table, whose last publish lacks the rows that are new")
        if self.quarantining and self.errors is None:
            raise ValueError("a check of severity quarantine needs errors: the error table keeps the rows")
        if self.publish == "progressive" and any(check.severity == "hold" for check in self.checks):
            raise ValueError(
                "a check of severity hold needs publish: atomic: a progressive table changes before all is compared"
            )

    @property
    def quarantining(self) -> tuple[Check, ...]:
        """The checks whose rows are left out of main."""
        return tuple(check for check in self.checks if check.severity == "quarantine")

    def _fits_log(self) -> None:
        """Refuse what a table cannot have whose source lists changes only: rows without a change are main's."""
        unusual = {
            "a check of severity quarantine": bool(self.quarantining),
            "frozen_before": self.frozen_before is not None,
            "publish: progressive": self.publish == "progressive",
            "verify_every": self.verify_every is not None,
            f"on_conflict: {self.on_conflict}": self.on_conflict != "fail",
        }
        if found := [name for name, is_there in unusual.items() if is_there]:
            raise ValueError(f"a source of type {self.source_kind.name} excludes {found[0]}: its changes are read once")

    @property
    def source_kind(self) -> SourceKind:
        """What the source can do."""
        return kind_of_source(self.source)

    @property
    def may_move(self) -> bool:
        """True if a row can move to another partition and keep its key."""
        return not set(self.partition_by) <= set(self.key)

    @property
    def group_by(self) -> tuple[str, ...]:
        """The columns that identify main's rows in a comparison: the key, then the partition columns outside it."""
        return (*self.key, *(column for column in self.partition_by if column not in self.key))

    @property
    def named_columns(self) -> tuple[tuple[str, ...], ...]:
        """The columns that the source must have: key, partition columns, and sensitive ones unless it may lose any."""
        return self.key, self.partition_by, self.sensitive if self.on_lost_column == "fail" else ()

    @property
    def content_hash(self) -> str:
        """Sixteen hex digits over the fields that determine main's content; guards and chunk sizes do not."""
        content = self.model_dump(mode="json", by_alias=True, include={"source", "key", "partition_by"})
        for name in self.source.not_content:
            content["source"].pop(name, None)
        if self.frozen_before is not None:
            content["frozen_before"] = self.frozen_before
        if self.on_conflict != "fail":
            content["on_conflict"] = [self.on_conflict, *self.order_by]
        if self.schema_policy != "fail":
            content["schema_policy"] = [self.schema_policy, self.on_lost_column]
        if self.errors is not None:
            content["errors"] = True
        if self.history is not None:
            # It begins, or gets another rule for deletes, by a refresh that compares everything in any case.
            content["history"] = self.history.deletes
        if self.quarantining:
            rules = {"not_null", "accepted_values", "matches", "expression"}
            content["checks"] = [check.model_dump(mode="json", include=rules) for check in self.quarantining]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def keeps_content(self, published_hash: str | None) -> bool:
        """True if main, published by a definition of this hash, has what this one gives.

        An error table may be added to a log: without one no record was left out. So may a history, or end: a log is
        not read again for it.
        """
        if published_hash == self.content_hash:
            return True
        if not self.source_kind.is_log:
            return False
        return published_hash in {
            self.model_copy(update={"errors": errors, "history": history}).content_hash
            for errors in (self.errors, None)
            for history in (None, *(History(deletes=rule) for rule in ("close", "keep", "mark")))
        }

    def to_json(self) -> dict[str, Any]:
        """Return the mapping that `parse_table` accepts."""
        return self.model_dump(mode="json", by_alias=True)

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits over the whole definition."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def changed_fields(old: RefreshableTable, new: RefreshableTable) -> tuple[str, ...]:
    """Return the names of the fields in which two definitions differ, in the order of the definition."""
    return tuple(name for name in RefreshableTable.model_fields if getattr(old, name) != getattr(new, name))


def parse_table(document: object) -> RefreshableTable:
    """Return the definition in `document`, one mapping.

    Raises:
        DefinitionError: Naming every wrong key in one message; `problems` is among its facts.
    """
    if not isinstance(document, dict):
        raise DefinitionError("definition", f"expected a mapping, found {kind_of(document)}.")
    name = document.get("name")
    where = f"definition of {name[:60]!r}" if isinstance(name, str) else "definition"
    try:
        return RefreshableTable.model_validate(document)
    except ValidationError as error:
        problems = problems_of(error, RefreshableTable)
        raise DefinitionError(where, sentence(problems), problems=problems) from error

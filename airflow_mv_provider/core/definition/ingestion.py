"""The section `ingestions:` of a definition file: a source that several tables share, and how a table names its part.

    ingestions: [{name: shop, source: {type: kafka, conn_id: kafka_shop}, outputs: {customers: {topic: ...}}}]
    tables:     [{source: {type: output, of: shop, output: customers, schema: ...}}]

A source of type `output` is not a kind: it stands for a source of the ingestion's kind, put together from what all
outputs share, the output's own fields and those that the table adds. That one is registered, with the mark
`Ingested`. So a table of an ingestion is refreshed, recovered and compared like every other table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from airflow_mv_provider.core.definition.kinds import kinds
from airflow_mv_provider.core.definition.problems import Problem, nearest, problems_of, sentence
from airflow_mv_provider.core.definition.source import Ingested, Part
from airflow_mv_provider.exceptions import DefinitionError

OUTPUT = "output"
_NAME = r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$"
_OWN = ("type", "of", "output")  # fields of a source of type `output` itself; the rest is the kind's


class Ingestion(Part):
    """One source with several outputs, each of which a table holds."""

    name: str = Field(
        description="Names it in tables and in `amv ingest NAME`.",
        json_schema_extra={"pattern": _NAME},
        examples=["shop"],
    )
    source: dict[str, Any] = Field(
        description="What all outputs share: `type` and `conn_id`, of kafka also `group`, and any of the kind's"
        " fields.",
        examples=[{"type": "kafka", "conn_id": "kafka", "group": "lake"}],
    )
    outputs: dict[str, dict[str, Any]] = Field(
        min_length=1,
        description="By name, what each output adds: a topic, or a table of the database.",
        examples=[{"orders": {"topic": "shop.public.orders"}}],
    )

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"{name[:60]!r} is not a name: letters, digits, and any of _ . -")
        return name

    @model_validator(mode="after")
    def _has_each_field_once(self) -> Ingestion:
        if lacking := [name for name in ("type", "conn_id") if not isinstance(self.source.get(name), str)]:
            raise ValueError(f"source: {lacking[0]} is missing")
        if self.source["type"] == OUTPUT or "ingestion" in self.source:
            raise ValueError("source: an ingestion is not an output of another one")
        kind = next((each for each in kinds() if each.name == self.source["type"]), None)
        if kind is None or kind.shared is None:
            known = [each.name for each in kinds() if each.shared is not None]
            raise ValueError(
                f"source: expected type {' or '.join(known)}: only of these can several tables share a state"
            )
        group = self.source.get("group")
        if group is not None and (not kind.is_log or not isinstance(group, str) or not group.strip()):
            raise ValueError("source: group is the name of a consumer group, which only a log has")
        for name, output in self.outputs.items():
            if twice := [each for each in output if each in self.source or each in _OWN]:
                raise ValueError(f"outputs.{name}: {twice[0]} is the same for all outputs")
        return self

    def output(self, name: str, **more: Any) -> Any:
        """Return the source of a table that holds one output, as a document.

        Args:
            more: What the table adds: columns, projection, ...

        Raises:
            DefinitionError
        """
        if name not in self.outputs:
            known = nearest(name, self.outputs)
            raise DefinitionError(f"ingestion {self.name!r}", f"the ingestion has no output {name[:60]!r}{known}.")
        shared = {key: value for key, value in self.source.items() if key != "group"}
        known_already = {**shared, **self.outputs[name]}
        if twice := [each for each in more if each in known_already]:
            problem = f"{twice[0]} is already given by the ingestion {self.name!r}"
            raise DefinitionError("source", f"{problem}.", problems=(Problem((twice[0],), problem),))
        mark = Ingested(name=self.name, output=name, group=self.source.get("group"))
        return {**known_already, **more, "ingestion": mark.model_dump()}


def parse_ingestion(document: object) -> Ingestion:
    """Return the ingestion in `document`, one mapping.

    Raises:
        DefinitionError: Naming every wrong key.
        `problems` among its facts.
    """
    name = document.get("name") if isinstance(document, dict) else None
    where = f"ingestion {name[:60]!r}" if isinstance(name, str) else "ingestion"
    try:
        return Ingestion.model_validate(document)
    except ValidationError as error:
        problems = problems_of(error, Ingestion)
        raise DefinitionError(where, sentence(problems), problems=problems) from error


def resolved(document: object, ingestions: Sequence[Ingestion]) -> object:
    """Return a table's document, in which a source of type `output` is replaced by what it stands for.

    Raises:
        DefinitionError
    """
    source = document.get("source") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(source, dict) or source.get("type") != OUTPUT:
        return document
    where = f"definition of {str(document.get('name'))[:60]!r}"
    found = _named(source, {each.name: each for each in ingestions}, where)
    more = {name: value for name, value in source.items() if name not in _OWN}
    try:
        return {**document, "source": found.output(str(source["output"]), **more)}
    except DefinitionError as error:
        place = error.facts.get("problems", (Problem(("output",), error.problem.rstrip(".")),))
        raise _wrong(where, *(Problem(("source", *each.place), each.text) for each in place)) from error


def _named(source: Mapping[str, Any], known: Mapping[str, Ingestion], where: str) -> Ingestion:
    for name in ("of", "output"):
        if not isinstance(source.get(name), str):
            raise _wrong(where, Problem(("source", name), "missing" if name not in source else "expected a name"))
    if source["of"] not in known:
        suggested = nearest(source["of"], known)
        text = f"{source['of'][:60]!r} is not an ingestion of this file{suggested}"
        raise _wrong(where, Problem(("source", "of"), text))
    return known[source["of"]]


def _wrong(where: str, *problems: Problem) -> DefinitionError:
    return DefinitionError(where, sentence(problems), problems=problems)


def output_schema() -> dict[str, Any]:
    """Return the JSON Schema of a source of type `output`; the kind's own fields are checked when it is read."""
    return {
        "type": "object",
        "title": "Output",
        "description": "A part of a source that several tables share: see `ingestions`.",
        "required": list(_OWN),
        "properties": {
            "type": {"const": OUTPUT},
            "of": {"type": "string", "description": "An ingestion of this file."},
            "output": {"type": "string", "description": "One of its outputs."},
        },
    }

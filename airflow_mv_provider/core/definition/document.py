"""The JSON Schema of definition files, for editors."""

from __future__ import annotations

from typing import Any

from airflow_mv_provider.core.definition.dag_options import dags_schema
from airflow_mv_provider.core.definition.ingestion import OUTPUT, Ingestion, output_schema
from airflow_mv_provider.core.definition.table import RefreshableTable


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a definition file: `{"tables": [...]}`."""
    table = RefreshableTable.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    definitions = table.pop("$defs")
    source = table["properties"]["source"]
    source["oneOf"].append({"$ref": "#/$defs/Output"})
    source["discriminator"]["mapping"][OUTPUT] = "#/$defs/Output"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Refreshable tables",
        "type": "object",
        "additionalProperties": False,
        "required": ["tables"],
        "properties": {
            "tables": {"type": "array", "items": {"$ref": "#/$defs/RefreshableTable"}},
            "dags": dags_schema(),
            "ingestions": {"type": "array", "items": Ingestion.model_json_schema()},
        },
        "$defs": {**definitions, "Output": output_schema(), "RefreshableTable": table},
    }

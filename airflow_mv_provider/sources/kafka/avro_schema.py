"""Decisions on Avro schemas, as JSON; no Avro library and no Spark."""

from __future__ import annotations

import json
from typing import Any

from airflow_mv_provider.exceptions import DefinitionError

_END = {"type": "fixed", "name": "mv_end", "size": 16}


def check_record(schema: str) -> None:
    """Check that a schema is a record's: its fields are the columns.

    raises : DefinitionError
    """
    found = json.loads(schema)
    if not isinstance(found, dict) or found.get("type") != "record" or not isinstance(found.get("fields"), list):
        raise DefinitionError("source", "an Avro schema has to be a record: its fields are the columns.")


def sealed(schema: str) -> str:
    """Return the schema of a record that is followed by 16 bytes: a record of (row, end)."""
    fields: list[dict[str, Any]] = [{"name": "row", "type": json.loads(schema)}, {"name": "end", "type": _END}]
    # Without a namespace, so that names inside the row stand for what they stood for.
    return json.dumps({"type": "record", "name": "mv_sealed", "fields": fields})

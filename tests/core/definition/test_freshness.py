"""How old a table may become, as a definition says it."""

from __future__ import annotations

import jsonschema
import pytest

from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.definition.table import RefreshableTable, parse_table
from airflow_mv_provider.exceptions import DefinitionError
from tests.conftest import a_table


def with_freshness(value):
    return a_table().to_json() | {"freshness": value}


@pytest.mark.parametrize(
    ("target", "seconds"),
    [(60, 60), ("90s", 90), ("15min", 900), ("15 m", 900), ("1h", 3600), (" 2d ", 172_800)],
)
def test_target_is_seconds_or_a_duration(target, seconds):
    found = parse_table(with_freshness({"target": target})).freshness

    assert (found.target, found.measured_from) == (seconds, MeasuredFrom.CHECK)
    jsonschema.validate({"target": target}, RefreshableTable.model_json_schema()["$defs"]["Freshness"])


def test_a_definition_says_from_when_the_age_counts_and_is_stored_with_it():
    found = parse_table(with_freshness({"target": "1h", "measured_from": "source"}))

    assert found.to_json()["freshness"] == {"target": 3600, "measured_from": "source"}
    assert parse_table(found.to_json()) == found
    assert found.content_hash == a_table().content_hash, "it does not change main's rows"


@pytest.mark.parametrize(
    ("freshness", "words"),
    [
        ({"target": "soon"}, "'soon' is not a duration"),
        ({"target": "1w"}, "'1w' is not a duration"),
        ({"target": "1.5h"}, "is not a duration"),
        ({"target": "-1h"}, "is not a duration"),
        ({"target": ""}, "is not a duration"),
        ({"target": "0h"}, "target"),
        ({"target": 0}, "target"),
        ({"target": True}, "target"),
        ({"target": 1.5}, "target"),
        ({"target": "9999d"}, "target"),
        ({"target": None}, "target"),
        ({}, "target"),
        ({"target": 60, "measured_from": "commit"}, "measured_from"),
        ({"target": 60, "since": "source"}, "since"),
        ("1h", "freshness"),
    ],
)
def test_what_is_no_freshness_is_a_definition_error_that_names_it(freshness, words):
    with pytest.raises(DefinitionError, match=words):
        parse_table(with_freshness(freshness))

"""From where a refresh reads a log: from its start, from the last publish, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mv_provider.core.scope.continuation import ReadFrom, obstacle, read_from
from airflow_mv_provider.exceptions import DefinitionError, StreamReloadError

PUBLISHED = {"is_reload": False, "is_complete": False, "is_first": False, "has_rows": True, "obstacle": None}
FIRST = PUBLISHED | {"is_first": True, "has_rows": False}
SAME = {"same_definition": True, "is_rolled_back": False, "num_kept": 0, "has_position": True}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (PUBLISHED, ReadFrom.LAST_PUBLISH),
        (FIRST, ReadFrom.LOG_START),
        (FIRST | {"has_rows": True, "is_complete": True}, ReadFrom.LOG_START),
        (PUBLISHED | {"is_reload": True, "is_complete": True}, ReadFrom.LOG_START),
        (PUBLISHED | {"is_reload": True, "is_complete": True, "obstacle": "it was rolled back"}, ReadFrom.LOG_START),
        (PUBLISHED | {"is_complete": True}, ReadFrom.LAST_PUBLISH),
    ],
)
def test_log_is_read_from_its_start_only_where_that_loses_no_row(given: dict[str, Any], expected: ReadFrom) -> None:
    assert read_from("orders", **given) is expected


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (PUBLISHED | {"is_reload": True}, DefinitionError, "needs a source that is complete"),
        (FIRST | {"has_rows": True}, StreamReloadError, "the table may have rows"),
        (PUBLISHED | {"obstacle": "it was rolled back"}, StreamReloadError, "it was rolled back"),
        (PUBLISHED | {"obstacle": "x", "is_complete": True}, StreamReloadError, "the topic cannot be continued: x"),
    ],
)
def test_what_could_lose_a_row_is_refused(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_from("orders", **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (SAME, None),
        (SAME | {"is_rolled_back": True, "same_definition": False}, "rolled back"),
        (SAME | {"same_definition": False}, "the definition has changed"),
        (SAME | {"num_kept": 1200}, "kept 1,200 rows"),
        (SAME | {"has_position": False}, "did not record"),
    ],
)
def test_main_is_not_what_the_log_gave(given: dict[str, Any], words: str | None) -> None:
    found = obstacle(**given)

    assert found is None if words is None else words in (found or "")

"""Which expressions of a projection are only columns, so that none of them has to be looked at for errors."""

from __future__ import annotations

import pytest

from airflow_mv_provider.spark.quality.failing import _PLAIN


@pytest.mark.parametrize(
    "text",
    [
        "id",
        " id ",
        "`of n`",
        "a.b",
        "a.`b c`.d",
        "id AS key",
        "id as `the key`",
        "id key",
        "*",
        "o.*",
        "`o p`.*",
        "größe",
    ],
)
def test_reading_a_column_cannot_raise(text):
    assert _PLAIN.fullmatch(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1 / d",
            "cast(t AS INT)",
            "a * b",
            "a + b AS c",
            "a AS b, 1 / c",
            "-a",
            "a[1]",
            "f(a)",
            "a -- 1",
            "a AS b c",
        ),
        *("`a", "a``b", "CASE WHEN a THEN 1 / 0 END", "a.* , 1 / 0", "t :: INT", "DATE 't'", "'x'", "NOT t"),
    ],
)
def test_everything_else_is_looked_at(text):
    assert not _PLAIN.fullmatch(text)

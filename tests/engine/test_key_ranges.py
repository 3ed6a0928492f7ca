"""A MERGE opens only those files of main that may have one of the changed keys, by their range."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from tests.engine.feeding import FEED

pytestmark = pytest.mark.slow

# Types with a range, and types without.
RANGED = {
    "bigint": "n - 15",
    "smallint": "CAST(n - 15 AS SMALLINT)",
    "date": "date_add(DATE'2024-01-01', CAST(n AS INT))",
    "string": 'concat("it\'s ", n + 100)',
}
NO_UTF_8 = "no UTF-8"
OTHERS = {
    "timestamp": "timestamp_seconds(n)",
    "decimal": "CAST(n AS DECIMAL(20, 2)) / 7",
    "far date": "DATE'9999-12-01' + CAST(n AS INT)",
    "long text": "repeat(CAST(n + 100 AS STRING), 30)",
    NO_UTF_8: "CAST(unhex(concat('FF', hex(CAST(n + 100 AS STRING)))) AS STRING)",
}
KINDS = RANGED | OTHERS


def of_three_files(lake, kind):
    """Make a main of three files, each with ten keys that follow each other."""

    def rows(first):
        return f"SELECT {KINDS[kind]} AS id, n, 'old' AS v FROM (SELECT id AS n FROM range({first}, {first + 10}))"

    lake.write(rows(0))
    lake.apply()
    lake.refresh()
    for first in (10, 20):
        lake.sql(f"INSERT INTO {{t}} {rows(first)}", path="raw/orders")
        lake.refresh()


def files(lake, condition):
    rows = lake.sql(f"SELECT DISTINCT _metadata.file_path AS path FROM {{t}} WHERE {condition}")
    return [Path(unquote(urlparse(row.path).path)) for row in rows]


@pytest.mark.in_test_all
@pytest.mark.parametrize("kind", RANGED)
def test_files_without_a_changed_key_are_not_opened(lake, at_point, kind):
    of_three_files(lake, kind)
    lake.sql("UPDATE {t} SET v = 'new' WHERE n IN (22, 27)", path="raw/orders")
    lake.sql("DELETE FROM {t} WHERE n = 24", path="raw/orders")
    lake.sql("INSERT INTO {t} SELECT id, 1000, 'back' FROM {t} VERSION AS OF 2 WHERE n = 24", path="raw/orders")
    before = files(lake, "n < 20")
    at_point("publish.before", lambda: [path.rename(f"{path}.away") for path in before])

    report = lake.refresh()

    assert len(before) >= 2
    for path in before:
        Path(f"{path}.away").rename(path)
    assert report.rows_updated == 3
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize("kind", RANGED)
def test_new_keys_are_looked_for_only_where_they_may_be(lake, at_point, kind):
    of_three_files(lake, kind)
    lake.sql(FEED, path="raw/orders")
    lake.refresh()
    lake.sql(f"INSERT INTO {{t}} SELECT {KINDS[kind]} AS id, n, 'more' FROM (SELECT 50 AS n)", path="raw/orders")
    before = files(lake, "true")
    at_point("staging.before", lambda: [path.rename(f"{path}.away") for path in before])

    report = lake.refresh(strategy="incremental")

    for path in before:
        Path(f"{path}.away").rename(path)
    assert (report.strategy, report.rows_inserted) == ("incremental", 1)
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_of_key_are_found(lake, kind):
    of_three_files(lake, kind)
    lake.sql("UPDATE {t} SET v = 'new' WHERE n IN (2, 27)", path="raw/orders")
    lake.sql("DELETE FROM {t} WHERE n = 14", path="raw/orders")

    report = lake.refresh()

    assert (report.rows_updated, report.rows_deleted) == (2, 1)
    if kind == NO_UTF_8:  # which delta-rs does not read
        main, source = (lake.sql("SELECT hex(id) AS id, n, v FROM {t}", path=path) for path in ("orders", "raw/orders"))
        assert Counter(main) == Counter(source)
    else:
        assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_text_that_spark_would_substitute_is_a_value_like_any_other(lake):
    """`spark.sql` replaces ${env:HOME} in the statement itself, also in a literal, a partition's or a key's."""
    lake.write("SELECT concat('$', '{env:HOME}') AS id, concat('$', '{env:HOME}') AS p, 'old' AS v")
    lake.apply(key=["id", "p"], partition_by=["p"])
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'new'", path="raw/orders")

    report = lake.refresh()

    assert report.rows_updated == 1
    assert lake.rows("orders") == lake.rows("raw/orders") == [("${env:HOME}", "${env:HOME}", "new")]


@pytest.mark.in_test_all
def test_row_whose_key_is_null_is_found(lake):
    """A NULL is in no range: rows that have one, written by others, are deleted all the same."""
    of_three_files(lake, "bigint")
    lake.sql("INSERT INTO {t} VALUES (NULL, 5, 'foreign')")
    lake.sql("UPDATE {t} SET v = 'new' WHERE n = 22", path="raw/orders")

    lake.refresh()

    assert lake.rows("orders") == lake.rows("raw/orders")

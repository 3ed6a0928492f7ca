"""Each row of bad input gets its named error; main stays as it was, and once it is mended a refresh works."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import functions as F

from airflow_mv_provider import DeltaSource
from airflow_mv_provider.exceptions import (
    DuplicateKeyError,
    GuardRefusedError,
    InvalidIdentifierError,
    KeyColumnError,
    NotComparableError,
    NullKeyError,
    PartitionValueError,
    SchemaMismatchError,
)
from airflow_mv_provider.spark.compare import keys
from tests.conftest import a_table
from tests.engine.refusing import GOOD, refused

pytestmark = pytest.mark.slow


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("source", "error", "parts"),
    [
        pytest.param(f"{GOOD} UNION ALL SELECT 3, 'again'", DuplicateKeyError, ['{"id":3}'], id="twice, in main"),
        pytest.param(
            f"{GOOD} UNION ALL SELECT * FROM VALUES (77, 'a'), (77, 'a')", DuplicateKeyError, ['{"id":77}'], id="twice"
        ),
        pytest.param(f"{GOOD} UNION ALL SELECT NULL, 'none'", NullKeyError, ["'id'", '{"id":null}'], id="null"),
        pytest.param("SELECT id AS other, 'v' AS v FROM range(3)", KeyColumnError, ["'id'", "other"], id="missing"),
        pytest.param(
            "SELECT CAST(id AS DOUBLE) AS id, 'v' AS v FROM range(3)", KeyColumnError, ["double"], id="double"
        ),
        pytest.param("SELECT struct(id) AS id, 'v' AS v FROM range(3)", KeyColumnError, ["struct"], id="struct"),
        pytest.param(
            "SELECT id, 'v' AS v, 1 AS extra FROM range(9)", SchemaMismatchError, ["'extra'"], id="column added"
        ),
        pytest.param("SELECT id FROM range(9)", SchemaMismatchError, ["'v'"], id="column missing"),
        pytest.param("SELECT id, id AS v FROM range(9)", SchemaMismatchError, ["'v'", "long", "string"], id="type"),
        pytest.param(
            "SELECT CAST(id AS INT) AS id, 'v' AS v FROM range(9)", SchemaMismatchError, ["integer"], id="narrowed"
        ),
        pytest.param("SELECT id, 'v' AS w FROM range(9)", SchemaMismatchError, ["'w'"], id="column renamed"),
        pytest.param("SELECT id, 'v' AS V FROM range(9)", SchemaMismatchError, ["'V'"], id="column in capitals"),
        pytest.param("SELECT id AS ID, 'v' AS v FROM range(9)", KeyColumnError, ["'id'", "ID"], id="key in capitals"),
        pytest.param("SELECT id, 7 AS v FROM range(9)", SchemaMismatchError, ["'v'", "integer"], id="text to integer"),
        pytest.param("SELECT CAST(id AS FLOAT) AS id, 'v' AS v FROM range(3)", KeyColumnError, ["float"], id="float"),
        pytest.param("SELECT id, map('a', 1) AS v FROM range(9)", NotComparableError, ["'v'", "map"], id="map"),
        pytest.param(
            "SELECT id, parse_json('{}') AS v FROM range(9)", NotComparableError, ["'v'", "variant"], id="variant"
        ),
        pytest.param("SELECT id, 'v' AS v FROM range(0)", GuardRefusedError, ["allow_empty", "10"], id="empty"),
        pytest.param(
            "SELECT id, concat('v', id) AS v FROM range(4)", GuardRefusedError, ["max_deleted", "60.0%"], id="lost"
        ),
    ],
)
def test_bad_source_is_refused(good, source, error, parts):
    good.write(source)

    refused(good, error, *parts)


@pytest.mark.in_test_all
def test_key_without_a_value_gets_one_as_the_error_says(good):
    good.write(f"{GOOD} UNION ALL SELECT NULL, 'none'")

    error = refused(good, NullKeyError, "in 1 rows")

    stand_in = "coalesce(`id`, -1) AS `id`"
    assert stand_in in error.advice
    good.apply(source=DeltaSource("raw/orders", select=[stand_in, "v"]))
    assert good.refresh().rows_inserted == 1


@pytest.mark.parametrize(
    "kind",
    ["TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(5,2)", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"],
)
def test_value_that_the_error_proposes_for_a_key_is_of_its_type(spark, kind):
    rows = spark.sql(f"SELECT CAST(NULL AS {kind}) AS id, 1 AS p")

    error = keys.null_key(rows, a_table(key=["p", "id"]), 1)

    proposed = re.search(r"as in (.+ AS `id`), that no other row has", error.advice)
    given = rows.select(F.expr(proposed.group(1)))
    assert given.dtypes == [("id", kind.lower())]
    assert given.where("id IS NOT NULL").count() == 1


@pytest.mark.in_test_all
def test_column_that_delta_cannot_store_is_named(good):
    """It comes from the definition's own projection: no Delta source has one."""
    good.apply(source=DeltaSource("raw/orders", select=["id", "v AS `a``b`"]))

    refused(good, InvalidIdentifierError, "'a`b'")


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("old", "new"), [("DECIMAL(9,4)", "DECIMAL(9,2)"), ("DECIMAL(9,4)", "DECIMAL(7,4)"), ("BIGINT", "INT")]
)
def test_type_that_holds_less_is_refused_by_both_types(lake, old, new):
    lake.write(f"SELECT id, CAST(1 AS {old}) AS v FROM range(3)")
    lake.apply()
    lake.refresh()
    lake.write(f"SELECT id, CAST(1 AS {new}) AS v FROM range(3)")

    refused(lake, SchemaMismatchError, "'v'", "in the source and")


@pytest.mark.in_test_all
def test_mended_source_is_refreshed(good):
    good.write(f"{GOOD} UNION ALL SELECT NULL, 'none'")
    refused(good, NullKeyError)
    good.write("SELECT id, concat('new', id) AS v FROM range(12)")

    good.refresh()

    assert good.rows("orders") == good.rows("raw/orders")


@pytest.mark.in_test_all
def test_guard_is_overridden_once(good):
    good.write("SELECT id, concat('v', id) AS v FROM range(4)")

    report = good.refresh(overrides=["max_deleted_fraction"])

    assert report.rows_deleted == 6
    good.write("SELECT id, concat('v', id) AS v FROM range(1)")
    refused(good, GuardRefusedError, "max_deleted_fraction")


def test_refused_first_load_promises_no_rows_that_nobody_keeps(lake):
    lake.write("SELECT id, 0 AS v FROM range(4)")
    lake.apply(guards={"min_rows": 5})

    with pytest.raises(GuardRefusedError, match="min_rows") as caught:
        lake.refresh()

    assert "amv diff" not in caught.value.advice
    assert lake.store.sample(lake.store.history(1, 1)[0].refresh_id) is None


@pytest.mark.in_test_all
def test_change_that_is_spread_over_too_many_partitions_is_refused(lake):
    lake.write("SELECT id, id % 4 AS p, 0 AS v FROM range(40)")
    lake.apply(partition_by=["p"], guards={"max_changed_partitions": 2})
    lake.refresh()
    before = lake.rows("orders")
    lake.sql("UPDATE {t} SET v = 9 WHERE id < 3", path="raw/orders")

    spread = "max_changed_partitions: rows would be changed in 3 partitions; the guard allows 2"
    refused(lake, GuardRefusedError, spread)

    assert lake.rows("orders") == before


@pytest.mark.in_test_all
def test_change_that_is_larger_than_usual_is_refused(lake):
    lake.write("SELECT id, 0 AS v FROM range(400)")
    lake.apply(guards={"max_changed_fraction": {"usual": 2}})
    lake.refresh()
    for n in (1, 2, 3):  # what is usual
        lake.sql(f"UPDATE {{t}} SET v = {n} WHERE id < 60", path="raw/orders")
        assert lake.refresh().rows_updated == 60
    before = lake.rows("orders")
    lake.sql("UPDATE {t} SET v = 9 WHERE id < 200", path="raw/orders")

    with pytest.raises(GuardRefusedError, match=r"max_changed_fraction: 200 rows .* usually 60"):
        lake.refresh()

    assert lake.rows("orders") == before


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("strategy", ["replace", "corrections"])
def test_source_that_grew_or_shrank_too_much_is_refused(good, strategy):
    good.apply(guards={"max_inserted_fraction": 0.5, "min_rows": 9}, strategy=strategy)

    good.write("SELECT id, 'other' AS v FROM range(16)")
    refused(good, GuardRefusedError, "max_inserted_fraction", "6", "10")
    good.write("SELECT id, 'other' AS v FROM range(8)")
    refused(good, GuardRefusedError, "min_rows", "8", "9")
    good.write("SELECT id, 'other' AS v FROM range(15)")

    good.refresh()

    assert good.rows("orders") == good.rows("raw/orders")


@pytest.mark.in_test_all
def test_empty_source_is_published_when_the_definition_allows_it(good):
    good.apply(guards={"allow_empty": True, "max_deleted_fraction": 1.0})
    good.write("SELECT id, 'v' AS v FROM range(0)")

    good.refresh()

    assert good.rows("orders") == []


NO_TEXT = "CAST(unhex('FF41') AS STRING)"


@pytest.mark.sample(1)
@pytest.mark.parametrize("value", ["''", "'__HIVE_DEFAULT_PARTITION__'", "repeat('x', 300)", NO_TEXT])
def test_partition_value_that_delta_cannot_keep_is_refused(lake, value):
    lake.write(f"SELECT id, {value} AS p FROM range(3)")
    lake.apply(partition_by=["p"])

    refused(lake, PartitionValueError, "'p'")

"""How duplicate keys are found: in one pass over all partitions, and shown by the first of them."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from airflow_mv_provider.exceptions import DuplicateKeyError
from airflow_mv_provider.spark.compare import keys
from tests.conftest import a_table

pytestmark = pytest.mark.slow


def _num_jobs(spark):
    return spark.sparkContext._jsc.sc().dagScheduler().nextJobId()


def test_unique_keys_cost_one_job_however_many_partitions_they_lie_in(spark):
    rows = spark.range(5000).repartition(7, F.col("id"))
    before = _num_jobs(spark)

    keys.check_unique(rows, a_table(key=("id",)))

    assert _num_jobs(spark) - before == 1


def test_samples_are_the_first_keys_not_those_of_the_first_partition(spark):
    twice = spark.range(100, 150).union(spark.range(100, 150)).repartition(7, F.col("id"))

    with pytest.raises(DuplicateKeyError) as error:
        keys.check_unique(twice, a_table(key=("id",)))

    assert error.value.facts["samples"] == [f'{{"id":{id}}}' for id in range(100, 110)]


def test_rows_that_others_have_doubled_in_the_table_are_no_duplicates_of_the_source(lake):
    """Where rows may move to another partition, new rows are counted by key; one that replaces copies is one."""
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(20)")
    lake.apply(partition_by=["p"])
    lake.refresh()
    lake.sql("INSERT INTO {t} SELECT * FROM {t} WHERE id IN (2, 3)")
    lake.write("SELECT id, IF(id = 3, 0, id % 2) AS p, IF(id = 2, 'b', 'a') AS v FROM range(22)")

    lake.refresh()

    assert lake.rows() == lake.rows("raw/orders")

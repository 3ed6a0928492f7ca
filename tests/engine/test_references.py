"""The check `references`: values are among those of another table, as it was published last."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import CheckFailedError, CheckInvalidError
from tests.engine.feeding import FEED
from tests.engine.looking import remove_files
from tests.engine.refusing import refused

pytestmark = pytest.mark.slow

CUSTOMERS = {"name": "customers", "source": {"type": "delta", "path": "raw/customers"}}
TO_CUSTOMERS = {"column": "customer", "table": "customers", "key": "ID"}


def check(**changes):
    return {"checks": [{"references": TO_CUSTOMERS, **changes}]}


@pytest.fixture
def table(prepared):
    """Customers 0 to 2 are published; an order is of one of them, or of nobody."""

    def build(lake):
        lake.write("SELECT CAST(id AS INT) AS id, 'a' AS v FROM range(3)", "raw/customers")
        lake.apply(**CUSTOMERS)
        lake.refresh("customers")
        lake.write("SELECT id, nullif(id, 3) AS customer FROM range(4)")
        lake.apply(**check())
        lake.refresh()

    return prepared("references", build)


@pytest.mark.in_test_all
def test_rows_whose_value_the_other_table_lacks_are_counted_and_refused(table):
    """What another program has written there, or its source has, is not published."""
    version = table.store.state(1).published_version
    [result] = table.store.history(2, 1)[0].checks
    table.sql("INSERT INTO {t} VALUES (7, 'x')", path="customers")
    table.sql("INSERT INTO {t} VALUES (7, 'x')", path="raw/customers")
    table.sql("INSERT INTO {t} VALUES (10, 7), (11, 8), (12, 7)", path="raw/orders")

    said = f"references customer: 3 rows break `customer is among ID of customers (version {version})`, of 7 rows."
    refused(table, CheckFailedError, said)
    table.refresh("customers")
    table.apply(**check(severity="warn"))
    report = table.refresh()

    assert (result.rule, result.num_rows, result.num_failed) == ("references", 4, 0)
    assert (report.outcome, [each.num_failed for each in report.checks]) == (Outcome.PUBLISHED, [1])
    assert f"(version {table.store.state(1).published_version})" in report.checks[0].text
    assert table.rows() == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_an_incremental_refresh_looks_at_changed_rows(lake):
    lake.write("SELECT id, 'a' AS v FROM range(3)", "raw/customers")
    lake.apply(**CUSTOMERS)
    lake.refresh("customers")
    lake.write("SELECT id, 9L AS customer FROM range(30)")
    lake.sql(FEED, path="raw/orders")
    lake.apply(**check(severity="warn"))
    lake.refresh()
    lake.sql("UPDATE {t} SET customer = id WHERE id < 5", path="raw/orders")

    report = lake.refresh()

    assert report.strategy == "incremental"
    assert [(each.of, each.num_rows, each.num_failed) for each in report.checks] == [("changed rows", 5, 2)]


@pytest.mark.in_test_all
def test_a_read_only_refresh_tells_what_it_would_do(table):
    table.sql("INSERT INTO {t} VALUES (10, 7)", path="raw/orders")

    report = table.refresh(read_only=True)

    assert report.reason.startswith("a check would refuse: references customer: 1 row breaks")


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("references", "said"),
    [
        ({"table": "custmers"}, "table 'custmers' is not registered (did you mean customers?)."),
        pytest.param({"key": "idd"}, "table customers has no column 'idd'", marks=pytest.mark.in_test_all),
        pytest.param({"column": "custmer"}, "the source has no column 'custmer'", marks=pytest.mark.in_test_all),
        ({"key": "v"}, "customer is a bigint, v of customers a string."),
    ],
)
def test_what_cannot_be_compared_is_an_error_before_anything_is_read(table, references, said):
    table.apply(checks=[{"name": "known", "references": TO_CUSTOMERS | references}])

    refused(table, CheckInvalidError, f"check known: {said}", force=True)


@pytest.mark.in_test_all
def test_a_table_that_was_never_published_or_is_gone_is_named(table):
    table.apply(**CUSTOMERS | {"name": "shops"})
    table.apply(checks=[{"references": TO_CUSTOMERS | {"table": "shops"}}])
    refused(table, CheckInvalidError, "table 'shops' was never published", force=True)
    table.apply(**check())
    version = table.store.state(1).published_version
    table.sql("UPDATE {t} SET v = 'x'", path="customers")
    remove_files(table.root / "customers", version)

    refused(table, CheckInvalidError, f"over customers at version {version}", force=True)

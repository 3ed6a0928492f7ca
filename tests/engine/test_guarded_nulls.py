"""The guard `max_null_fraction`: exact over all rows that main would have, whatever a refresh changes."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DefinitionError, GuardRefusedError
from tests.conftest import dying_at
from tests.engine.feeding import change, published_with_a_feed
from tests.engine.holding import decide, held
from tests.engine.refusing import refused

pytestmark = pytest.mark.slow

GUARDS = {"max_null_fraction": {"amount": 0.25, "Mail": 0}}


def write(lake, num_null, *, rows=8, mail="'a@x'"):
    """Write rows with so many NULLs in `amount`, half of the rows in each of two partitions."""
    lake.write(f"SELECT id, id % 2 AS p, if(id < {num_null}, NULL, 1.0D) AS amount, {mail} AS mail FROM range({rows})")


@pytest.fixture
def table(prepared):
    """Eight rows, of which as many as the guard allows have a NULL."""

    def build(lake):
        write(lake, 2)
        lake.apply(guards=GUARDS, partition_by=["p"])
        lake.refresh()

    return prepared("guarded-nulls", build)


@pytest.mark.in_test_all
@pytest.mark.parametrize("strategy", ["corrections", pytest.param("replace", marks=pytest.mark.in_test_all)])
def test_too_many_nulls_are_refused_and_overridden_once(table, strategy):
    table.apply(guards=GUARDS, partition_by=["p"], strategy=strategy)
    write(table, 3)

    problem = "max_null_fraction: amount is NULL in 3 of 8 rows (37.5%; the guard allows 25%)."
    refused(table, GuardRefusedError, problem)
    report = table.refresh(overrides=["max_null_fraction"], note="they are to come")

    assert (report.outcome, report.strategy) == (Outcome.PUBLISHED, strategy)
    assert table.rows() == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_rows_that_do_not_change_count_and_a_table_with_the_guard_is_compared(prepared):
    """One row changes, to no NULL, and the others have too many; its source lists its changes."""
    table = published_with_a_feed(prepared)
    before = table.rows()
    table.apply(guards={"max_null_fraction": {"v": 0.5}})
    change(table, "UPDATE {t} SET v = NULL WHERE id < 31", "UPDATE {t} SET v = 'x' WHERE id = 59")

    refused(table, GuardRefusedError, "v is NULL in 31 of 60 rows (51.7%; the guard allows 50%)")
    change(table, "UPDATE {t} SET v = 'y' WHERE id = 0")
    report = table.refresh()

    assert (report.outcome, report.strategy) == (Outcome.PUBLISHED, "corrections")
    assert "the guard max_null_fraction is about all rows" in [each.why for each in report.estimates]
    assert table.rows() == table.rows("raw/orders") != before


@pytest.mark.in_test_all
def test_whoever_takes_over_judges_by_what_was_sealed(table):
    """The source is mended after the seal: these are not the rows that would be published."""
    before = table.rows()
    write(table, 2, mail="if(id = 7, NULL, 'a@x')")
    with dying_at("seal.after"):
        table.refresh()
    write(table, 2, mail="'b@x'")
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresher().recover(table.caller())

    [report] = table.store.history(1, 1)
    assert (report.outcome, report.error.code) == (Outcome.REFUSED, "MV-GUARD")
    assert "Mail is NULL in 1 of 8 rows (12.5%; the guard allows 0%)" in report.error.message
    assert (table.rows(), table.phase(), table.workspaces()) == (before, "NORMAL", [])
    assert table.refresh().outcome is Outcome.PUBLISHED


@pytest.mark.in_test_all
def test_the_first_load_is_judged_and_a_person_may_decide(lake):
    write(lake, 8)
    lake.apply(guards=GUARDS, approval="guards")

    problem = held(lake).problem

    assert "max_null_fraction: amount is NULL in 8 of 8 rows (100%; the guard allows 25%)." in problem
    assert lake.rows() == []
    assert decide(lake, Decision.APPROVED).outcome is Outcome.PUBLISHED
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_a_refresh_of_some_partitions_is_judged_by_their_rows(table):
    write(table, 3)

    with pytest.raises(GuardRefusedError, match=r"amount is NULL in 2 of 4 rows \(50%"):
        table.refresh(partitions=[["0"]])
    report = table.refresh(partitions=[["1"]])

    assert report.outcome is Outcome.NOTHING_TO_DO or report.rows_updated == 0


@pytest.mark.in_test_all
def test_a_progressive_refresh_is_judged_before_its_first_commit(lake):
    write(lake, 0)
    lake.apply(guards=GUARDS, partition_by=["p"], publish="progressive", chunk_rows=4)
    lake.refresh()
    before, versions = lake.rows(), lake.versions()
    write(lake, 3)

    with pytest.raises(GuardRefusedError, match="amount is NULL in 3 of 8 rows"):
        lake.refresh()

    assert lake.rows() == before
    assert lake.versions() <= versions + 1, "the fence, at most"


@pytest.mark.in_test_all
def test_read_only_refresh_tells_what_the_guard_would_do(table):
    write(table, 3)

    report = table.refresh(read_only=True)

    assert report.outcome is Outcome.DIFFERENCES
    assert report.reason.startswith("guard max_null_fraction would refuse: amount is NULL in 3 of 8 rows")


@pytest.mark.in_test_all
def test_a_column_that_is_not_there_is_an_error_before_anything_is_read(table):
    table.apply(guards={"max_null_fraction": {"amuont": 0.1}}, partition_by=["p"])

    said = "guard max_null_fraction: the source has no column 'amuont' (did you mean amount?)."
    refused(table, DefinitionError, said, force=True)


@pytest.mark.in_test_all
def test_a_rollback_is_not_judged(table):
    version = table.store.state(1).published_version
    write(table, 0)
    table.refresh()
    table.apply(guards={"max_null_fraction": {"amount": 0, "gone": 0}}, partition_by=["p"])

    report = table.refresher().roll_back("orders", str(version), table.caller(), "was right")

    assert report.outcome is Outcome.PUBLISHED
    assert sum(row[0] is None for row in table.rows()) == 2

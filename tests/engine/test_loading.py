"""A table loaded once from another source: as a refresh in every respect, and gone with the next one."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.exceptions import (
    ArgumentError,
    DefinitionError,
    GuardRefusedError,
    KeyColumnError,
    RefreshHeldError,
    SourceNotFoundError,
    UnsafeLocationError,
)

pytestmark = pytest.mark.slow

OTHER = {"type": "delta", "path": "backfill/orders"}


@pytest.fixture
def table(lake):
    """Main has ten rows of its source; another source has twelve, of which one is changed and two are new."""
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.apply(guards={"max_deleted_fraction": 0.5})
    lake.refresh()
    lake.own = lake.rows()
    lake.write("SELECT id, if(id = 3, 'b', 'a') AS v FROM range(12)", path="backfill/orders")
    lake.other = lake.rows("backfill/orders")
    return lake


def load(lake, source=OTHER, **request):
    return lake.refresher().load("orders", source, lake.caller(user="ann"), Request(**request))


def test_table_has_the_other_rows_until_its_next_refresh(table):
    before = table.store.table("orders").definition

    report = load(table, note="a lost week")

    assert (report.outcome, report.rows_inserted, report.rows_updated) == (Outcome.PUBLISHED, 2, 1)
    assert report.note == "loaded from another source: a lost week"
    assert (table.rows(), table.workspaces()) == (table.other, [])
    assert table.store.table("orders").definition == before
    assert table.store.age_s(1) is None, "its rows are of elsewhere"

    again = table.refresh()

    assert (again.strategy, again.rows_deleted, again.rows_updated) == ("corrections", 2, 1)
    assert table.rows() == table.own
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["acquire.after", "seal.after", "publish.before", "publish.after"])
@pytest.mark.sample(1)
def test_killed_load_is_ended_by_the_next_refresh_which_brings_back_the_own_rows(table, at_point, point):
    def die() -> None:
        raise KeyboardInterrupt

    at_point(point, die)
    with pytest.raises(KeyboardInterrupt):
        load(table)
    table.clock.pass_ms(table.settings.lease_ms + 1)
    table.refresher().recover(table.caller())

    is_done = point != "acquire.after"
    assert table.rows() == (table.other if is_done else table.own)
    table.refresh()
    assert (table.rows(), table.workspaces(), table.phase()) == (table.own, [], "NORMAL")


@pytest.mark.in_test_all
def test_load_tells_which_dead_refresh_it_has_ended(table, at_point):
    def die() -> None:
        raise KeyboardInterrupt

    at_point("acquire.after", die)
    with pytest.raises(KeyboardInterrupt):
        table.refresh(force=True)
    dead = table.store.state(1).refresh_id
    table.clock.pass_ms(table.settings.lease_ms + 1)

    report = load(table)

    assert (report.outcome, report.recovered, table.rows()) == (Outcome.PUBLISHED, (dead,), table.other)


@pytest.mark.in_test_all
def test_guards_judge_it_and_a_person_may_have_to(table):
    table.write("SELECT id, 'a' AS v FROM range(2)", path="backfill/orders")
    with pytest.raises(GuardRefusedError):
        load(table)
    with pytest.raises(RefreshHeldError):
        load(table, hold=True, overrides=("max_deleted_fraction",), note="it is right")

    assert table.rows() == table.own


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ({"type": "delta"}, DefinitionError, "path"),
        ({"type": "nothing"}, DefinitionError, "type"),
        ("orders", DefinitionError, "source"),
        ({"type": "delta", "path": "orders"}, UnsafeLocationError, "share a directory"),
        ({"type": "delta", "path": "nowhere"}, SourceNotFoundError, "nowhere"),
        (
            {"type": "query", "sql": "SELECT v AS other FROM o", "inputs": {"o": "raw/orders"}},
            KeyColumnError,
            "id",
        ),
    ],
)
def test_source_that_cannot_be_is_refused_and_nothing_is_acquired(table, source, error, words):
    with pytest.raises(error, match=words):
        load(table, source)

    assert (table.rows(), table.phase()) == (table.own, "NORMAL")


@pytest.mark.in_test_all
def test_main_itself_is_no_source(table):
    with pytest.raises(ArgumentError, match="the table itself"):
        load(table, {"type": "delta", "path": str(table.root / "orders")})

    assert table.store.state(1).paused_since_ms is None

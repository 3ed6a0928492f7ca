"""What a run of a DAG may ask for, given what the DAG's author has written."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.scope.declared_refresh import DeclaredRefresh, check_run, from_json
from airflow_mv_provider.core.scope.request import AS_USUAL, Request
from airflow_mv_provider.core.scope.scope import asked_scope
from airflow_mv_provider.exceptions import ArgumentError, FrozenPartitionError
from tests.conftest import a_table

DAYS = asked_scope((), "2026-01-01", "2026-02-01")
TABLE = a_table(name="orders", partition_by=["day"], key=["id", "day"], frozen_before="2025-01-01")


def problem(run: Request, *tasks: DeclaredRefresh) -> str | None:
    try:
        check_run(run, tasks, TABLE, "date")
    except (ArgumentError, FrozenPartitionError) as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "written",
    [
        DeclaredRefresh(("orders",)),
        DeclaredRefresh(("orders",), Request(scope=DAYS, read_only=True)),
        DeclaredRefresh(
            ("orders",), Request(scope=asked_scope([["2026-01-01"], None]), strategy="corrections", force=True)
        ),
        DeclaredRefresh(("orders",), Request(is_stale_only=True, overrides=("max_deleted_fraction",))),
        DeclaredRefresh(("a", "b"), AS_USUAL, "shop"),
        DeclaredRefresh(("orders",), Request(scope=asked_scope((), "{{ ds }}"))),
    ],
    ids=str,
)
def test_what_is_written_is_stored_and_read_back(written):
    assert from_json(written.to_json()) == written
    assert from_json(written.to_json()).to_json() == written.to_json()


@pytest.mark.parametrize("stored", ["", "[]", "{}", '{"request": 1}', '"x"'])
def test_anything_else_is_not_read(stored):
    with pytest.raises(ValueError, match=r".*"):
        from_json(stored)


def test_a_run_cannot_leave_the_authors_partitions():
    written = DeclaredRefresh(("orders",), Request(scope=DAYS))

    assert problem(AS_USUAL, written) is None
    assert problem(Request(scope=DAYS), written) is None
    assert "the task covers partitions from 2026-01-01 until 2026-02-01; the run requests" in problem(
        Request(scope=asked_scope(["2026-03-01"])), written
    )
    assert (
        problem(Request(scope=asked_scope(["2026-03-01"])), DeclaredRefresh(("customers",), Request(scope=DAYS)))
        is None
    )


def test_what_the_author_and_the_run_ask_for_has_to_go_together():
    assert "`stale` excludes partitions and `force`" in problem(
        Request(force=True), DeclaredRefresh(("orders",), Request(is_stale_only=True))
    )
    assert problem(Request(hold=True), DeclaredRefresh(("orders",), Request(read_only=True))) is None, (
        "nothing is written"
    )
    assert "is frozen" in problem(
        AS_USUAL, DeclaredRefresh(("orders",), Request(scope=asked_scope((), None, "2025-01-01")))
    )


def test_without_what_is_written_the_table_counts():
    assert "is empty" in problem(Request(scope=asked_scope((), "2026-02-01", "2026-01-01")))
    assert "needs a reason" in problem(Request(overrides=("max_deleted_fraction",)))


def test_a_run_of_an_ingestion_takes_no_options():
    shop = DeclaredRefresh(("orders", "customers"), AS_USUAL, "shop")

    assert problem(AS_USUAL, shop) is None
    assert "a run takes no options, not read_only" in problem(Request(read_only=True), shop)
    assert "not note" in problem(Request(note="why"), shop)


@pytest.mark.parametrize(
    ("written", "fixed"),
    [
        (DeclaredRefresh(("orders",)), None),
        (DeclaredRefresh(("orders",), Request(strategy="replace", force=True)), None),
        (
            DeclaredRefresh(("orders",), Request(scope=DAYS, read_only=True)),
            "it refreshes partitions from 2026-01-01 until 2026-02-01 and it writes nothing",
        ),
        (DeclaredRefresh(("orders",), Request(is_stale_only=True)), "it refreshes only what is stale"),
        (
            DeclaredRefresh(("orders",), AS_USUAL, "shop"),
            "it refreshes all tables of shop in one state, and its runs take no options",
        ),
    ],
    ids=str,
)
def test_what_a_run_cannot_change_is_said(written, fixed):
    assert written.fixed == fixed

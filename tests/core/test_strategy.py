"""Which way a refresh takes: the cheapest that can be taken, or the one that is asked for, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider import DeltaSource, Files, Function, Query
from airflow_mv_provider.core import cost, strategy
from airflow_mv_provider.core.changeset import ChangedInput, SignedRows, Units, Upserts, Whole
from airflow_mv_provider.core.cost import CostSample
from airflow_mv_provider.core.outcome import ErrorReport, Outcome, RefreshReport
from airflow_mv_provider.core.scope.scope import EVERYTHING, asked_scope
from airflow_mv_provider.core.strategy import (
    Determinism,
    Situation,
    choose,
    compare_reason,
    cost_samples,
    has_failed,
    is_copied,
)
from airflow_mv_provider.exceptions import StrategyError
from tests.conftest import a_table

USUAL = Situation(
    scope=EVERYTHING,
    num_rows=6_000_000,
    must_compare=None,
    is_known=True,
    changes=SignedRows(60_000),
)


def chosen(situation=USUAL, wanted="auto", **definition):
    return choose(a_table(**definition), wanted, situation, "the source changed")


def why_not_incremental(situation=USUAL, **definition):
    return next(e for e in chosen(situation, **definition).estimates if e.strategy == "incremental")


def test_the_cheapest_way_is_taken_and_the_others_say_by_how_much_they_lost():
    choice = chosen()

    assert (choice.strategy, choice.reason, choice.wanted) == ("incremental", "the source changed", "auto")
    first, *others = choice.estimates
    assert (first.strategy, first.why) == ("incremental", "chosen")
    assert [each.strategy for each in others] == ["corrections", "replace"]
    assert all(each.why == f"{each.seconds - first.seconds:.1f} s slower" for each in others)


@pytest.mark.parametrize(
    ("change", "definition", "why"),
    [
        ({"must_compare": "the definition changed"}, {}, "the definition changed"),
        ({"changes": None}, {}, "does not list its changes"),
        ({"changes": Whole("no feed")}, {}, "no feed"),
        ({"is_known": False}, {}, "the totals of the table's rows are not known"),
        ({"has_failed": True}, {}, "failed"),
        ({"scope": asked_scope(["a"], None, None)}, {"partition_by": ["p"]}, "only some partitions"),
        ({}, {"partition_by": ["p"], "publish": "progressive"}, "part by part"),
        ({}, {"partition_by": ["p"], "frozen_before": "a"}, "frozen partitions"),
        ({}, {"on_conflict": "ignore"}, "on_conflict: ignore"),
        ({}, {"on_conflict": "keep"}, "on_conflict: keep"),
        ({}, {"errors": {}}, "error table"),
        ({}, {"guards": {"max_null_fraction": {"v": 0.1}}}, "max_null_fraction is about all rows"),
    ],
    ids=str,
)
def test_changes_alone_are_not_enough(change, definition, why):
    judged = why_not_incremental(replace(USUAL, **change), **definition)

    assert judged.seconds is None
    assert why in judged.why
    assert chosen(replace(USUAL, **change), **definition).strategy == "corrections"


def test_changes_in_new_files_cost_a_scan_and_are_not_looked_for_in_small_tables():
    found = replace(USUAL, changes=Upserts(60_000, 60_000))
    half, small = (Upserts(in_files=share) for share in (0.5, 0.01))

    listed, looked_for = (chosen(each).estimates[0] for each in (USUAL, found))

    assert (listed.strategy, looked_for.strategy) == ("incremental", "incremental")
    assert listed.seconds < looked_for.seconds
    assert chosen(replace(USUAL, changes=small)).strategy == "incremental"
    assert chosen(replace(USUAL, changes=half)).strategy == "corrections"
    assert "so few rows" in why_not_incremental(replace(found, num_rows=100_000)).why


def test_comparison_that_found_nothing_is_no_example_of_what_new_files_change():
    """Somebody had asked for it: the source was as published. Totals first would be for nothing."""
    nothing = CostSample("corrections", USUAL.num_rows, 0, 1.0)
    found = replace(USUAL, changes=Upserts(in_files=60_000), past=(nothing,))

    choice = chosen(found)

    assert [each.num_changes for each in choice.estimates[:2]] == [60_000, 60_000]
    assert not strategy.is_expected_unchanged(choice)


def test_main_is_replaced_only_where_most_of_it_changes():
    few = replace(USUAL, num_rows=50, changes=Whole("no feed", 1))
    most = replace(USUAL, changes=Whole("no feed", 6_000_000))

    assert chosen(few).strategy == "corrections"
    assert chosen(most).strategy == "replace"
    assert chosen(most, partition_by=["p"], publish="progressive").strategy == "corrections"
    exact = chosen(most, guards={"max_updated_fraction": 0.5})
    assert exact.strategy == "corrections"
    assert "max_updated_fraction" in next(e.why for e in exact.estimates if e.strategy == "replace")


def test_what_is_asked_for_is_taken_wherever_it_can_be():
    assert chosen(wanted="replace").strategy == "replace"
    assert "faster" in next(e for e in chosen(wanted="replace").estimates if e.strategy == "incremental").why
    fallen_back = chosen(replace(USUAL, changes=None), wanted="incremental")
    assert fallen_back.strategy == "corrections"
    assert fallen_back.reason.endswith("incremental is not possible: the source does not list its changes")


def test_strict_table_takes_no_other_way():
    with pytest.raises(StrategyError, match="incremental is not possible: the source does not list its changes"):
        chosen(replace(USUAL, changes=None), wanted="incremental", strict=True)
    assert chosen(replace(USUAL, changes=None), strict=True).strategy == "corrections"  # nothing is insisted on


@pytest.mark.parametrize("wanted", ["auto", "incremental"])
def test_first_refresh_has_nothing_to_compare_with(wanted):
    first = replace(USUAL, num_rows=None, must_compare="first refresh", changes=None, is_known=False)

    assert chosen(first, wanted, strict=True).strategy == "replace"
    assert chosen(first, wanted, adopt=True).strategy == "corrections"
    assert chosen(first, wanted, partition_by=["p"], publish="progressive").strategy == "corrections"


A_REPORT = RefreshReport(
    "orders", outcome=Outcome.PUBLISHED, strategy="corrections", rows_updated=10, rows_unchanged=90,
    rows_inserted=5, phase_seconds={"REFRESHING": 1.5, "MERGING": 2.5},
)  # fmt: skip


def test_history_tells_what_refreshes_of_everything_took():
    reports = [
        A_REPORT,
        replace(A_REPORT, outcome=Outcome.FAILED),
        replace(A_REPORT, scope="one partition"),
        replace(A_REPORT, strategy="skip"),
        replace(A_REPORT, rows_updated=0, rows_unchanged=0),  # the first one
    ]

    (past,) = cost_samples(reports)

    assert (past.strategy, past.num_rows, past.num_changes, past.seconds) == ("corrections", 100, 15, 4.0)


def test_a_failed_incremental_refresh_is_followed_by_a_comparison():
    error = ErrorReport("MV-MAIN-MOVED", "a row is another", "", is_transient=True)
    failed = replace(A_REPORT, outcome=Outcome.FAILED, strategy="incremental", error=error)

    assert has_failed([replace(A_REPORT, outcome=Outcome.NOTHING_TO_DO), failed])
    assert not has_failed([A_REPORT, failed])
    assert not has_failed([replace(failed, strategy="corrections")])
    assert not has_failed([])
    assert has_failed([replace(failed, error=ErrorReport("MV-KEY-DUPLICATE", "twice", ""))])
    assert not has_failed([replace(failed, error=replace(error, code="MV-ENGINE"))])  # Spark died, the changes are good


@pytest.mark.parametrize(
    ("determinism", "copied"),
    [(Determinism(), False), (Determinism(is_by_row=False), True), (Determinism("it is not deterministic"), True)],
)
def test_a_delta_source_is_copied_where_its_rows_need_not_come_out_the_same_again(determinism, copied):
    assert is_copied(a_table(), determinism) is copied


@pytest.mark.parametrize(
    "source",
    [Files("raw/*", format="parquet"), Query("SELECT * FROM o", inputs={"o": "raw/o"}), Function("orders:rows")],
    ids=lambda source: source.type,
)
def test_what_keeps_no_version_is_copied(source):
    assert is_copied(a_table(source=source), Determinism())


@pytest.mark.parametrize(
    ("determinism", "copied"),
    [(Determinism(), False), (Determinism("it is random"), True), (Determinism(is_by_row=False), True)],
)
def test_delta_source_is_copied_where_it_may_read_otherwise_again(determinism, copied):
    assert is_copied(a_table(source=DeltaSource("raw/orders")), determinism) == copied


NO_REASON = {
    "is_first": False,
    "is_forced": False,
    "same_definition": True,
    "is_trusted": True,
    "nondeterminism_reason": None,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, None),
        ({"is_first": True, "is_forced": True, "is_trusted": False}, "first refresh"),
        ({"is_forced": True}, "a comparison was requested"),
        ({"same_definition": False}, "the definition changed"),
        ({"is_trusted": False}, "another writer may have changed the table"),
        ({"nondeterminism_reason": "it is random"}, "it is random"),
    ],
)
def test_main_is_compared_for_a_reason(change, expected):
    assert compare_reason(**(NO_REASON | change)) == expected


def test_a_choice_is_told_in_one_sentence_with_why_not_only_what_changed_is_read():
    assert chosen().sentence == "the source changed: reading only what changed"
    unlisted = replace(USUAL, changes=Whole())
    assert chosen(unlisted).sentence == (
        "the source changed: comparing all rows (not only what changed: the source does not list its changes)"
    )
    assert choose(a_table(), "auto", replace(USUAL, num_rows=None), "first refresh").sentence == (
        "first refresh: writing all rows"
    )


LINES, CUSTOMERS = ChangedInput("lines", 6_000, 6_000_000, 200_000_000), ChangedInput("customers", 0, None, 10_000_000)


def of_units(*inputs: ChangedInput) -> Situation:
    return replace(USUAL, num_rows=1_350_000, changes=Units(("customer_id", "month"), inputs))


def test_units_of_a_query_are_expected_by_how_many_rows_each_changed_row_is_in():
    renamed = ChangedInput("customers", 100, 150_000, 10_000_000)

    assert Units(("month",), (LINES, CUSTOMERS)).expected(1_350_000) == 6_000
    assert Units(("month",), (replace(LINES, num_changed=0), renamed)).expected(1_350_000) == 900
    assert Units(("month",), (LINES, renamed)).expected(1_350_000) == 6_900
    assert Units(("month",), (LINES,)).expected(4) == 4  # every unit, and no more than there are
    assert Units(("month",), (replace(LINES, num_changed=None), renamed)).expected(1_350_000) is None


def test_few_units_of_a_query_are_computed_again_and_of_many_everything():
    few = chosen(of_units(LINES, CUSTOMERS))
    many = chosen(of_units(replace(LINES, num_changed=3_000_000), CUSTOMERS))

    assert (few.strategy, few.estimates[0].num_units) == ("incremental", 6_000)
    assert few.is_looked_for
    assert many.strategy != "incremental"
    assert {each.query_bytes for each in (*few.estimates, *many.estimates)} == {210_000_000}
    assert cost.is_worth_units(6_000, 1_350_000, 210_000_000)
    assert not cost.is_worth_units(1_350_000, 1_350_000, 210_000_000)


def test_estimates_of_a_query_learn_from_how_long_it_took():
    situation = of_units(LINES, CUSTOMERS)
    report = RefreshReport(
        "t", strategy="corrections", outcome=Outcome.PUBLISHED, rows_updated=6_000, rows_unchanged=1_344_000,
        phase_seconds={"Refreshing": 100.0}, estimates=chosen(situation, "corrections").estimates,
    )  # fmt: skip

    (sample,) = cost_samples([report])
    again = chosen(replace(situation, past=(sample,)), "corrections").estimates[0]

    assert sample.search.query_bytes == 210_000_000
    assert again.seconds == pytest.approx(100.0, rel=0.01)


def test_comparison_of_which_it_is_not_known_what_it_read_is_no_example_for_a_query():
    forced = CostSample("corrections", 1_350_000, 6_000, 500.0)
    situation = of_units(LINES, CUSTOMERS)

    assert chosen(replace(situation, past=(forced,))) == chosen(situation)


@pytest.mark.parametrize(
    ("lower", "upper", "is_due"), [(0, 1, False), (9, 10, True), (10, 11, False), (8, 12, True), (19, 20, True)]
)
def test_changes_are_verified_once_in_so_many_states_of_the_source(lower, upper, is_due):
    assert strategy.is_verified(a_table(verify_every=10), lower, upper) is is_due
    assert not strategy.is_verified(a_table(), lower, upper)

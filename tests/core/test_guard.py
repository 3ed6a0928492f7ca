"""Guards judge exact counts; counts add up."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.definition.guards import Guards
from airflow_mv_provider.core.guard import NAMES, Counts, NullCount, PastRefresh, Refusal, Usual, refusals, usual


def first_refusal(guards: Guards, counts: Counts, *overrides: Collection[str], **known: Any) -> Refusal | None:
    return next(iter(refusals(guards, counts, *overrides, **known)), None)


FULL = Counts(desired=70, main=100, inserted=0, updated=5, deleted=30)


@pytest.mark.parametrize(
    ("counts", "guards", "overrides", "refused_by"),
    [
        (FULL, {}, (), None),
        (Counts(69, 100, 0, 0, 31), {}, (), "max_deleted_fraction"),
        (Counts(69, 100, 0, 0, 31), {}, ("max_deleted_fraction",), None),
        (Counts(69, 100, 0, 0, 31), {}, ("allow_empty",), "max_deleted_fraction"),
        (Counts(99, 100, 0, 0, 1), {"max_deleted_fraction": 0.0}, (), "max_deleted_fraction"),
        (Counts(100, 100, 0, 100, 0), {"max_deleted_fraction": 0.0}, (), None),
        (Counts(1, 100, 1, 0, 100), {"max_deleted_fraction": 1.0}, (), None),
        (Counts(5, 0, 5, 0, 0), {"max_deleted_fraction": 0.0}, (), None),
        (Counts(100, 100, 0, 31, 0), {"max_updated_fraction": 0.3}, (), "max_updated_fraction"),
        (Counts(100, 100, 0, 30, 0), {"max_updated_fraction": 0.3}, (), None),
        (Counts(100, 100, 0, 31, 0), {"max_updated_fraction": 0.3}, ("max_updated_fraction",), None),
        (Counts(69, 100, 0, 69, 31), {"max_updated_fraction": 0.3}, (), "max_deleted_fraction"),
        (Counts(69, 100, 0, 69, 31), {"max_updated_fraction": 0.3}, ("max_deleted_fraction",), "max_updated_fraction"),
        (Counts(1, 0, 1, 0, 0), {"max_updated_fraction": 0.0}, (), None),
        (Counts(120, 100, 25, 0, 5), {"max_inserted_fraction": 0.2}, (), "max_inserted_fraction"),
        (Counts(120, 100, 20, 0, 0), {"max_inserted_fraction": 0.2}, (), None),
        (Counts(120, 100, 0, 0, 5), {"max_inserted_fraction": 0.2}, (), "max_inserted_fraction"),  # upper bounds
        (Counts(120, 0, 120, 0, 0), {"max_inserted_fraction": 0.2}, (), None),
        (Counts(120, 100, 25, 0, 5), {"max_inserted_fraction": 0.2}, ("max_inserted_fraction",), None),
        (Counts(99, 100, 0, 0, 1), {"min_rows": 100}, (), "min_rows"),
        (Counts(100, 100, 0, 0, 0), {"min_rows": 100}, (), None),
        (Counts(99, 100, 0, 0, 1), {"min_rows": 100}, ("min_rows",), None),
        (Counts(0, 100, 0, 0, 100), {"min_rows": 100}, (), "allow_empty"),
        (Counts(0, 100, 0, 0, 100), {}, (), "allow_empty"),
        (Counts(0, 100, 0, 0, 100), {}, ("allow_empty",), "max_deleted_fraction"),
        (Counts(0, 100, 0, 0, 100), {}, NAMES, None),
        (Counts(0, 100, 0, 0, 100), {"allow_empty": True, "max_deleted_fraction": 1.0}, (), None),
        (Counts(0, 0, 0, 0, 0), {}, (), "allow_empty"),
        (Counts(0, 0, 0, 0, 0), {"allow_empty": True}, (), None),
    ],
)
def test_first_refusal(counts, guards, overrides, refused_by):
    refusal = first_refusal(Guards(**guards), counts, overrides)

    assert (refusal.guard if refusal else None) == refused_by


def test_refusal_says_what_was_expected_and_found():
    too_many = first_refusal(Guards(max_deleted_fraction=0.25), Counts(5_000, 10_000, 0, 0, 5_000))
    shifted = first_refusal(Guards(max_updated_fraction=0.5), Counts(1_000, 1_000, 0, 1_000, 0))
    grown = first_refusal(Guards(max_inserted_fraction=0.5), Counts(3_000, 1_000, 2_000, 0, 0))
    few = first_refusal(Guards(min_rows=900), Counts(800, 1_000, 0, 0, 200))
    nothing = first_refusal(Guards(), Counts(0, 10_000, 0, 0, 10_000))

    assert too_many.problem == "5,000 of the table's 10,000 rows would be deleted (50.0%; the guard allows 25.0%)."
    assert shifted.problem == "1,000 of the table's 1,000 rows would be changed (100.0%; the guard allows 50.0%)."
    assert (
        grown.problem == "2,000 rows beside the table's 1,000 rows would be inserted (200.0%; the guard allows 50.0%)."
    )
    assert few.problem == "the source has 800 rows; the guard requires 900."
    assert nothing.problem == "the source has no rows, the table has 10,000."


def test_every_guard_can_be_overridden_by_its_field():
    fractions = {f"max_{done}_fraction" for done in ("deleted", "updated", "inserted", "changed", "null")}
    others = ("min_rows", "max_changed_partitions", "allow_empty")
    assert set(NAMES) == set(Guards.model_fields) == {*fractions, *others}


@pytest.mark.parametrize(
    ("num_partitions", "main", "is_refused"), [(3, 100, False), (4, 100, True), (4, 0, False)], ids=str
)
def test_partitions_that_change_are_counted_unless_main_is_empty(num_partitions, main, is_refused):
    guards = Guards(max_changed_partitions=3)

    found = first_refusal(guards, Counts(desired=100, main=main), num_partitions=num_partitions)

    assert (found.problem if found else None) == (
        "rows would be changed in 4 partitions; the guard allows 3." if is_refused else None
    )
    assert first_refusal(guards, Counts(desired=100, main=main), NAMES, num_partitions=num_partitions) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], None),
        ([5, 7], None),
        ([5, 7, 1000], 7),
        ([10] * 10 + [1_000_000] * 20, 10),
        ([1, 2, 3, 4], 2),
        ([0, 0, 5, 9], 2),
    ],
)
def test_usual_is_the_median_of_the_last_ten(changes, expected):
    past = [
        PastRefresh(1000 + n, Counts(1000 + n, 1000, inserted=n, updated=2 * n, deleted=3 * n), n, (_nulls(n),))
        for n in changes
    ]

    found = usual(past)

    if expected is None:
        assert found == Usual()
    else:
        assert (found.inserted, found.partitions, found.num_rows) == (expected, expected, 1000 + expected)
        assert found.changes - 6 * expected in (0, 3), "the median of the sums is rounded once"
        assert found.null_fractions["amount"] * 10**7 == pytest.approx(expected, abs=0.5)


def _nulls(number: int) -> NullCount:
    return NullCount("Amount", number, 10**7)


def test_what_a_refresh_did_not_count_is_left_out_of_what_is_usual():
    overwrites = [PastRefresh(num_rows=100)] * 5
    counted = [PastRefresh(90, Counts(90, 90, updated=4), 2)] * 3

    assert usual(overwrites) == Usual(num_rows=100)
    assert usual([*overwrites, *counted]) == Usual(4, 0, 4, 0, 2, 100)
    assert usual([*overwrites, *counted[:2]]) == Usual(num_rows=100)


@pytest.mark.parametrize(
    ("changed", "changes", "is_refused"),
    [(600, 200, False), (601, 200, True), (100, 1, False), (101, 1, True), (10**9, None, False)],
)
def test_change_is_refused_beside_the_usual_one(changed, changes, is_refused):
    guards = Guards(max_changed_fraction={"usual": 3}, max_deleted_fraction=1.0)

    for counts in (Counts(10**10, 10**10, updated=changed), Counts(10**10 + changed, 10**10, inserted=changed)):
        found = first_refusal(guards, counts, usual=Usual(changes))
        assert (found.guard if found else None) == ("max_changed_fraction" if is_refused else None)
    assert first_refusal(guards, Counts(changed, 0, inserted=changed), usual=Usual(changes)) is None, "a first load"


def test_changes_of_all_kinds_are_judged_together():
    counts, would = Counts(10_000, 10_000, 300, 1_000, 300), "would be inserted, changed or deleted"

    unusual = first_refusal(Guards(max_changed_fraction={"usual": 3}), counts, usual=Usual(200))
    too_many = first_refusal(Guards(max_changed_fraction=0.15), counts)

    assert unusual.problem == (
        f"1,600 rows of, or beside, the table's 10,000 rows {would}, usually 200; the guard allows 3 times as many."
    )
    assert too_many.problem == (
        f"1,600 rows of, or beside, the table's 10,000 rows {would} (16.0%; the guard allows 15.0%)."
    )
    assert first_refusal(Guards(max_changed_fraction=0.16), counts) is None


USUALLY = Usual(900, inserted=200, updated=400, deleted=300, partitions=2, num_rows=10_000, null_fractions={"a": 0.01})
BEFORE = 100_000


@pytest.mark.parametrize(
    ("guard", "counts", "problem"),
    [
        ("max_deleted_fraction", Counts(BEFORE - 900, BEFORE, deleted=900), None),
        (
            "max_deleted_fraction",
            Counts(BEFORE - 901, BEFORE, deleted=901),
            "901 of the table's 100,000 rows would be deleted, usually 300; the guard allows 3 times as many.",
        ),
        ("max_updated_fraction", Counts(BEFORE, BEFORE, updated=1200), None),
        (
            "max_updated_fraction",
            Counts(BEFORE, BEFORE, updated=1201),
            "1,201 of the table's 100,000 rows would be changed, usually 400; the guard allows 3 times as many.",
        ),
        ("max_inserted_fraction", Counts(BEFORE + 600, BEFORE, inserted=600), None),
        (
            "max_inserted_fraction",
            Counts(BEFORE + 601, BEFORE, inserted=601),
            "601 rows beside the table's 100,000 rows would be inserted, usually 200;"
            " the guard allows 3 times as many.",
        ),
    ],
    ids=str,
)
def test_each_kind_of_change_is_judged_against_what_is_usual(guard, counts, problem):
    guards = Guards(**{"max_deleted_fraction": 1.0, guard: {"usual": 3}})

    found = first_refusal(guards, counts, usual=USUALLY)

    assert (found.problem if found else None) == problem
    assert first_refusal(guards, counts, [guard], usual=USUALLY) is None
    assert first_refusal(guards, Counts(counts.desired, 0, inserted=counts.desired), usual=USUALLY) is None, (
        "a first load"
    )


@pytest.mark.parametrize(
    ("done", "guard", "is_fixed"),
    [
        ("deleted", "max_deleted_fraction", True),
        ("updated", "max_updated_fraction", False),
        ("inserted", "max_inserted_fraction", False),
    ],
)
def test_until_it_is_known_what_is_usual_the_default_applies(done, guard, is_fixed):
    guards = Guards(**{"max_deleted_fraction": 1.0, guard: {"usual": 3}})
    change = {"deleted": 31, "updated": 0, "inserted": 0} if done == "deleted" else {done: 100}
    counts = Counts(100 + change.get("inserted", 0) - change.get("deleted", 0), 100, **change)

    found = first_refusal(guards, counts)

    assert (found.problem if found else None) == (
        "31 of the table's 100 rows would be deleted (31.0%; the guard allows 30.0%)." if is_fixed else None
    )


@pytest.mark.parametrize("guard", ["max_deleted_fraction", "max_updated_fraction", "max_inserted_fraction"])
def test_hundred_rows_are_always_allowed_where_none_are_usual(guard):
    guards = Guards(**{"max_deleted_fraction": 1.0, guard: {"usual": 1}})
    never = Usual(5, 0, 0, 0, 1, 100)

    for number, is_refused in ((100, False), (101, True)):
        counts = {
            "max_deleted_fraction": Counts(1000 - number, 1000, deleted=number),
            "max_updated_fraction": Counts(1000, 1000, updated=number),
            "max_inserted_fraction": Counts(1000 + number, 1000, inserted=number),
        }[guard]
        found = first_refusal(guards, counts, usual=never)
        assert (found is not None) == is_refused
    assert "usually 0; the guard allows 1 times as many" in found.problem


@pytest.mark.parametrize(("num_rows", "is_refused"), [(9_000, False), (8_999, True), (20_000, False)])
def test_rows_are_judged_against_the_usual_number(num_rows, is_refused):
    guards = Guards(min_rows={"usual": 0.9}, max_deleted_fraction=1.0)
    counts = Counts(num_rows, num_rows)

    found = first_refusal(guards, counts, usual=USUALLY)

    assert (found.problem if found else None) == (
        "the source has 8,999 rows, usually 10,000; the guard requires 0.9 of them." if is_refused else None
    )
    assert first_refusal(guards, counts) is None, "nothing is known"
    assert first_refusal(guards, counts, usual=USUALLY, is_everything=False) is None


@pytest.mark.parametrize(("num_partitions", "is_refused"), [(6, False), (7, True)])
def test_partitions_are_judged_against_the_usual_number(num_partitions, is_refused):
    guards, counts = Guards(max_changed_partitions={"usual": 3}), Counts(100, 100, updated=7)

    found = first_refusal(guards, counts, usual=USUALLY, num_partitions=num_partitions)

    assert (found.problem if found else None) == (
        "rows would be changed in 7 partitions, usually in 2; the guard allows 3 times as many." if is_refused else None
    )
    assert first_refusal(guards, counts, num_partitions=num_partitions) is None, "nothing is known"


@pytest.mark.parametrize(
    ("nulls", "problem"),
    [
        (NullCount("A", 300, 10_000), None),
        (
            NullCount("A", 301, 10_000),
            "A is NULL in 301 of 10,000 rows (3.01%; usually 1%; the guard allows 3 times that).",
        ),
        (NullCount("A", 100, 100), None),  # a hundred rows are always allowed
        (NullCount("b", 10_000, 10_000), None),  # nothing is known of it
    ],
    ids=str,
)
def test_nulls_are_judged_against_the_usual_fraction(nulls, problem):
    guards = Guards(max_null_fraction={"A": {"usual": 3}, "b": {"usual": 3}})

    found = first_refusal(guards, Counts(1, 1), usual=USUALLY, nulls=[nulls])

    assert (found.problem if found else None) == problem


@pytest.mark.parametrize(
    ("guards", "of_changes", "needs_history"),
    [
        ({}, None, False),
        ({"max_changed_fraction": {"usual": 2}}, "max_changed_fraction", True),
        ({"max_changed_fraction": 0.5}, None, False),
        ({"max_inserted_fraction": {"usual": 2}}, "max_inserted_fraction", True),
        ({"max_changed_partitions": {"usual": 2}}, "max_changed_partitions", True),
        ({"min_rows": {"usual": 0.5}}, None, True),
        ({"max_null_fraction": {"a": 0.5, "b": {"usual": 2}}}, None, True),
        ({"max_null_fraction": {"a": 0.5}, "min_rows": 3, "max_changed_partitions": 4}, None, False),
    ],
    ids=str,
)
def test_guards_say_what_they_have_to_know(guards, of_changes, needs_history):
    assert (Guards(**guards).of_usual_changes, Guards(**guards).needs_history) == (of_changes, needs_history)


@pytest.mark.parametrize(
    ("nulls", "problem"),
    [
        ([], None),
        ([NullCount("amount", 10, 1_000), NullCount("mail", 0, 1_000)], None),
        ([NullCount("amount", 11, 1_000)], "amount is NULL in 11 of 1,000 rows (1.1%; the guard allows 1%)."),
        ([NullCount("mail", 1, 200_000)], "mail is NULL in 1 of 200,000 rows (0.0005%; the guard allows 0%)."),
        (
            [NullCount("amount", 3, 4), NullCount("mail", 4, 4)],
            "amount is NULL in 3 of 4 rows (75%; the guard allows 1%),"
            " mail is NULL in 4 of 4 rows (100%; the guard allows 0%).",
        ),
        ([NullCount("amount", 0, 0)], None),
        ([NullCount("other", 4, 4)], None),
    ],
    ids=str,
)
@pytest.mark.parametrize("counts", [Counts(4, 4), Counts(4, 0, inserted=4), Counts(4, 1, inserted=3)], ids=str)
def test_nulls_are_judged_whatever_changes(nulls, problem, counts):
    guards = Guards(max_null_fraction={"amount": 0.01, "mail": 0})

    found = first_refusal(guards, counts, nulls=nulls)

    assert (found.problem if found else None) == problem
    assert first_refusal(guards, counts, ["max_null_fraction"], nulls=nulls) is None
    assert first_refusal(Guards(), counts, nulls=nulls) is None


def test_part_of_a_table_may_have_fewer_rows_than_the_whole():
    assert first_refusal(Guards(min_rows=100), Counts(5, 5, 0, 0, 0), is_everything=False) is None


COUNTS = st.builds(Counts, *[st.integers(0, 2**40)] * 5)


@given(COUNTS, COUNTS, COUNTS)
def test_counts_add_like_numbers(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Counts() == a
    assert (a + b).changes == a.changes + b.changes
    assert (a + b).unchanged == a.unchanged + b.unchanged


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1))
def test_more_deletes_never_pass_where_fewer_were_refused(main, deleted, fraction):
    guards = Guards(max_deleted_fraction=fraction)
    deleted = min(deleted, main)

    fewer = first_refusal(guards, Counts(desired=1, main=main, deleted=deleted // 2))
    more = first_refusal(guards, Counts(desired=1, main=main, deleted=deleted))

    assert fewer is None or more is not None

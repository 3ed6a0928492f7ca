"""What has become of a table's intervals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.ledger import Covering, IntervalState, ledger
from airflow_mv_provider.core.scope.scope import EVERYTHING, Scope

DONE, FAILED, RUNNING, MISSING = IntervalState


def days(first: int, last: int) -> Scope:
    return Scope(start=f"2026-01-{first:02}", end=f"2026-01-{last:02}")


def history(*refreshes: tuple[Scope, Outcome]) -> list[Covering]:
    """Newest first; the oldest is refresh 0."""
    found = [Covering(str(i), scope, outcome, f"t{i}") for i, (scope, outcome) in enumerate(reversed(refreshes))]
    return found[::-1]


def shown(entries):
    return [(e.partition or (e.start or "")[-2:], (e.end or "")[-2:], e.state) for e in entries]


def test_each_interval_is_what_its_newest_refresh_made_of_it():
    found = ledger(
        history(
            (days(3, 4), Outcome.RUNNING),
            (days(2, 3), Outcome.FAILED),
            (days(1, 2), Outcome.PUBLISHED),
            (days(2, 3), Outcome.PUBLISHED),
        )
    )

    assert shown(found) == [("01", "02", DONE), ("02", "03", FAILED), ("03", "04", RUNNING)]
    assert [(e.refresh_id, e.at, e.done_at) for e in found] == [("1", "t1", "t1"), ("2", "t2", "t0"), ("3", "t3", None)]


def test_what_nobody_refreshed_between_two_intervals_is_missing():
    found = ledger(history((days(5, 6), Outcome.NOTHING_TO_DO), (days(1, 2), Outcome.PUBLISHED)))

    assert shown(found) == [("01", "02", DONE), ("02", "05", MISSING), ("05", "06", DONE)]


def test_what_is_asked_for_and_was_never_refreshed_is_missing():
    found = ledger(history((days(3, 4), Outcome.PUBLISHED)), start="2026-01-01", end="2026-01-05")

    assert shown(found) == [("01", "03", MISSING), ("03", "04", DONE), ("04", "05", MISSING)]
    assert ledger((), start="1", end="2")[0].state is MISSING
    assert ledger(()) == ()


def test_a_wider_refresh_does_its_intervals_and_an_older_one_does_not_undo_them():
    found = ledger(
        history((days(2, 3), Outcome.REFUSED), (days(1, 4), Outcome.PUBLISHED), (days(1, 2), Outcome.FAILED))
    )

    assert shown(found) == [("01", "02", DONE), ("02", "03", FAILED), ("03", "04", DONE)]


def test_a_refresh_of_everything_does_all_intervals():
    found = ledger(history((EVERYTHING, Outcome.PUBLISHED), (days(1, 2), Outcome.CANCELLED)))
    stale = ledger(history((Scope(without=(days(1, 2),)), Outcome.PUBLISHED), (days(1, 2), Outcome.PUBLISHED)))

    assert shown(found) == [("", "01", DONE), ("01", "02", DONE), ("02", "", DONE)]
    assert shown(stale) == shown(found)
    assert shown(ledger(history((EVERYTHING, Outcome.FAILED)))) == [("", "", FAILED)]


def test_named_partitions_are_listed_by_themselves():
    named = Scope(partitions=('["2026-01-02"]', '["2026-01-09"]', "[null]"))

    found = ledger(history((days(1, 2), Outcome.FAILED), (days(2, 4), Outcome.PUBLISHED), (named, Outcome.FAILED)))

    assert shown(found) == [
        ("01", "02", FAILED),
        ("02", "04", DONE),
        ("[null]", "", FAILED),
        ('["2026-01-02"]', "", DONE),  # by the interval that holds it
        ('["2026-01-09"]', "", FAILED),
    ]


def test_intervals_are_in_the_order_of_the_columns_type():
    past = [Covering("a", Scope(start="9", end="11"), Outcome.PUBLISHED, "t")]

    as_numbers, as_texts = ledger(past, "integer", start="1", end="20"), ledger(past, "string", start="1", end="95")

    assert [(e.start, e.end, e.state) for e in as_numbers] == [
        *(("1", "9", MISSING), ("9", "11", DONE), ("11", "20", MISSING)),
    ]
    # No text is at or after '9' and before '11': what was asked for covers nothing.
    assert {e.state for e in as_texts} == {MISSING}
    assert {e.state for e in ledger(past, start="1", end="95")} == {MISSING}, "of a type that nobody knows: as texts"


def test_range_of_a_bound_that_only_spark_understands_is_not_called_done():
    until = "2024-01-02 00:00:00 Europe/Berlin"
    past = [Covering("a", Scope(start="2024-01-01", end=until), Outcome.PUBLISHED, "t")]

    entries = ledger(past, "timestamp", start="2024-01-01", end="2025-01-01")

    assert [(e.start, e.end, e.state) for e in entries] == [("2024-01-01", "2025-01-01", MISSING)]


def test_two_spellings_of_one_value_are_one_bound():
    past = [Covering(n, Scope(start=n, end="20"), Outcome.PUBLISHED, "t") for n in ("9", "09")]

    assert [(e.start, e.end) for e in ledger(past, "integer", start="5")] == [("5", "9"), ("9", "20")]


class Counted(Covering):
    """A refresh that counts how often it is asked what it covered."""

    times = 0

    def __getattribute__(self, name):
        Counted.times += name == "scope"
        return super().__getattribute__(name)


def test_refreshes_are_not_looked_at_for_each_interval():
    days = [Counted(str(n), Scope(start=str(n), end=str(n + 1)), Outcome.PUBLISHED, "t") for n in range(1000)]

    entries = ledger(days, "integer")

    assert [(e.refresh_id, e.state) for e in entries] == [(str(n), DONE) for n in range(1000)]
    assert Counted.times < 20 * len(days)


SCOPES = st.tuples(st.integers(0, 9), st.integers(1, 5)).map(lambda p: Scope(start=str(p[0]), end=str(p[0] + p[1])))
NAMED = st.sets(st.sampled_from(['["3"]', '["7"]', "[null]"]), min_size=1).map(
    lambda names: Scope(tuple(sorted(names)))
)
OUTCOMES = st.sampled_from([Outcome.PUBLISHED, Outcome.FAILED, Outcome.RUNNING])


@given(st.lists(st.tuples(SCOPES, OUTCOMES), max_size=8))
def test_every_value_has_the_state_of_the_newest_refresh_that_holds_it(refreshes):
    past = history(*refreshes)

    entries = ledger(past, "integer", start="0", end="14")

    for value in range(14):
        [entry] = [e for e in entries if int(e.start) <= value < int(e.end)]
        held = [c for c in past if int(c.scope.start) <= value < int(c.scope.end)]
        assert entry.outcome == (held[0].outcome if held else None)


@given(st.lists(st.tuples(SCOPES | st.just(EVERYTHING) | NAMED, OUTCOMES), max_size=8))
def test_every_known_partition_has_the_state_of_the_newest_refresh_that_holds_it(refreshes):
    past = history(*refreshes)
    names = [f'["{value}"]' for value in range(14)] + ["[null]"]

    entries = {e.partition: e for e in ledger(past, "integer", partitions=names) if e.partition}

    assert set(entries) == set(names)
    for name in names:
        held = [c for c in past if holds(c.scope, name)]
        assert entries[name].outcome == (held[0].outcome if held else None)
        done = [c for c in held if c.outcome is Outcome.PUBLISHED]
        assert entries[name].done_at == (done[0].at if done else None)


def holds(scope: Scope, name: str) -> bool:
    if scope.partitions or scope.is_everything:
        return scope.is_everything or name in scope.partitions
    return name != "[null]" and int(scope.start) <= int(name[2:-2]) < int(scope.end)


def test_known_partition_that_no_refresh_covered_is_missing_and_the_end_is_left_out():
    past = [Covering("a", Scope(start="1", end="3"), Outcome.PUBLISHED, "t")]
    names = ('["0"]', '["1"]', '["3"]', '["4"]')

    entries = ledger(past, "integer", start="0", end="4", partitions=names)

    assert shown(entries) == [
        *(("0", "1", MISSING), ("1", "3", DONE), ("3", "4", MISSING)),
        *(('["0"]', "", MISSING), ('["1"]', "", DONE), ('["3"]', "", MISSING)),
    ]

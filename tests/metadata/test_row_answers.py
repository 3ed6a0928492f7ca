"""What was told about rows: the newest ten of each table, cut off if they are long, gone with the history."""

from __future__ import annotations

from airflow_mv_provider.metadata.history.row_answers import KEPT, MAX_CHARACTERS
from tests.metadata.rows import registered


def test_the_newest_answers_of_each_table_are_kept_newest_first(store, clock):
    orders, others = registered(store, "orders"), registered(store, "others")
    store.row_answers.keep(others.id, None, "id=1", "other")
    for number in range(KEPT + 3):
        clock.pass_ms(10)
        store.row_answers.keep(orders.id, "ann", f"id={number}", f"answer {number}", is_error=number % 2 == 0)

    found = store.answers_about_rows(orders.id)

    assert [each.asked for each in found] == [f"id={number}" for number in range(KEPT + 2, 2, -1)]
    assert (found[0].answer, found[0].user, found[0].is_error) == ("answer 12", "ann", True)
    assert store.last_answer_id(orders.id) == found[0].id
    assert [each.answer for each in store.answers_about_rows(others.id)] == ["other"]


def test_a_long_answer_is_cut_off_and_says_so(store):
    table = registered(store, "orders")

    store.row_answers.keep(table.id, None, "x" * 5000, "y" * (MAX_CHARACTERS + 1))

    [found] = store.answers_about_rows(table.id)
    assert found.answer == "y" * MAX_CHARACTERS + "\n... (cut off)"
    assert len(found.asked) == 1000


def test_answers_are_forgotten_with_the_history_and_with_the_table(store, clock):
    table = registered(store, "orders")
    assert store.last_answer_id(table.id) is None
    store.row_answers.keep(table.id, None, "id=1", "old")
    clock.pass_ms(60_000)
    store.row_answers.keep(table.id, None, "id=2", "new")

    store.forget_history(table.id, older_than_ms=30_000)
    assert [each.answer for each in store.answers_about_rows(table.id)] == ["new"]

    store.registry.begin_drop(store.state(table.id))
    assert store.registry.forget(table.id)
    assert store.answers_about_rows(table.id) == ()

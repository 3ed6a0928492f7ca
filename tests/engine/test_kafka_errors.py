"""The error table of a topic: a key whose last record cannot be decoded is there, and not in main, until a good one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_mv_provider.exceptions import EventError, MainUnsupportedError, TooManyErrorsError
from tests.conftest import Crash
from tests.engine.streaming import Shop, counts, row, shop
from tests.kafka import Record

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]

ERRORS = {"max_rows": 3}
NO_NUMBER = '{"id": %d, "v": 7'  # it is not closed


def bad(number: int) -> Record:
    return json.dumps({"id": number}), (NO_NUMBER % number)


def errors(shop: Shop) -> list[tuple[Any, ...]]:
    """Return (place, offset, record, rule, key) of each record in the error table, in their order."""
    names = "source_file, source_position, record, rule, key"
    found = shop.lake.sql(f"SELECT {names} FROM {{t}}", path="orders__errors")
    return sorted((each[0].removeprefix(shop.topic), *each[1:]) for each in found)


def error(number: int, offset: int, partition: int = 0) -> tuple[Any, ...]:
    return f"/{partition}", offset, NO_NUMBER % number, "corrupt_record", f'{{"id":{number}}}'


@pytest.mark.in_test_all
def test_key_is_in_the_error_table_until_a_good_record_comes(shop):
    """The first refresh fails without an error table; with one the topic goes on where it was."""
    shop.apply()
    shop.send(row(1, "a"), row(2, "b"), partition=0)
    shop.refresh()
    shop.send(bad(1), row(2, "b2"), bad(3), partition=0)
    with pytest.raises(EventError, match="partition 0, offset 2: does not fit the schema"):
        shop.refresh()

    shop.apply(errors=ERRORS)
    second = shop.refresh()
    kept = shop.rows, errors(shop)
    shop.send(row(1, "a2"), partition=0)
    third = shop.refresh()

    assert (second.rows_rejected, third.rows_rejected) == (2, 1)
    assert kept == ([(2, "b2")], [error(1, 2), error(3, 4)])
    assert (shop.rows, errors(shop)) == ([(1, "a2"), (2, "b2")], [error(3, 4)])
    assert counts(third) == ("incremental", 1, 0, 0)
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
@pytest.mark.parametrize("is_first", [True, False], ids=["from the start", "compared"])
def test_whole_comparison_keeps_the_same(shop, is_first):
    """From the topic's start no record is a former one; after another writer main is compared with the last publish."""
    shop.apply(errors=ERRORS)
    shop.send(row(1, "a"), bad(2), bad(3), row(4, "d"), partition=0)
    if not is_first:
        shop.refresh()
        shop.lake.sql("UPDATE {t} SET v = 'other' WHERE id = 4")
    shop.send(row(3, "c"), bad(1), partition=0)

    report = shop.refresh()
    again = shop.refresh(force=True)

    assert (shop.rows, errors(shop)) == ([(3, "c"), (4, "d")], [error(2, 1), error(1, 5)])
    assert (report.rows_rejected, again.rows_rejected) == (2, 2)
    assert counts(again)[1:] == (0, 0, 0)


@pytest.mark.in_test_all
def test_records_without_a_key_stay_until_there_are_too_many(shop):
    """Each record is a row of its own, so no later one takes its place. A larger limit lets the topic go on."""
    source = {"select": ["v", "_partition AS p", "_offset AS o"]}
    shop.apply("none", source=source, key=["p", "o"], errors={"max_rows": 2})
    shop.send((None, {"id": 1, "v": "a"}), (None, "{"), partition=0)
    shop.refresh()
    shop.send((None, None), (None, {"id": 2, "v": "b"}), partition=0)
    shop.refresh()
    two = errors(shop)
    shop.send((None, "["), (None, {"id": 3, "v": "c"}), partition=0)
    with pytest.raises(TooManyErrorsError, match=r"more than 2 records.*/0/"):
        shop.refresh()
    before = shop.rows, errors(shop)
    shop.apply("none", source=source, key=["p", "o"], errors={"max_rows": 3})
    shop.refresh()

    assert [each[:2] for each in two] == [("/0", 1), ("/0", 2)]
    assert {each[4] for each in two} == {None}
    assert before == ([(0, 0, "a"), (3, 0, "b")], two)
    assert shop.rows == [(0, 0, "a"), (3, 0, "b"), (5, 0, "c")]
    assert [each[:3] for each in errors(shop)] == [("/0", 1, "{"), ("/0", 2, None), ("/0", 4, "[")]


@pytest.mark.in_test_all
def test_publish_of_errors_alone_changes_no_row(shop):
    shop.apply(errors=ERRORS)
    shop.send(row(1, "a"), partition=0)
    shop.refresh()
    shop.send(bad(2), partition=0)
    looked = shop.refresh(read_only=True)
    before = errors(shop)

    report = shop.refresh()

    assert (looked.rows_rejected, before) == (1, [])
    assert counts(report)[1:] == (0, 0, 0)
    assert (shop.rows, errors(shop)) == ([(1, "a")], [error(2, 1)])


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "point", ["collected.before", "collected.after", "seal.after", "publish.after", "errors.before", "errors.after"]
)
@pytest.mark.sample(2)
def test_killed_refresh_is_followed_by_one_with_the_same_result(shop, crash_at, point):
    shop.apply(errors=ERRORS)
    shop.send(row(1, "a"), bad(2), bad(3), partition=0)
    shop.refresh()
    shop.send(bad(1), row(2, "b"), partition=0)
    caller = shop.lake.caller("test:same")
    crash_at(point)
    with pytest.raises(Crash):
        shop.refresh(caller=caller)
    shop.send(row(3, "later"), partition=0)

    shop.refresh(caller=caller)
    retried = shop.rows, errors(shop)
    shop.refresh()

    assert retried == ([(2, "b")], [error(3, 2), error(1, 3)])
    assert (shop.rows, errors(shop)) == ([(2, "b"), (3, "later")], [error(1, 3)])
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
def test_event_of_debezium_is_kept_and_a_truncate_ends_it(shop):
    def event(op: str, lsn: int, number: int | None, value: Any, **more: Any) -> Record:
        after = None if op == "t" else {"id": number, "v": value} | more
        key = None if number is None else json.dumps({"id": number})
        return key, {"op": op, "after": after, "source": {"lsn": lsn, "snapshot": "false"}}

    shop.apply("debezium", errors=ERRORS)
    shop.send(event("c", 1, 1, "a"), event("c", 2, 2, "b"), event("c", 3, 3, "c", unknown=1), partition=0)
    shop.refresh()
    first = shop.rows, [(each[1], each[4]) for each in errors(shop)]
    shop.send(event("u", 4, 1, "a2", unknown=1), event("u", 5, 3, "c"), partition=0)
    shop.refresh()
    second = shop.rows, [(each[1], each[4]) for each in errors(shop)]
    shop.send(event("t", 6, None, None), event("c", 7, 4, "d"), partition=0)
    shop.refresh()

    assert first == ([(1, "a"), (2, "b")], [(2, '{"id":3}')])
    assert second == ([(2, "b"), (3, "c")], [(3, '{"id":1}')])
    assert (shop.rows, errors(shop)) == ([(4, "d")], [])


@pytest.mark.in_test_all
def test_record_whose_key_is_not_known_fails_as_before(shop):
    """Which of main's rows it is about cannot be told."""
    shop.apply(errors=ERRORS)
    shop.send(row(1, "a"), ("{", '{"id": 1'), partition=0)

    with pytest.raises(EventError, match="partition 0, offset 1"):
        shop.refresh()

    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
def test_error_table_of_another_kind_of_source_is_named(shop):
    shop.apply(errors=ERRORS)
    shop.send(row(1, "a"), partition=0)
    shop.refresh()
    shop.lake.sql("ALTER TABLE {t} ADD COLUMNS (more STRING)", path="orders__errors")
    shop.send(row(2, "b"), partition=0)

    with pytest.raises(MainUnsupportedError, match="the columns of another kind of source"):
        shop.refresh()

    assert shop.rows == [(1, "a")]

"""What dbt's tests of its snapshots expect, with the options that say the same here."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mv_provider.exceptions import GuardRefusedError
from tests.engine.versioned import raw

pytestmark = pytest.mark.slow
GUARDS = {"max_deleted_fraction": 1.0, "allow_empty": True}
COLUMNS = "t(id, name, age, updated_at)"
AT = "TIMESTAMP'2024-01-{} 10:00'"


def put(lake: Any, *rows: tuple[int, str, int, int]) -> None:
    """Rows with the day of January on which they were updated."""
    values = ", ".join(f"({key}, '{name}', {age}, {AT.format(f'{day:02}')})" for key, name, age, day in rows)
    if values:
        lake.write(f"SELECT * FROM VALUES {values} AS {COLUMNS}")
    else:
        lake.write(f"SELECT * FROM VALUES (1, 'a', 1, {AT.format('01')}) AS {COLUMNS} WHERE false")


def found(lake: Any, *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in raw(lake)), key=repr)


def refresh(lake: Any, *rows: tuple[int, str, int, int]) -> None:
    put(lake, *rows)
    lake.refresh()


BY_ALL = [
    *((1, "ann", 30, False), (1, "ann", 31, True)),
    *((2, "bob", 40, False), (2, "rob", 40, False), (2, "rob", 41, True)),
]
BY_NAME = [(1, "ann", 31, True), (2, "bob", 40, False), (2, "rob", 41, True)]  # another column changes in its version


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (True, BY_ALL),  # check_cols: all
        ({"columns": ["name"]}, BY_NAME),  # check_cols: [name]
        ({"exclude": ["age", "updated_at"]}, BY_NAME),
        ({"time": "updated_at"}, BY_ALL),  # strategy: timestamp
    ],
)
def test_strategies(lake, history, expected):
    lake.apply(history=history, guards=GUARDS)
    refresh(lake, (1, "ann", 30, 1), (2, "bob", 40, 1))
    refresh(lake, (1, "ann", 31, 2), (2, "rob", 40, 2))
    refresh(lake, (1, "ann", 31, 2), (2, "rob", 41, 3))

    assert found(lake, "id", "name", "age", "is_current") == expected


@pytest.mark.in_test_all
def test_columns_have_the_names_that_are_asked_for(lake):
    names = {"valid_from": "dbt_valid_from", "valid_to": "dbt_valid_to", "operation": "how", "refresh_id": "run"}
    lake.apply(history={**names, "is_current": "now", "valid_to_current": "9999-12-31"}, guards=GUARDS)
    refresh(lake, (1, "ann", 30, 1))
    refresh(lake, (1, "ann", 31, 2))

    assert found(lake, "age", "how", "now") == [(30, "insert", False), (31, "update", True)]
    assert max(str(row["dbt_valid_to"]) for row in raw(lake)).startswith("9999-12-31")
    assert set(raw(lake)[0]) == {"id", "name", "age", "updated_at", "now", *names.values()}


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize(
    ("deletes", "after_delete", "when_back", "when_back_changed"),
    [
        ("keep", [("insert", True)], [("insert", True)], [("insert", False), ("update", True)]),  # ignore
        ("close", [("insert", False)], *(2 * [[("insert", False), ("insert", True)]])),  # invalidate
        (  # new_record
            "mark",
            [("delete", True), ("insert", False)],
            *(2 * [[("delete", False), ("insert", False), ("insert", True)]]),
        ),
    ],
)
def test_a_row_that_is_deleted_and_comes_back(lake, deletes, after_delete, when_back, when_back_changed, is_changed):
    lake.apply(history={"deletes": deletes}, guards=GUARDS)
    refresh(lake, (1, "ann", 30, 1), (2, "bob", 40, 1))
    refresh(lake, (2, "bob", 40, 1))

    def of_ann() -> list[tuple[str, bool]]:
        return sorted((row["operation"], row["is_current"]) for row in raw(lake) if row["id"] == 1)

    assert of_ann() == after_delete
    refresh(lake, (2, "bob", 41, 1))  # it stays deleted
    assert of_ann() == after_delete
    refresh(lake, (1, "ann", 31 if is_changed else 30, 1), (2, "bob", 41, 1))
    assert of_ann() == (when_back_changed if is_changed else when_back)


@pytest.mark.in_test_all
def test_a_source_that_is_emptied_by_mistake_ends_no_version(lake):
    lake.apply(history=True)
    refresh(lake, (1, "ann", 30, 1), (2, "bob", 40, 1))
    put(lake)

    with pytest.raises(GuardRefusedError):
        lake.refresh()

    assert found(lake, "id", "is_current") == [(1, True), (2, True)]


@pytest.mark.in_test_all
def test_a_key_of_two_columns(lake):
    lake.apply(key=["id", "name"], history=True, guards=GUARDS)
    refresh(lake, (1, "ann", 30, 1), (1, "bob", 40, 1))
    refresh(lake, (1, "ann", 31, 1), (1, "cid", 40, 1))

    assert found(lake, "name", "age", "operation", "is_current") == [
        ("ann", 30, "insert", False),
        ("ann", 31, "update", True),
        ("bob", 40, "insert", False),
        ("cid", 40, "insert", True),
    ]


@pytest.mark.in_test_all
def test_which_columns_begin_a_version_may_change(lake):
    lake.apply(history={"columns": ["name"]}, guards=GUARDS)
    refresh(lake, (1, "ann", 30, 1))
    refresh(lake, (1, "ann", 31, 1))
    lake.apply(history={"columns": ["age"]}, guards=GUARDS)
    refresh(lake, (1, "ann", 32, 1))

    assert found(lake, "age", "operation", "is_current") == [(31, "insert", False), (32, "update", True)]

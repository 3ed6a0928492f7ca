"""A SQLite file as source: its change counter, and values of another type than their column's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import ConnectionUnknownError, DefinitionError, InexactColumnError, MvError
from airflow_mv_provider.exceptions import SourceNotFoundError as Missing
from airflow_mv_provider.sources.jdbc.model import Jdbc

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

ORDERS = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, n BIGINT, r REAL, t VARCHAR(9), b BLOB, p NUMERIC(10, 2), d DATE, x);
INSERT INTO orders VALUES (1, 9223372036854775807, 0.1, 'é', x'00ff', 1234567.89, '2024-02-29', '7'),
                          (2, NULL, 5, '', NULL, 3, NULL, NULL);
"""
TYPES = {"p": "DECIMAL(10,2)", "d": "DATE", "x": "STRING"}


@pytest.fixture
def run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Run a script on the file."""
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", f"sqlite:///{tmp_path}/shop%20%231.db")

    def script(text: str) -> None:
        with closing(sqlite3.connect(tmp_path / "shop #1.db")) as file:
            file.executescript(text)

    script(ORDERS)
    return script


def test_file_is_read_once_for_each_change(lake, run):
    lake.apply(source=Jdbc("shop", table="orders", columns=TYPES))
    reports = [lake.refresh(), lake.refresh()]
    run("UPDATE orders SET t = 'w' WHERE id = 2; INSERT INTO orders (id, t) VALUES (3, 'new')")
    reports.append(lake.refresh())

    outcomes = [(each.outcome, each.rows_inserted, each.rows_updated) for each in reports]
    assert outcomes == [(Outcome.PUBLISHED, 2, 0), (Outcome.NOTHING_TO_DO, 0, 0), (Outcome.PUBLISHED, 1, 1)]
    assert lake.rows() == [  # columns by name: b, d, id, n, p, r, t, x
        (None, None, 2, None, Decimal("3.00"), 5.0, "w", None),
        (None, None, 3, None, None, None, "new", None),
        (b"\x00\xff", date(2024, 2, 29), 1, 2**63 - 1, Decimal("1234567.89"), 0.1, "é", "7"),
    ]


@pytest.mark.parametrize(
    ("script", "source"),
    [("PRAGMA journal_mode=WAL", {"table": "orders"}), ("", {"query": "SELECT * FROM orders"})],
)
@pytest.mark.in_test_all
def test_file_that_does_not_count_its_changes_is_compared(lake, run, script, source):
    run(script)
    lake.apply(source=Jdbc("shop", columns=TYPES, **source))

    assert [lake.refresh().strategy for _ in range(2)][1] == "corrections"
    assert len(lake.rows()) == 2


@pytest.mark.parametrize(
    ("script", "changes", "error", "words"),
    [
        ("", {"columns": {}}, InexactColumnError, "p (NUMERIC(10, 2)), d (DATE), x (no type)"),
        ("UPDATE orders SET n = 'many'", {}, InexactColumnError, "column n has the value 'text'"),
        ("UPDATE orders SET r = 'many'", {}, InexactColumnError, "column r has the value 'text'"),
        ("UPDATE orders SET p = 1.125", {}, InexactColumnError, "column p has the value '1.125'"),
        ("UPDATE orders SET p = 1.0 / 3", {}, InexactColumnError, "column p has the value"),
        ("UPDATE orders SET d = '2024-02-30'", {}, InexactColumnError, "column d has the value '2024-02-30'"),
        ("UPDATE orders SET n = 1 << 40", {"columns": TYPES | {"n": "INT"}}, InexactColumnError, "'1099511627776'"),
        ("", {"table": "missing"}, Missing, "missing"),
        ("", {"split": {"column": "id", "parts": 2}}, DefinitionError, "one connection"),
        ("", {"conn_id": "none"}, ConnectionUnknownError, "AIRFLOW_CONN_NONE"),
    ],
)
@pytest.mark.sample(1)
def test_what_does_not_fit_is_named(lake, run, script, changes, error, words):
    run(script)
    lake.apply(source=Jdbc(**({"conn_id": "shop", "table": "orders", "columns": TYPES} | changes)))

    with pytest.raises(MvError) as caught:
        lake.refresh()

    assert isinstance(caught.value, error)
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [None, b"no database" * 99], ids=["missing", "another file"])
@pytest.mark.in_test_all
def test_file_that_is_none_is_named(lake, run, tmp_path, content):
    (tmp_path / "shop #1.db").unlink()
    if content is not None:
        (tmp_path / "shop #1.db").write_bytes(content)
    lake.apply(source=Jdbc("shop", table="orders"))

    with pytest.raises(Missing, match=r"shop #1\.db"):
        lake.refresh()


# -- texts -------------------------------------------------------------------------------------------------------------

TEXTS = "CREATE TABLE texts (id INTEGER PRIMARY KEY, v TEXT); INSERT INTO texts VALUES "
NOT_UTF_8 = [
    pytest.param("UTF-8", "61ff", id="a byte of no character"),
    pytest.param("UTF-8", "eda080", id="half a surrogate pair"),
    pytest.param("UTF-8", "c080", id="longer than needed"),
    pytest.param("UTF-8", "61e282", id="cut short"),
    pytest.param("UTF-16le", "610000d8", id="half a surrogate pair in UTF-16"),
    pytest.param("UTF-16be", "d8000061", id="half a surrogate pair in UTF-16BE"),
]


@pytest.mark.parametrize(("encoding", "text"), NOT_UTF_8)
@pytest.mark.sample("a byte of no character")
def test_text_that_is_none_is_an_error_and_not_replaced(lake, run, tmp_path, encoding, text):
    """A decoder would replace it: two such texts were equal, and a change from one to the other would never be seen."""
    (tmp_path / "shop #1.db").unlink()
    run(f"PRAGMA encoding = '{encoding}'; {TEXTS} (1, 'a'), (2, CAST(x'{text}' AS TEXT))")
    lake.apply(source=Jdbc("shop", table="texts"))

    with pytest.raises(InexactColumnError, match="not a character") as caught:
        lake.refresh()

    assert (
        encoding != "UTF-8"
        or f"column v has a text with bytes that are not a character; it begins with {text.upper()}"
        in str(caught.value)
    )
    assert "hexadecimal" in caught.value.advice


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
@pytest.mark.sample("UTF-8")
def test_every_text_arrives_as_it_is(lake, run, tmp_path, encoding):
    texts = ["", "a\0b", "\0", "é", "\U0001f600", "\ufffd", "\ufeffa", "a ", "\x1a", "\r\n", "0041"]
    (tmp_path / "shop #1.db").unlink()
    run(f"PRAGMA encoding = '{encoding}'; CREATE TABLE texts (id INTEGER PRIMARY KEY, v TEXT)")
    with closing(sqlite3.connect(tmp_path / "shop #1.db")) as file:
        file.executemany("INSERT INTO texts VALUES (?, ?)", enumerate(texts))
        file.commit()
    lake.apply(source=Jdbc("shop", table="texts"))

    lake.refresh()

    assert sorted(lake.rows()) == list(enumerate(texts))


# -- numbers as texts --------------------------------------------------------------------------------------------------


def test_number_as_text_is_exactly_that_number(lake, run, tmp_path):
    """SQLite's own text of a REAL may have 15 digits, which are those of another number, too."""
    numbers = [0.1, 0.1 + 0.2, 2.0**53, 2.0**53 + 2, 1e300, 5e-324, 1.7976931348623155e308, 1 / 3, 3, 2**53 + 1, 1e999]
    run("CREATE TABLE numbers (id INTEGER PRIMARY KEY, v NUMERIC)")
    with closing(sqlite3.connect(tmp_path / "shop #1.db")) as file:
        file.executemany("INSERT INTO numbers VALUES (?, ?)", enumerate(numbers))
        file.commit()
    lake.apply(source=Jdbc("shop", table="numbers", columns={"v": "STRING"}))

    lake.refresh()

    found = dict(lake.rows())
    assert {key: float(text) if isinstance(numbers[key], float) else int(text) for key, text in found.items()} == dict(
        enumerate(numbers)
    )
    assert len(set(found.values())) == len(numbers)
    assert (found[0], found[8], found[9]) == ("0.1", "3", "9007199254740993")


@pytest.mark.in_test_all
def test_whole_number_that_a_double_cannot_hold_is_an_error(lake, run):
    run("CREATE TABLE w (id INTEGER PRIMARY KEY, r INTEGER); INSERT INTO w VALUES (1, 9007199254740993)")
    lake.apply(
        source=Jdbc("shop", query="SELECT id, r FROM (SELECT id, r FROM orders WHERE false UNION ALL SELECT * FROM w)")
    )

    with pytest.raises(InexactColumnError, match="column r has the value"):
        lake.refresh()

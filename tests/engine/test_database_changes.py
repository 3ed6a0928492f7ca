"""Only the rows that a PostgreSQL has written since the last publish are read, and main is as if all had been."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DefinitionError, DuplicateKeyError, StrategyError
from tests.conftest import Crash
from tests.engine.test_databases import Shop, shop
from tests.postgres import ASKED

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]

TABLE = """
CREATE TABLE items (id int8, p int, n numeric(12, 3), t text, at timestamptz NOT NULL DEFAULT clock_timestamp(),
                    PRIMARY KEY (id))
"""
READ = "SELECT at, id, n, p, t FROM items"
WAYS: dict[str, dict[str, Any]] = {"xmin": {"changes": "xmin"}, "watermark": {"watermark": "at"}}


@pytest.fixture
def items(shop: Shop) -> Shop:
    fill = "INSERT INTO items (id, p, n, t) SELECT i, i % 3, i / 8.0, 'v' || i FROM generate_series(1, 60) AS i"
    shop.run(TABLE, fill, f"GRANT SELECT ON items TO {ASKED}")
    return shop


def apply(shop: Shop, way: str = "xmin", **more: Any) -> None:
    source = {"table": "public.items"} | WAYS[way] | more.pop("source", {})
    guards = {"max_deleted_fraction": 1.0, "allow_empty": True}
    shop.lake.apply(source={"type": "jdbc", "conn_id": "shop"} | source, guards=guards, **more)


def counts(report: Any) -> tuple[str, int, int, int]:
    return report.strategy, report.rows_inserted, report.rows_updated, report.rows_deleted


class Writers:
    """Sessions that write at random; some of their transactions stay open while the table is refreshed."""

    def __init__(self, address: str, seed: int, keep: ExitStack) -> None:
        self.random = random.Random(seed)
        self.address, self.keep = address, keep
        self.open: list[Any] = []

    def step(self) -> None:
        """Begin or end a transaction, or write in one."""
        draw = self.random
        if draw.random() < 0.4 or not self.open:
            self.open.append(self.keep.enter_context(psycopg.connect(self.address)))
            self.open[-1].execute("SET lock_timeout = '50ms'")
        writer = draw.choice(self.open)
        try:
            for _ in range(draw.randrange(1, 4)):
                if draw.random() < 0.4:
                    writer.execute("SAVEPOINT s")  # what follows is written under another number
                writer.execute(self.statement())
                if draw.random() < 0.1:
                    writer.execute("SAVEPOINT s")
                    writer.execute(self.statement())
                    writer.execute("ROLLBACK TO s")
        except (psycopg.errors.UniqueViolation, psycopg.errors.LockNotAvailable):
            writer.rollback()
        if draw.random() < 0.5:
            (writer.rollback if draw.random() < 0.2 else writer.commit)()
            writer.close()
            self.open.remove(writer)

    def statement(self) -> str:
        draw = self.random
        one, other, p = draw.randrange(1, 90), draw.randrange(1, 90), draw.randrange(3)
        return draw.choice(
            [
                f"INSERT INTO items (id, p, t) VALUES ({one}, {p}, 'new') ON CONFLICT DO NOTHING",
                f"UPDATE items SET t = 'u{other}', p = {p}, at = clock_timestamp() WHERE id = {one}",
                f"UPDATE items SET at = clock_timestamp() WHERE id % 20 = {one % 20}",
                f"UPDATE items SET id = {other}, at = clock_timestamp() WHERE id = {one}",
                f"DELETE FROM items WHERE id = {one}",
                f"DELETE FROM items WHERE id = {one}; INSERT INTO items (id, p) VALUES ({one}, {p})",
            ]
        )


@pytest.mark.in_test_all
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sample(1, by=lambda case: case.split("-")[-1])
def test_any_history_leaves_what_reading_everything_would(items, way, seed):
    draw = random.Random(seed)
    partitioned = {"partition_by": ["p"]} if seed % 3 == 1 else {}
    split = {"split": {"column": "id", "parts": 3}} if seed % 2 else {}
    key = {"select": ("id", "p", "n", "t", "at")} if seed % 4 == 3 else {}  # then it is not known to be unique
    apply(items, way, source=split | key, strategy="incremental", schema_policy="ignore", **partitioned)
    items.refresh()
    if seed % 4 == 2:  # main's types are wider than the source's from then on
        items.run("ALTER TABLE items ALTER n TYPE numeric(10, 3), ALTER id TYPE int4")
        items.refresh()
    strategies = []
    with ExitStack() as keep:
        writers = Writers(items.address, seed, keep)
        for _ in range(4):
            for _ in range(draw.randrange(1, 6)):
                writers.step()
            if draw.random() < 0.2:
                items.run("VACUUM (FREEZE) items")
            report = items.refresh()
            strategies.append(report.strategy)
            assert items.is_equal(READ)

    items.refresh()  # what was still open has been committed
    assert items.is_equal(READ)
    assert set(strategies) <= {"incremental", "skip"}
    assert "incremental" in strategies
    kept = items.lake.published()
    assert counts(items.refresh(force=True)) == ("corrections", 0, 0, 0)
    assert items.lake.published() == kept


def test_transaction_that_commits_after_later_ones_is_not_missed(items):
    """Its number, and that of its savepoint, are lower than those of rows that main has already."""
    apply(items)
    items.refresh()
    with psycopg.connect(items.address) as late:
        late.execute("UPDATE items SET t = 'late' WHERE id = 1")
        late.execute("SAVEPOINT s")
        late.execute("UPDATE items SET t = 'later' WHERE id = 2")
        items.run("UPDATE items SET t = 'soon' WHERE id = 3")
        first = items.refresh()
        late.commit()
    second = items.refresh()

    assert [counts(first), counts(second)] == [("incremental", 0, 1, 0), ("incremental", 0, 2, 0)]
    assert items.is_equal(READ)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["DELETE FROM items WHERE id IN (3, 4)"], ("incremental", 0, 0, 2)),
        (["UPDATE items SET id = 99, at = now() WHERE id = 3"], ("incremental", 1, 0, 1)),
        (["INSERT INTO items (id) VALUES (99)", "DELETE FROM items WHERE id = 4"], ("incremental", 1, 0, 1)),
        (["UPDATE items SET t = t, at = at WHERE id < 9"], ("incremental", 0, 0, 0)),
    ],
)
@pytest.mark.sample(1)
def test_deleted_rows_are_found_by_their_keys(items, statements, expected):
    apply(items)
    items.refresh()
    items.run(*statements)

    assert counts(items.refresh()) == expected
    assert items.is_equal(READ)


@pytest.mark.in_test_all
def test_duplicate_key_cannot_hide_a_deleted_row(items):
    """As many rows as before: the database does not know that the key is to be unique."""
    items.run("ALTER TABLE items DROP CONSTRAINT items_pkey")
    apply(items)
    items.refresh()
    before = items.lake.rows()
    items.run("INSERT INTO items (id, t) VALUES (7, 'again')", "DELETE FROM items WHERE id = 8")

    with pytest.raises(DuplicateKeyError, match="7"):
        items.refresh()

    assert items.lake.rows() == before


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["TRUNCATE items", "INSERT INTO items (id) VALUES (1)"], "truncated, rewritten"),
        (["VACUUM FULL items", "UPDATE items SET t = 'x' WHERE id = 3"], "truncated, rewritten"),
        (["ALTER TABLE items DROP t", "ALTER TABLE items ADD t text DEFAULT 'x'"], "truncated, rewritten"),
        (["ALTER TABLE items ENABLE ROW LEVEL SECURITY"], "row security"),
        (
            [f"REVOKE SELECT ON items FROM {ASKED}", f"GRANT SELECT (id, p, n, t, at) ON items TO {ASKED}"],
            "whole table",
        ),
        (["ALTER TABLE items SET UNLOGGED"], "loses its rows in a crash"),
    ],
)
@pytest.mark.sample(1)
def test_what_xmin_does_not_show_is_compared_and_said(items, statements, why):
    apply(items)
    items.refresh()
    items.run(*statements)

    report = items.refresh()

    assert report.strategy != "incremental"
    assert why in str(report.to_json())
    assert [row[1] for row in items.lake.rows()] == (
        [] if "ROW LEVEL" in statements[0] else [row[0] for row in sorted(items.run("SELECT id FROM items"))]
    )


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("kind", "value", "columns"),
    [
        ("size", "'s'", {}),
        ("worn", "'s'", {}),
        ("sizes", "sizes('s', 'm')", {"s": "STRING"}),
        ("many", "many(sizes('s', 'm'))", {"s": "STRING"}),
    ],
    ids=["enum", "domain", "range", "multirange"],
)
@pytest.mark.sample("domain")
def test_enum_value_that_is_renamed_is_renamed_in_every_row(items, kind, value, columns):
    items.run(
        "CREATE TYPE size AS ENUM ('s', 'm')",
        "CREATE DOMAIN worn AS size",
        "CREATE TYPE sizes AS RANGE (subtype = worn, multirange_type_name = many)",
        f"ALTER TABLE items ADD s {kind}",  # without a default, which the catalog would have with the new name
        f"UPDATE items SET s = {value}",
    )
    apply(items, source={"columns": columns})
    items.refresh()
    items.run("ALTER TYPE size RENAME VALUE 's' TO 'small'")

    report = items.refresh()

    assert report.strategy != "incremental"
    assert items.is_equal("SELECT at, id, n, p, s::text, t FROM items")


@pytest.mark.in_test_all
def test_table_truncated_between_probe_and_read_is_compared(items, at_point):
    apply(items)
    items.refresh()
    items.run("UPDATE items SET t = 'x' WHERE id = 3")
    at_point("acquire.after", lambda: items.run("TRUNCATE items", "INSERT INTO items (id) VALUES (1)"))

    items.refresh()

    assert items.is_equal(READ)


@pytest.mark.in_test_all
def test_crash_of_the_server_is_a_reason_to_compare(items, postgres):
    apply(items)
    items.refresh()
    items.run("UPDATE items SET t = 'x' WHERE id = 3")
    postgres.kill()
    postgres.start()

    report = items.refresh()

    assert report.strategy == "corrections"
    assert "started again" in str(report.to_json())
    assert items.is_equal(READ)


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["staging.after", "seal.after", "publish.before", "publish.after"])
@pytest.mark.sample(2)
def test_killed_refresh_loses_no_change(items, crash_at, point):
    apply(items)
    items.refresh()
    items.run("UPDATE items SET t = 'w' WHERE id < 5", "DELETE FROM items WHERE id = 20")
    crash_at(point)
    with pytest.raises(Crash):
        items.refresh()
    items.run("UPDATE items SET t = 'x' WHERE id = 6", "DELETE FROM items WHERE id = 21")
    items.lake.clock.pass_ms(items.lake.settings.lease_ms + 1)

    items.refresh()
    report = items.refresh()

    assert report.outcome is Outcome.NOTHING_TO_DO or report.strategy == "incremental"
    assert items.is_equal(READ)


# -- watermark ---------------------------------------------------------------------------------------------------------


@pytest.mark.in_test_all
def test_overlap_is_as_far_as_late_rows_are_looked_for(items):
    items.run("CREATE VIEW w AS SELECT id, t, at FROM items", f"GRANT SELECT ON w TO {ASKED}")
    apply(items, "watermark", source={"table": "public.w", "overlap": 60})
    items.refresh()
    items.run(
        "UPDATE items SET t = 'seen', at = (SELECT max(at) FROM items) - interval '50 s' WHERE id = 3",
        "UPDATE items SET t = 'late', at = (SELECT max(at) FROM items) - interval '70 s' WHERE id = 4",
        "DELETE FROM items WHERE id = 5",
    )
    first = items.refresh()
    items.refresh(force=True)

    assert counts(first) == ("incremental", 0, 1, 1), "a view has no key that is known to be unique: its keys are read"
    assert items.is_equal("SELECT at, id, t FROM items")


@pytest.mark.in_test_all
@pytest.mark.parametrize(("kind", "change"), [("int", "id + 100"), ("date", "'2026-05-02'"), ("numeric(9,2)", "8.5")])
@pytest.mark.sample(1)
def test_watermark_may_be_a_number_or_a_date(items, kind, change):
    value = "'2026-05-01'" if kind == "date" else "id % 8"
    items.run(f"ALTER TABLE items ADD w {kind}", f"UPDATE items SET w = {value}")
    apply(items, "watermark", source={"watermark": "w", "overlap": 0})
    items.refresh()
    items.run(f"UPDATE items SET t = 'x', w = {change} WHERE id = 3", "UPDATE items SET t = 'n', w = NULL WHERE id = 4")

    assert counts(items.refresh()) == ("incremental", 0, 2, 0)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"watermark": "t"}, "'t' is of type text"),
        ({"watermark": "none"}, "'none' is not one of its columns"),
        ({"watermark": "p"}, "is a number and has no `overlap`"),
    ],
)
@pytest.mark.in_test_all
def test_watermark_without_an_order_is_refused(items, source, words):
    apply(items, "watermark", source=source)

    with pytest.raises(DefinitionError, match=words):
        items.refresh()


@pytest.mark.in_test_all
def test_strict_table_is_not_compared(items):
    apply(items, strategy="incremental", strict=True)
    items.refresh()
    items.run("TRUNCATE items")

    with pytest.raises(StrategyError, match="truncated"):
        items.refresh()

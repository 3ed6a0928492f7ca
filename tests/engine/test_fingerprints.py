"""Fingerprints of main's rows are a hint: kept in layers, lost, damaged or outdated, they decide nothing."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import functions as F

from airflow_mv_provider.core import cost
from airflow_mv_provider.core.definition.schema import columns_of
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.progress import published as published_rows
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.exceptions import DuplicateKeyError, EngineError, NullKeyError
from airflow_mv_provider.spark.compare import fingerprints, hashing, whole
from airflow_mv_provider.spark.layout import Layout
from tests.conftest import Crash

pytestmark = [pytest.mark.slow, pytest.mark.large_tables]

REST = pytest.mark.in_test_all
ROWS = "SELECT id, CAST(id % 3 AS INT) AS p, concat('v', id) AS v FROM range(60)"
LAYOUTS = pytest.mark.parametrize("partition_by", [[], pytest.param(["p"], marks=REST)], ids=["flat", "parts"])


@pytest.fixture
def table(prepared: Any) -> Any:
    """Published twice, so that fingerprints of its rows are kept."""

    def build(lake: Any) -> None:
        lake.write(ROWS)
        lake.apply(guards={"max_deleted_fraction": 1.0}, strategy="corrections")
        lake.refresh()
        change(lake, "UPDATE {t} SET v = 'second' WHERE id = 40")
        lake.refresh()

    return prepared("with fingerprints", build)


def change(lake: Any, *statements: str) -> None:
    for statement in statements:
        lake.sql(statement, path="raw/orders")


def kept(lake: Any, name: str = "orders") -> Any:
    return lake.store.state(lake.store.table(name).id).published_totals


def places(lake: Any) -> list[Path]:
    area = lake.root / "_mv" / lake.store.table("orders").uuid / "kept"
    return [area / each.refresh_id / each.name for each in kept(lake).fingerprints]


def is_the_source(lake: Any) -> None:
    assert Counter(lake.rows("orders")) == Counter(lake.rows("raw/orders"))
    assert lake.workspaces() == []


def forbid_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    def joined(*_: Any, **__: Any) -> None:
        raise AssertionError("both sides were joined")

    monkeypatch.setattr(whole, "_joined", joined)


@pytest.fixture
def never_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_joins(monkeypatch)


@LAYOUTS
def test_changes_of_all_sorts_are_found_without_a_join(lake: Any, partition_by: list[str], monkeypatch: Any) -> None:
    lake.write(ROWS)
    lake.apply(guards={"max_deleted_fraction": 1.0}, strategy="corrections", partition_by=partition_by)
    lake.refresh()
    change(lake, "UPDATE {t} SET v = 'second' WHERE id = 40")
    lake.refresh()
    assert len(kept(lake).fingerprints) == 1

    forbid_joins(monkeypatch)

    for statements, counts in (
        (("UPDATE {t} SET v = 'x' WHERE id IN (3, 4)",), (0, 2, 0)),
        (("DELETE FROM {t} WHERE id IN (7, 8)", "INSERT INTO {t} VALUES (100, 1, 'n')"), (1, 0, 2)),
        (("DELETE FROM {t} WHERE p = 1",), (0, 0, 20)),
        (("UPDATE {t} SET v = concat('v', id) WHERE id = 3",), (0, 1, 0)),  # as it was before
    ):
        change(lake, *statements)
        report = lake.refresh()
        assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == counts
        is_the_source(lake)


@REST
def test_layers_are_added_and_in_the_end_written_as_one(table: Any, monkeypatch: Any, never_joined: None) -> None:
    monkeypatch.setattr(published_rows, "_ROWS_PER_CHANGE", 1)
    numbers = []
    for number in range(7):
        change(table, f"UPDATE {{t}} SET v = 'n{number}' WHERE id = {number % 3}")
        table.refresh()
        is_the_source(table)
        numbers.append(len(kept(table).fingerprints))

    assert numbers == [2, 3, 4, 5, 6, 1, 2]


@pytest.mark.in_test_all
def test_rows_that_moved_and_rows_that_are_gone_are_found_without_a_join(lake: Any, monkeypatch: Any) -> None:
    lake.write(ROWS)
    lake.apply(guards={"max_deleted_fraction": 1.0}, strategy="corrections", partition_by=["p"])
    lake.refresh()
    change(lake, "UPDATE {t} SET v = 'second' WHERE id = 40")
    lake.refresh()
    monkeypatch.setattr(whole, "_joined", None)

    change(lake, "UPDATE {t} SET p = 2 WHERE id = 6", "DELETE FROM {t} WHERE id = 8")
    lake.refresh()

    is_the_source(lake)


@pytest.mark.in_test_all
def test_fingerprints_are_written_as_one_without_what_is_gone(table: Any, monkeypatch: Any, never_joined: None) -> None:
    """A row that changed and changed back is known again; while its layers lie on each other it is looked up."""
    monkeypatch.setattr(published_rows, "_ROWS_PER_CHANGE", 1)
    for value in ("'x'", "concat('v', id)"):
        change(table, f"UPDATE {{t}} SET v = {value} WHERE id = 3")
        table.refresh()

    assert len(kept(table).fingerprints) == 3
    monkeypatch.setattr(published_rows, "_MAX_LAYERS", 0)
    change(table, "UPDATE {t} SET v = 'y' WHERE id = 4")
    table.refresh()
    found = fingerprints.read(table.spark, layout_of(table), [str(place) for place in places(table)])
    hashed = hashing.aligned(table.spark.read.format("delta").load(str(table.root / "orders")), layout_of(table))
    unknown = fingerprints.unknown(hashed, found, layout_of(table).table, kept(table).num_shards)
    assert unknown.count() == 0


def layout_of(lake: Any) -> Layout:
    rows = lake.spark.read.format("delta").load(str(lake.root / "orders"))
    return Layout(lake.store.table("orders").definition, columns_of(rows.schema.jsonValue()))


@REST
def test_outgrown_shards_are_written_anew(table: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(published_rows, "_ROWS_PER_SHARD", 0)
    change(table, "UPDATE {t} SET v = 'x' WHERE id = 5")
    table.refresh()
    assert kept(table).fingerprints == ()
    monkeypatch.undo()

    table.refresh(force=True)
    change(table, "UPDATE {t} SET v = 'y' WHERE id = 5")
    table.refresh()

    assert len(kept(table).fingerprints) == 1
    is_the_source(table)


@REST
def test_frozen_partitions_do_not_keep_the_others_from_being_known(lake: Any) -> None:
    lake.write(ROWS)
    lake.apply(guards={"max_deleted_fraction": 1.0}, strategy="corrections", partition_by=["p"], frozen_before="1")

    lake.refresh()
    assert kept(lake).num_rows == 40
    change(lake, "UPDATE {t} SET v = 'second' WHERE id = 40")
    lake.refresh()
    change(lake, "UPDATE {t} SET v = 'third' WHERE id = 41")
    report = lake.refresh()

    assert (report.rows_updated, kept(lake).num_rows, len(kept(lake).fingerprints) > 0) == (1, 40, True)
    assert Counter(lake.rows("orders")) == Counter(row for row in lake.rows("raw/orders") if row[1] >= 1)


def freeze_what_was_published(lake: Any) -> None:
    """Publish all partitions, then freeze the first: another definition, under which nothing is known of main."""
    lake.write(ROWS)
    definition = {"guards": {"max_deleted_fraction": 1.0}, "strategy": "corrections", "partition_by": ["p"]}
    lake.apply(**definition)
    lake.refresh()
    lake.apply(**definition, frozen_before="1")


def is_the_source_after_the_frozen(lake: Any) -> None:
    found, wanted = (Counter(row for row in lake.rows(path) if row[1] >= 1) for path in ("orders", "raw/orders"))
    assert found == wanted


@pytest.mark.in_test_all
def test_what_is_known_beside_frozen_partitions_is_known_again_after_it_was_lost(lake: Any, monkeypatch: Any) -> None:
    freeze_what_was_published(lake)
    change(lake, "UPDATE {t} SET v = 'frozen' WHERE id = 3", "UPDATE {t} SET v = 'second' WHERE id = 40")
    lake.refresh()
    assert (kept(lake).num_rows, len(kept(lake).fingerprints)) == (60, 1)

    forbid_joins(monkeypatch)
    change(lake, "UPDATE {t} SET v = 'third' WHERE id = 41")
    report = lake.refresh()

    assert (report.rows_updated, kept(lake).num_rows) == (1, 60)
    is_the_source_after_the_frozen(lake)
    assert (3, 0, "v3") in lake.rows()


@pytest.mark.in_test_all
def test_frozen_partitions_that_cannot_be_read_after_the_publish_do_not_undo_it(lake: Any, monkeypatch: Any) -> None:
    freeze_what_was_published(lake)
    change(lake, "UPDATE {t} SET v = 'second' WHERE id = 40")
    read, times = whole.frozen_totals, iter(range(9))

    def failing(*given: Any) -> Any:
        if next(times) < 2:  # while it was staged
            return read(*given)
        raise EngineError("orders", "a file is gone.")

    monkeypatch.setattr(whole, "frozen_totals", failing)
    report = lake.refresh()

    assert (report.outcome, report.rows_updated, kept(lake)) == (Outcome.PUBLISHED, 1, None)
    is_the_source_after_the_frozen(lake)


@pytest.mark.in_test_all
def test_layer_of_some_partitions_is_small_whatever_share_of_them_changed(lake: Any) -> None:
    """A refresh of a new day writes its rows' fingerprints, not those of all years."""
    lake.write(f"{ROWS} WHERE id < 58")
    lake.apply(guards={"max_deleted_fraction": 1.0}, strategy="corrections", key=["id", "p"], partition_by=["p"])
    lake.refresh()
    lake.refresh(force=True)
    change(lake, "UPDATE {t} SET v = 'second' WHERE id = 0")
    lake.refresh()
    layers = len(kept(lake).fingerprints)

    change(lake, "INSERT INTO {t} VALUES (100, 7, 'a'), (101, 7, 'b')")
    lake.refresh(partitions=["7"])

    assert len(kept(lake).fingerprints) == layers + 1
    is_the_source(lake)


@REST
def test_fingerprints_stay_where_no_row_is_another(table: Any, never_joined: None) -> None:
    before = kept(table)

    report = table.refresh(force=True)

    assert (report.outcome, report.rows_unchanged, report.bytes_staging) == (Outcome.PUBLISHED, 60, 0)
    assert kept(table).fingerprints == before.fingerprints
    assert kept(table).totals == before.totals


@REST
@pytest.mark.parametrize("point", ["seal.after", "publish.after", "published.before"])
def test_killed_with_them_it_goes_on(table: Any, crash_at: Any, point: str) -> None:
    change(table, "UPDATE {t} SET v = 'x' WHERE id = 5", "DELETE FROM {t} WHERE id = 6")
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()

    is_the_source(table)
    change(table, "UPDATE {t} SET v = 'y' WHERE id IN (5, 7)")
    assert table.refresh().rows_updated == 2
    is_the_source(table)


@REST
def test_foreign_write_beside_a_refresh_that_keeps_them(table: Any, at_point: Any) -> None:
    at_point("seal.after", lambda: table.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')"))

    assert table.refresh(force=True).rows_deleted == 1

    is_the_source(table)
    change(table, "UPDATE {t} SET v = 'x' WHERE id = 5")
    assert table.refresh().rows_updated == 1
    is_the_source(table)


@pytest.mark.parametrize(
    "content",
    [
        b"no Parquet",
        *(pytest.param(each, marks=REST) for each in ("others", None, b"", b"PAR1 garbage PAR1", "twice", "short")),
    ],
    ids=["text", "of other rows", "gone", "empty", "bad", "twice", "cut"],
)
def test_damaged_fingerprints_cost_time_and_no_row(table: Any, content: Any, spark: Any) -> None:
    change(table, "UPDATE {t} SET v = 'x' WHERE id = 5", "DELETE FROM {t} WHERE id = 6")
    (place,) = places(table)
    if content == "others":  # they have the changed row, as if main had it
        rows = spark.read.format("delta").load(str(table.root / "raw/orders"))
        hashed = rows.selectExpr(f"{hashing.row_hash(columns_of(rows.schema.jsonValue()))} AS _mv_hash")
        shutil.rmtree(place)
        fingerprints.write(hashed, table.store.table("orders").definition, kept(table).num_shards, str(place))
    for file in [] if content == "others" else list(place.glob("*.parquet")):
        if content == "twice":
            shutil.copy(file, file.with_name(f"part-again-{file.name}"))
            continue
        was = file.read_bytes()
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(was[:-20] if content == "short" else content)

    report = table.refresh()

    assert (report.rows_updated, report.rows_deleted) == (1, 1)
    is_the_source(table)
    change(table, "UPDATE {t} SET v = 'y' WHERE id = 7")
    assert table.refresh().rows_updated == 1
    is_the_source(table)


@REST
@pytest.mark.parametrize("bits", [0, 3, 8])
def test_hashes_that_collide_cost_time_and_no_row(table: Any, monkeypatch: Any, bits: int) -> None:
    """Fingerprints of few bits: most changed rows are taken for others that main has."""
    short = F.lit((1 << bits) - 1)
    monkeypatch.setattr(fingerprints, "_print", lambda name: F.shiftright(name, 32).cast("int").bitwiseAND(short))
    table.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')")
    table.refresh()  # written anew, with so few bits
    for number in range(3):
        change(
            table,
            f"UPDATE {{t}} SET v = 'n{number}' WHERE id % 10 = {number}",
            f"DELETE FROM {{t}} WHERE id = {20 + number}",
            f"INSERT INTO {{t}} VALUES ({100 + number}, 1, 'new')",
        )

        table.refresh()

        is_the_source(table)


@REST
def test_lost_key_with_the_hash_of_another_is_found(table: Any, monkeypatch: Any) -> None:
    hashed = whole._key_hash
    monkeypatch.setattr(whole, "_key_hash", lambda key: hashed(key).bitwiseAND(F.lit(3)))
    change(table, "DELETE FROM {t} WHERE id IN (6, 7)", "UPDATE {t} SET v = 'x' WHERE id = 5")

    report = table.refresh()

    assert (report.rows_updated, report.rows_deleted) == (1, 2)
    is_the_source(table)


@pytest.mark.parametrize(
    ("statements", "error"),
    [
        (("INSERT INTO {t} VALUES (7, 1, 'other')",), DuplicateKeyError),
        *(
            pytest.param(*each, marks=REST)
            for each in (
                (("INSERT INTO {t} SELECT * FROM {t} WHERE id = 7",), DuplicateKeyError),
                (("INSERT INTO {t} VALUES (700, 1, 'a'), (700, 1, 'b')",), DuplicateKeyError),
                (("INSERT INTO {t} VALUES (700, 1, 'a'), (700, 1, 'a')",), DuplicateKeyError),
                (("DELETE FROM {t} WHERE id = 9", "INSERT INTO {t} VALUES (7, 1, 'a')"), DuplicateKeyError),
                (("DELETE FROM {t} WHERE id = 9", "INSERT INTO {t} SELECT * FROM {t} WHERE id = 7"), DuplicateKeyError),
                (("INSERT INTO {t} VALUES (NULL, 1, 'x'), (NULL, 2, 'z')",), NullKeyError),
            )
        ),
    ],
)
def test_bad_keys_are_found(table: Any, statements: tuple[str, ...], error: type[Exception]) -> None:
    before = table.rows("orders")
    change(table, *statements, "UPDATE {t} SET v = 'x' WHERE id = 5")

    with pytest.raises(error):
        table.refresh()

    assert (table.rows("orders"), table.phase(), table.workspaces()) == (before, "NORMAL", [])


def test_look_up_that_fails_costs_time_and_no_row(table: Any, monkeypatch: Any, caplog: Any) -> None:
    def failing(rows: Any, *_: Any) -> Any:
        return rows.where(F.raise_error(F.lit("there is not enough memory")).isNotNull())

    monkeypatch.setattr(fingerprints, "unknown", failing)
    change(table, "UPDATE {t} SET v = 'x' WHERE id = 5", "DELETE FROM {t} WHERE id = 6")

    report = table.refresh()

    assert (report.rows_updated, report.rows_deleted) == (1, 1)
    assert "not looked up by their fingerprints" in caplog.text
    is_the_source(table)


@REST
def test_only_those_of_partitions_that_differ_have_to_fit(lake: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(published_rows, "_ROWS_PER_CHANGE", 1)
    lake.write(ROWS)
    lake.apply(guards={"max_deleted_fraction": 1.0}, strategy="corrections", partition_by=["p"])
    lake.refresh()
    change(lake, "UPDATE {t} SET v = 'second' WHERE id = 40")
    lake.refresh()
    of_one, of_all = (published_rows.bytes_in_memory(rows, kept(lake).num_shards) for rows in ([20], [20] * 3))
    monkeypatch.setattr(fingerprints, "_driver_bytes", lambda _: (of_one + of_all) // 2 * fingerprints._PART_OF_DRIVER)
    joins = list[str]()
    joined = whole._joined
    monkeypatch.setattr(whole, "_joined", lambda *args, **more: joins.append("joined") or joined(*args, **more))

    change(lake, "UPDATE {t} SET v = 'one' WHERE p = 1 AND id < 20")
    lake.refresh()
    is_the_source(lake)
    assert joins == []

    change(lake, "UPDATE {t} SET v = 'all' WHERE id < 20")
    lake.refresh()
    is_the_source(lake)
    assert joins == ["joined"]
    assert len(kept(lake).fingerprints) > 1  # a layer more: those below are still right


@pytest.mark.in_test_all
@pytest.mark.parametrize("partition_by", [[], pytest.param(["p"], marks=REST)], ids=["flat", "parts"])
def test_main_is_overwritten_only_if_a_sample_shows_that_most_rows_differ(
    lake: Any, partition_by: list[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(cost, "_CHANGE", 1e4)
    rows = "SELECT id, CAST(id % 3 AS INT) AS p, {} AS v FROM range(4000)"
    lake.write(rows.format("'first'"))
    lake.apply(partition_by=partition_by)
    lake.refresh()
    for number in range(2):
        lake.write(rows.format(f"'n{number}'"))
        lake.refresh(strategy="corrections")

    for value, strategy, num_updated in (
        ("if(id = 7, 'x', 'n1')", "corrections", 1),
        ("if(id % 10 < 9, concat('of ', id), 'n1')", "replace", 4000),
    ):
        lake.write(rows.format(value))
        plan = lake.refresher().plan("orders", Request())
        report = lake.refresh()

        assert (plan.strategy, report.strategy, report.rows_updated) == ("replace", strategy, num_updated)
        is_the_source(lake)
    assert lake.refresh(force=True).rows_unchanged == 4000


def test_memory_counts_the_lists_of_small_partitions_beside_a_large_one() -> None:
    one = published_rows.bytes_in_memory([6_400_000], published_rows.shard_count(6_400_000))
    small = published_rows.bytes_in_memory([6_400_000, *[20] * 100_000], published_rows.shard_count(6_400_000))

    assert one < 6 * 6_400_000
    assert small - one > 80 * 2_000_000


@REST
def test_too_many_to_be_sent_to_every_task_are_not_used(table: Any, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(fingerprints, "_PART_OF_DRIVER", 1 << 40)
    change(table, "UPDATE {t} SET v = 'x' WHERE id = 5")

    with caplog.at_level(logging.INFO):
        report = table.refresh()

    assert (report.rows_updated, kept(table).fingerprints) == (1, ())
    is_the_source(table)


@REST
@pytest.mark.parametrize("spelled", ["8g", "512m", "1024k", "2147483648", "4GB"])
def test_memory_of_the_driver_is_understood_as_spark_spells_it(spark: Any, spelled: str) -> None:
    expected = {"8g": 8 << 30, "512m": 512 << 20, "1024k": 1 << 20, "2147483648": 2 << 30, "4GB": 4 << 30}[spelled]

    session = SimpleNamespace(conf={"spark.driver.memory": spelled})
    assert fingerprints._driver_bytes(session) == expected

"""The metadata database is put back to an older state: what it says of a refresh that has long ended is concluded from
main's log, by whoever asks for whatever; afterwards main is the source, and there is nothing to do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from airflow_mv_provider import Files
from airflow_mv_provider.core.leftover import GRACE_MS
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import crash_points
from tests.conftest import Crash
from tests.scenarios.conftest import MODES, change_source, check_invariants
from tests.scenarios.points import POINTS

pytestmark = pytest.mark.slow

Rows = dict[str, list[dict[str, Any]]]
# What nobody's publish has brought: each time something else for the next refresh to do.
EVEN_LATER = ("UPDATE {t} SET v = 'later' WHERE id % 7 = 0", "DELETE FROM {t} WHERE id = 12")
ASKED = ("refresh", "recover", "abandon", "drop")
CASES = [(mode, point, later) for mode in MODES for point in POINTS[mode] for later in (0, 1, 2)]


def dump(lake: Any) -> Rows:
    """Read every row of the database, as a backup does."""
    with lake.store.engine.begin() as db:
        return {
            table.name: [dict(row) for row in db.execute(table.select()).mappings()]
            for table in Base.metadata.sorted_tables
        }


def put_back(lake: Any, rows: Rows) -> None:
    """Replace every row of the database by those of a backup."""
    with lake.store.engine.begin() as db:
        for table in reversed(Base.metadata.sorted_tables):
            db.execute(table.delete())
        for table in Base.metadata.sorted_tables:
            if rows[table.name]:
                db.execute(table.insert(), rows[table.name])
    lake.clock.pass_ms(lake.settings.lease_ms + 1)


def refresh_with_backup(lake: Any, point: str) -> Rows:
    """Refresh, and return what a backup that was taken at `point` holds."""
    taken: list[Rows] = []
    name, _, nth = point.partition(":")
    passed = 0

    def reach(reached: str) -> None:
        nonlocal passed
        passed += reached == name
        if reached == name and passed == int(nth or 1):
            taken.append(dump(lake))

    crash_points.arm(reach)
    lake.refresh()
    crash_points.arm(None)
    assert len(taken) == 1
    return taken[0]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    crash_points.arm(None)


def ask(lake: Any, asked: str) -> None:
    match asked:
        case "refresh":
            lake.refresh()
        case "recover":
            lake.refresher().recover(lake.caller())
        case "abandon":
            lake.refresher().abandon("orders", lake.caller(user="ann"))
        case "drop":
            lake.refresher().drop("orders", lake.caller())


def check(lake: Any, asked: str, mode: str) -> None:
    """What must be true once somebody has asked for something, whatever the backup was of."""
    if asked == "drop":
        assert lake.store.tables() == ()
        lake.apply(**MODES[mode])
    else:
        assert lake.phase() == "NORMAL"
        assert all(r.outcome is not Outcome.RUNNING for r in lake.store.history(lake.store.table("orders").id, 20))
    lake.refresh()
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    # A change to publish, and a day: what unknown refreshes have left is garbage by then.
    lake.sql("UPDATE {t} SET v = 'at last' WHERE id = 4", path="raw/orders")
    lake.refresh()
    lake.clock.pass_ms(GRACE_MS)
    lake.refresher().recover(lake.caller())
    check_invariants(lake)


def restored(lake: Any, point: str, later: int, asked: str, mode: str) -> None:
    change_source(lake)
    backup = refresh_with_backup(lake, point)
    for sql in EVEN_LATER[:later]:
        lake.sql(sql, path="raw/orders")
        assert lake.refresh().outcome is Outcome.PUBLISHED
    put_back(lake, backup)

    ask(lake, asked)

    check(lake, asked, mode)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(("mode", "point", "later"), CASES)
def test_backup_of_any_moment_is_put_back(table_in, mode, point, later, asked):
    restored(table_in(mode), point, later, asked, mode)


@pytest.mark.sample(1)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(("mode", "point", "later"), CASES)
def test_backup_of_any_moment_is_put_back_to_postgresql(table_in, postgres, mode, point, later, asked):
    table = table_in(mode)
    move_to(table, postgres.new_database())
    try:
        restored(table, point, later, asked, mode)
    finally:
        table.store.engine.dispose()


def move_to(lake: Any, url: str) -> None:
    """Go on with another database that holds the same."""
    rows, engine = dump(lake), open_engine(url)
    lake.store.engine.dispose()
    migrations.migrate(engine)
    lake.store = Store(engine, lake.clock.now)
    put_back(lake, rows)
    with engine.begin() as db:
        for table in Base.metadata.sorted_tables:
            if "id" in table.c and table.c.id.type.python_type is int:
                db.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), 1000)"))


@pytest.mark.in_test_all
def test_what_unknown_refreshes_have_left_is_removed_once_nobody_can_need_it(table, crash_at):
    """The backup knows neither the publish after it nor the refresh after that, which died."""
    backup = dump(table)
    change_source(table)
    published = table.refresh()
    table.sql(EVEN_LATER[0], path="raw/orders")
    crash_at("progress.after")
    with pytest.raises(Crash):
        table.refresh()
    died = table.store.state(table.store.table("orders").id).refresh_id
    put_back(table, backup)

    assert recovered(table) == []  # too young to ask
    table.clock.pass_ms(GRACE_MS)
    why = "a second database may be in use"
    assert recovered(table) == sorted([(died, why), (published.refresh_id, why)])
    table.refresh()
    assert {what for _, what in recovered(table)} == {"removed"}

    assert recovered(table) == []
    check_invariants(table)
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_main_and_database_are_put_back_and_the_error_table_is_not(lake):
    """Its log has later epochs than main's; they are nobody's who could still own main."""
    file, copy = lake.root / "raw/orders/1.json", lake.root.parent / "copy"
    file.parent.mkdir(parents=True)
    lake.apply(source=Files("raw/orders", format="json", schema="id INT, v STRING"), errors={})

    def refresh(text: str) -> Any:
        file.write_text(f'{{"id": 1, "v": "{text}"}}\n{{"id": {text}\n')
        return lake.refresh()

    refresh("a")
    backup = dump(lake)
    shutil.copytree(lake.root / "orders", copy)
    for more in "bcd":
        refresh(more)
    shutil.rmtree(lake.root / "orders")
    copy.rename(lake.root / "orders")
    put_back(lake, backup)

    report = refresh("e")

    assert (report.outcome, lake.phase()) == (Outcome.PUBLISHED, "NORMAL")
    assert lake.rows() == [(1, "e")]
    assert [row[2] for row in lake.rows("orders__errors")] == ['{"id": e']
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


def recovered(lake: Any) -> list[tuple[str, str]]:
    """Return what `recover` said of unknown refreshes, by their ids: that their files were removed, or why not."""
    said: list[str] = []
    lake.refresher().recover(lake.caller(), said.append)
    found = [line for line in said if "which is not in this database" in line]
    ids = [line.split("refresh ")[1].split(",")[0] for line in found]
    what = ["removed" if "removed" in line else line.rpartition(": ")[2].rstrip(".") for line in found]
    return sorted(zip(ids, what, strict=True))

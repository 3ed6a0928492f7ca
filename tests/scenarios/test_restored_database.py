"""The metadata database is put back to an older state: what it says of a refresh that has long ended is concluded from
main's log, by whoever asks for whatever; afterwards main is the source, and there is nothing to do.

A backup may be taken at any moment of a refresh, but few of its durable writes change the database: backups between two
of them hold the same rows, apart from a lease that has expired. MOMENTS names the points that follow these writes, and
a test compares the backups of all points. One refresh gives them all, and the files after it and after each later
publish; a case gets a copy of the files and the rows of one backup, once in SQLite and once in PostgreSQL, which must
be equal again after what was asked. Where this leads to the same rows and files as an earlier case, there is nothing
new to find in what follows, and it is not repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from airflow_mv_provider import Files
from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.leftover import GRACE_MS
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import SourceChangedError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import crash_points
from tests.conftest import Clock, Crash, Lake, make_lake
from tests.scenarios.conftest import MODES, build_published, change_source, check_invariants
from tests.scenarios.copies import Rows, copied, dump, put_back, standing
from tests.scenarios.points import POINTS

pytestmark = pytest.mark.slow

# What nobody's publish has brought: each time something else for the next refresh to do.
EVEN_LATER = ("UPDATE {t} SET v = 'later' WHERE id % 7 = 0", "DELETE FROM {t} WHERE id = 12")
ASKED = ("refresh", "recover", "abandon", "cancel", "drop")
# The points at which the database is no longer as at the point before. The third chunk is of partitions that are gone.
_COMMITTED = ("committed.after", "committed.after:2", "committed.after:3")
_BEGINNING, _END = ("acquire.before", "acquire.after", "seal.after"), ("published.after", "normal.after")
MOMENTS = {
    "atomic": (*_BEGINNING, *_END),
    "progressive": (*_BEGINNING, *_COMMITTED, *_END),
}
AT_REST = ("acquire.before", "normal.after")
CASES = [
    (mode, point, later, asked)
    for mode in MODES
    for point in MOMENTS[mode]
    for later in (0, 1, 2)
    for asked in ASKED
    if point not in AT_REST or asked not in ("abandon", "cancel")  # both find nothing there, as `recover` does
]


def without_lease(rows: Rows) -> Rows:
    """Return a backup without when its lease expires, which it has when it is put back."""
    return rows | {"refresh_state": [row | {"lease_expires_ms": 0} for row in rows["refresh_state"]]}


@dataclass
class History:
    """One refresh, and two publishes after it.

    backups : of the database, at each point of the first
    lakes   : copies of all files, after 0, 1 and 2 later publishes
    """

    backups: dict[str, Rows] = field(default_factory=dict)
    lakes: list[Path] = field(default_factory=list)

    def moments(self) -> tuple[str, ...]:
        """Return the points at which the database is no longer as at the point before, apart from the lease."""
        points = list(self.backups)
        seen = [without_lease(self.backups[point]) for point in points]
        return tuple(point for n, point in enumerate(points) if n == 0 or seen[n] != seen[n - 1])

    def restored(self, spark: Any, place: Path, clock: Clock, point: str, later: int, url: str | None = None) -> Lake:
        """Return a lake at `place` of all files after `later` publishes and the database of `point`.

        url : of an empty database in the place of SQLite
        """
        shutil.copytree(self.lakes[later], place)
        lake = make_lake(spark, place, clock)
        if url is not None:
            move_to(lake, url)
        put_back(lake, copied(self.backups[point], self.lakes[0].parent / "lake", place))
        return lake


def history(spark: Any, root: Path, mode: str) -> History:
    """Refresh, with a backup at each point, and publish twice more."""
    lake, found, passed = make_lake(spark, root / "lake", Clock()), History(), dict[str, int]()
    build_published(lake, mode)
    change_source(lake)

    def reach(point: str) -> None:
        passed[point] = passed.get(point, 0) + 1
        found.backups[point if passed[point] == 1 else f"{point}:{passed[point]}"] = dump(lake)

    crash_points.arm(reach)
    assert lake.refresh().outcome is Outcome.PUBLISHED
    crash_points.arm(None)
    for later in range(len(EVEN_LATER) + 1):
        lake.store.engine.dispose()
        found.lakes.append(shutil.copytree(lake.root.parent, root / str(later)))
        if later < len(EVEN_LATER):
            lake.sql(EVEN_LATER[later], path="raw/orders")
            assert lake.refresh().outcome is Outcome.PUBLISHED
    lake.store.engine.dispose()
    return found


@pytest.fixture(scope="module")
def history_of(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], History]:
    """Give the history of an atomic or a progressive table; each is made once."""
    made: dict[str, History] = {}

    def of(mode: str) -> History:
        if mode not in made:
            made[mode] = history(spark, tmp_path_factory.mktemp(f"history-{mode}"), mode)
        return made[mode]

    return of


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
        case "cancel":  # it needs no Spark, so what main may have is for `recover` to end
            lake.store.cancel(lake.store.table("orders"), lake.caller(user="ann"))
            lake.refresher().recover(lake.caller())
        case "drop":
            lake.refresher().drop("orders", lake.caller())


def check_end(lake: Any, asked: str, before: list[tuple[Any, ...]]) -> None:
    """What must be true once somebody has asked for something, whatever the backup was of.

    before : main's rows, of all publishes; nothing may bring back what the backup's refresh wanted them to be
    """
    assert lake.rows() == before
    if asked == "drop":
        assert lake.store.tables() == ()
        return
    assert lake.phase() == "NORMAL"
    assert all(r.outcome is not Outcome.RUNNING for r in lake.store.history(lake.store.table("orders").id, 20))


def go_on(lake: Any, before: list[tuple[Any, ...]]) -> None:
    """Refresh the table as it is now, then change its source, and a day later remove what nobody needs."""
    lake.refresh()
    assert lake.rows() == before
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    lake.sql("UPDATE {t} SET v = 'at last' WHERE id = 4", path="raw/orders")
    assert lake.refresh().outcome is Outcome.PUBLISHED
    lake.clock.pass_ms(GRACE_MS)
    lake.refresher().recover(lake.caller())
    check_invariants(lake)


@pytest.fixture(scope="module")
def gone_on() -> set[tuple[str, int, str]]:
    """What earlier cases have gone on from: mode, number of later publishes, and what `standing` returned."""
    return set()


@pytest.mark.in_test_all
@pytest.mark.parametrize("mode", MODES)
def test_backups_between_two_moments_are_equal(history_of, mode):
    found = history_of(mode)

    not_needed = {"fence.before", "fence.after"}  # right after a publish, which is a fence; it changes no database
    assert set(POINTS[mode]) - not_needed <= set(found.backups)
    assert found.moments() == MOMENTS[mode]


@pytest.mark.sample("atomic-seal.after-2-recover")
@pytest.mark.parametrize(("mode", "point", "later", "asked"), CASES)
def test_backup_of_any_moment_is_put_back(
    history_of, gone_on, spark, tmp_path, clock, postgres, mode, point, later, asked
):
    restored = history_of(mode).restored
    lakes = (
        restored(spark, tmp_path / "sqlite", clock, point, later),
        restored(spark, tmp_path / "postgresql", clock, point, later, postgres.new_database()),
    )
    before = lakes[0].rows()
    try:
        for lake in lakes:
            ask(lake, asked)
            check_end(lake, asked, before)
            if asked == "drop":
                lake.apply(**MODES[mode])

        reached, reached_too = (standing(lake) for lake in lakes)
        assert reached == reached_too
        if (mode, later, reached) not in gone_on:
            gone_on.add((mode, later, reached))
            go_on(lakes[len(gone_on) % 2], before)
    finally:
        for lake in lakes:
            lake.store.engine.dispose()


def move_to(lake: Any, url: str) -> None:
    """Go on with another database, an empty one; new rows get ids that no backup has."""
    engine = open_engine(url)
    lake.store.engine.dispose()
    migrations.migrate(engine)
    lake.store = Store(engine, lake.clock.now)
    with engine.begin() as db:
        for table in Base.metadata.sorted_tables:
            if "id" in table.c and table.c.id.type.python_type is int:
                db.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), 1000)"))


@pytest.mark.in_test_all
def test_what_unknown_refreshes_have_left_is_removed_once_nobody_can_need_it(table, crash_at):
    """The backup knows neither the publish after it nor the refresh after that, which died."""
    table.settings = replace(table.settings, fingerprint_rows=0)  # so that a publish keeps something
    backup = dump(table)
    change_source(table)
    published = table.refresh()
    table.sql(EVEN_LATER[0], path="raw/orders")
    crash_at("seal.after")
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
def test_backup_of_a_refresh_whose_source_has_changed_since_is_put_back(lake):
    """Its own caller's retry cannot read what was pinned, and main has it already."""
    file, caller, backups = lake.root / "raw/in/a.csv", lake.caller("dag:run:0"), dict[str, Rows]()
    file.parent.mkdir(parents=True)
    file.write_text("id,v\n1,a\n")
    lake.apply(source=Files("raw/in/*.csv", format="csv", schema="id BIGINT, v STRING"))
    lake.refresh()
    file.write_text("id,v\n1,bb\n")
    crash_points.arm(lambda reached: backups.setdefault(reached, dump(lake)))
    lake.refresh(caller=caller)
    crash_points.arm(None)
    file.write_text("id,v\n1,ccc\n")
    put_back(lake, backups["acquire.after"])

    with pytest.raises(SourceChangedError):
        lake.refresh(caller=caller)

    assert lake.phase() == "NORMAL"
    assert lake.refresh(caller=caller).outcome is Outcome.PUBLISHED
    assert lake.rows() == [(1, "ccc")]
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


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


@pytest.mark.in_test_all
@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("point", ["acquire.before", "acquire.after", "seal.after", "published.after"])
def test_what_is_kept_of_files_is_not_believed_of_another_publish(lake, monkeypatch, point, later):
    """The database names sums and copies of files that a later publish has replaced, or that it knows nothing of."""
    monkeypatch.setattr(strategy, "MIN_ROWS_FOR_NEW_FILES", 0)
    folder, backups = lake.root / "raw/in", dict[str, Rows]()
    folder.mkdir(parents=True)

    def put(name: str, first: int, what: str) -> None:
        lines = [f"{n},{what if n % 3 == 0 else 'v'}" for n in range(first, first + 20)]
        (folder / name).write_text("\n".join(["id,v", *lines]) + "\n")

    def check_rows(a: str, b: str) -> None:
        expected = [
            (n, what if n % 3 == 0 else "v") for first, what in ((0, a), (20, b)) for n in range(first, first + 20)
        ]
        assert sorted(lake.rows()) == expected

    put("a.csv", 0, "1")
    put("b.csv", 20, "1")
    lake.apply(source=Files("raw/in/*.csv", format="csv", schema="id BIGINT, v STRING"))
    lake.refresh()
    put("b.csv", 20, "2")
    crash_points.arm(lambda reached: backups.setdefault(reached, dump(lake)))
    assert lake.refresh().strategy == "incremental"
    crash_points.arm(None)
    if later:
        put("a.csv", 0, "3")
        assert lake.refresh().strategy == "incremental"
    put_back(lake, backups[point])

    lake.refresher().recover(lake.caller())
    check_rows("3" if later else "1", "2")
    put("b.csv", 20, "4")
    lake.refresh()
    check_rows("3" if later else "1", "4")
    put("a.csv", 0, "5")
    lake.refresh()
    check_rows("5", "4")

    lake.clock.pass_ms(GRACE_MS)
    lake.refresher().recover(lake.caller())
    assert lake.workspaces() == []
    forced = lake.refresh(force=True, strategy="corrections")
    assert (forced.rows_inserted, forced.rows_updated, forced.rows_deleted) == (0, 0, 0)

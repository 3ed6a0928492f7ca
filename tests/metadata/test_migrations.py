"""The database's version: brought up to date once, refused when it is another's."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, Table, insert, inspect, text

from airflow_mv_provider.core.fence import Commit, CommitNote
from airflow_mv_provider.core.frontier import Binding, NoFrontier
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.state import is_main_as_published
from airflow_mv_provider.exceptions import DatabaseVersionError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.sources.files.frontier import FilesFrontier, SourceFile
from tests.conftest import a_table
from tests.metadata.rows import dump, registered


def set_version(engine, version: str) -> None:
    with engine.begin() as db:
        db.execute(text(f"UPDATE {migrations.VERSION_TABLE} SET version_num = :v"), {"v": version})


def test_empty_database_is_brought_to_head(empty_engine):
    reached = migrations.migrate(empty_engine)

    assert reached == migrations.head() == migrations.check(empty_engine)
    assert set(inspect(empty_engine).get_table_names()) == {*Base.metadata.tables, migrations.VERSION_TABLE}


def test_migrating_again_changes_nothing(engine, store):
    registered(store)
    before = dump(engine)

    migrations.migrate(engine)

    assert dump(engine) == before
    assert migrations.check(engine) == migrations.head()


def test_models_are_what_the_migrations_make(engine):
    def ours(_object, name, kind, _reflected, _compare_to):
        return kind != "table" or name != migrations.VERSION_TABLE

    options = {"include_object": ours, "compare_type": True, "version_table": migrations.VERSION_TABLE}
    with engine.begin() as db:
        differences = compare_metadata(MigrationContext.configure(db, opts=options), Base.metadata)

    assert differences == []


def test_database_may_be_shared_with_airflow(empty_engine):
    with empty_engine.begin() as db:
        db.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        db.execute(text("INSERT INTO alembic_version VALUES ('airflows own')"))

    migrations.migrate(empty_engine)

    with empty_engine.begin() as db:
        assert db.scalars(text("SELECT version_num FROM alembic_version")).all() == ["airflows own"]
    assert migrations.check(empty_engine) == migrations.head()


def test_empty_database_has_no_version(empty_engine):
    with pytest.raises(DatabaseVersionError) as caught:
        migrations.check(empty_engine)

    assert caught.value.message == f"metadata database: expected version {migrations.head()}, found no version."
    assert caught.value.advice == "Run `amv db migrate`."


@pytest.mark.parametrize("question", [migrations.check, migrations.migrate])
def test_newer_database_is_refused_and_left_alone(empty_engine, question):
    migrations.migrate(empty_engine)
    set_version(empty_engine, "9999")
    before = dump(empty_engine)

    with pytest.raises(DatabaseVersionError) as caught:
        question(empty_engine)

    assert "its version 9999 is newer than this package's" in caught.value.message
    assert caught.value.advice == "Upgrade airflow-mv-provider."
    assert dump(empty_engine) == before


def test_migrations_form_one_line():
    script = ScriptDirectory(Path(migrations.__file__).parent)

    versions = tuple(each.revision for each in script.walk_revisions())

    assert script.get_heads() == [migrations.head()]
    assert versions[::-1] == migrations.versions(), "each is told by its file's name"


def test_migration_that_fails_half_way_leaves_nothing(empty_engine, monkeypatch):
    with empty_engine.begin() as db:
        db.execute(text("CREATE TABLE refresh_progress (x INTEGER)"))  # the last table: all others come before it

    with pytest.raises(Exception, match=r"already exists|its answer is not valid"):
        migrations.migrate(empty_engine)

    assert inspect(empty_engine).get_table_names() == ["refresh_progress"]


def test_what_an_older_database_knows_of_main_is_kept_but_proves_nothing(empty_engine):
    table = an_older_table(empty_engine, "0001", published_delta_id="an id")

    migrations.migrate(empty_engine)

    state = Store(empty_engine).state(1)
    assert (state.published_version, state.published_commit, state.is_main_trusted) == (3, "an id", True)
    assert not is_main_as_published(state, [Commit(3, "MERGE", 2, CommitNote(table, "r", 1, "publish", 1))])


def test_what_an_older_database_bound_and_refreshed_is_carried_over(empty_engine):
    an_older_table(empty_engine, "0002", published_commit="r:1")
    files = FilesFrontier((SourceFile("/in/a.csv", 1000, 5), SourceFile("/in/b.csv", 234, 6)))
    day = Scope(start="2026-01-01", end="2026-01-02")
    with empty_engine.begin() as db:
        for upper in (1, 2):
            binding = {"table_id": 1, "upper": upper, "frontier": files.to_json(), "bound_ms": 7}
            db.execute(insert(reflected(db, "source_binding")).values(binding))
        for upper, scope in ((1, None), (2, day.to_json()), (None, Scope(without=(day,)).to_json())):
            row = an_older_refresh(upper, scope) | {"definition": a_table().to_json(), "frontier": files.to_json()}
            row["seal"] = AN_OLDER_SEAL if upper == 2 else None
            db.execute(insert(reflected(db, "refresh")).values(row))

    migrations.migrate(empty_engine)

    store = Store(empty_engine)
    assert store.binding(1, 1) == Binding(1, files)
    assert store.newest_binding(1) == Binding(2, files)
    found = [store.refresh(name * 32) for name in "12N"]
    assert [each.definition for each in found] == [a_table()] * 3
    assert [each.frontier for each in found] == [files, files, NoFrontier()]
    assert [each.scope for each in found] == [Scope(), day, Scope(without=(day,))]
    assert [each.seal and each.seal.mixed for each in found] == [None, 0, None], "a sum that nobody knows of it"
    assert {report.source for report in store.history(1)} == {"2 files, 1,234 bytes"}
    assert [report.refresh_id[0] for report in store.history(1)] == ["N", "2", "1"], "numbered by their times"
    assert store.overview().lines[0].fresh_ms == 30, "what covered all that was stale covered everything"
    rows = dump(empty_engine)
    assert (len(rows["source_frontier"]), len(rows["refresh_definition"])) == (1, 1)


AN_OLDER_SEAL = {
    **{"rows": None, "digests": "/wh/_mv/x/digests/y/1", "num_buckets": 64, "num_bytes": 10, "num_rows": 0},
    **{"strategy": "corrections", "changes": None, "columns": []},
    "rejected": {"path": None, "num_rows": 0, "digest": 0},
}


def reflected(db: Connection, name: str) -> Table:
    return Table(name, MetaData(), autoload_with=db)


def an_older_table(engine: Engine, version: str, **state: object) -> str:
    """Make a database of an older version, with one table in it that was published once; return its uuid."""
    identity = str(uuid.uuid4())
    with engine.begin() as db:
        migrations.upgrade(db, version)
        table = {"id": 1, "name": "orders", "uuid": identity, "warehouse": "/wh", "location": "/wh/orders"}
        table |= {"definition": a_table().to_json(), "content_hash": "x", "created_ms": 0, "updated_ms": 0}
        db.execute(insert(reflected(db, "refreshable_table")).values(table))
        known = {"table_id": 1, "phase": "NORMAL", "epoch": 1, "lease_expires_ms": 0, "published_upper": 1}
        known |= {"published_version": 3, "covered": [], "is_main_trusted": True, "tickets_given": 0} | state
        db.execute(insert(reflected(db, "refresh_state")).values(known))
    return identity


def an_older_refresh(upper: int | None, scope: dict[str, Any] | None) -> dict[str, Any]:
    zeros = ("merge_round", "rows_inserted", "rows_updated", "rows_deleted", "rows_unchanged", "rows_rejected")
    lists = ("overrides", "frozen", "schema_changes", "estimates", "partitions")
    return {
        **{"id": str(upper)[0] * 32, "table_id": 1, "outcome": "published", "phase": "NORMAL", "epoch": 1},
        **{"owner_key": "k", "trigger": "dag", "scope": scope, "is_read_only": False, "has_committed": False},
        **{"lower": 0, "upper": upper, "wanted_strategy": "auto", "phase_seconds": {}, "started_ms": 10 * (upper or 3)},
        **dict.fromkeys(zeros, 0),
        **dict.fromkeys(("bytes_main", "bytes_staging"), 0),
        **{name: [] for name in lists},
    }


def test_many_threads_may_migrate_at_once(empty_address):
    barrier, answers = threading.Barrier(4), []

    def migrate() -> None:
        engine = open_engine(empty_address)
        barrier.wait()
        answers.append(migrations.migrate(engine))
        engine.dispose()

    threads = [threading.Thread(target=migrate, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert answers == [migrations.head()] * 4

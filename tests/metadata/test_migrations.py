"""The database's version: brought up to date once, refused when it is another's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from airflow_mv_provider.exceptions import DatabaseVersionError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import Base
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

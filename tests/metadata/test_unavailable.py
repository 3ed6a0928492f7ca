"""A database that is away, empty or misnamed: one named error, and no password anywhere in what is printed."""

from __future__ import annotations

import logging
import sqlite3
import time
import traceback
from contextlib import ExitStack

import pytest
from sqlalchemy import event, exc, text
from sqlalchemy.engine import make_url

from airflow_mv_provider import Query
from airflow_mv_provider.core.outcome import EXIT_RETRY, RefreshReport, exit_code, failed
from airflow_mv_provider.exceptions import DatabaseVersionError, MetadataUnavailableError, SettingError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine, transaction
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import local
from airflow_mv_provider.runner.settings import Settings
from tests.metadata.rows import LEASE_MS, acquired, registered
from tests.proxy import proxied

SECRET = "s3cret"
NOBODY_LISTENS = "127.0.0.1:1"


def printed(error: BaseException) -> str:
    return "\n".join([str(error), repr(error), *traceback.format_exception(error)])


def ask(address: str) -> None:
    engine = open_engine(address)
    try:
        Store(engine).tables()
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://mv:{SECRET}@{NOBODY_LISTENS}/mv",
        f"postgresql+psycopg://mv:{SECRET}@{NOBODY_LISTENS}/mv?connect_timeout=2",
        f"postgresql://{NOBODY_LISTENS}/mv?user=mv&password={SECRET}",
        f"postgresql://mv:{SECRET}%40{SECRET}@{NOBODY_LISTENS}/mv",
        f"postgresql://mv:{SECRET}@no.such.host.invalid/mv",
    ],
)
def test_server_that_is_away_is_named_without_its_password(address):
    with pytest.raises(MetadataUnavailableError, match=r"metadata database postgresql\+psycopg://") as caught:
        ask(address)

    assert SECRET not in printed(caught.value)
    assert exit_code(failed(RefreshReport(table="orders"), caught.value)) == EXIT_RETRY


@pytest.mark.parametrize(
    "address",
    [
        *("", "orders", "://", f"mv:{SECRET}@host/db", f"postgresql://mv:p@{SECRET}:{SECRET}@host/db"),
        *(f"postgresql://mv:{SECRET}@host:port/db", f"mysql://mv:{SECRET}@host/db", f"oracle://mv:{SECRET}@h/d"),
        *(f"postgresql+nosuch://mv:{SECRET}@host/db", f"postgresql+psycopg2://mv:{SECRET}@host/db"),
        f"postgres://mv:{SECRET}@host/db",
        *(f"postgresql://mv:p@{SECRET}@host/db", f"postgresql://mv:p@{SECRET}/p@host/db"),
        *(f"postgresql://mv:p@{SECRET}?p@host/db", f"postgresql://mv:p?p@{SECRET}@host/db"),
    ],
)
def test_address_that_is_none_is_refused_without_showing_it(address):
    with pytest.raises(SettingError, match="metadata database") as caught:
        open_engine(address)

    assert SECRET not in printed(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        *("sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file::memory:?cache=shared&uri=true"),
        *("sqlite:///file:mv?mode=memory&cache=shared&uri=true", "sqlite+pysqlite://"),
    ],
)
def test_database_in_memory_is_refused(address):
    with pytest.raises(SettingError, match="a database in memory belongs to one process"):
        local.open_database(Settings(address))


def test_file_s_name_may_have_an_at(tmp_path):
    with pytest.raises(DatabaseVersionError, match="the database has no tables yet"):
        ask(f"sqlite:///{tmp_path}/a@b@c.db")


def test_settings_do_not_show_the_password():
    assert SECRET not in repr(Settings(f"postgresql://mv:{SECRET}@host/db"))


@pytest.mark.slow
def test_unknown_database_on_a_server_is_named_without_the_password(postgres):
    address = make_url(postgres.new_database()).set(password=SECRET, database="nosuch")

    with pytest.raises(MetadataUnavailableError, match="nosuch") as caught:
        ask(address.render_as_string(hide_password=False))

    assert SECRET not in printed(caught.value)


def test_missing_directory_of_a_file_is_named(tmp_path):
    with pytest.raises(MetadataUnavailableError, match=f"sqlite:///{tmp_path}/no/mv.db: its file cannot be opened"):
        ask(f"sqlite:///{tmp_path}/no/mv.db")


@pytest.mark.parametrize("file", ["/proc/mv.db", "{folder}"])
def test_file_that_no_other_try_will_open_is_named(tmp_path, file):
    with pytest.raises(SettingError, match=r"its file cannot be opened.*may write to it"):
        ask(f"sqlite:///{file.format(folder=tmp_path)}")


def test_file_that_is_no_database_is_named(tmp_path):
    file = tmp_path / "mv.db"
    file.write_text("not a database, but long enough to be looked at" * 100)

    with pytest.raises(SettingError, match="this file is not a SQLite database"):
        ask(f"sqlite:///{file}")


def _cut(data: bytes) -> bytes:
    return data[:5000]


def _overwritten(data: bytes) -> bytes:
    return data[:100] + b"\0" * (len(data) - 100)


def _misspelt(data: bytes) -> bytes:
    return data.replace(b"CREATE TABLE", b"CREATF TABLE")


@pytest.mark.parametrize("damage", [_cut, _overwritten, _misspelt])
def test_damaged_file_is_named_as_what_no_retry_mends(tmp_path, damage):
    file = tmp_path / "mv.db"
    local.open_store(Settings(f"sqlite:///{file}")).engine.dispose()
    file.write_bytes(damage(file.read_bytes()))

    with pytest.raises(SettingError, match=r"mv\.db: this SQLite database is damaged"):
        ask(f"sqlite:///{file}")


def test_file_that_may_not_be_written_is_named(tmp_path):
    file = tmp_path / "mv.db"
    local.open_store(Settings(f"sqlite:///{file}")).engine.dispose()

    with pytest.raises(SettingError, match="this file cannot be written"):
        registered(Store(open_engine(f"sqlite:///file:{file}?mode=ro&uri=true")))


@pytest.mark.parametrize("place", ["a_file/deeper", "a_file/deeper/still"])
def test_home_that_cannot_be_written_is_named(tmp_path, place):
    (tmp_path / "a_file").write_text("x")

    with pytest.raises(SettingError, match=r"the directory of .*mv\.db cannot be made: Not a directory"):
        local.open_store(Settings(f"sqlite:///{tmp_path / place}/mv.db"))


def test_option_that_the_driver_does_not_take_is_refused(tmp_path):
    with pytest.raises(SettingError, match="an option of the address") as caught:
        open_engine(f"sqlite:///{tmp_path}/mv.db?timeout={SECRET}")

    assert SECRET not in printed(caught.value)


def test_database_without_tables_says_what_to_do(empty_engine):
    with pytest.raises(DatabaseVersionError, match=r"the database has no tables yet\. Run `amv db migrate`"):
        Store(empty_engine).tables()
    with pytest.raises(DatabaseVersionError, match="found no version"):
        migrations.check(empty_engine)


def test_database_without_tables_prints_no_password(empty_address):
    url = make_url(empty_address)
    address = url.set(password=SECRET) if url.host else url

    with pytest.raises(DatabaseVersionError) as caught:
        ask(address.render_as_string(hide_password=False))

    assert SECRET not in printed(caught.value)


@pytest.mark.slow
def test_server_that_comes_back_is_used_again(postgres, clock, caplog):
    engine = open_engine(make_url(postgres.new_database()).set(password=SECRET).render_as_string(hide_password=False))
    migrations.migrate(engine)
    store = Store(engine, clock.now)
    table = registered(store)
    own = acquired(store, table)

    postgres.kill()
    try:
        with caplog.at_level(logging.DEBUG), pytest.raises(MetadataUnavailableError) as caught:
            store.renew(own, lease_ms=1000)
    finally:
        postgres.start()

    assert SECRET not in printed(caught.value) + caplog.text
    assert store.renew(own, lease_ms=1000).is_owner
    assert store.state(table.id).refresh_id == own.refresh_id
    engine.dispose()


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
def test_full_disk_is_named_and_nothing_is_lost(address):
    """SQLite's own error, of a file that may not grow; PostgreSQL's disk is not ours to fill."""
    engine = open_engine(address)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
    store, huge = Store(engine), {f"column_{n}": "x" * 900 for n in range(1000)}

    with pytest.raises(MetadataUnavailableError, match="its disk is full") as caught:
        registered(store, source=Query("SELECT 1", inputs=huge))

    assert "Free space" in caught.value.advice
    assert caught.value.is_transient
    assert store.tables() == ()


def test_statement_that_fails_does_not_show_its_parameters(engine):
    """They hold whatever users have in their definitions, keys and error messages."""
    with pytest.raises(exc.StatementError) as caught, engine.begin() as db:
        db.execute(text("INSERT INTO nowhere VALUES (:canary)"), {"canary": SECRET})

    assert SECRET not in printed(caught.value)


def test_file_on_a_network_s_file_system_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "MOUNTS", tmp_path / "mountinfo")
    (tmp_path / "mountinfo").write_text(f"30 1 0:30 / {tmp_path} rw - nfs4 filer:/export rw\n")

    with pytest.raises(SettingError, match=r"SQLite works on one host only, and .*mv.db is on nfs4") as caught:
        local.open_store(Settings(f"sqlite:///{tmp_path}/mv.db"))

    assert "PostgreSQL" in caught.value.advice
    assert not (tmp_path / "mv.db").exists()


def test_lock_of_a_sqlite_file_that_another_process_holds_is_named(tmp_path):
    file = tmp_path / "mv.db"
    other = sqlite3.connect(file)
    other.execute("BEGIN EXCLUSIVE")
    engine = open_engine(f"sqlite:///{file}", answer_s=0.1)

    with pytest.raises(MetadataUnavailableError, match="another process holds the lock of this SQLite file") as caught:
        Store(engine).tables()

    other.close()
    with engine.connect() as db:
        assert db.connection.execute("PRAGMA busy_timeout").fetchone() == (100,), "it waits so long, and no longer"
    engine.dispose()
    assert f"fuser -v {file}" in caught.value.advice
    assert str(file) in caught.value.where


ANSWER_S = 2.0


@pytest.fixture
def swallowing(postgres):
    """A store behind a proxy, and the table that it has taken."""
    url = make_url(postgres.new_database())
    with proxied(url.port) as proxy:
        engine = open_engine(url.set(port=proxy.port).render_as_string(hide_password=False), answer_s=ANSWER_S)
        migrations.migrate(engine)
        store = Store(engine)
        yield proxy, store, acquired(store, registered(store))
        proxy.close()
        engine.dispose()


@pytest.mark.slow
def test_network_that_swallows_packets_ends_every_call_in_time(swallowing):
    """Of a connection that is open, in the middle of a transaction, and of one that is being opened."""
    proxy, store, own = swallowing

    for work in (lambda: store.renew(own, lease_ms=LEASE_MS), lambda: _in_the_middle(store, proxy)):
        proxy.forward()
        assert store.renew(own, lease_ms=LEASE_MS).is_owner
        proxy.swallow()
        began = time.monotonic()
        with pytest.raises(MetadataUnavailableError, match="its answer is not valid") as caught:
            work()
        # Twice: the connection that is asked first whether it lives, and the one that takes its place.
        assert time.monotonic() - began < 10 * ANSWER_S
        assert caught.value.is_transient

    proxy.forward()
    assert store.renew(own, lease_ms=LEASE_MS).is_owner


def _in_the_middle(store, proxy):
    proxy.forward()
    with transaction(store.engine) as db:
        db.execute(text("SELECT 1"))
        proxy.swallow()
        db.execute(text("SELECT 2"))


@pytest.mark.slow
def test_process_all_of_whose_connections_wait_says_so_in_time(postgres):
    engine = open_engine(postgres.new_database(), answer_s=0.2)
    with ExitStack() as busy:
        for _ in range(engine.pool.size() + 10):  # what SQLAlchemy opens beyond the pool
            busy.enter_context(engine.connect())

        with pytest.raises(MetadataUnavailableError, match="all connections of this process wait"):
            Store(engine).tables()

    engine.dispose()


@pytest.mark.slow
def test_lock_that_somebody_keeps_in_postgresql_ends_every_call_in_time(postgres):
    address = postgres.new_database()
    engine, other = open_engine(address, answer_s=ANSWER_S), open_engine(address)
    migrations.migrate(other)
    store = Store(engine)
    own = acquired(store, registered(store))

    with other.begin() as db:
        db.execute(text("SELECT * FROM refresh_state FOR UPDATE"))
        with pytest.raises(MetadataUnavailableError):
            store.renew(own, lease_ms=LEASE_MS)

    assert store.renew(own, lease_ms=LEASE_MS).is_owner
    for each in (engine, other):
        each.dispose()


@pytest.mark.slow
def test_transaction_that_somebody_leaves_open_holds_its_lock_for_a_while_only(postgres):
    """Of a process that was stopped in the middle of a transaction: the others need not wait for it to go on."""
    address = postgres.new_database()
    engine, stopped = open_engine(address), open_engine(address, answer_s=ANSWER_S)
    migrations.migrate(engine)
    store = Store(engine)
    own = acquired(store, registered(store))

    with pytest.raises(MetadataUnavailableError), transaction(stopped) as db:
        db.execute(text("SELECT * FROM refresh_state FOR UPDATE"))
        assert store.renew(own, lease_ms=LEASE_MS).is_owner  # it waits until the server has ended the other one

    for each in (engine, stopped):
        each.dispose()

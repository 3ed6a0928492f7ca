"""PostgreSQL as owners of databases set it up: behind PgBouncer, read-only, with few rights, with a role's defaults."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Barrier

import psycopg
import pytest
from sqlalchemy import make_url, text

from airflow_mv_provider.exceptions import MetadataDeniedError, MetadataUnavailableError, SettingError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine, transaction
from airflow_mv_provider.metadata.store import Store
from tests.metadata import racer
from tests.metadata.rows import registered

pytestmark = pytest.mark.slow


def test_statements_are_not_prepared_on_a_connection_that_the_next_one_may_not_get(postgres, pgbouncer):
    engine = open_engine(pgbouncer.before(postgres.new_database()))

    def ask(number: int) -> int:
        with transaction(engine) as db:
            return int(db.execute(text("SELECT CAST(:number AS int)"), {"number": number}).scalar_one())

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(60))) == list(range(60))
    engine.dispose()


@pytest.fixture
def database(postgres):
    """A database of its own at this package's version, and a role that has been granted nothing."""
    address = postgres.new_database()
    engine = open_engine(address)
    migrations.migrate(engine)
    engine.dispose()
    role = f"of_{make_url(address).database}"
    execute(address, f"CREATE ROLE {role} LOGIN")
    yield address, make_url(address).set(username=role).render_as_string()
    execute(address, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def execute(address, *statements):
    with psycopg.connect(address, autocommit=True, options="-c default_transaction_read_only=off") as owner:
        for statement in statements:
            owner.execute(statement)


def test_database_that_is_read_only_is_worth_a_retry(database):
    address, _ = database
    execute(address, f"ALTER DATABASE {make_url(address).database} SET default_transaction_read_only = on")
    engine = open_engine(address)

    with pytest.raises(MetadataUnavailableError, match="the database is read-only") as caught:
        registered(Store(engine))

    assert "Name the primary" in str(caught.value)
    engine.dispose()


def test_rights_that_are_missing_are_named_with_their_grant(database):
    address, as_role = database
    engine = open_engine(as_role)
    with pytest.raises(MetadataDeniedError, match="lacks a right") as caught:
        Store(engine).tables()

    role = make_url(as_role).username
    execute(address, *re.findall(rf"GRANT [^;]* TO {role}(?=;)", str(caught.value)))

    assert registered(Store(engine)).name == "orders"
    engine.dispose()


def test_database_is_made_by_a_role_with_the_grant_that_the_error_names(postgres, database):
    address = postgres.new_database()
    role = make_url(database[1]).username
    engine = open_engine(make_url(address).set(username=role).render_as_string())
    with pytest.raises(MetadataDeniedError, match="lacks a right") as caught:
        migrations.migrate(engine)

    grant = re.search(rf"GRANT USAGE, CREATE.* TO {role}", str(caught.value))
    execute(address, grant[0])
    migrations.migrate(engine)

    assert Store(engine).tables() == ()
    engine.dispose()
    execute(address, f"REASSIGN OWNED BY {role} TO mv", f"DROP OWNED BY {role}")


def test_callers_race_as_they_should_though_the_database_makes_transactions_serializable(database):
    address, _ = database
    execute(address, f"ALTER DATABASE {make_url(address).database} SET default_transaction_isolation = serializable")
    engine = open_engine(address)
    registered(Store(engine))
    barrier, answers = Barrier(4, timeout=30), Queue()

    with ThreadPoolExecutor(4) as threads:
        races = [threads.submit(racer.race_to_acquire, address, key, 10, barrier, answers) for key in "abcd"]
        for race in races:
            race.result()

    won = [epoch for _ in races for epoch in answers.get_nowait()[1][0]]
    assert sorted(won) == list(range(1, 11))
    engine.dispose()


@pytest.mark.parametrize("option", ["nonsense=1", "connect_timeout=abc", "sslmode=bogus"])
def test_option_that_no_driver_knows_is_a_mistake_of_the_address(postgres, option):
    engine = open_engine(f"{postgres.new_database()}?{option}")

    with pytest.raises(SettingError, match="rejects an option of the address"):
        Store(engine).tables()
    engine.dispose()


def test_several_hosts_are_named_as_options_as_the_error_says(postgres):
    address = make_url(postgres.new_database())
    several = f"postgresql://mv@127.0.0.1:1,127.0.0.1:{address.port}/{address.database}"
    with pytest.raises(SettingError, match="cannot be parsed") as caught:
        open_engine(several)
    assert "?host=ONE:5432&host=OTHER:5432" in str(caught.value)

    engine = open_engine(f"postgresql://mv@/{address.database}?host=127.0.0.1:1&host=127.0.0.1:{address.port}")

    with transaction(engine) as db:
        assert db.execute(text("SELECT 1")).scalar_one() == 1
    engine.dispose()

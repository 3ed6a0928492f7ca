"""Where the hook finds the database and the warehouse, and that it tells nobody the password."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import fields

import pytest

from airflow_mv_provider.exceptions import ConnectionUnknownError, SettingError
from airflow_mv_provider.hooks.mv import MvHook

pytestmark = pytest.mark.slow

OPTION, VARIABLE = "AIRFLOW__MV__SQL_ALCHEMY_CONN", "AMV_DATABASE_URL"
CONNECTION = "AIRFLOW_CONN_MV_STATE_DEFAULT"
POSTGRES = {
    "conn_type": "mv",
    "host": "db.example",
    "port": 5433,
    "schema": "mv",
    "login": "anna",
    "password": "s3cr3t/w@rd",
    "extra": {"warehouse": "/lake/of/connection", "sslmode": "require"},
}


@pytest.fixture(autouse=True)
def _home(airflow):
    """Every test here needs Airflow's environment."""


def test_without_anything_it_is_sqlite_under_airflow_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))

    settings = MvHook().settings()

    assert settings.database_url == f"sqlite:///{tmp_path}/airflow_mv.db"
    assert settings.warehouse is None


def test_the_first_that_says_something_is_taken(monkeypatch):
    """the named connection, [mv], AMV_*, the default connection: each hides those after it."""
    monkeypatch.setenv(CONNECTION, json.dumps(POSTGRES))
    assert "db.example" in MvHook().settings().database_url
    monkeypatch.setenv(VARIABLE, "sqlite:////amv.db")
    assert MvHook().settings().database_url == "sqlite:////amv.db"
    monkeypatch.setenv(OPTION, "sqlite:////option.db")
    assert MvHook().settings().database_url == "sqlite:////option.db"
    monkeypatch.setenv("AIRFLOW_CONN_MINE", json.dumps({"conn_type": "mv", "extra": {"sqlite_file": "/mine.db"}}))
    assert MvHook("mine").settings().database_url == "sqlite:////mine.db"


def test_each_setting_is_looked_for_on_its_own(monkeypatch):
    monkeypatch.setenv(VARIABLE, "sqlite:////amv.db")
    monkeypatch.setenv(CONNECTION, json.dumps(POSTGRES))
    monkeypatch.setenv("AIRFLOW__MV__LEASE_S", "7")
    monkeypatch.setenv("AIRFLOW__MV__SOURCE_ROOTS", "/a:/b")

    settings = MvHook().settings()

    assert settings.database_url == "sqlite:////amv.db"
    assert settings.warehouse == "/lake/of/connection"
    assert (settings.lease_ms, settings.source_roots) == (7000, ("/a", "/b"))


def test_connection_of_a_source_is_airflows(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "postgres://reader:p%40ss@db.example:5433/erp?sslmode=require")
    find = MvHook().settings().connections

    found = find("shop")

    assert (found.kind, found.host, found.port, found.database) == ("postgres", "db.example", 5433, "erp")
    assert (found.user, found.password, found.options) == ("reader", "p@ss", {"sslmode": "require"})
    with pytest.raises(ConnectionUnknownError, match="no connection of this id"):
        find("nobody")


def test_a_secret_file_is_not_hidden_by_the_default_connection(tmp_path, monkeypatch):
    (tmp_path / "url").write_text("sqlite:////from_file.db\n")
    monkeypatch.setenv("AMV_DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv(CONNECTION, json.dumps(POSTGRES))

    assert MvHook().settings().database_url == "sqlite:////from_file.db"


def test_an_empty_variable_says_nothing(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv(CONNECTION, json.dumps(POSTGRES))

    assert "db.example" in MvHook().settings().database_url


def test_a_connection_makes_the_address(monkeypatch):
    monkeypatch.setenv(CONNECTION, json.dumps(POSTGRES))

    url = MvHook().settings().database_url

    assert url == "postgresql+psycopg://anna:s3cr3t%2Fw%40rd@db.example:5433/mv?sslmode=require"


def test_a_connection_that_is_named_must_exist():
    from airflow.sdk.exceptions import AirflowNotFoundException

    with pytest.raises(AirflowNotFoundException):
        MvHook("nowhere").settings()


@pytest.mark.parametrize("way", [CONNECTION, OPTION, VARIABLE])
def test_the_password_shows_nowhere(way, monkeypatch, caplog):
    # No such host: what an unreachable database makes of its address is what people see.
    url = "postgresql://anna:s3cr3t%2Fw%40rd@db.invalid:5433/mv"
    monkeypatch.setenv(way, json.dumps(POSTGRES | {"host": "db.invalid"}) if way == CONNECTION else url)
    caplog.set_level(logging.DEBUG)
    hook = MvHook()

    is_reachable, answer = hook.test_connection()
    shown = [repr(hook), str(vars(hook)), repr(hook.settings()), answer, caplog.text]

    assert not is_reachable
    assert "MV-DATABASE-UNAVAILABLE" in answer
    assert not [text for text in shown if "s3cr3t" in text]


def test_every_spelling_of_a_secret_is_told_to_airflows_masker(monkeypatch):
    masked: list[str] = []
    monkeypatch.setattr("airflow_mv_provider.hooks.mv.mask_secret", masked.append)
    monkeypatch.setenv(OPTION, "postgresql://anna:s3cr3t%2Fw%40rd@db.invalid/mv?password=0pt10n")
    monkeypatch.setenv("AMV_SPARK_REMOTE", "sc://spark.invalid/;token=t0k3n")

    MvHook().settings()

    assert {"s3cr3t/w@rd", "s3cr3t%2Fw%40rd", "0pt10n", "t0k3n"} <= set(masked)


@pytest.mark.parametrize(("url", "is_refused"), [(None, True), ("postgresql://mv@db.invalid/mv", False)])
def test_sqlite_is_refused_where_tasks_run_on_several_hosts(url, is_refused, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor,CeleryExecutor")
    if url is not None:
        monkeypatch.setenv(OPTION, url)
    if not is_refused:
        MvHook().settings()
        return

    with pytest.raises(SettingError, match="SQLite works on one host only, and CeleryExecutor runs") as caught:
        MvHook().settings()
    with pytest.raises(SettingError, match="SQLite works on one host only"):
        asyncio.run(MvHook().asettings())
    assert asyncio.run(MvHook().asettings(opens_database=False)).database_url.startswith("sqlite")

    assert "[mv] sql_alchemy_conn" in caught.value.advice


def test_sqlite_on_one_host_is_used_by_tasks_with_a_warning(lake, monkeypatch, caplog):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
    monkeypatch.setenv(OPTION, lake.settings.database_url)

    MvHook().store().engine.dispose()

    assert "SQLite, for one host that runs all of Airflow. Set `[mv] sql_alchemy_conn`" in caplog.text


def test_the_connection_form_says_what_it_found(lake, monkeypatch):
    monkeypatch.setenv(OPTION, lake.settings.database_url)
    lake.apply()

    assert MvHook().test_connection() == (True, "1 refreshable tables")


def test_another_program_gets_the_same_settings(tmp_path, monkeypatch):
    from airflow_mv_provider.runner.settings import from_environment

    monkeypatch.setenv(CONNECTION, json.dumps(POSTGRES))
    monkeypatch.setenv("AIRFLOW__MV__LEASE_S", "7.5")
    monkeypatch.setenv("AIRFLOW__MV__SOURCE_ROOTS", "/a:s3a://b")
    monkeypatch.setenv("AIRFLOW__MV__SOURCE_HOSTS", "db1, *.example.com")
    monkeypatch.setenv("AIRFLOW__MV__SOURCE_DATABASES", "postgresql")
    monkeypatch.setenv("AIRFLOW__MV__HANDOVER_S", "9")
    monkeypatch.setenv("AIRFLOW__MV__ANSWER_S", "8")
    monkeypatch.setenv("AIRFLOW__MV__HISTORY_DAYS", "30")
    monkeypatch.setenv("AIRFLOW__MV__SPARK_REMOTE", "sc://127.0.0.1:1")
    monkeypatch.setenv("AIRFLOW__MV__S3_SINGLE_DRIVER", "true")
    monkeypatch.setenv("AIRFLOW__MV__FINGERPRINT_ROWS", "9")
    monkeypatch.setenv("AIRFLOW__MV__WAREHOUSE", str(tmp_path))
    hook = MvHook()

    variables = hook.environment()

    settings = hook.settings()
    assert from_environment(environ=variables) == settings
    defaults = {each.name: each.default for each in fields(settings)}
    assert [name for name, value in defaults.items() if getattr(settings, name) == value] == [], "each is another value"
    assert variables["AMV_LEASE_S"] == "7.5"


def test_a_trigger_finds_the_same_settings(monkeypatch):
    monkeypatch.setenv(CONNECTION, json.dumps(POSTGRES))

    assert asyncio.run(MvHook().asettings()) == MvHook().settings()
    monkeypatch.delenv(CONNECTION)
    assert asyncio.run(MvHook().asettings()).warehouse is None
    monkeypatch.setenv("AIRFLOW_CONN_MINE", json.dumps(POSTGRES | {"extra": {"warehouse": "/mine"}}))
    assert asyncio.run(MvHook("mine").asettings()).warehouse == "/mine"

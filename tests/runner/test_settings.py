"""What an installation decides: arguments before variables before defaults, and wrong values named."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.location import source_location
from airflow_mv_provider.exceptions import DefinitionError, UnsafeLocationError
from airflow_mv_provider.runner.settings import Settings, default_database_url, from_environment


def test_defaults_need_nothing():
    settings = from_environment(environ={"AIRFLOW_HOME": "/airflow"})

    assert settings == Settings("sqlite:////airflow/airflow_mv.db", None, (), 60_000, 3_600_000)


def test_argument_goes_before_variable_before_file(tmp_path):
    secret = tmp_path / "url"
    secret.write_text("sqlite:///file.db\n")
    environ = {"AMV_DATABASE_URL_FILE": str(secret)}

    from_file = from_environment(environ=environ)
    from_variable = from_environment(environ=environ | {"AMV_DATABASE_URL": "sqlite:///variable.db"})
    from_argument = from_environment(
        environ=environ | {"AMV_DATABASE_URL": "sqlite:///variable.db"}, database_url="sqlite:///argument.db"
    )

    assert from_file.database_url == "sqlite:///file.db"
    assert from_variable.database_url == "sqlite:///variable.db"
    assert from_argument.database_url == "sqlite:///argument.db"


def test_secret_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(DefinitionError, match=r"AMV_DATABASE_URL_FILE: .*no cannot be read: No such file"):
        from_environment(environ={"AMV_DATABASE_URL_FILE": str(tmp_path / "no")})


def test_representation_shows_no_address():
    settings = Settings("postgresql://u:s3cret@h/db", "/wh")

    assert repr(settings) == "Settings(warehouse='/wh')"


@pytest.mark.parametrize("place", ["wh", "./wh", "sub/../wh"])
def test_relative_warehouse_is_taken_from_here(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    settings = from_environment(environ={"AMV_WAREHOUSE": place})

    assert settings.warehouse == str(tmp_path / "wh")
    assert source_location("raw/x", settings.warehouse) == str(tmp_path / "wh/raw/x")


@pytest.mark.parametrize("place", ["http://h/wh", "jar:x", "s3:wh"])
def test_warehouse_of_another_scheme_is_refused(place):
    with pytest.raises(UnsafeLocationError):
        from_environment(environ={"AMV_WAREHOUSE": place})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        (":", ()),
        ("/data", ("/data",)),
        ("/data/:/in", ("/data", "/in")),
        ("s3://bucket/in:/data:hdfs://nn:8020/x", ("s3://bucket/in", "/data", "hdfs://nn:8020/x")),
        ("file:///in:/data", ("/in", "/data")),
    ],
)
def test_source_roots_are_separated_as_a_path_is(text, expected):
    settings = from_environment(environ={"AMV_SOURCE_ROOTS": text})

    assert settings.source_roots == expected


def test_relative_source_root_is_refused():
    with pytest.raises(UnsafeLocationError, match="'data' is not absolute"):
        from_environment(environ={"AMV_SOURCE_ROOTS": "/in:data"})


def test_patience_is_given_in_seconds():
    settings = from_environment(environ={"AMV_LEASE_S": "1.5", "AMV_HANDOVER_S": "20"})

    assert (settings.lease_ms, settings.handover_ms) == (1500, 20_000)


@pytest.mark.parametrize("name", ["AMV_LEASE_S", "AMV_HANDOVER_S"])
@pytest.mark.parametrize("value", ["soon", "nan", "inf", "-inf", "-1", "0", "1m", "1e999"])
def test_patience_that_is_no_time_is_named(name, value):
    with pytest.raises(DefinitionError, match=f"{name}: '{value}' is not a number of seconds"):
        from_environment(environ={name: value})


def test_default_database_lies_in_airflows_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert default_database_url({"AIRFLOW_HOME": "home"}) == f"sqlite:///{tmp_path / 'home' / 'airflow_mv.db'}"

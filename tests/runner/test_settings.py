"""What an installation decides: arguments before variables before defaults, and wrong values named."""

from __future__ import annotations

import socket
import subprocess
import sys
import traceback

import pytest

from airflow_mv_provider.core.location import source_location
from airflow_mv_provider.exceptions import SettingError, UnsafeLocationError
from airflow_mv_provider.runner.settings import Settings, default_database_url, from_environment, secrets_of
from airflow_mv_provider.spark.causes.databases import drivers_of


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
    with pytest.raises(SettingError, match=r"AMV_DATABASE_URL_FILE: .*no cannot be read: No such file"):
        from_environment(environ={"AMV_DATABASE_URL_FILE": str(tmp_path / "no")})


@pytest.mark.parametrize("address", ["postgresql://u:s3@cret@h/db", "postgresql://u:s3@c/r?et@h/db"])
def test_password_with_an_at_is_a_secret_as_a_whole(address):
    found = secrets_of(Settings(address))

    assert address in found
    assert address.removeprefix("postgresql://u:").removesuffix("@h/db") in found


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
        ("s3://one:s3a://two:hdfs://nn:8020:/data", ("s3://one", "s3a://two", "hdfs://nn:8020", "/data")),
    ],
)
def test_source_roots_are_separated_as_a_path_is(text, expected):
    settings = from_environment(environ={"AMV_SOURCE_ROOTS": text})

    assert settings.source_roots == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("", ()), (" , ", ()), ("db1, *.example.com\ndb2", ("db1", "*.example.com", "db2"))]
)
def test_source_hosts_are_separated_by_commas(text, expected):
    assert from_environment(environ={"AMV_SOURCE_HOSTS": text}).source_hosts == expected


def test_source_databases_are_those_whose_drivers_are_known():
    found = from_environment(environ={"AMV_SOURCE_DATABASES": "postgresql, SQLite"})

    assert found.source_databases == ("postgresql", "SQLite")
    assert [each.split(":")[1] for each in drivers_of(",".join(found.source_databases))] == [
        "postgresql",
        "sqlite-jdbc",
    ]
    with pytest.raises(SettingError, match="'oracle' is not known") as refused:
        from_environment(environ={"AMV_SOURCE_DATABASES": "oracle"})
    assert "AMV_SPARK_PACKAGES" in refused.value.advice


def test_relative_source_root_is_refused():
    with pytest.raises(UnsafeLocationError, match="'data' is not absolute"):
        from_environment(environ={"AMV_SOURCE_ROOTS": "/in:data"})


def test_patience_is_given_in_seconds():
    settings = from_environment(environ={"AMV_LEASE_S": "1.5", "AMV_HANDOVER_S": "20", "AMV_ANSWER_S": "7"})

    assert (settings.lease_ms, settings.handover_ms, settings.answer_ms) == (1500, 20_000, 7000)


def test_history_is_kept_for_days():
    assert from_environment(environ={}).history_ms == 90 * 86_400_000
    assert from_environment(environ={"AMV_HISTORY_DAYS": "0.5"}).history_ms == 43_200_000


@pytest.mark.parametrize(
    ("name", "unit"),
    [*((f"AMV_{what}_S", "seconds") for what in ("LEASE", "HANDOVER", "ANSWER")), ("AMV_HISTORY_DAYS", "days")],
)
@pytest.mark.parametrize("value", ["soon", "nan", "inf", "-inf", "-1", "0", "1m", "1e999", "1e300"])
def test_patience_that_is_no_time_is_named(name, unit, value):
    with pytest.raises(SettingError, match=f"{name}: '{value}' is not a number of {unit}"):
        from_environment(environ={name: value})


def test_silence_that_no_connection_can_wait_for_is_refused():
    assert from_environment(environ={"AMV_ANSWER_S": "3600"}).answer_ms == 3_600_000
    with pytest.raises(SettingError, match="AMV_ANSWER_S: '3601' is not a number of seconds") as caught:
        from_environment(environ={"AMV_ANSWER_S": "3601"})

    assert caught.value.advice == "Set it to a number above 0 and up to 3,600."


def test_default_database_lies_in_airflows_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert default_database_url({"AIRFLOW_HOME": "home"}) == f"sqlite:///{tmp_path / 'home' / 'airflow_mv.db'}"


@pytest.mark.parametrize(
    ("value", "found"), [("", False), ("true", True), ("1", True), ("True", True), ("false", False), ("0", False)]
)
def test_a_single_driver_on_s3_is_said_by_a_person(value, found):
    assert from_environment(environ={"AMV_S3_SINGLE_DRIVER": value}).is_s3_single_driver is found


def test_a_flag_that_is_none_is_named():
    with pytest.raises(SettingError, match="AMV_S3_SINGLE_DRIVER: 'perhaps' is neither true nor false"):
        from_environment(environ={"AMV_S3_SINGLE_DRIVER": "perhaps"})


# -- secrets -----------------------------------------------------------------------------------------------------------

CANARY = "c4n4ry"


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("sqlite:////wh/mv.db", ()),
        ("postgresql://mv@h/db", ()),
        ("postgresql://mv:c4n4ry@h/db", ("postgresql://mv:c4n4ry@h/db", "c4n4ry")),
        ("postgresql://mv:c4n%2F4ry@h/db", ("postgresql://mv:c4n%2F4ry@h/db", "c4n%2F4ry", "c4n/4ry")),
        ("postgresql://mv@h/db?password=c4n4ry", ("postgresql://mv@h/db?password=c4n4ry", "c4n4ry")),
        ("c4n4ry is no address", ("c4n4ry is no address",)),
    ],
)
def test_what_of_an_address_is_secret(url, secrets):
    assert secrets_of(Settings(url)) == secrets


def test_token_of_a_connect_server_is_secret():
    assert CANARY in secrets_of(Settings("sqlite://", spark_remote=f"sc://h/;token={CANARY}"))


def test_source_root_with_a_password_is_refused_before_it_is_cut_at_its_colon():
    with pytest.raises(UnsafeLocationError, match="AMV_SOURCE_ROOTS: the address contains a password") as caught:
        from_environment(environ={"AMV_SOURCE_ROOTS": f"/data:s3a://key:{CANARY}@bucket/in"})

    assert CANARY not in str(caught.value)


def test_secret_file_that_is_no_text_is_named_without_its_bytes(tmp_path):
    (tmp_path / "url").write_bytes(CANARY.encode() + b"\xff")

    with pytest.raises(SettingError, match="url is not UTF-8 text") as caught:
        from_environment(environ={"AMV_DATABASE_URL_FILE": str(tmp_path / "url")})

    assert CANARY not in "".join(traceback.format_exception(caught.value))


_CONNECT = """
import sys, traceback
from airflow_mv_provider.exceptions import SettingError
from airflow_mv_provider.spark.session import connect_session
for address in sys.argv[1:]:
    try:
        connect_session(address)
    except SettingError:
        traceback.print_exc()
    else:
        sys.exit(f"taken: {address}")
"""


def test_connect_address_that_is_none_is_refused_without_its_token():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = f"sc://127.0.0.1:{listening.getsockname()[1]}"
        addresses = [
            f"{here}/;token=a;{CANARY}",
            f"{here}/token={CANARY}",
            f"sc://anna:{CANARY}",
            f"http://{CANARY}",
            "",
        ]

        done = subprocess.run([sys.executable, "-c", _CONNECT, *addresses], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("[MV-SETTING] Spark Connect: the address is not sc://host:port") == len(addresses)
    assert CANARY not in done.stderr

"""`amv server`: Spark stays between commands, on loopback, for its own user only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from airflow_mv_provider.runner import server
from airflow_mv_provider.runner.server import Server
from airflow_mv_provider.runner.settings import Settings
from tests.conftest import read_independently

AMV = Path(sys.executable).parent / "amv"
DEFINITION = """
tables:
  - name: ten
    source: {type: files, path: raw/*.csv, format: csv, schema: "id BIGINT, v STRING"}
    key: [id]
"""
WITHOUT_THE_TOKEN = """
import sys
from airflow_mv_provider.spark.session import connect_session
connect_session(sys.argv[1])
"""


class User:
    """Commands of one user, who has no Java but for the server."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {name: value for name, value in os.environ.items() if name != "AMV_SPARK_REMOTE"}
        self.environment |= {"AIRFLOW_HOME": str(home / "a home"), "AMV_SPARK_MASTER": "local[2]"}

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [str(AMV), *words, "--warehouse", str(self.home)]
        return subprocess.run(
            command, env=self.environment | more, cwd=self.home, capture_output=True, text=True, check=False
        )

    def json(self, *words: str, **more: str) -> dict:
        done = self.run(*words, "--json", **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def user(tmp_path):
    return User(tmp_path)


@pytest.fixture
def this_process():
    return Server(os.getpid(), psutil.Process().create_time(), 1234, "t0k3n", "local[*]", "2g")


@pytest.fixture
def home(tmp_path):
    return {"AIRFLOW_HOME": str(tmp_path)}


def kept(server: Server, home: dict[str, str]) -> None:
    fields = {name: getattr(server, name) for name in Server.__dataclass_fields__}
    (Path(home["AIRFLOW_HOME"]) / "airflow_mv_server.json").write_text(json.dumps(fields), encoding="utf-8")


def test_running_server_is_found_unless_the_environment_has_one_or_wants_none(home, this_process):
    kept(this_process, home)

    def remote(**more: str) -> str | None:
        return server.with_server(Settings("sqlite://"), home | more).spark_remote

    assert remote() == "sc://localhost:1234/;token=t0k3n"
    assert remote(AMV_SPARK_REMOTE="") is None
    assert remote(AMV_SPARK_REMOTE="sc://other:1") is None, "that address is a setting already"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid": 1}', "\0"])
def test_damaged_file_is_no_server(home, text):
    (Path(home["AIRFLOW_HOME"]) / "airflow_mv_server.json").write_text(text, encoding="utf-8")

    assert server.running(home) is None


def test_pid_that_another_process_has_by_now_is_no_server(home, this_process):
    kept(replace(this_process, created=this_process.created - 60), home)

    assert server.running(home) is None


@pytest.mark.slow
def test_server_stays_between_commands_for_who_has_its_token(user):
    (user.home / "raw").mkdir()
    (user.home / "raw/ten.csv").write_text("id,v\n" + "".join(f"{id},v\n" for id in range(10)))
    (user.home / "tables.yaml").write_text(DEFINITION)
    started = user.json("server", "start", "--conf", "spark.sql.shuffle.partitions=2", "--memory", "1g")
    found = started["server"]
    try:
        again, status = user.json("server", "start"), user.json("server", "status")
        file = user.home / "a home" / "airflow_mv_server.json"
        listens = {each.laddr.ip for each in psutil.Process(found["pid"]).net_connections() if each.status == "LISTEN"}
        user.json("apply", "tables.yaml")
        report = user.json("refresh", "ten", JAVA_HOME="/nowhere")
        stranger = [sys.executable, "-c", WITHOUT_THE_TOKEN, found["address"]]
        refused = subprocess.run(stranger, env=user.environment, capture_output=True, text=True, check=False)
        wants_none = user.run("refresh", "ten", AMV_SPARK_REMOTE="", JAVA_HOME="/nowhere")
    finally:
        stopped = user.json("server", "stop")

    assert (started["new"], again["new"]) == (True, False)
    assert found == again["server"] == status["server"] == stopped["server"]
    assert (file.exists(), psutil.pid_exists(found["pid"])) == (False, False)
    assert {ip.removeprefix("::ffff:") for ip in listens} == {"127.0.0.1"}
    assert report["outcome"] == "published"
    assert Counter(read_independently(user.home / "ten")) == Counter((id, "v") for id in range(10))
    assert refused.returncode == 1
    assert "the server at localhost" in refused.stderr.splitlines()[-1]
    assert (wants_none.returncode, "Java is not found" in wants_none.stderr) == (1, True)
    assert user.json("server", "status") == user.json("server", "stop") == {"server": None}


@pytest.mark.slow
def test_file_with_the_token_is_its_users_alone(user, monkeypatch):
    monkeypatch.setenv("AIRFLOW_HOME", str(user.home))
    old = os.umask(0)
    try:
        server._write(Server(1, 1.0, 1234, "t0k3n", "local[*]", "2g"))
    finally:
        os.umask(old)

    assert (user.home / "airflow_mv_server.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "more", "says"),
    [
        pytest.param(["--master", "nonsense"], {}, "Master must either be", marks=pytest.mark.in_test_all),
        (["--memory", "much"], {}, "Could not create the Java Virtual Machine"),
        ([], {"JAVA_HOME": "/nowhere"}, "Java is not found under JAVA_HOME (/nowhere)"),
        (["--conf", "spark.sql.ansi.enabled"], {}, "NAME=VALUE"),
    ],
)
def test_what_keeps_it_from_starting_is_said_in_one_line(user, words, more, says):
    done = user.run("server", "start", *words, **more)

    assert done.returncode in (1, 2, 75)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert user.json("server", "status") == {"server": None}

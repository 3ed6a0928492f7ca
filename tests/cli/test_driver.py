"""The program that spark-submit and `python -m airflow_mv_provider.cli.driver` run, before it needs Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from airflow_mv_provider.cli.driver import main
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.runner.local import open_store
from airflow_mv_provider.runner.settings import from_environment
from tests.metadata.rows import acquired, registered, walk


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--override", "allow_empty"], "needs a reason"),
        (["--override", "allow_empty", "--note", "they closed the shop"], "orders"),
        (["--request", '{"overrides": ["allow_empty"]}'], "orders"),  # a DAG's author wrote it, or was asked already
    ],
    ids=["typed", "typed with a note", "submitted"],
)
def test_who_types_a_guard_to_set_aside_says_why(tmp_path, monkeypatch, asked, says):
    monkeypatch.setenv("AMV_DATABASE_URL", f"sqlite:///{tmp_path / 'mv.db'}")
    monkeypatch.setenv("AMV_WAREHOUSE", str(tmp_path))
    open_store(from_environment())

    done = CliRunner().invoke(main, ["orders", "--json", *asked])

    assert done.exit_code == (2 if says == "needs a reason" else 1)
    message = json.loads(done.stdout)["error"]["message"]
    assert says in message
    assert ("needs a reason" in message) is (says == "needs a reason")


def test_driver_that_fails_before_its_own_row_does_not_report_an_earlier_tries(tmp_path, monkeypatch):
    """Every try of a task has one key: what an earlier one published says nothing of this one."""
    monkeypatch.setenv("AMV_DATABASE_URL", f"sqlite:///{tmp_path / 'mv.db'}")
    monkeypatch.setenv("AMV_WAREHOUSE", str(tmp_path))
    store = open_store(from_environment())
    table = registered(store)
    walk(store, acquired(store, table, "dag/run/-1"), Phase.NORMAL)
    store.pause(table.id, "ann")

    done = CliRunner().invoke(main, ["orders", "--json", "--caller", '{"key": "dag/run/-1"}'])

    report = json.loads(done.stdout)
    assert (done.exit_code, report["outcome"], report["refresh_id"]) == (1, "failed", None)
    assert report["error"]["code"] == "MV-PAUSED"


@pytest.mark.parametrize("program", ["amv", "runner"])
@pytest.mark.parametrize(("name", "code"), [("full", 74), ("closed", 0)])
def test_answer_that_cannot_be_written_does_not_look_like_a_command_that_failed(tmp_path, program, name, code):
    """On a full disk the exit code is one of its own; a reader that has left, as `head` does, wants no more."""
    environment = os.environ | {"AMV_DATABASE_URL": f"sqlite:///{tmp_path / 'mv.db'}", "AMV_WAREHOUSE": str(tmp_path)}
    words = {"amv": "from airflow_mv_provider.cli.main import main; main(['status'])"}
    words["runner"] = (
        "import sys; from airflow_mv_provider.cli.answer import write_output; sys.exit(write_output('an answer', 0))"
    )
    reading, writing = os.pipe()
    os.close(reading)

    with Path("/dev/full").open("w") if name == "full" else os.fdopen(writing, "w") as out:
        done = subprocess.run(
            [sys.executable, "-c", words[program]], env=environment, stdout=out, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip

    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ("the command succeeded, but its output could not be written: No space left on device" in done.stderr) is (
        name == "full"
    )


def test_command_that_failed_keeps_its_exit_code_though_nobody_can_read_it():
    """Neither its answer nor its error; the code is one that Python itself would not end with."""
    environment = os.environ | {"AMV_DATABASE_URL": "postgresql://mv@127.0.0.1:1/mv"}
    words = "from airflow_mv_provider.cli.main import main; main(['status', 'nowhere'])"

    with Path("/dev/full").open("w") as out:
        done = subprocess.run([sys.executable, "-c", words], env=environment, stdout=out, stderr=out, check=False)

    assert done.returncode == 75


_WRITE = "import sys; from airflow_mv_provider.cli.answer import write_output; sys.exit(write_output(sys.argv[1], 0))"


def test_answer_to_a_terminal_of_another_encoding_is_escaped():
    """A name in it may be anybody's, and what was done is done."""
    text = '{"table": "caf\xe9 \U0001f600"}'

    done = subprocess.run(
        [sys.executable, "-c", _WRITE, text], env=os.environ | {"PYTHONIOENCODING": "latin-1"}, stdout=subprocess.PIPE,
        check=True,
    )  # fmt: skip

    assert done.stdout.decode("latin-1") == '{"table": "caf\xe9 \\ud83d\\ude00"}\n'
    assert json.loads(done.stdout.decode("latin-1")) == json.loads(text)


def test_answer_is_nobodys_where_stdout_is_closed():
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", sys.executable, "-c", _WRITE, "an answer"], check=False)

    assert done.returncode == 0

"""The program that spark-submit and `python -m airflow_mv_provider.runner` run, before it needs Spark."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from airflow_mv_provider.runner.__main__ import main
from airflow_mv_provider.runner.local import open_store
from airflow_mv_provider.runner.settings import from_environment


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--override", "allow_empty"], "nobody says why"),
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

    assert done.exit_code == 1
    message = json.loads(done.stdout)["error"]["message"]
    assert says in message
    assert ("nobody says why" in message) is (says == "nobody says why")

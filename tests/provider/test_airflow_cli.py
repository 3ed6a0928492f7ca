"""`airflow mv ...` is `amv ...` with Airflow's settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace

import click
import pytest

from airflow_mv_provider.cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture
def commands(airflow, monkeypatch):
    """What Airflow is given for `airflow mv`, by the words of each command."""
    from airflow_mv_provider.cli.airflow_commands import get_commands

    monkeypatch.setattr(sys, "argv", ["airflow", "mv"])
    return dict(_flat(get_commands()))


def _flat(found, path=()):
    for each in found:
        words = (*path, each.name)
        if hasattr(each, "subcommands"):
            yield from _flat(each.subcommands, words)
        else:
            yield words, each


def _all_clicks(group=main, path=("mv",)):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _all_clicks(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_and_option_of_amv_is_there(commands):
    expected = dict(_all_clicks())

    assert set(commands) == set(expected)
    for words, command in expected.items():
        options = {flag for arg in commands[words].args for flag in arg.flags}
        assert options == {
            flag for p in command.params for flag in (p.opts if isinstance(p, click.Option) else [p.name])
        }, words


def test_what_is_typed_reaches_amv_as_it_is(commands, monkeypatch):
    import argparse

    from airflow_mv_provider.cli import airflow_commands as airflow_cli

    seen = []
    monkeypatch.setattr(airflow_cli, "_lookup_of_exported_settings", lambda: None)
    monkeypatch.setattr(main, "main", lambda *, args, prog_name, obj: seen.append(args))
    action = commands["mv", "refresh"]
    parser = argparse.ArgumentParser()
    for arg in action.args:
        arg.add_to_parser(parser)

    typed = ["orders", "--json", "--override", "allow_empty", "--override", "max_deleted_fraction", "--from=-5"]
    action.func(parser.parse_args(typed))

    [args] = seen
    assert args[0] == "refresh"
    assert args[-2:] == ["--", "orders"]
    assert {"--json", "--override=allow_empty", "--override=max_deleted_fraction", "--from=-5"} < set(args)
    assert "--force" not in args
    assert isinstance(parser.parse_args(typed), Namespace)


def test_other_commands_of_airflow_do_not_read_ours(airflow):
    code = "import sys; sys.argv = ['airflow', 'dags', 'list']"
    code += "; from airflow_mv_provider.cli.airflow_commands import get_commands"
    code += "; print([c.name for c in get_commands()], 'airflow_mv_provider.cli.main' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "['mv'] False"


def test_airflow_runs_them_with_the_database_of_its_own_settings(home, airflow):
    home.apply()

    done = subprocess.run(
        [sys.executable, "-m", "airflow", "mv", "status", "orders", "--json"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"AMV_DATABASE_URL": ""},
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["table"] == "orders"
    assert "airflow_mv" not in done.stderr


def test_a_source_is_found_by_a_connection_of_airflow_or_of_the_environment(home, airflow):
    code = """if True:
        from airflow.models import Connection
        from airflow.utils.session import create_session
        from airflow_mv_provider.cli.airflow_commands import _lookup_of_exported_settings

        with create_session() as session:
            session.add(Connection(conn_id="erp", conn_type="postgres", host="db", login="reader", password="s3"))
        found = _lookup_of_exported_settings()
        print([(each.host, each.user) for each in map(found, ("erp", "shop"))])
    """
    more = {"AMV_CONN_SHOP_FILE": str(home.root / "shop")}
    (home.root / "shop").write_text("postgresql://owner@other/shop")

    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=os.environ | more
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[('db', 'reader'), ('other', 'owner')]"


def test_lines_of_airflows_log_are_not_in_the_answer(home, airflow):
    """Airflow 3.2 imports Alembic, which lists its plugins, once SQLAlchemy's mappers are set up."""
    home.apply()
    code = """if True:
        import logging, sys
        from sqlalchemy import event
        from sqlalchemy.orm import Mapper
        from airflow_mv_provider.cli.airflow_commands import program

        event.listen(Mapper, "before_configured", lambda: logging.getLogger("alembic").warning("set up"))
        sys.argv = ["airflow-mv", "status", "orders", "--json"]
        program()
    """

    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["table"] == "orders"
    assert "set up" in done.stderr

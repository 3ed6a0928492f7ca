"""The help of `amv` lists every command once, and its examples are commands that exist."""

from __future__ import annotations

import shlex
from collections import Counter

import click
import pytest
from click.testing import CliRunner

from airflow_mv_provider.cli.grouped import GroupedCommands
from airflow_mv_provider.cli.main import main

assert isinstance(main, GroupedCommands)


def test_every_command_is_listed_once() -> None:
    listed = Counter(name for names in main.sections.values() for name in names)

    shown = CliRunner().invoke(main, ["--help"]).output

    assert listed == Counter(dict.fromkeys(main.commands, 1))
    assert [name for name in main.commands if f"\n  {name} " not in shown] == []


@pytest.mark.parametrize("example", [words for words, _ in main.examples])
def test_examples_are_commands(example: str) -> None:
    name, command, *arguments = shlex.split(example)

    assert name == "amv"
    with click.Context(main) as group:
        main.commands[command].make_context(command, arguments, parent=group)

"""The help of `amv` lists every command once, and its examples are commands that exist."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

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


ROOT = Path(__file__).parents[2]
_TYPED = re.compile(r"(?:^(?: {4})?(?:\$ )?|`)(?:amv|airflow[ -]mv) ([^`\n]*)", re.MULTILINE)
_END = re.compile(r"\s(?:[|>;&#]|\()")


def written(document: Path) -> set[str]:
    """Return the commands of a document, in blocks and in the text, without `amv`."""
    found = _TYPED.findall(document.read_text(encoding="utf-8"))
    return {_END.split(f"{text} ")[0].strip() for text in found if "─" not in text} - {"", "..."}


def check(command: click.Command, arguments: list[str]) -> None:
    """Raise `click.UsageError` for a command or an option that does not exist; values may be placeholders."""
    with click.Context(command) as context:
        if isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
            if arguments[0] not in command.commands:
                raise click.UsageError(f"no command {arguments[0]}")
            check(command.commands[arguments[0]], arguments[1:])
        else:
            command.make_parser(context).parse_args(arguments)


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_commands_are_found() -> None:
    assert len(set().union(*map(written, DOCUMENTS))) > 50


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_of_the_documents_exist(document: Path) -> None:
    refused = {}
    for text in written(document):
        try:
            check(main, shlex.split(text))
        except click.UsageError as error:
            refused[text] = error.message

    assert refused == {}

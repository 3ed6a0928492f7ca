"""`airflow mv ...`: the commands of `amv` as Airflow commands, with the database and warehouse configured in Airflow.

Airflow loads every provider's commands for each `airflow` command and builds all their parsers. Importing ours takes a
second, so only `airflow mv` imports them; for any other command the group is empty. Before Airflow 3.2 providers have
no commands: `airflow-mv ...` is the same in every version.
"""

from __future__ import annotations

import logging
import os
import sys
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand

from airflow_mv_provider.exceptions import ConnectionUnknownError

if TYPE_CHECKING:
    import click

    from airflow_mv_provider.sources.credentials import Credentials, Lookup

_HELP = "Refreshable Delta tables"
_TAIL = "The commands of `amv`, with the settings that Airflow uses for its tasks."


def program() -> None:
    """Run the program `airflow-mv`."""
    from airflow_mv_provider.cli.main import main

    main(prog_name="airflow-mv", obj=_lookup_of_exported_settings())


def get_commands() -> list[CLICommand]:
    """Return the group `mv`; Airflow finds this function by the `cli` entry of the provider's info."""
    if "mv" not in sys.argv[1:2]:
        return [GroupCommand("mv", _HELP, (), _TAIL)]
    from airflow_mv_provider.cli.grouped import GroupedCommands
    from airflow_mv_provider.cli.main import main

    assert isinstance(main, GroupedCommands)
    return [GroupCommand("mv", _HELP, _subcommands(main, ()), f"{_TAIL}\n\n{_of_airflow(main.first_examples)}")]


def _subcommands(group: click.Group, path: tuple[str, ...]) -> list[CLICommand]:
    import click

    found: list[CLICommand] = []
    for name, command in sorted(group.commands.items()):
        words, text = (*path, name), command.get_short_help_str(200)
        if isinstance(command, click.Group):
            found.append(GroupCommand(name, text, _subcommands(command, words)))
        else:
            args = [_arg(param) for param in command.params]
            more = _of_airflow((command.epilog or "").replace("\b\n", "\n"))
            found.append(ActionCommand(name, text, partial(_run, words, command), args, f"{command.help}\n{more}"))
    return found


def _of_airflow(examples: str) -> str:
    return examples.replace("  amv ", "  airflow mv ")


def _arg(param: click.Parameter) -> Arg:
    """Return an argument for Airflow's parser, which takes every value as text; click checks the value later."""
    import click

    # A per cent sign begins a placeholder in argparse's help texts.
    text = (getattr(param, "help", None) or "").replace("%", "%%") or None
    if not isinstance(param, click.Option):
        nargs = "+" if param.nargs == -1 else None if param.required else "?"
        return Arg(flags=(param.name or "",), help=param.make_metavar(_context()).replace("%", "%%"), nargs=nargs)  # type: ignore[no-untyped-call]
    action: str | None = "store_true" if param.is_flag else "append" if param.multiple else None
    dest: dict[str, Any] = {"dest": _dest(param)}
    if action != "store_true":
        dest["metavar"] = param.make_metavar(_context())
    return Arg(flags=tuple(param.opts), help=text, action=action, default=None, **dest)  # type: ignore[no-untyped-call]


def _context() -> click.Context:
    import click

    return click.Context(click.Command("mv"))


def _dest(param: click.Parameter) -> str:
    # Airflow's own parser uses some of the plain names, such as `func` and `subcommand`.
    return f"amv_{param.name}"


def _run(path: tuple[str, ...], command: click.Command, args: Namespace) -> None:
    """Run a command of `amv` as if it had been typed, and exit with its exit code."""
    from airflow_mv_provider.cli.main import main

    main(args=[*path, *_typed(command, args)], prog_name="airflow mv", obj=_lookup_of_exported_settings())


def _typed(command: click.Command, args: Namespace) -> list[str]:
    import click

    words: list[str] = []
    for param in command.params:
        if not isinstance(param, click.Option):
            continue
        value = getattr(args, _dest(param))
        for each in value if isinstance(value, list) else [value]:
            if each is True:
                words.append(param.opts[0])
            elif each not in (None, False):
                words.append(f"{param.opts[0]}={each}")
    words.append("--")
    for param in command.params:
        if not isinstance(param, click.Option):
            value = getattr(args, param.name or "")
            words += value if isinstance(value, list) else [] if value is None else [value]
    return words


def _lookup_of_exported_settings() -> Lookup:
    """Set `amv`'s environment variables from Airflow's configuration; command line options still take precedence.

    Returns:
        What finds the connection of a source: where Airflow has it, or in the environment.
    """
    _log_to_stderr()
    # As `airflow connections get` does: else Airflow does not look into its own database.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    from airflow_mv_provider.hooks.mv import MvHook
    from airflow_mv_provider.sources.credentials import of_environment

    hook = MvHook()
    os.environ.update(hook.environment())

    def found(conn_id: str) -> Credentials:
        try:
            return hook.credentials(conn_id)
        except ConnectionUnknownError:
            return of_environment(conn_id)

    return found


def _log_to_stderr() -> None:
    """Leave stdout, where Airflow's log goes to, to the answer.

    Importing our tables' classes is enough for a line: SQLAlchemy's mappers are set up, at which Airflow imports all of
    its own models, and with them Alembic, which lists its plugins.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)

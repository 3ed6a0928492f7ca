"""A group of commands whose help lists them by what a person wants to do, the usual ones first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class GroupedCommands(click.Group):
    """A group whose help has its commands under titles, and examples at its end.

    sections : the commands by title; every command has to be under one
    examples : command lines, with what each does
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Sequence[str]],
        examples: Sequence[tuple[str, str]],
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.sections, self.examples = sections, examples

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        width = formatter.width - 12
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        with formatter.section("Examples"):
            formatter.write_dl(list(self.examples))

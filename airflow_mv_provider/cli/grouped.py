"""A group of commands whose help lists them by what a person wants to do, the usual ones first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class GroupedCommands(click.Group):
    """A group whose help has its commands under titles, and examples at its end; so has that of each command.

    sections : the commands by title; every command has to be under one
    examples : command lines, with what each does; the group shows the first `num_shown`, a command its own
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Sequence[str]],
        examples: Sequence[tuple[str, str]],
        num_shown: int,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.sections, self.examples, self._num_shown = sections, examples, num_shown

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, with its examples."""
        super().add_command(cmd, name)
        mine = [each for each in self.examples if each[0].split()[1] == (name or cmd.name)]
        if mine:
            cmd.epilog = f"\b\n{examples_text(mine)}"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        width = formatter.width - 12
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        formatter.write(f"\n{self.first_examples}\n")

    @property
    def first_examples(self) -> str:
        return examples_text(self.examples[: self._num_shown])


def examples_text(examples: Sequence[tuple[str, str]]) -> str:
    """Return command lines, each below what it does."""
    return "\n".join(["Examples:", *(f"  # {meaning}\n  {line}" for line, meaning in examples)])

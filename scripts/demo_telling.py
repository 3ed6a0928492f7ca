"""What the demos print: their steps, and `amv` commands with what these answer."""

from __future__ import annotations

import re
import subprocess  # nosec B404  # to run this package as people do, without a shell
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent


class Amv:
    """The command `amv` in a demo's own environment; `log` is where the demo's processes write."""

    def __init__(self, environment: Callable[[], Mapping[str, str]], log: Path) -> None:
        self._environment = environment
        self._log = log

    def __call__(self, *arguments: str, exit_code: int = 0) -> None:
        """Run a command and print its output unchanged.

        exit_code : the one that the demo goes on with; any other ends it
        """
        print(f"  $ amv {' '.join(map(_quoted, arguments))}", flush=True)
        done = self._run(*arguments)
        print("\n".join("  " + line if line else "" for line in done.stdout.splitlines()) + "\n")
        if done.returncode != exit_code:
            self.fail(f"It ended with exit code {done.returncode} instead of {exit_code}.")

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command that the demo is to kill; what it prints goes to the log."""
        print(f"  $ amv {' '.join(map(_quoted, arguments))} &", flush=True)
        with self._log.open("ab") as log:
            return subprocess.Popen(  # nosec B603  # our own words alone
                self._words(*arguments), env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @contextmanager
    def server(self) -> Iterator[None]:
        """Start Spark once for several commands, which find it by themselves."""
        self("server", "start")
        try:
            yield
        finally:
            self._run("server", "stop")

    def fail(self, problem: str) -> NoReturn:
        """End the demo with the problem, our last error in the log if there is one, and the log's path."""
        said = self._log.read_text(errors="replace") if self._log.exists() else ""
        errors = re.findall(r"\[MV-[A-Z-]+\] [^\n]{1,300}", said)
        reason = f"\n{errors[-1]}" if errors else ""
        raise SystemExit(f"\n{problem}{reason}\nThe whole log is in {shown(self._log)}.")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command; its stdout and stderr are one text."""
        return subprocess.run(  # nosec B603  # our own words alone
            self._words(*arguments),
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def _words(self, *arguments: str) -> list[str]:
        return [str(Path(sys.executable).with_name("amv")), *arguments]


def title(step: int, text: str) -> None:
    """Begin a step."""
    print(f"\n{step}  {text}\n", flush=True)


def say(text: str) -> None:
    """Print a line of a step."""
    print(f"  {text}", flush=True)


def shown(path: Path) -> str:
    """Return a path as somebody in the checkout would write it."""
    return str(path.relative_to(ROOT))


def _quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument else argument

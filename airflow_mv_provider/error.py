"""One error: a code, and a message of three parts. `exceptions` has the tree of all of them."""

from __future__ import annotations

from typing import Any, ClassVar, Self

_MAX_WHERE, _MAX_PROBLEM = 300, 3000


class MvError(Exception):
    """The root of the tree. Keyword arguments are kept in `facts` and survive pickling."""

    code: ClassVar[str] = "MV-ERROR"
    hint: ClassVar[str] = ""
    is_transient: ClassVar[bool] = False

    def __init__(self, where: str, problem: str, *, hint: str | None = None, **facts: Any) -> None:
        self.where = where = one_line(where, _MAX_WHERE)
        self.problem = problem = one_line(problem, _MAX_PROBLEM)
        self.advice = type(self).hint if hint is None else hint
        self.facts = facts
        super().__init__(f"[{self.code}] {where}: {problem} {self.advice}".rstrip())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.where, self.problem, self.advice, self.facts)

    def advising(self, hint: str) -> Self:
        """Return the same error with another hint."""
        return type(self)(self.where, self.problem, hint=hint, **self.facts)

    @property
    def message(self) -> str:
        """Location and problem, without the code and the hint."""
        return f"{self.where}: {self.problem}"


def one_line(text: str, most: int) -> str:
    """Return a text on one line, cut to `most` characters, with unprintable characters escaped."""
    text = text if len(text) <= most else text[: most - 3] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _rebuild(cls: type[MvError], where: str, problem: str, advice: str, facts: dict[str, Any]) -> MvError:
    return cls(where, problem, hint=advice, **facts)


class TransientError(MvError):
    """A retry may succeed."""

    code = "MV-TRANSIENT"
    hint = "Try again."
    is_transient = True


class TerminalError(MvError):
    """A person must act."""

    code = "MV-TERMINAL"

"""How errors are built, and what they say."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from airflow_mv_provider import exceptions
from airflow_mv_provider.exceptions import MvError, TerminalError, TransientError


def every_error() -> list[type[MvError]]:
    return [c for _, c in inspect.getmembers(exceptions, inspect.isclass) if issubclass(c, MvError)]


PUBLIC_ERRORS = [c for c in every_error() if c not in (MvError, TransientError, TerminalError)]


def drawn_tree() -> dict[str, str | None]:
    """Return the tree in the module's header: each class with the one it hangs on."""
    parents: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in (exceptions.__doc__ or "").splitlines():
        found = re.match(r"([ │├└─]*)([A-Z]\w*Error)\b", line)
        if not found:
            continue
        depth = len(found.group(1))
        path = [(d, name) for d, name in path if d < depth]
        parents[found.group(2)] = path[-1][1] if path else None
        path.append((depth, found.group(2)))
    return parents


def test_error_tree_is_drawn_as_it_is():
    real = {c.__name__: None if c is MvError else c.__base__.__name__ for c in every_error()}

    drawn = drawn_tree()

    assert drawn == real


@pytest.mark.parametrize("error", PUBLIC_ERRORS, ids=lambda c: c.__name__)
def test_error_has_a_code_and_a_hint(error):
    assert re.fullmatch(r"MV(-[A-Z]+)+", error.code)
    assert "code" in vars(error), f"{error.__name__} inherits its code: programs cannot tell it from its parent"
    assert error.hint, f"{error.__name__} says nothing about what to do next"
    assert error.__mro__.count(TransientError) + error.__mro__.count(TerminalError) == 1
    assert error.is_transient is issubclass(error, TransientError)


def test_error_codes_are_unique():
    codes = [c.code for c in every_error()]

    assert sorted(codes) == sorted(set(codes))


OF_REPORTS_ONLY = {"MV-ABANDONED"}  # nobody raises it: the process of which it is reported is gone


def test_error_codes_in_decisions_exist():
    named = {
        (str(path), code)
        for room in ("core", "metadata")
        for path in (Path(exceptions.__file__).parent / room).rglob("*.py")
        for code in re.findall(r'"(MV-[A-Z-]+)"', path.read_text(encoding="utf-8"))
    }

    known = {c.code for c in every_error()} | OF_REPORTS_ONLY
    unknown = {(path, code) for path, code in named if code not in known}

    assert not unknown, "a decision names a code that no error has"


@pytest.mark.parametrize("error", every_error(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("hint", [None, "", "Do this."])
def test_error_survives_pickling(error, hint):
    before = error("orders", "expected 1, found 2.", hint=hint, keys=["a", None], epoch=3)

    after = pickle.loads(pickle.dumps(before))

    assert type(after) is error
    assert (str(after), after.args, vars(after)) == (str(before), before.args, vars(before))
    assert (after.code, after.advice) == (error.code, error.hint if hint is None else hint)


def test_error_message_says_where_what_and_what_next():
    error = exceptions.MainMovedError("gold.orders", "expected upper 41, found 43.", hint="Mint a new batch.")

    assert str(error) == "[MV-MAIN-MOVED] gold.orders: expected upper 41, found 43. Mint a new batch."
    assert error.message == "gold.orders: expected upper 41, found 43."

"""An error's text: one line that fits a log and commands no terminal, whatever the names and values in it are."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.outcome import error_report
from airflow_mv_provider.core.scope.scope import asked_scope
from airflow_mv_provider.exceptions import DefinitionError, DuplicateKeyError, MvError, TableNotFoundError

HOSTILE = [
    *("x\n[2026-01-01] INFO - all is well", "x\r\x1b[2K", "\x1b]0;title\x07", "\x00", "\u202egnp.exe", "a\u2028b"),
    *("\ud800", "\x9b31m"),
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("build", [TableNotFoundError, lambda text, _: DefinitionError("scope", text)])
def test_a_name_cannot_write_a_line_of_its_own(text, build):
    error = build(text, "what it is.")

    assert str(error).isprintable()
    assert error_report(error).message.isprintable()
    str(error).encode("utf-8")


def test_a_long_key_is_cut_and_the_hint_stays():
    error = DuplicateKeyError("orders", f"more than one row has {'k' * 1_000_000}.")

    assert len(str(error)) < 4000
    assert str(error).endswith(DuplicateKeyError.hint)


@given(st.text(), st.text())
def test_a_text_is_the_same_after_a_process_boundary(where, problem):
    error = MvError(where, problem)

    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error).isprintable()


def test_what_people_can_read_is_left_alone():
    assert str(MvError("größe", "'🙂' and `tick` 100 %")) == "[MV-ERROR] größe: '🙂' and `tick` 100 %"


def test_a_bound_from_a_form_writes_no_line_either():
    scope = asked_scope([], "a\nINFO - forged\x1b[31m", "b")

    assert scope.describe().isprintable()


def test_every_code_that_people_see_is_explained_and_no_other_is_named():
    root = Path(__file__).parents[2]
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted(root.glob("docs/*.md")))

    def below(kind: type[MvError]) -> list[type[MvError]]:
        return [each for sub in kind.__subclasses__() for each in (sub, *below(sub))]

    known = below(MvError)
    assert [kind.__name__ for kind in known if not kind.__subclasses__() and kind.code not in pages] == []
    codes = {kind.code for kind in known} | {"MV-UNEXPECTED", "MV-ABANDONED"}
    assert set(re.findall(r"\bMV-[A-Z-]*[A-Z]\b", pages)) <= codes

"""Every error that docs/inputs.md promises for a kind of bad input is one that a user can meet, with its advice."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from airflow_mv_provider import exceptions

TEXT = (Path(__file__).parent.parent / "docs/inputs.md").read_text(encoding="utf-8")


def test_errors_that_are_promised_exist_and_advise():
    hints = {
        each.code: each.hint for each in vars(exceptions).values() if inspect.isclass(each) and hasattr(each, "code")
    }
    named = set(re.findall(r"`(MV-[A-Z-]+)`", TEXT))

    assert len(named) > 20
    assert all(hints[code] for code in named)

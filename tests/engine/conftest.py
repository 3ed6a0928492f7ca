"""Tables that tests of the engine begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.refusing import GOOD, csv


@pytest.fixture
def good(prepared: Callable[..., Any]) -> Any:
    """A table that was published once."""

    def build(lake: Any) -> None:
        lake.write(GOOD)
        lake.apply()
        lake.refresh()

    return prepared("good", build)


@pytest.fixture
def good_csv(prepared: Callable[..., Any]) -> Any:
    """A table that was published once, from one CSV file."""

    def build(lake: Any) -> None:
        csv(lake, good="id,v\n1,a\n")
        lake.refresh()

    return prepared("good-csv", build)

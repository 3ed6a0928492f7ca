"""What the tests of bad input share: sources that are good, and what every refusal has to leave behind."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    MvError,
)

GOOD = "SELECT id, concat('v', id) AS v FROM range(10)"
HEADER = "id,v\n"


def refused(lake: Any, error: type[MvError], *parts: str, **more: Any) -> MvError:
    """Refresh, expect `error` with `parts` in its message, and main, phase and files as before."""
    before = lake.rows("orders") if (lake.root / "orders").exists() else None
    with pytest.raises(error) as caught:
        lake.refresh(**more)
    text = str(caught.value)
    assert all(part in text for part in parts), text
    assert caught.value.advice, "an error without a hint"
    assert "\tat " not in text
    assert "Traceback" not in text
    assert (lake.rows("orders") if before is not None else None) == before
    assert lake.phase() == "NORMAL"
    assert lake.workspaces() == []
    history = lake.store.history(lake.store.table("orders").id, 1)
    assert not history or history[0].outcome is not Outcome.RUNNING
    return caught.value


def csv(lake: Any, **files: str | bytes) -> None:
    """Write CSV files under raw/csv and make them the source of `orders`."""
    folder = lake.root / "raw/csv"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    lake.apply(source=Files("raw/csv/*.csv", format="csv", schema="id BIGINT, v STRING"))

"""A refresh that waits for a decision, and what a person decides."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.exceptions import RefreshHeldError

GUARDED: dict[str, Any] = {"guards": {"max_deleted_fraction": 0.1}, "approval": "guards"}


def lose_rows(lake: Any, **changes: Any) -> None:
    """Publish ten rows; then the source loses four of them and changes one."""
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(10)")
    lake.apply(**GUARDED, **changes)
    lake.refresh()
    lake.sql("DELETE FROM {t} WHERE id < 4", path="raw/orders")
    lake.sql("UPDATE {t} SET v = 'b' WHERE id = 5", path="raw/orders")


def held(lake: Any, **request: Any) -> Any:
    """Refresh, and return the error that says that it is held."""
    with pytest.raises(RefreshHeldError) as caught:
        lake.refresh(**request)
    return caught.value


def decide(lake: Any, decision: Decision, **more: Any) -> Any:
    return lake.refresher().decide("orders", decision, lake.caller(user="ann"), "I have looked", **more)

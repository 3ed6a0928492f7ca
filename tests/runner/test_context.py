"""What a log says of where Spark runs, and which table is read in a state that several share."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Caller, TableRecord
from airflow_mv_provider.exceptions import (
    EngineError,
    InterruptedRefreshError,
    RefreshInProgressError,
    TableNotFoundError,
)
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.context import Context, spark_place
from airflow_mv_provider.runner.settings import Settings
from tests.conftest import a_table
from tests.core.test_state import STATE


@pytest.mark.parametrize(
    ("remote", "said"),
    [
        (None, "in this process"),
        ("sc://spark.example:15002", "Connect, spark.example:15002"),
        ("sc://spark.example:15002/;token=hunter2", "Connect, spark.example:15002"),
    ],
)
def test_a_log_names_the_place_of_spark_and_no_token(remote, said):
    assert spark_place(remote) == said
    assert remote is None or remote not in said, "Airflow would mask the whole address, which is a secret of its own"


def test_table_that_took_the_name_of_another_is_not_read_in_the_state_of_a_run():
    table = TableRecord(1, "orders", "uuid", "/wh", "/wh/orders", a_table())
    caller, at_rest = Caller("dag/run/2", "host:1"), replace(STATE, phase=Phase.NORMAL, published_upper=3)
    context = Context(Store(open_engine("sqlite://")), Settings(database_url="sqlite://", warehouse="/wh"))

    with context.sharing(table, object(), fixed_ms=1, fixed_at=3):
        context.check_can_begin(table, at_rest, caller)
        with pytest.raises(RefreshInProgressError):
            context.check_can_begin(table, replace(at_rest, published_upper=4), caller)
        with pytest.raises(TableNotFoundError, match="registered again"):
            context.check_can_begin(replace(table, id=2), at_rest, caller)

    context.check_can_begin(replace(table, id=2), at_rest, caller)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_process_that_is_stopped_while_spark_starts_says_so(is_stopped):
    """The signal that ends a task ends the JVM that it is starting, too."""

    def start() -> NoReturn:
        if is_stopped:
            context.interrupt()
        raise EngineError("Spark", "the server did not start: the JVM has ended.")

    context = Context(Store(open_engine("sqlite://")), Settings(database_url="sqlite://", warehouse="/wh"), start)

    with pytest.raises(InterruptedRefreshError if is_stopped else EngineError):
        _ = context.spark

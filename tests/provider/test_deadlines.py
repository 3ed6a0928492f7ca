# ruff: noqa: TID251  a test looks into Airflow's own database, as neither tasks nor triggers can
"""Deadlines of runs: a run is to end before its table is late, or somebody is told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.migrations import migrate
from airflow_mv_provider.metadata.store import Store
from tests.airflow_home import DAGS
from tests.conftest import a_table
from tests.metadata.rows import acquired, registered, walk

pytestmark = pytest.mark.slow

DAG_FILE = """
from airflow.sdk import AsyncCallback
from airflow_mv_provider.notifications import FreshnessNotifier
from airflow_mv_provider.operators.factory import refresh_dags

told = AsyncCallback(FreshnessNotifier, {"http_conn_id": "alerts", "prefix": "@data"})
globals().update(refresh_dags("late.yaml", on_late=told))
"""
BY_SOURCE = {"target": "1h", "measured_from": "source"}


@pytest.fixture
def store(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'mv.db'}"
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", url)
    monkeypatch.setenv("AIRFLOW__MV__WAREHOUSE", str(tmp_path))
    engine = open_engine(url)
    migrate(engine)
    yield Store(engine)
    engine.dispose()


@pytest.fixture
def dag(airflow):
    """The DAG that a definition file makes, of a table whose age counts from its source."""
    tables = [
        {"name": name, "source": {"type": "delta", "path": "raw/orders"}, "key": ["id"], **more}
        for name, more in (("late_orders", {"freshness": BY_SOURCE}), ("whenever", {}))
    ]
    (DAGS / "late.yaml").write_text(yaml.safe_dump({"tables": tables}))
    return airflow.register(airflow.load("refresh_late_orders", DAG_FILE))


def deadlines_of(airflow, dag, session):
    from airflow.models.deadline import Deadline
    from sqlalchemy import select

    run = airflow.create_run(dag, session)
    session.flush()
    return list(session.scalars(select(Deadline).where(Deadline.dagrun_id == run.id)))


def test_a_run_is_to_end_before_its_table_is_late_and_who_is_to_be_told_is(store, airflow, dag, webhook):
    from airflow.triggers.callback import CallbackTrigger
    from airflow.utils.session import create_session

    table = registered(store, "late_orders", freshness=BY_SOURCE)
    state_ms = store.now_ms() - 7_200_000
    walk(store, acquired(store, table, source_ms=state_ms), Phase.NORMAL)

    with create_session() as session:
        [deadline] = deadlines_of(airflow, dag, session)
        assert deadline.deadline_time == datetime.fromtimestamp(state_ms / 1000, UTC) + timedelta(hours=1)
        deadline.handle_miss(session)  # as the scheduler does, once that time has passed
        trigger = CallbackTrigger(deadline.callback.data["path"], deadline.callback.data["kwargs"])
        run_id = deadline.dagrun.run_id
        assert deadlines_of(airflow, airflow.register(airflow.load("refresh_whenever")), session) == []
        session.rollback()

    async def events():
        return [event.payload async for event in trigger.run()]

    assert [str(event["state"]) for event in asyncio.run(events())] == ["running", "success"]
    [(path, document)] = webhook
    assert path == "/services/T0/s3cr3t"
    since = datetime.fromtimestamp(state_ms / 1000 + 3600, UTC).strftime("%Y-%m-%d %H:%M:%S")
    assert document["text"] == (
        f"@data late_orders: is late since {since} UTC; its target is 1 h, since the source came to the state that the"
        f" table has. DAG refresh_late_orders, run {run_id}. /mv/tables/late_orders"
    )
    assert (document["table"]["is_late"], document["table"]["freshness_target"]) == (True, 3600)


@pytest.mark.parametrize("is_known", [True, False], ids=["never refreshed", "not registered"])
def test_a_table_without_a_good_refresh_has_one_target_of_time(store, airflow, dag, is_known):
    from airflow.utils.session import create_session

    if is_known:
        registered(store, "late_orders", freshness=BY_SOURCE)
    before = datetime.fromtimestamp(store.now_ms() / 1000, UTC)

    with create_session() as session:
        [deadline] = deadlines_of(airflow, dag, session)
        late = deadline.deadline_time - timedelta(hours=1)
        session.rollback()

    assert before <= late <= datetime.fromtimestamp(store.now_ms() / 1000, UTC)


def test_without_the_database_a_run_begins_and_has_no_deadline(monkeypatch, tmp_path, airflow, dag, caplog):
    from airflow.utils.session import create_session

    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path / 'nowhere' / 'mv.db'}")
    monkeypatch.setenv("AIRFLOW__MV__WAREHOUSE", str(tmp_path))

    with create_session() as session:
        assert deadlines_of(airflow, dag, session) == []
        session.rollback()

    assert "late_orders: its run has no deadline" in caplog.text


def test_the_session_that_creates_a_run_survives_a_look_at_a_connection(monkeypatch, tmp_path, store, airflow, dag):
    """Airflow's own database is where connections are; the scheduler's session of it belongs to its thread."""
    from airflow.models.connection import Connection
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.sqlalchemy import prohibit_commit

    registered(store, "late_orders", freshness=BY_SOURCE)
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.delenv("AIRFLOW__MV__WAREHOUSE")
    with create_session() as session:
        session.add(Connection("mv_state_default", "mv", extra={"warehouse": str(tmp_path)}))

    try:
        with create_session() as session, prohibit_commit(session) as guard:
            [deadline] = deadlines_of(airflow, dag, session)
            assert deadline.deadline_time > datetime.now(UTC), "the connection was found"
            guard.commit()  # as the scheduler does for all runs that it has created
            session.delete(session.get(DagRun, deadline.dagrun_id))
            guard.commit()
    finally:
        with create_session() as session:
            session.query(Connection).filter_by(conn_id="mv_state_default").delete()


def test_a_table_without_a_target_has_no_deadline_and_the_message_says_what_to_add():
    from airflow.sdk import AsyncCallback

    from airflow_mv_provider.deadlines import freshness_deadline
    from airflow_mv_provider.notifications import FreshnessNotifier

    told = AsyncCallback(FreshnessNotifier, {"table": "orders"})
    with pytest.raises(DefinitionError, match="no freshness target") as raised:
        freshness_deadline(a_table(), told)
    assert "freshness: {target: 1h}" in raised.value.advice


def test_as_a_tasks_callback_it_says_how_fresh_the_table_is(store, airflow, webhook, capsys):
    from airflow_mv_provider.notifications import FreshnessNotifier

    table = registered(store, "orders", freshness={"target": 3600})
    FreshnessNotifier("orders").notify({})
    walk(store, acquired(store, table), Phase.NORMAL)

    FreshnessNotifier("orders", "alerts").notify({})

    assert "orders: late: no refresh of everything has succeeded; its target is 1 h." in capsys.readouterr().out
    assert "orders: is not late before " in webhook[0][1]["text"]

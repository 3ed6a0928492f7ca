"""A password that must show nowhere: in no log at any level, file, commit, row, report or answer.

The event log of a submitted program is looked through in tests/cli/test_spark_submit.py, Airflow's side of it (XCom,
serialized DAG, the errors of its tasks) in tests/provider.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from airflow_mv_provider import Function
from airflow_mv_provider.core.outcome import error_report
from airflow_mv_provider.exceptions import DuplicateKeyError, MetadataUnavailableError, MvError, SourceFunctionError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.report_text.history_text import history_text
from airflow_mv_provider.report_text.refresh_text import error_text, refresh_text
from airflow_mv_provider.report_text.status_text import status_text
from tests.conftest import Crash, Lake

pytestmark = [pytest.mark.slow]

CANARY = "c4n4ry-p4ss"


@pytest.fixture
def lake(lake: Lake, postgres: Any) -> Iterator[Lake]:
    """A lake whose database's address has a password; the server takes any."""
    url = make_url(postgres.new_database()).set(password=CANARY).render_as_string(hide_password=False)
    engine = open_engine(url)
    migrations.migrate(engine)
    yield replace(lake, store=Store(engine, lake.clock.now), settings=replace(lake.settings, database_url=url))
    engine.dispose()


def test_password_shows_nowhere(lake, postgres, crash_at, caplog, capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("AMV_DATABASE_URL", lake.settings.database_url)  # what Spark's processes inherit
    caplog.set_level(logging.INFO, logger="py4j")  # else fifty thousand lines, of each call to the JVM
    caplog.set_level(logging.DEBUG)  # last: it is what is captured of all others
    raised: list[BaseException] = []

    def fails(kind: type[BaseException], lake: Lake = lake) -> None:
        with pytest.raises(kind) as caught:
            lake.refresh()
        raised.append(caught.value)

    lake.write("SELECT id, 'v' AS v FROM range(5)")
    lake.apply()
    reports = [lake.refresh()]
    lake.write("SELECT id, 'w' AS v FROM range(6)")
    crash_at("publish.before")
    fails(Crash)
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    lake.write("SELECT 1L AS id, 'v' AS v FROM range(2)")
    fails(DuplicateKeyError)  # after it has taken over and published what the crash had left
    (tmp_path / "leaky.py").write_text("import os\ndef rows(spark): raise ValueError(os.environ['AMV_DATABASE_URL'])\n")
    monkeypatch.syspath_prepend(tmp_path)
    lake.apply(source=Function("leaky:rows"))
    fails(SourceFunctionError)
    rows = _rows(lake)
    table = lake.store.table("orders")
    history = lake.store.history(table.id)
    told = [refresh_text(report) for report in (*reports, *history)]
    told += [status_text(lake.store.status(table)), history_text("orders", history), repr(lake.settings)]
    told += [json.dumps(report.to_json()) for report in (*reports, *history)]
    away = open_engine(make_url(lake.settings.database_url).set(port=1).render_as_string(hide_password=False))
    fails(MetadataUnavailableError, replace(lake, store=Store(away, lake.clock.now)))
    told += [str(error) + error_text(error_report(error)) for error in raised if isinstance(error, MvError)]
    told += ["".join(traceback.format_exception(error)) for error in raised if not _is_of_an_author(error)]

    assert rows.count("\n") > 10, "the database was looked through"
    ours = {record.levelname for record in caplog.records if record.name.startswith("airflow_mv_provider")}
    assert "DEBUG" in ours, "all levels were looked through"
    files = [path for path in lake.root.rglob("*") if path.is_file()]
    assert any(path.parent.name == "_delta_log" for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    spoken = capfd.readouterr()
    for place, what in {"rows": rows, "logs": caplog.text, "output": spoken.out + spoken.err}.items():
        assert CANARY not in what, place
    assert [one for one in told if CANARY in one] == []


def _rows(lake: Lake) -> str:
    """All rows of all tables, one a line."""
    with lake.store.engine.begin() as db:
        rows = [row for name in Base.metadata.tables for row in db.execute(text(f"SELECT * FROM {name}"))]
    return "".join(f"{row}\n" for row in rows)


def _is_of_an_author(error: BaseException) -> bool:
    """The cause of a function's error is its author's, text and all; what we say of it is in `str`."""
    return isinstance(error, SourceFunctionError)

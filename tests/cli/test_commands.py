"""The commands that need no Spark: what they say, their exit codes, and what they never print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from airflow_mv_provider.core.batch import BatchDescription
from airflow_mv_provider.core.definition.document import json_schema
from airflow_mv_provider.core.outcome import ErrorReport, Outcome
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.state import Caller, RefreshRecord
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier

ORDERS = "tables: [{name: orders, source: {type: delta, path: raw/orders}, key: [id]}]"
ITEMS = "tables: [{name: items, source: {type: delta, path: raw/items}, key: [id]}]"


def begin_elsewhere(amv, refresh_id="a" * 32, **changes):
    """Another process takes the table."""
    table = amv.store.table("orders")
    state = amv.store.state(table.id)
    refresh = RefreshRecord(
        id=refresh_id,
        table_id=table.id,
        definition=table.definition,
        overrides=(),
        batch=BatchDescription(0, 1),
        frontier=DeltaFrontier("id", 0),
        choice=Choice("corrections", "first refresh"),
        **changes,
    )
    own = amv.store.acquire(state, refresh, Caller("other", "elsewhere:1"), epoch=state.epoch + 1, lease_ms=60_000)
    assert own is not None
    return own


# -- apply --


def test_apply_registers_every_table_of_every_file(amv):
    said = amv("apply", amv.file(ORDERS), amv.file(ITEMS, "items.yaml"), "--json")

    assert said.code == 0
    assert [t["table"] for t in said.document["tables"]] == ["orders", "items"]
    assert [t["table"] for t in amv("status", "--json").document["tables"]] == ["items", "orders"]


def test_apply_with_a_mistake_in_the_last_file_registers_nothing(amv):
    said = amv("apply", amv.file(ORDERS), amv.file("tables: [{name: t, colour: red}]", "bad.yaml"), "--json")

    assert said.code == 1
    assert "colour" in said.document["error"]["message"]
    assert "bad.yaml" in said.document["error"]["message"]
    assert amv("status", "--json").document == {"tables": []}


def test_apply_refuses_one_name_in_two_files(amv):
    said = amv("apply", amv.file(ORDERS), amv.file(ORDERS, "again.yaml"))

    assert said.code == 1
    assert "'orders' is also defined in" in said.err


def test_apply_without_a_warehouse_says_how_to_name_one(amv, run_amv):
    said = run_amv("apply", amv.file(ORDERS), "--database", amv.url)

    assert said.code == 1
    assert "--warehouse DIR" in said.err


def test_apply_tells_what_was_registered_before_a_refusal(amv):
    inside = "tables: [{name: raw, source: {type: delta, path: raw/x}, key: [id]}]"

    said = amv("apply", amv.file(ORDERS), amv.file(inside, "inside.yaml"), "--json")

    assert said.code == 1
    assert [t["table"] for t in said.document["tables"]] == ["orders"]
    assert said.document["error"]["code"] == "MV-LOCATION"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_apply_names_a_file_that_cannot_be_read(amv, content):
    path = Path(amv.root / "odd.yaml")
    if content is not None:
        path.write_bytes(content)

    said = amv("apply", str(path))

    assert said.code == 1
    assert "odd.yaml" in said.err


# -- status, history, cancel --


def test_status_of_an_empty_database_says_how_to_begin(amv):
    assert "amv apply" in amv("status").out


def test_status_shows_who_is_at_work(amv):
    amv("apply", amv.file(ORDERS))
    begin_elsewhere(amv)

    said, shown = amv("status", "orders", "--json"), amv("status", "orders").out

    assert (said.document["phase"], said.document["owner"]) == ("REFRESHING", "elsewhere:1")
    assert said.document["is_lease_live"] is True
    assert "elsewhere:1" in shown
    assert "its lease is live" in shown


def test_history_is_newest_first_and_limited(amv):
    amv("apply", amv.file(ORDERS))
    for outcome, refresh_id in ((Outcome.FAILED, "a" * 32), (Outcome.CANCELLED, "b" * 32)):
        own = begin_elsewhere(amv, refresh_id)
        amv.store.abandon(own, outcome, ErrorReport("MV-X", "orders: it broke.", "Mend it."), {})

    said = amv("history", "orders", "--json")

    assert [r["outcome"] for r in said.document["refreshes"]] == ["cancelled", "failed"]
    assert len(amv("history", "orders", "--limit", "1", "--json").document["refreshes"]) == 1
    assert "it broke" in amv("history", "orders").out


def test_the_ledger_shows_what_was_done_and_what_is_missing(amv):
    amv("apply", amv.file(ORDERS))
    own = begin_elsewhere(amv, scope=Scope(start="2026-01-02", end="2026-01-03"))
    amv.store.abandon(own, Outcome.FAILED, ErrorReport("MV-X", "orders: it broke.", "Mend it."), {})

    said = amv("ledger", "orders", "--from", "2026-01-01", "--until", "2026-01-03", "--json")
    text = amv("ledger", "orders", "--from", "2026-01-01").out

    states = [(e["start"], e["end"], e["state"], e["refresh_id"]) for e in said.document["intervals"]]
    assert states == [
        ("2026-01-01", "2026-01-02", "missing", None),
        ("2026-01-02", "2026-01-03", "failed", own.refresh_id),
    ]
    assert [line.split()[2] for line in text.splitlines()] == ["state", "missing", "failed"]


def test_cancel_asks_a_refresh_under_way(amv):
    amv("apply", amv.file(ORDERS))
    nothing = amv("cancel", "orders", "--json")
    begin_elsewhere(amv)

    asked = amv("cancel", "orders", "--json")

    assert (nothing.code, nothing.document["requested"]) == (0, False)
    assert (asked.code, asked.document["requested"]) == (0, True)
    assert amv("status", "orders", "--json").document["is_cancel_requested"] is True
    assert "requested" in amv("status", "orders").out


# -- waiting --

QUEUED = ORDERS.replace("key: [id]", "key: [id], concurrency: queue")


def test_who_may_wait_no_longer_says_for_whom_and_leaves_the_queue(amv):
    amv("apply", amv.file(QUEUED))
    begin_elsewhere(amv)

    said = amv("refresh", "orders", "--wait", "0", "--json")

    assert (said.code, said.document["error"]["code"]) == (75, "MV-REFRESH-IN-PROGRESS")
    message = said.document["error"]["message"]
    assert "elsewhere:1 is refreshing it since 2" in message
    assert "number 1 in the queue. Waited 0 s." in message
    assert amv("status", "orders", "--json").document["queue"] == []
    assert len(amv("history", "orders", "--json").document["refreshes"]) == 1


def test_status_shows_who_waits_for_whom(amv):
    amv("apply", amv.file(QUEUED))
    begin_elsewhere(amv)
    table = amv.store.table("orders")
    for key in ("one", "two"):
        amv.store.queue.take_ticket(table.id, Caller(key, f"host:{key}", "dag", "ann"), patience_ms=60_000)

    said, shown, listed = amv("status", "orders", "--json"), amv("status", "orders").out, amv("status").out

    assert [(w["place"], w["caller"], w["waits_for"]) for w in said.document["queue"]] == [
        (1, "one", "elsewhere:1"),
        (2, "two", "elsewhere:1"),
    ]
    assert "2. host:two (ann, dag) since" in shown
    assert "for elsewhere:1" in shown
    assert "2 waiting" in listed


def test_nobody_overtakes_those_who_wait_for_a_free_table(amv):
    amv("apply", amv.file(ORDERS))
    table = amv.store.table("orders")
    amv.store.queue.take_ticket(table.id, Caller("one", "host:one"), patience_ms=60_000)

    said = amv("refresh", "orders", "--json")

    assert said.code == 75
    assert "host:one is first in its queue, since" in said.document["error"]["message"]


def test_definition_applied_during_a_refresh_is_shown_as_pending(amv):
    amv("apply", amv.file(ORDERS))
    begin_elsewhere(amv)

    applied = amv("apply", amv.file(ORDERS.replace("key: [id]", "key: [id], chunk_rows: 7")), "--json")

    assert applied.document["tables"][0]["pending"] == ["chunk_rows"]
    assert amv("status", "orders", "--json").document["pending_definition"] == ["chunk_rows"]
    assert "a changed definition (chunk_rows)" in amv("status", "orders").out


# -- pause, resume --


def test_paused_table_begins_no_refresh_and_says_how_to_go_on(amv):
    amv("apply", amv.file(ORDERS))

    paused, again = amv("pause", "orders", "--json"), amv("pause", "orders")
    refused = amv("refresh", "orders", "--json")
    shown, listed = amv("status", "orders"), amv("status")

    assert (paused.code, paused.document["paused"]) == (0, True)
    assert "already paused" in again.out
    assert (refused.code, refused.document["error"]["code"]) == (1, "MV-PAUSED")
    assert "amv resume" in refused.document["error"]["hint"]
    assert "no new refresh begins" in shown.out
    assert "NORMAL, paused" in listed.out
    assert amv("history", "orders", "--json").document["refreshes"] == []


def test_pause_lets_a_refresh_under_way_go_on(amv):
    amv("apply", amv.file(ORDERS))
    own = begin_elsewhere(amv)

    said = amv("pause", "orders")

    assert "elsewhere:1 continues" in said.out
    assert amv.store.renew(own, lease_ms=60_000).is_owner


def test_resumed_table_is_as_before(amv):
    amv("apply", amv.file(ORDERS))
    amv("pause", "orders")

    resumed, again = amv("resume", "orders", "--json"), amv("resume", "orders", "--json")

    assert (resumed.document["resumed"], again.document["resumed"]) == (True, False)
    assert amv("status", "orders", "--json").document["paused_since"] is None


# -- drop --


def test_drop_is_asked_for_and_nobody_who_answers_is_a_no(amv):
    amv("apply", amv.file(ORDERS))

    said, read_aloud = amv("drop", "orders", "--json"), amv("drop", "orders", "--delete-main")

    assert (said.code, said.document) == (1, {"table": "orders", "dropped": False})
    assert "is deleted with all its rows" in read_aloud.err
    assert "not dropped" in read_aloud.out
    assert amv("status", "orders").code == 0


def test_table_that_somebody_refreshes_is_not_dropped(amv):
    amv("apply", amv.file(ORDERS))
    own = begin_elsewhere(amv)

    said = amv("drop", "orders", "--yes", "--json")

    assert (said.code, said.document["error"]["code"]) == (75, "MV-REFRESH-IN-PROGRESS")
    assert amv.store.renew(own, lease_ms=60_000).is_owner


def test_table_whose_drop_has_begun_is_barred_until_it_is_dropped(amv):
    amv("apply", amv.file(ORDERS))
    table = amv.store.table("orders")
    assert amv.store.registry.begin_drop(amv.store.state(table.id))

    refused, applied = amv("refresh", "orders", "--json"), amv("apply", amv.file(ORDERS), "--json")
    amv("resume", "orders")

    assert (refused.code, refused.document["error"]["code"]) == (1, "MV-PAUSED")
    assert "amv drop" in refused.document["error"]["hint"]
    assert applied.document["error"]["code"] == "MV-TABLE-CONFLICT"
    assert "`amv drop` did not finish" in amv("status", "orders").out
    assert "NORMAL, dropping" in amv("status").out


# -- recover --abandon --


def test_live_owner_is_not_abandoned_but_cancelled(amv):
    amv("apply", amv.file(ORDERS))
    own = begin_elsewhere(amv)

    said = amv("recover", "--abandon", "orders", "--json")

    assert (said.code, said.document["error"]["code"]) == (75, "MV-REFRESH-IN-PROGRESS")
    assert "amv cancel" in said.document["error"]["hint"]
    assert amv.store.renew(own, lease_ms=60_000).is_owner


def test_nothing_under_way_is_nothing_to_abandon(amv):
    amv("apply", amv.file(ORDERS))

    said, read_aloud = amv("recover", "--abandon", "orders", "--json"), amv("recover", "--abandon", "orders")

    assert (said.code, said.document) == (0, {"recovered": []})
    assert "no refresh is running" in read_aloud.out


# -- recover NAME --


@pytest.mark.slow
def test_table_that_could_not_be_recovered_is_said_where_it_was_asked_for(amv):
    amv("apply", amv.file(ORDERS))
    own = begin_elsewhere(amv)

    one, everything = amv("recover", "orders", "--json"), amv("recover", "--json")

    assert (one.code, everything.code) == (75, 0)
    assert "its lease has not expired" in one.err
    assert amv.store.renew(own, lease_ms=60_000).is_owner


@pytest.mark.parametrize("words", [["orders"], ["--note", "it burnt down"], ["orders", "--note", " "]])
def test_word_on_a_dead_owner_is_about_one_table_and_has_a_reason(amv, words):
    amv("apply", amv.file(ORDERS))
    own = begin_elsewhere(amv)

    said = amv("recover", "--owner-is-dead", "--json", *words)

    assert (said.code, said.document["error"]["code"]) == (1, "MV-DEFINITION")
    assert amv.store.renew(own, lease_ms=60_000).is_owner


def test_unknown_table_cannot_be_abandoned(amv):
    assert amv("recover", "--abandon", "nope", "--json").document["error"]["code"] == "MV-TABLE-UNKNOWN"


# -- exit codes --


def test_a_table_that_somebody_refreshes_is_worth_a_retry(amv):
    amv("apply", amv.file(ORDERS))
    begin_elsewhere(amv)

    said = amv("refresh", "orders", "--json")

    assert said.code == 75
    assert (said.document["table"], said.document["outcome"]) == ("orders", "failed")
    assert said.document["error"]["code"] == "MV-REFRESH-IN-PROGRESS"
    assert "elsewhere:1" in said.document["error"]["message"]


@pytest.mark.parametrize("command", ["refresh", "status", "history", "ledger", "cancel", "pause", "resume", "drop"])
def test_an_unknown_table_needs_a_person(amv, command):
    said = amv(command, "nope", "--json")

    assert said.code == 1
    assert said.document["error"]["code"] == "MV-TABLE-UNKNOWN"
    assert said.document["error"]["hint"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("refresh",),
        ("refresh", "orders", "--override", "everything"),
        ("refresh", "orders", "--wait", "-1"),
        ("refresh", "orders", "--wait", "nan"),
        ("history", "orders", "--limit", "0"),
        ("apply",),
        ("status", "--colour"),
        ("explode",),
    ],
)
def test_wrong_usage_is_two_and_leaves_stdout_empty(amv, arguments):
    said = amv(*arguments, "--json")

    assert (said.code, said.out) == (2, "")


def test_db_migrate_then_check(amv):
    before = amv("db", "check", "--json")
    migrated = amv("db", "migrate", "--json")
    after = amv("db", "check", "--json")

    assert (before.code, before.document["error"]["code"]) == (1, "MV-DATABASE-VERSION")
    assert (migrated.code, after.code) == (0, 0)
    assert migrated.document == after.document


def test_a_newer_database_is_refused(amv):
    amv("db", "migrate")
    with amv.store.engine.begin() as db:
        db.execute(text("UPDATE mv_alembic_version SET version_num = '9999'"))

    said = amv("status", "--json")

    assert said.code == 1
    assert "9999" in said.document["error"]["message"]


def test_a_file_that_is_no_database_is_named(amv, run_amv):
    url = f"sqlite:///{amv.file(ORDERS)}"

    said = run_amv("status", "--json", "--database", url)

    assert said.code == 1
    assert "tables.yaml" in said.document["error"]["message"]


def test_schema_prints_the_json_schema(amv):
    assert json.loads(amv("schema").out) == amv("schema", "--json").document == json_schema()


# -- what is never printed --

CANARY = "c4n4ry-p4ss"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://amv:{CANARY}@127.0.0.1:1/amv",
        f"postgresql://amv@127.0.0.1:1/amv?password={CANARY}",
        f"postgresql://amv:x@127.0.0.1:{CANARY}/amv",
        f"mysql://amv:{CANARY}@127.0.0.1/amv",
        f"{CANARY} is no address",
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("history", "t"),
        ("ledger", "t"),
        ("cancel", "t"),
        ("refresh", "t"),
        ("recover",),
        ("db", "check"),
        ("db", "migrate"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("debug", ["", "1"])
def test_no_password_is_printed(amv, monkeypatch, command, url, debug):
    monkeypatch.setenv("AMV_DEBUG", debug)

    said, plain = (amv(*command, *form, "--database", url) for form in (["--json"], []))

    assert said.code in (1, 75)
    assert said.document["error"]["hint"]
    assert CANARY not in said.out + said.err + plain.out + plain.err


def test_an_unforeseen_error_is_one_line_with_a_pointer(amv, monkeypatch):
    amv("apply", amv.file(ORDERS))
    with amv.store.engine.begin() as db:
        db.execute(text("UPDATE refreshable_table SET definition = '{}'"))

    quiet, as_json = amv("status"), amv("refresh", "orders", "--json")
    monkeypatch.setenv("AMV_DEBUG", "1")
    loud = amv("status")

    assert (quiet.code, as_json.code) == (1, 1)
    assert "AMV_DEBUG=1" in quiet.err
    assert "Traceback" not in quiet.err + as_json.err
    assert as_json.document["outcome"] == "failed"
    assert as_json.document["error"]["code"] == "MV-UNEXPECTED"
    assert "Traceback" in loud.err


def test_a_partition_that_is_nested_too_deeply_is_refused(amv):
    amv("apply", amv.file(ORDERS))

    said = amv("refresh", "orders", "--partition", "[" * 100_000, "--json")

    assert (said.code, said.document["error"]["code"]) == (1, "MV-DEFINITION")
    assert len(said.document["error"]["message"]) < 300


def test_a_name_cannot_command_the_terminal(amv):
    said = amv("status", "\x1b[2Jevil")

    assert "\x1b" not in said.out + said.err


@pytest.mark.parametrize(
    "command",
    [
        *(["history", "orders", "--limit", limit] for limit in ("9" * 20, "9" * 5000, "0", "-1", "1e5", "many")),
        *([command, "\udcff"] for command in ("status", "history", "ledger", "cancel", "pause", "resume")),
        *(["apply", path] for path in ("", "/", "/dev/null", "/dev/zero", "x" * 5000, "/nowhere/\udcff")),
        *(["status", "--database", url] for url in ("sqlite:////proc/no/mv.db", "sqlite:///x?timeout=x", "x", "://")),
        *(["status", "--warehouse", place] for place in ("http://x", "::")),
    ],
    ids=lambda command: " ".join(command)[:40].encode("ascii", "replace").decode(),
)
def test_a_mistake_is_never_called_a_bug(amv, command):
    amv("apply", amv.file(ORDERS))

    said = amv(*command)

    assert said.code in (1, 2)
    assert "MV-UNEXPECTED" not in said.err
    assert "Traceback" not in said.err


_WITHOUT_SPARK = """
import sys
from airflow_mv_provider.cli.main import main
for command in (["apply", sys.argv[1]], ["status"], ["status", "orders"], ["history", "orders"], ["cancel", "orders"],
                ["pause", "orders"], ["resume", "orders"], ["db", "check"], ["db", "migrate"], ["schema"]):
    try:
        main(command)
    except SystemExit as end:
        assert end.code == 0, command
heavy = {"pyspark", "delta", "airflow", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""


def test_only_refresh_and_recover_import_spark(amv):
    environment = {"AMV_DATABASE_URL": amv.url, "AMV_WAREHOUSE": str(amv.warehouse), "PATH": "/usr/bin:/bin"}

    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK, amv.file(ORDERS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr

"""The commands that need no Spark and control a table: status, history, ledger, cancel, pause, drop, recover."""

from __future__ import annotations

import csv
import io

import pytest

from airflow_mv_provider.core.outcome import ErrorReport, Outcome
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.state import Caller
from tests.cli.elsewhere import ORDERS, begin_elsewhere


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


def test_history_since_a_time_is_a_file_for_a_spreadsheet(amv):
    amv("apply", amv.file(ORDERS))
    for nth in range(25):
        own = begin_elsewhere(amv, f"{nth:032x}", note='=HYPERLINK("http://x")\n"a", b')
        amv.store.abandon(own, Outcome.FAILED, ErrorReport("MV-X", "orders: it\x1bbroke.", "Mend it."), {})

    said = amv("history", "orders", "--since", "2020-01-01", "--csv")

    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [row["refresh_id"] for row in rows] == [f"{nth:032x}" for nth in reversed(range(25))]
    assert {row["outcome"] for row in rows} == {"failed"}
    assert {row["error"] for row in rows} == {"orders: it\\x1bbroke."}
    assert {row["note"] for row in rows} == {'\'=HYPERLINK("http://x")\n"a", b'}, "no formula"
    assert len(amv("history", "orders", "--json").document["refreshes"]) == 20
    assert amv("history", "orders", "--since", "2999-01-01T00:00+02:00", "--json").document["refreshes"] == []
    wrong = amv("history", "orders", "--since", "yesterday")
    assert (wrong.code, "'yesterday' is not a time" in wrong.err) == (2, True)


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


@pytest.mark.slow
@pytest.mark.in_test_all
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

    assert (said.code, said.document["error"]["code"]) == (2, "MV-ARGUMENT")
    assert amv.store.renew(own, lease_ms=60_000).is_owner


def test_unknown_table_cannot_be_abandoned(amv):
    assert amv("recover", "--abandon", "nope", "--json").document["error"]["code"] == "MV-TABLE-UNKNOWN"

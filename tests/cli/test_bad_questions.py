"""What cannot be decided, taken back, shown, told or audited: named before Spark starts, and nothing changes."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from tests.cli.conftest import Terminal
from tests.metadata.rows import ERROR, RECORDED, acquired, dump, registered, walk

HOUR_MS = 3_600_000
WHY = ("--note", "looked")


@pytest.fixture(scope="module")  # every test finds it as it was
def amv(tmp_path_factory):
    root = tmp_path_factory.mktemp("questions")
    return Terminal(root, f"sqlite:///{root / 'mv.db'}", root)


@pytest.fixture(scope="module")
def tables(amv):
    """Tables at rest, held, decided about and held for too long; the ids of some refreshes, by what they are."""
    assert amv("db", "migrate").code == 0
    store, ids = amv.store, {}

    def held(name, hold_ms=HOUR_MS):
        table = registered(store, name)
        own = acquired(store, table)
        walk(store, own, Phase.MERGING)
        for chunk in RECORDED:
            store.merging.record_chunk(own, chunk)
        hold = store.holds.begin(own, 0, "too many", ["max_deleted_fraction"], hold_ms=hold_ms)
        ids[name] = own.refresh_id
        return table, hold

    held("held")
    table, hold = held("decided")
    store.holds.decide(table.id, Decision.APPROVED, "ann", "looked", hold.id)
    held("over", hold_ms=-1)
    quiet = registered(store, "quiet")
    published = acquired(store, quiet)
    walk(store, published, Phase.NORMAL)
    failed = acquired(store, quiet)
    store.abandon(failed, Outcome.FAILED, ERROR, {})
    ids |= {"published": published.refresh_id, "failed": failed.refresh_id}
    registered(store, "new")
    topic = {"type": "kafka", "conn_id": "c", "topic": "t", "schema": "id BIGINT", "envelope": "upsert"}
    registered(store, "topic", source=topic)
    return ids


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        pytest.param(("approve", "nowhere", *WHY), "MV-TABLE-UNKNOWN", "nowhere", id="approve: unknown table"),
        pytest.param(
            ("approve", "quiet", *WHY), "MV-NOT-HELD", "no refresh of it awaits approval", id="approve: nothing held"
        ),
        pytest.param(("approve", "held"), "MV-ARGUMENT", "needs a reason", id="approve: no reason"),
        pytest.param(("approve", "held", "--note", " "), "MV-ARGUMENT", "needs a reason", id="approve: empty reason"),
        pytest.param(
            ("approve", "held", "--hold", "other.0", *WHY), "MV-NOT-HELD", "another difference", id="approve: another"
        ),
        pytest.param(("approve", "decided", *WHY), "MV-NOT-HELD", "decided already", id="approve: decided already"),
        pytest.param(("approve", "over", *WHY), "MV-NOT-HELD", "its time has expired", id="approve: held no more"),
        pytest.param(
            ("approve", "topic", "--without-deletes", *WHY),
            *("MV-DEFINITION", "a source that is complete"),
            id="approve: deletes of a topic",
        ),
        pytest.param(("reject", "nowhere", *WHY), "MV-TABLE-UNKNOWN", "nowhere", id="reject: unknown table"),
        pytest.param(
            ("reject", "quiet", *WHY), "MV-NOT-HELD", "no refresh of it awaits approval", id="reject: nothing held"
        ),
        pytest.param(("reject", "held"), "MV-ARGUMENT", "needs a reason", id="reject: no reason"),
        pytest.param(
            ("reject", "held", "--hold", "other.0", *WHY), "MV-NOT-HELD", "another difference", id="reject: another"
        ),
        pytest.param(("reject", "decided", *WHY), "MV-NOT-HELD", "decided already", id="reject: decided already"),
        pytest.param(("reject", "over", *WHY), "MV-NOT-HELD", "its time has expired", id="reject: held no more"),
        pytest.param(("diff", "nowhere"), "MV-TABLE-UNKNOWN", "nowhere", id="diff: unknown table"),
        pytest.param(("diff", "quiet"), "MV-NOT-HELD", "no refresh of it awaits approval", id="diff: nothing held"),
        pytest.param(("diff", "quiet", "--refresh", "abcdef12"), "MV-ARGUMENT", "abcdef12", id="diff: unknown refresh"),
        pytest.param(("diff", "new", "--refresh", "{published}"), "MV-ARGUMENT", "refresh", id="diff: another table's"),
        pytest.param(
            ("rollback", "nowhere", "--to", "1", *WHY), "MV-TABLE-UNKNOWN", "nowhere", id="rollback: no table"
        ),
        pytest.param(("rollback", "quiet", "--to", "1"), "MV-ARGUMENT", "needs a reason", id="rollback: no reason"),
        pytest.param(
            ("rollback", "quiet", "--to", "abcdef12", *WHY), "MV-ARGUMENT", "'abcdef12'", id="rollback: no refresh"
        ),
        pytest.param(
            ("rollback", "new", "--to", "{published}", *WHY),
            "MV-ARGUMENT",
            "names no",
            id="rollback: another table's",
        ),
        pytest.param(
            ("rollback", "quiet", "--to", "{failed}", *WHY), "MV-ARGUMENT", "names no", id="rollback: one that failed"
        ),
        pytest.param(
            ("rollback", "quiet", "--to", "2001-01-01", *WHY), "MV-ARGUMENT", "2001-01-01", id="rollback: too early"
        ),
        pytest.param(
            ("rollback", "quiet", "--to", "yesterday", *WHY), "MV-ARGUMENT", "'yesterday'", id="rollback: no time"
        ),
        pytest.param(
            ("rollback", "topic", "--to", "1", *WHY),
            *("MV-DEFINITION", "a source that is complete"),
            id="rollback: of a topic",
        ),
        pytest.param(("why", "nowhere", "id=1"), "MV-TABLE-UNKNOWN", "nowhere", id="why: unknown table"),
        pytest.param(("why", "quiet"), "MV-ARGUMENT", "the key is incomplete: id is missing", id="why: no key"),
        pytest.param(("why", "quiet", "idd=1"), "MV-ARGUMENT", "did you mean id?", id="why: another column"),
        pytest.param(("why", "quiet", "id=1", "--since", "x"), "MV-ARGUMENT", "'x' is not a time", id="why: no time"),
        pytest.param(("audit", "nowhere"), "MV-TABLE-UNKNOWN", "nowhere", id="audit: unknown table"),
        pytest.param(("audit", "new"), "MV-NOT-PUBLISHED", "never published", id="audit: never published"),
        pytest.param(
            ("audit", "quiet", "--partition", "1"), "MV-ARGUMENT", "no natural partitions", id="audit: no partition"
        ),
        pytest.param(
            ("recover", "quiet", "--abandon", "held"), "MV-ARGUMENT", "name two tables", id="recover: two tables"
        ),
        pytest.param(("recover", *WHY), "MV-ARGUMENT", "for --owner-is-dead", id="recover: a reason for nothing"),
        pytest.param(
            ("export", "quiet", "--to", "/exports/quiet", "--refresh", "12"),
            *("MV-ARGUMENT", "names no refreshes"),
            id="export: a version is no refresh",
        ),
        pytest.param(("cancel", "nowhere"), "MV-TABLE-UNKNOWN", "nowhere", id="cancel: unknown table"),
        pytest.param(("history", "nowhere"), "MV-TABLE-UNKNOWN", "nowhere", id="history: unknown table"),
        pytest.param(("history", "quiet", "--since", "x"), "MV-ARGUMENT", "'x' is not a time", id="history: no time"),
    ],
)
def test_it_is_named_and_changes_nothing(amv, tables, command, code, said):
    before = dump(amv.store.engine)

    answer = amv(*(word.format(**tables) for word in command), "--json")

    error = answer.document["error"]
    is_usage = code == "MV-ARGUMENT"
    assert (answer.code, error["code"], error["is_transient"]) == (2 if is_usage else 1, code, False)
    assert said in f"{error['message']} {error['hint']}"
    assert error["hint"]
    assert "Traceback" not in answer.err
    assert dump(amv.store.engine) == before

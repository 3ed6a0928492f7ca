"""What refreshes add to the database, what is forgotten of them, and that asking does not take longer for it."""

from __future__ import annotations

import pytest
from sqlalchemy import event, text

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.metadata.models import RefreshRow
from airflow_mv_provider.sources.files.frontier import FilesFrontier, SourceFile
from tests.metadata.reading import num_read, repeat
from tests.metadata.rows import ERROR, P1, a_caller, a_refresh, acquired, dump, publish, registered, walk

MOST_BYTES = 2048  # that a refresh with nothing to do may add
LISTING = FilesFrontier(tuple(SourceFile(f"/landing/day={n:05}/part-0.csv", n, n) for n in range(2_000)))
LONGER = FilesFrontier((*LISTING.files, SourceFile("/landing/more.csv", 1, 1)))


def num_bytes(engine) -> int:
    pages = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    relations = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE '%refresh%'"
    with engine.begin() as db:
        return int(db.scalars(text(pages if engine.dialect.name == "sqlite" else relations)).one())


def nothing_to_do(store, table, **changes) -> str:
    refresh = a_refresh(table, batch=None, choice=Choice("skip", "the source and the table are unchanged"), **changes)
    store.record(refresh, a_caller(refresh.id), Outcome.NOTHING_TO_DO, main_version=6)
    return refresh.id


def published(store, table, **changes):
    own = acquired(store, table, **changes)
    walk(store, own, Phase.NORMAL)
    return own


def test_refresh_with_nothing_to_do_adds_two_kilobytes_at_most(store, clock):
    table = registered(store)
    published(store, table, frontier=LISTING)
    before = num_bytes(store.engine)

    for _ in range(200):
        clock.pass_ms(1000)
        nothing_to_do(store, table, frontier=LISTING)

    assert num_bytes(store.engine) - before <= 200 * MOST_BYTES
    assert store.binding(table.id, 1).frontier == LISTING


def test_listing_is_stored_once_and_forgotten_when_the_next_one_is_published(store):
    table = registered(store)
    published(store, table, frontier=LISTING)
    own = acquired(store, table, frontier=LISTING)  # forced: another version of ours, the same listing
    assert [store.binding(table.id, upper).frontier for upper in (1, 2)] == [LISTING, LISTING]
    assert len(dump(store.engine)["source_frontier"]) == 1
    store.abandon(own, Outcome.FAILED, ERROR, {})

    lost = acquired(store, table, upper=3, frontier=LONGER)
    assert store.refresh(lost.refresh_id).frontier == LONGER
    walk(store, lost, Phase.MERGING)
    publish(store, lost)

    assert store.binding(table.id, 3).frontier == LONGER == store.refresh(lost.refresh_id).frontier
    rows = dump(store.engine)
    assert (len(rows["source_binding"]), len(rows["source_frontier"])) == (1, 1)
    assert store.report(lost.refresh_id).source.startswith("2,001 files")


def test_versions_that_never_were_published_do_not_pile_up(store):
    table = registered(store)
    published(store, table)
    for upper in range(2, 8):
        store.abandon(acquired(store, table, upper=upper), Outcome.FAILED, ERROR, {})

    assert [row[1] for row in dump(store.engine)["source_binding"]] == [1, 7]
    assert store.binding(table.id, 1) is not None, "what tells what is new since the last publish"


def test_definition_is_stored_once_for_all_refreshes_that_began_with_it(store):
    table = registered(store)
    for _ in range(3):
        nothing_to_do(store, table)
    changed = registered(store, chunk_rows=7)
    last = nothing_to_do(store, changed)

    assert len(dump(store.engine)["refresh_definition"]) == 2
    assert store.refresh(last).definition == changed.definition != table.definition


@pytest.mark.parametrize("question", ["history", "report", "status", "costs", "ledger", "age_s", "overview"])
def test_question_about_the_past_reads_no_seal_and_no_listing(store, question):
    table = registered(store)
    own = published(store, table, frontier=LISTING)
    asked = {"report": own.refresh_id, "overview": None, "status": table}.get(question, table.id)
    statements = []
    event.listen(store.engine, "before_cursor_execute", lambda *found: statements.append(found[2]))

    getattr(store, question)(asked)

    sql = " ".join(statements)
    assert "refresh" in sql
    assert not [large for large in ("refresh.seal", "source_frontier", "definition.definition") if large in sql]


DAY_MS = 86_400_000


def remembered(store, table) -> set[str]:
    return {report.refresh_id for report in store.history(table.id, limit=100)}


def test_history_forgets_what_ended_long_ago_and_keeps_what_is_asked_for(store, clock):
    table, other = registered(store), registered(store, "others")
    others = published(store, other)
    first = published(store, table)
    old = [nothing_to_do(store, table) for _ in range(3)]
    last = published(store, table)
    clock.pass_ms(DAY_MS)
    store.abandon(acquired(store, table), Outcome.FAILED, ERROR, {})
    clock.pass_ms(91 * DAY_MS)
    young = nothing_to_do(store, table, scope=Scope(start="1"))

    assert store.forget_history(table.id, older_than_ms=90 * DAY_MS) == len(old) + 2  # the first, and the failed one

    assert remembered(store, table) == {last.refresh_id, young}
    assert {row[0] for row in dump(store.engine)["refresh_attempt"]} == {last.refresh_id, others.refresh_id}
    assert store.report(last.refresh_id).outcome is Outcome.PUBLISHED
    assert store.binding(table.id, 2) is not None
    assert store.age_s(table.id) > 91 * DAY_MS / 1000
    assert first.refresh_id not in remembered(store, table)
    assert store.forget_history(table.id, older_than_ms=90 * DAY_MS) == 0


def test_history_never_forgets_a_refresh_under_way_or_one_that_is_waited_for(store, clock):
    table = registered(store)
    published(store, table)
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    preview = a_refresh(table, batch=None)
    store.record(preview, a_caller(), Outcome.RUNNING, is_read_only=True)
    clock.pass_ms(100 * DAY_MS)
    before = dump(store.engine)

    assert store.forget_history(table.id, older_than_ms=DAY_MS) == 0

    assert dump(store.engine) == before
    store.queue.take_ticket(table.id, a_caller("waits"), patience_ms=200 * DAY_MS, joins=own.refresh_id)
    publish(store, own)
    store.finish(own, {})
    clock.pass_ms(100 * DAY_MS)
    nothing_to_do(store, table)
    published(store, table)
    store.forget_history(table.id, older_than_ms=DAY_MS)
    assert own.refresh_id in remembered(store, table)


def test_definition_goes_with_the_last_refresh_that_began_with_it(store, clock):
    table = registered(store)
    published(store, table)
    changed = registered(store, chunk_rows=7)
    clock.pass_ms(100 * DAY_MS)
    last = published(store, changed)

    store.forget_history(table.id, older_than_ms=DAY_MS)

    assert len(dump(store.engine)["refresh_definition"]) == 1
    assert store.refresh(last.refresh_id).definition == changed.definition


def test_ledger_after_retention_knows_only_what_is_remembered(store, clock):
    table = registered(store)
    nothing_to_do(store, table, scope=Scope(start="2026-01-01", end="2026-01-02"))
    clock.pass_ms(100 * DAY_MS)
    nothing_to_do(store, table, scope=Scope(start="2026-01-02", end="2026-01-03"))

    store.forget_history(table.id, older_than_ms=DAY_MS)

    found = store.ledger(table.id, "2026-01-01", "2026-01-03")
    assert [(e.start, str(e.state)) for e in found] == [("2026-01-01", "missing"), ("2026-01-02", "done")]


# What commands ask of the past, and what each refresh and each recovery does. `last` is a refresh that has published.
QUESTIONS = {
    "costs": lambda store, table, last: store.costs(table.id),
    "history": lambda store, table, last: store.history(table.id),
    "report": lambda store, table, last: store.report(last),
    "refresh": lambda store, table, last: store.refresh(last),
    "status": lambda store, table, last: store.status(table),
    "overview": lambda store, table, last: store.overview(),
    "ledger": lambda store, table, last: store.ledger(table.id),
    "age": lambda store, table, last: store.age_s(table.id),
    "last error": lambda store, table, last: store.last_error_code(table.id),
    "whose it was": lambda store, table, last: (store.worked_on("one"), store.worked_on("nobody")),
    "who waits": lambda store, table, last: store.waiters(table.id),
    "end stale previews": lambda store, table, last: store.end_stale_previews(table.id),
    "forget nothing": lambda store, table, last: store.forget_history(table.id, older_than_ms=90 * DAY_MS),
    "find nothing to do": lambda store, table, last: nothing_to_do(store, table),
    "publish": lambda store, table, last: published(store, table),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_long_history_is_not_read(store, clock, question):
    """Long runs of each kind of refresh lie before the last good one, and after it."""
    table = registered(store)
    last = published(store, table, key="another").refresh_id
    store.queue.take_ticket(table.id, a_caller("waits"), patience_ms=DAY_MS, joins=last)
    kinds = [last, failed(store, table), nothing_to_do(store, table)]
    if question != "ledger":  # which tells of parts
        kinds.append(nothing_to_do(store, table, scope=Scope((P1,))))
    few, many = 50, 400
    for kind in kinds:
        repeat(store, clock, kind, few)
    before = num_read(store.engine, lambda: QUESTIONS[question](store, table, last))
    for kind in kinds:
        repeat(store, clock, kind, many)

    after = num_read(store.engine, lambda: QUESTIONS[question](store, table, last))

    assert after <= before * 1.1


def failed(store, table) -> str:
    own = acquired(store, table, upper=7)
    store.abandon(own, Outcome.FAILED, ERROR, {})
    return own.refresh_id


def test_repeated_refresh_is_as_one_that_was_done_again(store, clock):
    """What is measured on long histories is measured on what the store writes."""
    table = registered(store)
    published(store, table)
    once, again = nothing_to_do(store, table), nothing_to_do(store, table)
    before = {row[0]: row for row in dump(store.engine)["refresh"]}

    repeat(store, clock, once, 1)

    (new,) = (row for row in dump(store.engine)["refresh"] if row[0] not in before)
    names = list(RefreshRow.__table__.c.keys())
    another = {name for name, mine, its in zip(names, new, before[again], strict=True) if mine != its}
    assert another <= {"id", "number", "owner_key", "started_ms", "finished_ms"}


def test_history_is_forgotten_a_thousand_at_a_time(store, clock):
    table = registered(store)
    published(store, table)
    repeat(store, clock, nothing_to_do(store, table), 1_500)
    published(store, table)
    clock.pass_ms(100 * DAY_MS)
    deleted = []
    event.listen(
        store.engine,
        "after_cursor_execute",
        lambda db, cursor, statement, *more: (
            statement.startswith("DELETE FROM refresh ") and deleted.append(cursor.rowcount)
        ),
    )

    assert store.forget_history(table.id, older_than_ms=DAY_MS) == 1_502

    assert deleted == [1_000, 502]


@pytest.mark.parametrize("is_published", [True, False])
def test_seal_goes_when_its_refresh_ends(store, is_published):
    """It names every column: of 2,000 it has 73 KB."""
    table = registered(store)
    own = acquired(store, table)
    walk(store, own, Phase.CLEANUP if is_published else Phase.MERGING)
    assert store.refresh(own.refresh_id).seal is not None

    if is_published:
        store.finish(own, {})
    else:
        store.abandon(own, Outcome.CANCELLED, None, {})

    assert store.refresh(own.refresh_id).seal is None

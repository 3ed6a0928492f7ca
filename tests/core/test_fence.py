"""What main's log proves: who owns the table, whether the publish is in it, and whether anybody else wrote."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.fence import (
    Commit,
    CommitNote,
    LogCheck,
    Move,
    Span,
    app_id,
    classify_commits,
    fence_version,
    has_fence,
    has_kept_rows,
    has_publish,
    is_untouched_since,
    last_epoch,
    next_move,
    next_part_move,
    next_txn_version,
    overtaken_by,
    parse_note,
    published_span,
    version_beside,
    whole_publish,
)
from airflow_mv_provider.core.guard import Counts

UUID = "6a1f6a7e-6d7a-4a0b-9f5e-0d6c1c5a3b11"
OURS, THEIRS = "a" * 32, "b" * 32
NOTE = CommitNote(UUID, OURS, 3, "publish", fence_version(3) + 1, 0, 2, 7, "0123456789abcdef", True)


def fence(version: int, epoch: int, refresh_id: str = OURS) -> Commit:
    note = CommitNote(UUID, refresh_id, epoch, "fence", fence_version(epoch))
    return Commit(version, "WRITE", version - 1, note)


def publish(version: int, epoch: int, refresh_id: str = OURS, nth: int = 1) -> Commit:
    note = CommitNote(UUID, refresh_id, epoch, "publish", fence_version(epoch) + nth)
    return Commit(version, "MERGE", version - 1, note)


def other(version: int, operation: str = "WRITE") -> Commit:
    return Commit(version, operation, version - 1, None)


def judged(*commits: Commit, base: int = 10, epoch: int = 3) -> LogCheck:
    latest = max((c.version for c in commits), default=base)
    return classify_commits(commits, base=base, latest=latest, refresh_id=OURS, epoch=epoch, merge_round=0)


# -- notes -----------------------------------------------------------------------------------------------------------


def test_note_survives_the_log():
    assert parse_note(NOTE.to_json(), UUID) == NOTE


def test_note_of_another_table_is_not_ours():
    assert parse_note(NOTE.to_json(), UUID.replace("6", "7")) is None


def test_table_has_one_application_for_ever():
    assert app_id(UUID) == f"mv:{UUID}"


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", " ", "free text of a person", "{", "null", "true", "7", "[]", '"mv"', '["mv"]', "NaN", "\x00"),
        *('{"mv": null}', '{"mv": 1}', '{"mv": []}', '{"mv": {}}', '{"mv": "{}"}', '{"MV": {}}', '{"mv": [[1, 2]]}'),
        *('{"mv":' * 100_000, "[" * 100_000, '{"mv": ' + "9" * 5000 + "}"),
    ],
    ids=lambda text: repr(text)[:20],
)
def test_text_of_others_is_no_note(text):
    assert parse_note(text, UUID) is None


@pytest.mark.parametrize(
    "change",
    [
        *({"epoch": epoch} for epoch in ("3", None, 3.0, True, [3], {"a": 1}, -1, 1 << 63, float("nan"))),
        *({"txn_version": version} for version in ("1", None, -1, 1e300)),
        *({"step": step} for step in ("drop", None, ["fence"], 1)),
        *({"refresh_id": 5}, {"refresh_id": None}, {"definition_hash": {}}, {"upper": "7"}, {"chunks": None}),
        *({"merge_round": "0"}, {"is_final": "yes"}, {"table_uuid": [UUID]}, {"unknown": 1}, {"epoch; DROP": 1}),
    ],
    ids=str,
)
def test_note_with_wrong_facts_is_no_note(change):
    text = json.dumps({"mv": asdict(NOTE) | change})

    assert parse_note(text, UUID) is None


@pytest.mark.parametrize("missing", ["table_uuid", "refresh_id", "epoch", "step", "txn_version"])
def test_note_without_a_fact_is_no_note(missing):
    facts = asdict(NOTE)
    del facts[missing]

    assert parse_note(json.dumps({"mv": facts}), UUID) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(asdict(NOTE))), JSON))
def test_whatever_the_log_says_it_can_be_judged(change):
    note = parse_note(json.dumps({"mv": asdict(NOTE) | change}), UUID)
    commits = [Commit(11, "MERGE", 10, note), fence(12, 3)]

    standing = judged(*commits)

    assert standing.latest == 12
    assert last_epoch(commits) >= 3
    assert next_txn_version(commits, 3) > fence_version(3)
    assert is_untouched_since(commits, 11)


# -- standing --------------------------------------------------------------------------------------------------------


def test_nothing_since_the_base_leaves_all_to_do():
    assert judged() == LogCheck(10, None, (), ())
    assert next_move(judged(), has_changes=True) is Move.MERGE
    assert next_move(judged(), has_changes=False) is Move.DONE


def test_own_publish_alone_is_published():
    standing = judged(fence(11, 3), publish(12, 3))

    assert standing == LogCheck(12, None, (publish(12, 3),), ())
    assert next_move(standing, has_changes=True) is Move.DONE


def test_publish_of_an_older_epoch_of_this_refresh_counts():
    standing = judged(publish(11, 2), fence(12, 3))

    assert standing == LogCheck(12, None, (publish(11, 2),), ())
    assert next_move(standing, has_changes=True) is Move.DONE


def test_publish_before_the_base_is_history():
    standing = judged(publish(10, 3))

    assert standing == LogCheck(10, None, (), ())


@pytest.mark.parametrize("foreign", [other(12), other(12, "RESTORE"), other(12, "DELETE"), publish(12, 2, THEIRS)])
@pytest.mark.parametrize("published", [(), (publish(11, 3),), (publish(13, 3),)])
def test_commit_of_anybody_else_needs_another_round(foreign, published):
    standing = judged(foreign, *published)

    assert standing == LogCheck(13 if published == (publish(13, 3),) else 12, None, published, (foreign,))
    assert next_move(standing, has_changes=True) is next_move(standing, has_changes=False) is Move.START_OVER


def test_commits_are_judged_in_any_order():
    standing = judged(publish(14, 3, nth=2), other(12), publish(11, 3), other(13, "UPDATE"))

    assert standing.published == (publish(11, 3), publish(14, 3, nth=2))
    assert standing.foreign == (other(12), other(13, "UPDATE"))


@pytest.mark.parametrize("operation", ["OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "CREATE TABLE"])
def test_commit_that_keeps_every_row_does_not_matter(operation):
    standing = judged(publish(11, 3), other(12, operation))

    assert next_move(standing, has_changes=True) is Move.DONE


@pytest.mark.parametrize(
    "operation",
    [
        *("WRITE", "MERGE", "DELETE", "UPDATE", "TRUNCATE", "RESTORE", "CLONE", "REPLACE TABLE", "STREAMING UPDATE"),
        *("CREATE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT", "COPY INTO", "CHANGE COLUMN", "ADD COLUMNS"),
        *("", "optimize", "A NEW OPERATION OF DELTA 9"),
    ],
)
def test_unknown_operation_is_taken_for_a_change(operation):
    assert not other(11, operation).keeps_data
    assert judged(other(11, operation)).foreign == (other(11, operation),)


def test_step_of_our_note_counts_and_not_the_operation():
    assert fence(11, 3).keeps_data
    assert not publish(11, 3).keeps_data
    assert not replace(publish(11, 3), operation="OPTIMIZE").keeps_data


def test_later_epoch_owns_main_wherever_it_wrote():
    assert judged(fence(11, 4, THEIRS)).fenced_by == 4
    assert judged(fence(11, 4), publish(12, 3)).fenced_by == 4
    assert judged(fence(9, 5, THEIRS), publish(12, 3)).fenced_by == 5
    assert judged(fence(11, 3), publish(12, 2)).fenced_by is None


COMMITS = st.lists(
    st.one_of(
        st.builds(fence, st.integers(5, 20), st.integers(0, 6), st.sampled_from([OURS, THEIRS])),
        st.builds(publish, st.integers(5, 20), st.integers(0, 6), st.sampled_from([OURS, THEIRS])),
        st.builds(other, st.integers(5, 20), st.sampled_from(["WRITE", "OPTIMIZE", "RESTORE", "NEW"])),
    ),
    unique_by=lambda commit: commit.version,
    max_size=10,
)


@given(COMMITS, st.integers(0, 6))
def test_log_with_a_foreign_change_is_never_clean(commits, epoch):
    base = 10
    changes = [
        c
        for c in commits
        if c.version > base
        and ((c.note is None and c.operation != "OPTIMIZE") or (c.note and c.note.step == "publish"))
        and (c.note is None or c.note.refresh_id != OURS)
    ]

    standing = judged(*commits, base=base, epoch=epoch)

    assert sorted(standing.foreign, key=lambda c: c.version) == sorted(changes, key=lambda c: c.version)
    assert not changes or next_move(standing, has_changes=True) is Move.START_OVER
    assert not (changes and is_untouched_since(commits, base))


@given(COMMITS, st.integers(0, 6))
def test_whoever_is_not_fenced_stays_under_the_next_fence(commits, epoch):
    standing = judged(*commits, epoch=epoch)

    if standing.fenced_by is None:
        assert fence_version(epoch) < next_txn_version(commits, epoch) < fence_version(epoch + 1)
    else:
        assert standing.fenced_by == last_epoch(commits) > epoch


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_later_epoch_fences_every_commit_of_an_older_one(one, two):
    older, newer = sorted((one, two))

    assert fence_version(older) + 2**20 - 1 < fence_version(newer) or older == newer
    assert fence_version(newer) < 2**63


def test_next_commit_follows_the_last_one_of_its_epoch():
    assert next_txn_version([], 3) == (3 << 20) + 1
    assert next_txn_version([fence(11, 3)], 3) == (3 << 20) + 1
    assert next_txn_version([publish(12, 3, nth=7), fence(11, 3)], 3) == (3 << 20) + 8
    assert next_txn_version([publish(12, 2, nth=7)], 3) == (3 << 20) + 1


def test_last_epoch_of_a_log_without_ours_is_zero():
    assert last_epoch([]) == 0
    assert last_epoch([other(1), other(2)]) == 0
    assert last_epoch([publish(3, 2), fence(4, 5), other(6)]) == 5


def test_main_is_untouched_only_if_every_later_commit_keeps_its_rows():
    commits = [fence(13, 4), other(12, "OPTIMIZE"), publish(11, 3), other(10)]

    assert is_untouched_since(commits, 11)
    assert not is_untouched_since(commits, 10)
    assert not is_untouched_since(commits, 9)


# -- rounds and parts --------------------------------------------------------------------------------------------------


def test_commit_of_an_earlier_round_is_company_and_not_this_rounds():
    straggler = publish(12, 3)

    standing = classify_commits([straggler], base=10, latest=12, refresh_id=OURS, epoch=3, merge_round=1)

    assert (standing.published, standing.foreign, standing.stragglers) == ((), (straggler,), (straggler,))
    assert next_move(standing, has_changes=True) is Move.START_OVER


def test_publish_of_any_epoch_and_round_is_one_of_the_refresh():
    assert has_publish([other(4), publish(3, 1), fence(2, 1)], OURS)
    assert not has_publish([publish(3, 1, THEIRS), fence(2, 1), other(1)], OURS)


def test_a_commit_that_left_out_its_deletes_is_found_whatever_its_round():
    kept = publish(3, 1)
    kept = replace(kept, note=replace(kept.note, keeps_rows=True, merge_round=0))

    assert has_kept_rows([other(5), publish(4, 1), kept, fence(2, 1)], OURS)
    assert not has_kept_rows([other(5), publish(4, 1), fence(2, 1)], OURS)
    assert not has_kept_rows([kept], THEIRS)


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ((), Move.MERGE),
        ((publish(11, 3),), Move.DONE),
        ((other(11),), Move.START_OVER),
        ((publish(11, 3), other(12)), Move.DONE),
    ],
)
def test_part_that_is_there_is_recorded_whoever_came_with_it(commits, expected):
    assert next_part_move(judged(*commits)) is expected


# -- a database that was put back to an older state ------------------------------------------------------------------


def final(version: int, epoch: int, refresh_id: str = OURS, base: int | None = None) -> Commit:
    """A commit of everything."""
    found = publish(version, epoch, refresh_id)
    assert found.note is not None
    return replace(found, note=replace(found.note, is_final=True, base=base))


BEFORE = (fence(8, 2, THEIRS), final(9, 2, THEIRS))


@pytest.mark.parametrize(
    ("commits", "by"),
    [
        ((*BEFORE, fence(10, 3)), None),
        ((*BEFORE, fence(10, 3), final(11, 3), fence(12, 5)), None),  # a takeover of ours
        ((*BEFORE, fence(10, 3), other(11)), None),
        ((*BEFORE, fence(10, 3), fence(11, 4, THEIRS), final(12, 4, THEIRS), fence(13, 5)), 11),
        ((*BEFORE, fence(10, 3), final(11, 3), fence(12, 4, "c" * 32), fence(13, 5, THEIRS)), 12),
        ((*BEFORE, fence(10, 3, THEIRS), fence(11, 4)), 10),  # two databases gave epoch 3 to two refreshes
        ((), None),
    ],
)
def test_refresh_that_began_later_shows_that_this_one_has_ended(commits, by):
    found = overtaken_by(commits[::-1], OURS, 3)

    assert (found and found.version) == by


def test_fence_of_another_refresh_under_the_same_epoch_is_not_ours():
    assert has_fence([fence(10, 3)], 3, OURS)
    assert not has_fence([fence(10, 3, THEIRS)], 3, OURS)


@pytest.mark.parametrize(
    ("commits", "version"),
    [
        ((fence(10, 3), final(11, 3)), 11),
        ((fence(10, 3), fence(11, 4), final(12, 4), other(13, "OPTIMIZE")), 12),
        ((other(9), fence(10, 3), final(11, 3)), 11),
        ((fence(10, 3), publish(11, 3)), None),  # a part
        ((fence(10, 3),), None),
        ((fence(10, 3), other(11), final(12, 3)), None),  # rebased, or of a round that others' commit made void
        ((fence(10, 3), final(11, 3), other(12)), None),
        ((fence(10, 3), final(11, 3), final(12, 4, THEIRS)), None),
    ],
)
def test_publish_is_proven_only_where_nobody_else_changed_main_meanwhile(commits, version):
    found = whole_publish(commits[::-1], OURS)

    assert (found and found.version) == version


@pytest.mark.parametrize(
    ("commits", "version"),
    [
        ((final(11, 3, base=10),), 11),
        ((other(11, "OPTIMIZE"), final(12, 3, base=10)), 12),
        ((other(11), final(12, 3, base=10)), None),  # after what it was computed against
        ((other(10), final(11, 3, base=10)), 11),  # before it
        ((final(11, 3, base=10), other(12)), None),
        ((fence(10, 3), final(11, 3, base=8)), 11),  # its fence comes first: the base may be an earlier round's
    ],
)
def test_publish_without_a_fence_is_proven_from_what_it_was_computed_against(commits, version):
    found = whole_publish(commits[::-1], OURS)

    assert (found and found.version) == version


def test_what_later_refreshes_did_takes_no_proof_away():
    later = fence(12, 4, THEIRS)

    assert whole_publish([other(14), final(13, 4, THEIRS), later, final(11, 3), fence(10, 3)], OURS, later) == final(
        11, 3
    )


@pytest.mark.parametrize(
    ("recorded", "metrics", "lacks"),
    [
        (Counts(updated=2, deleted=1), ("2", "1"), False),
        (Counts(updated=2, deleted=1), ("1", "1"), True),
        (Counts(updated=2, deleted=1), ("2", "0"), True),
        (Counts(inserted=1, updated=2), ("1", "0"), False),  # had a row been missing, it would have failed
        (Counts(updated=2), (None, None), False),
        (Counts(updated=2, deleted=1), ("4", "1"), False),  # a task was repeated
    ],
)
def test_merge_that_changed_other_numbers_of_rows_than_recorded_is_noticed(recorded, metrics, lacks):
    names = ("numTargetRowsUpdated", "numTargetRowsDeleted")
    found = {name: value for name, value in zip(names, metrics, strict=True) if value is not None}

    check = judged(fence(11, 3), replace(publish(12, 3), metrics=found))

    assert check.lacks(recorded) is lacks
    assert not judged(fence(11, 3)).lacks(recorded)


BEFORE = publish(2, 2, THEIRS)


@pytest.mark.parametrize(
    ("commits", "span"),
    [
        ((BEFORE, fence(3, 3), publish(4, 3), publish(5, 4, THEIRS)), Span(3, 4)),
        ((other(0), fence(3, 3), publish(4, 3)), Span(3, 4)),
        ((BEFORE, publish(4, 3), fence(5, 4), publish(6, 4, nth=2)), Span(3, 6)),
        ((BEFORE, publish(4, 3), other(5), publish(6, 3, nth=2)), Span(3, 6, is_mixed=True)),
        ((BEFORE, publish(4, 3), other(5, "OPTIMIZE"), publish(6, 3, nth=2), other(7)), Span(3, 6)),
        ((BEFORE, fence(3, 3), publish(4, 3, THEIRS)), None),
        ((), None),
    ],
)
def test_a_refresh_has_published_between_two_versions(commits, span):
    assert published_span(reversed(commits), OURS) == span


def test_a_log_that_begins_within_a_refresh_does_not_show_what_it_found():
    parts = [publish(version, 3, nth=version) for version in range(4, 40)]

    assert published_span([BEFORE, *parts], OURS) == Span(3, 39)
    assert published_span(parts[20:], OURS) is None, "its first parts were cleaned up, or not asked for"
    assert published_span([other(3), *parts], OURS) is None, "there may be more of it before that"


def test_which_version_beside_main_belongs_to_which_of_main():
    def commit(version, refresh, step):
        return Commit(version, "MERGE", None, CommitNote("u", refresh, 1, step, 1))

    main = [
        *(commit(0, "a", "fence"), commit(1, "a", "publish"), commit(2, "b", "fence"), commit(3, "b", "publish")),
        *(commit(4, "c", "fence"), commit(5, "d", "fence"), commit(6, "d", "publish")),
    ]
    beside = [commit(n, refresh, "errors") for n, refresh in enumerate("abcd")]

    found = [version_beside(main, version, beside) for version in range(7)]

    # c has published records only; main was never without those of b between its fence and its publish
    assert found == [None, 0, 0, 1, 2, 2, 3]
    assert version_beside(main, 6, []) is None

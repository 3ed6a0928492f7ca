"""What is left of a progressive refresh: each part is compared, then committed, before the next one is looked at."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.plan import (
    Clean,
    Compare,
    Conclude,
    Fence,
    Publish,
    PublishPart,
    Stage,
    chunks_of,
    may_have_published,
    remaining,
)
from airflow_mv_provider.core.progress.chunk import REST, Chunk, part_number

WHOLE = Chunk(0, ("[1]",))
NEXT = Chunk(1, ("[2]",))
LAST = Chunk(REST, ())
CHUNKS = (WHOLE, NEXT, LAST)


@pytest.mark.parametrize(
    ("recorded", "committed", "expected"),
    [
        (
            (),
            (),
            (
                *(Compare(WHOLE), Compare(NEXT), Compare(LAST)),
                *(PublishPart(WHOLE), PublishPart(NEXT), PublishPart(LAST), Publish()),
            ),
        ),
        (
            {0},
            (),
            (Compare(NEXT), Compare(LAST), PublishPart(WHOLE), PublishPart(NEXT), PublishPart(LAST), Publish()),
        ),
        ({0, 1}, {0}, (Compare(LAST), PublishPart(NEXT), PublishPart(LAST), Publish())),
        ({0, 1, REST}, {0, 1}, (PublishPart(LAST), Publish())),
        ({0, 1, REST}, {0, 1, REST}, (Publish(),)),
    ],
)
def test_progressive(recorded, committed, expected):
    steps = remaining(
        Phase.MERGING,
        is_fenced=True,
        chunks=CHUNKS,
        recorded=recorded,
        committed=committed,
        is_progressive=True,
    )

    assert steps == expected


def test_a_new_owner_fences_before_it_commits():
    steps = remaining(Phase.MERGING, is_fenced=False, chunks=CHUNKS, recorded={0}, is_progressive=True)

    assert steps[:2] == (Fence(), Compare(NEXT))


@pytest.mark.parametrize("phase", [Phase.REFRESHING, Phase.MERGING])
@pytest.mark.parametrize("is_progressive", [False, True])
def test_refresh_that_others_have_followed_is_concluded_whatever_is_left_of_it(phase, is_progressive):
    left = {"chunks": CHUNKS, "recorded": {0}, "is_progressive": is_progressive, "is_overtaken": True}

    assert remaining(phase, is_fenced=True, **left) == (Conclude(),)
    assert remaining(phase, is_fenced=False, **left) == (Fence(), Conclude())
    assert remaining(Phase.CLEANUP, is_fenced=True, **left) == (Clean(),)


def test_parts_have_numbers_that_differ_from_a_commit_of_everything():
    assert [part_number(REST), part_number(0), part_number(1)] == [1, 2, 3]


def test_comparison_or_commit_of_a_part_changes_the_records_of_its_own_chunks():
    assert chunks_of(Compare(CHUNKS[0])) == {CHUNKS[0].number}
    assert chunks_of(PublishPart(CHUNKS[1])) == {CHUNKS[1].number}


@pytest.mark.parametrize("step", [Fence(), Conclude(), Stage(), Publish(), Clean()])
def test_any_other_step_may_change_all_records(step):
    assert chunks_of(step) is None


@pytest.mark.parametrize(
    ("phase", "recorded", "merge_round", "expected"),
    [
        (Phase.NORMAL, (), 0, False),
        (Phase.REFRESHING, (), 0, False),
        (Phase.MERGING, (), 0, False),
        (Phase.MERGING, (0, 1), 0, False),
        (Phase.MERGING, (0, 1, REST), 0, True),
        (Phase.MERGING, (), 1, True),
        (Phase.CLEANUP, (0, 1, REST), 0, True),
    ],
)
def test_main_may_have_a_commit_only_once_all_is_compared(phase, recorded, merge_round, expected):
    facts = {"chunks": [chunk.number for chunk in CHUNKS], "recorded": recorded, "merge_round": merge_round}

    assert may_have_published(phase, **facts) is expected


@pytest.mark.parametrize("is_progressive", [False, True])
def test_no_step_before_the_first_commit_is_after_the_point_at_which_one_may_be_in_main(is_progressive):
    recorded = []
    for step in remaining(Phase.MERGING, is_fenced=True, chunks=CHUNKS, recorded=(), is_progressive=is_progressive):
        facts = {"chunks": [chunk.number for chunk in CHUNKS], "recorded": recorded, "merge_round": 0}
        may = may_have_published(Phase.MERGING, **facts)
        if isinstance(step, Publish | PublishPart):
            assert may
            break
        recorded.append(step.chunk.number)

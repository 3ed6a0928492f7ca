"""Who may refresh a table now, under which epoch, and what is left to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.fence import Commit, CommitNote
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.plan import Clean, Compare, Fence, Publish, Stage, remaining
from airflow_mv_provider.core.progress.chunk import REST, Chunk
from airflow_mv_provider.core.state import (
    Admission,
    admit,
    is_fenced_by_last_publish,
    is_main_as_published,
    next_epoch,
)
from tests.conftest import a_state

STATE = a_state(
    phase=Phase.MERGING,
    refresh_id="a" * 32,
    owner_key="dag/run/1",
    owner_process="host:1",
    owned_since_ms=1,
    is_lease_live=True,
)
AT_WORK = [Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP]


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("owner", ["dag/run/1", None])
def test_table_that_nobody_refreshes_may_be_started(is_live, owner):
    state = replace(STATE, phase=Phase.NORMAL, is_lease_live=is_live, owner_key=owner)

    assert admit(state, "dag/run/1") is Admission.START


@pytest.mark.parametrize("phase", AT_WORK)
@pytest.mark.parametrize("is_live", [True, False])
def test_own_unfinished_refresh_is_adopted_alive_or_dead(phase, is_live):
    state = replace(STATE, phase=phase, is_lease_live=is_live)

    assert admit(state, "dag/run/1") is Admission.ADOPT


@pytest.mark.parametrize("phase", AT_WORK)
@pytest.mark.parametrize("is_cancelled", [True, False])
def test_others_wait_for_a_live_owner_and_take_a_dead_one_over(phase, is_cancelled):
    state = replace(STATE, phase=phase, is_cancel_requested=is_cancelled)

    assert admit(state, "dag/run/2") is Admission.WAIT
    assert admit(replace(state, is_lease_live=False), "dag/run/2") is Admission.TAKE_OVER


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_epoch_is_later_than_the_database_and_the_log(state_epoch, log_epoch):
    epoch = next_epoch(state_epoch, log_epoch)

    assert epoch > state_epoch
    assert epoch > log_epoch
    assert epoch == max(state_epoch, log_epoch) + 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5))))
def test_epochs_only_grow_even_if_the_database_is_restored_from_a_backup(steps):
    database = log = 0
    given_out = []

    for is_restored, lost in steps:
        if is_restored:
            database = max(0, database - lost)
        epoch = next_epoch(database, log)
        given_out.append(epoch)
        database = log = epoch

    assert given_out == sorted(set(given_out))


# -- what is left ----------------------------------------------------------------------------------------------------

CHUNKS = (Chunk(0, ("[1]",)), Chunk(1, ("[2]",)), Chunk(REST, ()))


@pytest.mark.parametrize(
    ("phase", "is_fenced", "recorded", "expected"),
    [
        (Phase.NORMAL, False, (), ()),
        (Phase.REFRESHING, False, (), (Fence(), Stage())),
        (Phase.REFRESHING, True, (), (Stage(),)),
        (Phase.MERGING, False, (), (Fence(), *map(Compare, CHUNKS), Publish())),
        (Phase.MERGING, True, {0}, (Compare(CHUNKS[1]), Compare(CHUNKS[2]), Publish())),
        (Phase.MERGING, True, {1, REST}, (Compare(CHUNKS[0]), Publish())),
        (Phase.MERGING, True, {0, 1, REST}, (Publish(),)),
        (Phase.MERGING, False, {0, 1, REST}, (Fence(), Publish())),
        (Phase.CLEANUP, False, (), (Clean(),)),
        (Phase.CLEANUP, True, (), (Clean(),)),
    ],
)
def test_remaining(phase, is_fenced, recorded, expected):
    assert remaining(phase, is_fenced=is_fenced, chunks=CHUNKS, recorded=recorded) == expected


@pytest.mark.parametrize("phase", [Phase.REFRESHING, Phase.MERGING])
def test_whoever_may_write_main_fences_it_first(phase):
    steps = remaining(phase, is_fenced=False, chunks=CHUNKS, recorded=())

    assert steps[0] == Fence()


AS_PUBLISHED = replace(STATE, phase=Phase.NORMAL, published_version=5, published_commit="r:1", is_main_trusted=True)
PUBLISH = Commit(5, "MERGE", 4, CommitNote("u", "r", 1, "publish", 1))
FENCE = Commit(6, "WRITE", 5, CommitNote("u", "s", 2, "fence", 2))
FOREIGN = Commit(7, "WRITE", 6, None)
OPTIMIZE = Commit(7, "OPTIMIZE", 6, None)


@pytest.mark.parametrize(
    ("commits", "is_as_published"),
    [
        ([PUBLISH], True),
        ([FENCE, PUBLISH], True),
        ([OPTIMIZE, FENCE, PUBLISH], True),
        ([FOREIGN, FENCE, PUBLISH], False),
        ([replace(PUBLISH, version=6), PUBLISH], False),  # ours, but the database does not know of it
        ([replace(FOREIGN, version=9)], False),  # the log is too short to tell
        ([replace(OPTIMIZE, version=6)], False),
        ([FENCE], False),
        ([replace(PUBLISH, version=3)], False),  # main is older than what was published
        ([FENCE, replace(FENCE, version=5), replace(PUBLISH, version=3)], False),  # put back, and fenced since
        ([FENCE, replace(FOREIGN, version=5), replace(PUBLISH, version=3)], False),
        ([FENCE, replace(PUBLISH, note=replace(PUBLISH.note, refresh_id="before"))], False),  # made again
        ([], False),  # gone
    ],
)
def test_main_is_as_published_while_nobody_changed_its_rows(commits, is_as_published):
    assert is_main_as_published(AS_PUBLISHED, commits) is is_as_published


@pytest.mark.parametrize(
    ("commits", "is_as_published"),
    [
        ([replace(FENCE, version=8), OPTIMIZE, PUBLISH], True),
        ([replace(FENCE, version=8), replace(FOREIGN, version=6), PUBLISH], False),  # put back, and written to since
    ],
)
def test_main_that_somebody_optimized_before_it_was_published_is_known_by_our_commit_before(commits, is_as_published):
    assert is_main_as_published(replace(AS_PUBLISHED, published_version=7), commits) is is_as_published


@pytest.mark.parametrize(
    ("state", "commits", "epoch", "needs_none"),
    [
        (AS_PUBLISHED, [PUBLISH], PUBLISH.note.epoch + 1, True),
        (AS_PUBLISHED, [PUBLISH], PUBLISH.note.epoch + 2, False),  # an epoch between them may still write
        (AS_PUBLISHED, [PUBLISH], PUBLISH.note.epoch, False),  # two databases
        (AS_PUBLISHED, [replace(OPTIMIZE, version=PUBLISH.version + 1), PUBLISH], PUBLISH.note.epoch + 1, False),
        (AS_PUBLISHED, [replace(FOREIGN, version=PUBLISH.version + 1), PUBLISH], PUBLISH.note.epoch + 1, False),
        (replace(AS_PUBLISHED, published_commit="another"), [PUBLISH], PUBLISH.note.epoch + 1, False),
        (replace(AS_PUBLISHED, published_version=1), [PUBLISH], PUBLISH.note.epoch + 1, False),
        (replace(AS_PUBLISHED, is_main_trusted=False), [PUBLISH], PUBLISH.note.epoch + 1, False),
        (AS_PUBLISHED, [], 1, False),
    ],
)
def test_epoch_right_after_the_last_publish_needs_no_fence(state, commits, epoch, needs_none):
    assert is_fenced_by_last_publish(state, commits, epoch) is needs_none


def test_main_that_is_not_trusted_is_not_as_published():
    assert not is_main_as_published(replace(AS_PUBLISHED, is_main_trusted=False), [PUBLISH])
    assert not is_main_as_published(replace(AS_PUBLISHED, published_version=None), [PUBLISH])

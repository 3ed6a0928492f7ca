"""What a run of an ingestion may do with a table of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.ingestion.turn import check_can_begin, ends_former
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import RefreshInProgressError
from tests.core.test_state import AT_WORK, STATE

OWN = STATE.owner_key or ""
DEAD = replace(STATE, is_lease_live=False)


@pytest.mark.parametrize("phase", AT_WORK)
@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("paused_ms", [None, 1])
def test_what_the_callers_last_try_has_left_is_ended(phase, is_live, paused_ms):
    state = replace(STATE, phase=phase, is_lease_live=is_live, paused_since_ms=paused_ms)

    assert ends_former(state, OWN)


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        (DEAD, True),
        (STATE, False),
        (replace(DEAD, paused_since_ms=1), False),
        (replace(DEAD, is_held=True), False),
        (replace(STATE, phase=Phase.NORMAL, refresh_id=None), False),
    ],
    ids=["dead", "alive", "paused", "held", "nothing"],
)
def test_of_others_only_what_a_dead_owner_has_left_is_ended(state, ends):
    assert ends_former(state, "another") is ends


AT_REST = replace(STATE, phase=Phase.NORMAL, refresh_id=None, owner_key=None, is_lease_live=False, published_upper=3)


def test_table_goes_on_only_from_where_it_was_when_the_state_was_fixed():
    check_can_begin("ones", 3, AT_REST, OWN)

    for later in (2, 4):
        with pytest.raises(RefreshInProgressError, match="another refresh published the table") as caught:
            check_can_begin("ones", 3, replace(AT_REST, published_upper=later), OWN)
        assert caught.value.is_transient


@pytest.mark.parametrize("phase", AT_WORK)
@pytest.mark.parametrize("is_live", [True, False])
def test_refresh_that_another_process_of_the_caller_has_begun_is_of_another_state(phase, is_live):
    state = replace(STATE, phase=phase, is_lease_live=is_live, published_upper=3)

    with pytest.raises(RefreshInProgressError, match="same caller"):
        check_can_begin("ones", 3, state, OWN)
    check_can_begin("ones", 3, state, "another")

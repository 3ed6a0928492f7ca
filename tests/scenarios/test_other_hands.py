"""Rounds of what other people do to a source and to main, each seed on a lake of its own; see tests/other_hands.py.

`make soak-hands` runs every seed: 500 rounds.
"""

from __future__ import annotations

import pytest

from tests.other_hands import OtherHands

pytestmark = pytest.mark.slow
ROUNDS = 10


@pytest.mark.in_test_all
@pytest.mark.parametrize("seed", range(50))
def test_main_is_its_source_whatever_others_have_done(lake, seed):
    hands = OtherHands(lake, seed)

    for _ in range(ROUNDS):
        hands.round()

    print(hands.summary)  # pytest shows it with -s, and where a round was wrong

"""The strategies of a refresh: their names, and the words for them that people read."""

from __future__ import annotations

from typing import Literal, get_args

Strategy = Literal["incremental", "corrections", "replace"]
ChosenStrategy = Literal["skip", "incremental", "corrections", "replace"]
RequestedStrategy = Literal["auto", "corrections", "replace", "incremental"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
REQUESTED: tuple[RequestedStrategy, ...] = get_args(RequestedStrategy)

MEANINGS = {
    "skip": "nothing has changed",
    "incremental": "read only what changed in the source, and merge it",
    "corrections": "compare the source with the table, and merge the rows that differ",
    "replace": "rewrite all rows",
}
"""What each does, for people who have not read about strategies."""

HEADINGS = {
    "skip": "Nothing to do",
    "incremental": "Only what changed",
    "corrections": "All rows compared",
    "replace": "All rows rewritten",
}
"""The same as a heading. A definition, a form and `amv` have the strategy's own name, which stands beside it."""

DOING = {
    "skip": "nothing to do",
    "incremental": "reading only what changed",
    "corrections": "comparing all rows",
    "replace": "writing all rows",
}
"""The same after a reason."""

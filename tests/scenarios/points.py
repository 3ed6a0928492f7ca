"""Where refreshes of the scenarios' tables die: just before and after each durable write, in their order."""

from __future__ import annotations

_BEGINNING = ["acquire", "fence", "staging", "seal"]
_END = ["published", "staging_delete", "normal"]
# The numbered ones at their second passing; a third chunk, of partitions that are gone, follows in the same way.
_WRITES = {
    "atomic": [*_BEGINNING, "changes", "progress", "changes:2", "progress:2", "publish", *_END],
    "progressive": [
        *_BEGINNING,
        *("changes", "progress", "publish", "committed", "changes:2", "progress:2", "publish:2", "committed:2"),
        *_END,
    ],
}


def _points(writes: list[str]) -> list[str]:
    named = (write.partition(":") for write in writes)
    return [f"{write}.{when}{colon}{nth}" for write, colon, nth in named for when in ("before", "after")]


POINTS = {mode: _points(writes) for mode, writes in _WRITES.items()}
CASES = [(mode, point) for mode, points in POINTS.items() for point in points]


def is_published_at(point: str) -> bool:
    """True if main has an atomic refresh's commit at `point`."""
    return POINTS["atomic"].index(point) >= POINTS["atomic"].index("publish.after")


def write_of(case: str) -> str:
    """Return the mode and the durable write of a case's id, such as `atomic-changes`, whichever passing of it dies."""
    return case.partition(".")[0]


def groups(mode: str, size: int) -> list[list[str]]:
    """Divide the points of a mode so that each group holds early and late ones."""
    points = POINTS[mode]
    number = -(-len(points) // size)
    return [points[first::number] for first in range(number)]

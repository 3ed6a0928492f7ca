"""Where refreshes of the scenarios' tables die: just before and after each durable write, in their order."""

from __future__ import annotations

_BEGINNING = ["acquire", "fence", "staging", "seal"]
_END = ["published", "staging_delete", "normal"]
# The numbered ones at their second passing; a third chunk, of partitions that are gone, follows in the same way.
_WRITES = {
    "atomic": [*_BEGINNING, "publish", *_END],
    "progressive": [*_BEGINNING, "publish", "committed", "publish:2", "committed:2", *_END],
}


def points_of(*writes: str) -> list[str]:
    """Return the points just before and after some writes, in their order."""
    named = (write.partition(":") for write in writes)
    return [f"{write}.{when}{colon}{nth}" for write, colon, nth in named for when in ("before", "after")]


POINTS = {mode: points_of(*writes) for mode, writes in _WRITES.items()}
CASES = [(mode, point) for mode, points in POINTS.items() for point in points]


# Where the owners of one refresh die, one after the other: at each of them but the repeated ones, and at a takeover in
# REFRESHING and in MERGING.
_TAKEOVER = ["hand_over.before", "hand_over.after"]
IN_SUCCESSION = {
    mode: [
        each
        for point in points
        if ":" not in point
        for each in ([point, *_TAKEOVER] if point in ("staging.after", "seal.after") else [point])
    ]
    for mode, points in POINTS.items()
}


# The same for a refresh that is held: until somebody has approved it without its deletes, and then until its end.
HELD_UNTIL_DECIDED = [*IN_SUCCESSION["atomic"][: IN_SUCCESSION["atomic"].index("publish.before")], *points_of("hold")]
DECIDED = points_of("hand_over", "fence", "keep", "publish", *_END)


def is_published_at(point: str) -> bool:
    """True if main has an atomic refresh's commit at `point`; no takeover dies that late."""
    points = POINTS["atomic"]
    return point in points and points.index(point) >= points.index("publish.after")


def groups(mode: str, size: int) -> list[list[str]]:
    """Divide the points of a mode so that each group holds early and late ones."""
    points = POINTS[mode]
    number = -(-len(points) // size)
    return [points[first::number] for first in range(number)]

"""A moment as people write it, and as they read it."""

from __future__ import annotations

from datetime import UTC, datetime


def time_of(text: str) -> datetime | None:
    """Return a time in ISO 8601, UTC unless it has an offset; None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def utc_text(ms: int) -> str:
    """Return a time in milliseconds since 1970 as readable text, to the second, with its zone."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

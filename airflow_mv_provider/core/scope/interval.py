"""The partitions that a DAG run's interval covers.

    given                          the partitions of                                       such as
    a partition key                the grain that contains that time                       2026-11-10T00:00:00
    a data interval, not empty     every grain that the interval touches                   [2026-11-10, 2026-11-11)
    neither                        None: everything that is new

Bounds are half-open texts of the first partition column, in the time zone of the DAG's timetable, which decides when a
day begins. An interval that begins or ends inside a partition covers all of it, since a partition is refreshed as a
whole. The hour that comes twice when clocks are set back is one partition, so both of its intervals cover it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, assert_never, get_args

from airflow_mv_provider.exceptions import ArgumentError

Grain = Literal["hour", "day", "month", "year"]
GRAINS: tuple[Grain, ...] = get_args(Grain)

_FORMATS: dict[Grain, str] = dict.fromkeys(GRAINS, "%Y-%m-%d") | {"hour": "%Y-%m-%d %H:00:00"}


def window(
    grain: Grain,
    zone: tzinfo,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    partition_key: str | None = None,
    text: str | None = None,
) -> tuple[str, str] | None:
    """Return the bounds of the partitions that a run covers; None if it has neither a key nor an interval.

    grain         : how long one value of the first partition column lasts
    start, end    : the run's data interval, with time zones
    partition_key : the run's partition key, an ISO 8601 time; one without a zone is in `zone`
    text          : `strftime` format of the partition column's values; ISO dates without it
    raises        : ArgumentError, for a key that is not a time
    """
    if partition_key is not None:
        first = _floor(_of_key(partition_key, zone), grain)
        return _shown(first, grain, text), _shown(_next(first, grain), grain, text)
    if start is None or end is None or start >= end:
        return None
    first, last = _floor(start.astimezone(zone), grain), _floor(end.astimezone(zone), grain)
    # The interval's last time belongs to it, and may be later than its end where clocks are set back in between.
    last_time = end.astimezone(UTC) - timedelta(microseconds=1)
    last = max(last, _next(_floor(last_time.astimezone(zone), grain), grain))
    return _shown(first, grain, text), _shown(last, grain, text)


def _of_key(key: str, zone: tzinfo) -> datetime:
    try:
        found = datetime.fromisoformat(key)
    except ValueError as error:
        raise ArgumentError("partition key", f"{key[:80]!r} is not an ISO 8601 time.") from error
    return found if found.tzinfo is None else found.astimezone(zone)


def _floor(time: datetime, grain: Grain) -> datetime:
    """Return the beginning of the grain that contains `time`, as local time without a zone."""
    shown = time.replace(tzinfo=None, minute=0, second=0, microsecond=0)
    match grain:
        case "hour":
            return shown
        case "day":
            return shown.replace(hour=0)
        case "month":
            return shown.replace(hour=0, day=1)
        case "year":
            return shown.replace(hour=0, day=1, month=1)
        case _:
            assert_never(grain)


def _next(first: datetime, grain: Grain) -> datetime:
    longest = {"hour": timedelta(hours=1), "day": timedelta(days=1), "month": timedelta(days=31)}
    return _floor(first + longest.get(grain, timedelta(days=366)), grain)


def _shown(time: datetime, grain: Grain, text: str | None) -> str:
    return time.strftime(text or _FORMATS[grain])

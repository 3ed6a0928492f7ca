"""The options that every refreshing command shares; `core.scope.request` checks their values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import click

from airflow_mv_provider.cli.waiting import DEFAULT_WAIT_S
from airflow_mv_provider.core.strategy_names import REQUESTED

_Function = Callable[..., Any]


class _Seconds(click.FloatRange):
    """A number of seconds; NaN is rejected, because a wait of NaN seconds would never end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return found


def wait_option(function: _Function) -> _Function:
    """Add the option for how long to wait for the table."""
    return click.option(
        "--wait", "wait_s", metavar="SECONDS", default=DEFAULT_WAIT_S, show_default=True, type=_Seconds(0),
        help="How long to wait in the queue of a table whose `concurrency` is queue or join.",
    )(function)  # fmt: skip


def request_options(function: _Function) -> _Function:
    """Add the options for the partitions to refresh, and the strategy."""
    for option in (
        click.option(
            "--strategy", type=click.Choice(REQUESTED),
            help="The strategy of this refresh, instead of the definition's.",
        ),
        click.option("--stale", is_flag=True, help="Only the partitions that partial refreshes left out of date."),
    ):  # fmt: skip
        function = option(function)
    return partition_options(function)


def partition_options(function: _Function) -> _Function:
    """Add the options that name partitions."""
    for option in (
        click.option("--until", metavar="VALUE", help="Only partitions before this one."),
        click.option("--from", metavar="VALUE", help="Only partitions from this one on, by the first column."),
        click.option(
            "--partition", "partitions", metavar="VALUE", multiple=True, callback=_partitions,
            help="Only this partition; a JSON list where there are several columns. May be repeated.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def _partitions(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[Any]:
    return [_partition(value) for value in values]


def _partition(text: str) -> Any:
    if not text.startswith("["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text

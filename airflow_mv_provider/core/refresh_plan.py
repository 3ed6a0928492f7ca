"""What a refresh would do if it began now; `amv plan` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mv_provider.core.changeset import Units
from airflow_mv_provider.core.cost import Estimate
from airflow_mv_provider.core.strategy_names import ChosenStrategy


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """What a refresh would do if it began now.

    scope     : the partitions, in words; None is all of them
    under_way : the process that is refreshing the table now, if any
    units     : what of a query would be looked for; None if it cannot follow its inputs, or there is no query
    """

    table: str
    strategy: ChosenStrategy
    reason: str
    source: str
    scope: str | None
    under_way: str | None
    estimates: tuple[Estimate, ...]
    units: Units | None = None

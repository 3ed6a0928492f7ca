"""The newest refreshes of a table with given outcomes, found in a few index steps however long its history is.

An index gives the newest refresh of one outcome, of everything or of a part. So each combination is queried separately,
and the newest result is taken: the rows in between, perhaps thousands with nothing to do, are not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from sqlalchemy import ColumnElement, ScalarSelect, Select, select, union_all

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.metadata.models import RefreshRow as Refresh


def newest(
    table_id: int | ScalarSelect[int],
    outcomes: Iterable[Outcome],
    *conditions: ColumnElement[bool],
    kinds: Iterable[bool] = (True, False),
    limit: int = 1,
) -> Select[tuple[str]]:
    """Return the query for the ids of a table's newest refreshes, newest first.

    conditions : further ones, which nearly all refreshes meet
    kinds      : True for refreshes of everything, or of everything stale; False for those of a part
    """
    of_one_kind = [
        select(Refresh.id, Refresh.number)
        .where(Refresh.table_id == table_id, Refresh.outcome == outcome, Refresh.is_whole == is_whole, *conditions)
        .order_by(Refresh.number.desc())
        .limit(limit)
        .subquery()
        for outcome, is_whole in product(sorted(outcomes), kinds)
    ]
    found = union_all(*(select(each) for each in of_one_kind)).subquery()
    return select(found.c.id).order_by(found.c.number.desc()).limit(limit)

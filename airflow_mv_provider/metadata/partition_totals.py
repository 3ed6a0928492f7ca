"""The totals of main's natural partitions, as of its last publish: a refresh leaves out those that are equal."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, delete, insert, select

from airflow_mv_provider.core.progress.totals import Totals
from airflow_mv_provider.metadata.models import PartitionTotalsRow as Row

_AT_ONCE = 500  # names in one statement


def of_table(db: Connection, table_id: int) -> dict[str, Totals]:
    """Return what is kept of a table; valid only together with the totals in its state."""
    rows = db.execute(select(Row.partition, Row.num_rows, Row.digest, Row.mixed).where(Row.table_id == table_id))
    return {name: Totals(*sums) for name, *sums in rows}


def keep(db: Connection, table_id: int, changed: Mapping[str, Totals], *, are_all: bool) -> None:
    """Keep the totals of partitions; one without rows is forgotten, and with `are_all` each that is not among them."""
    of_this, names = Row.table_id == table_id, sorted(changed)
    if are_all:
        db.execute(delete(Row).where(of_this))
    for first in () if are_all else range(0, len(names), _AT_ONCE):
        db.execute(delete(Row).where(of_this, Row.partition.in_(names[first : first + _AT_ONCE])))
    rows = [
        {"table_id": table_id, "partition": name, "num_rows": t.num_rows, "digest": t.digest, "mixed": t.mixed}
        for name, t in changed.items()
        if t != Totals()
    ]
    if rows:
        db.execute(insert(Row), rows)

"""Two rows of the source with one key: the last one, or the row that main has, where the definition says so."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import KeyColumnError, NullKeyError

pytestmark = pytest.mark.slow

FIRST = "SELECT * FROM VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 1, 'c') AS t(id, n, v)"
TWICE = """
    SELECT * FROM VALUES (1, 1, 'a'), (2, 3, 'newer'), (2, 2, 'new'), (4, 1, 'x'), (4, NULL, 'y'), (5, 7, 'p'),
                         (5, 7, 'q'), (5, 6, 'o') AS t(id, n, v)
"""


def test_last_by_order_by_wins(lake):
    lake.write(FIRST)
    lake.apply(on_conflict="overwrite", order_by=["n"], guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    lake.write(TWICE)

    report = lake.refresh()

    tie = next(row for row in lake.rows() if row[0] == 5)
    assert tie in ((5, 7, "p"), (5, 7, "q"))
    assert lake.rows() == sorted([(1, 1, "a"), (2, 3, "newer"), (4, 1, "x"), tie], key=repr)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted, report.rows_unchanged) == (2, 1, 1, 1)
    again = lake.refresh(force=True)
    assert (again.outcome, again.rows_unchanged, again.rows_updated) == (Outcome.PUBLISHED, 4, 0)


def test_row_already_in_main_stays(lake):
    lake.write(FIRST)
    lake.apply(on_conflict="ignore", order_by=["n"], guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    lake.write(TWICE)

    preview, report = lake.refresh(read_only=True), lake.refresh()

    assert lake.rows() == sorted([(1, 1, "a"), (2, 1, "b"), (4, None, "y"), (5, 6, "o")], key=repr)
    for each in (preview, report):
        counts = (each.rows_inserted, each.rows_updated, each.rows_deleted, each.rows_unchanged)
        assert counts == (2, 0, 1, 2)


@pytest.mark.parametrize(
    "policy", [{"on_conflict": "overwrite", "order_by": ["n"]}, {"on_conflict": "ignore"}], ids=str
)
def test_rows_without_a_key_are_no_conflict(lake, policy):
    lake.write("SELECT * FROM VALUES (1, 1), (NULL, 2), (NULL, 3) AS t(id, n)")
    lake.apply(**policy)

    with pytest.raises(NullKeyError, match="2 rows"):
        lake.refresh()


def test_order_by_has_to_be_a_column(lake):
    lake.write(FIRST)
    lake.apply(on_conflict="overwrite", order_by=["m"])

    with pytest.raises(KeyColumnError, match="order_by column 'm' is not among id, n, v"):
        lake.refresh()

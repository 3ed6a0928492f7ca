"""What people read of one row's history."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.approval.check import ALL, CheckResult
from airflow_mv_provider.core.approval.row_history import (
    Beginning,
    Cause,
    RowEvent,
    RowHistory,
    SourcePlace,
    SourcePlaces,
)
from airflow_mv_provider.core.outcome import HoldReport, Outcome
from airflow_mv_provider.report_text.row_history_text import row_history_text

AT = "2026-03-01T04:00:12.000+00:00"
OLD, NEW = {"id": 5, "v": "a", "w": None}, {"id": 5, "v": "b\x1b[31m", "w": None}
CHECKS = (
    CheckResult("positive", "expression", "v > 0", "fail", ALL, 3),
    CheckResult("few", "expect", "count(*) < 3", "warn", ALL, 3, 1),
    CheckResult("all", "unique", "v is unique", "warn", "changed rows", skipped="it is about all rows"),
)
HOLD = HoldReport("r1.0", "min_rows: 1.", AT, AT, "approved", AT, "ann", "fine")


def event(operation, version, before, after, cause, changed=()):
    return RowEvent(operation, version, AT, before, after, changed, "MERGE", cause)


def test_history_is_told_from_its_beginning():
    first = Cause("r1", Outcome.PUBLISHED, "dag", "ann", "a\x1bb", "version 3", HOLD, CHECKS)
    events = (
        event("insert", 2, None, OLD, first),
        event("update", 5, OLD, NEW, Cause("r2"), ("v",)),
        event("delete", 6, NEW, None, None),
        event("insert", 7, None, {"id": 5}, Cause("r3", Outcome.RUNNING)),
    )
    begins = Beginning(1, "version 0 cannot be read any more: x\x1b", ())

    told = row_history_text(RowHistory("shop", {"id": "5"}, "v", 8, 1200, False, (), events, begins))

    assert told.splitlines() == [
        "shop: id=5",
        "  column    v",
        "  version   8; 1,200 commits that may have changed rows, by its versions",
        "  now       there is no such row",
        "",
        r"  begins    at version 1: version 0 cannot be read any more: x\x1b",
        "  then      there is no such row",
        "",
        "  2026-03-01 04:00:12  insert  version 2: MERGE by refresh r1",
        '        v="a", w=NULL',
        "        trigger   dag, by ann",
        r"        note      a\x1bb",
        "        source    version 3",
        "        approval  min_rows: 1. Since 2026-03-01 04:00:12, until 2026-03-01 04:00:12.",
        "        decision  approved by ann at 2026-03-01 04:00:12: fine",
        "        warn      few: count(*) < 3 does not hold for 3 rows.",
        "        checks    positive: passed",
        "",
        "  2026-03-01 04:00:12  update  version 5: MERGE by refresh r2",
        r'        v: "a" -> "b\u001b[31m"',
        "        refresh   it is no longer in the history",
        "",
        "  2026-03-01 04:00:12  delete  version 6: MERGE by another writer",
        r'        v="b\u001b[31m", w=NULL',
        "",
        "  2026-03-01 04:00:12  insert  version 7: MERGE by refresh r3",
        "        trigger   unknown",
        "        outcome   running",
    ]


def test_a_row_without_a_change():
    begins = Beginning(0, "the table begins there", (), is_complete=True)

    told = row_history_text(RowHistory("shop", {"id": "5"}, None, 8, 1, True, (OLD, {"id": 5}), (), begins))

    assert told.splitlines() == [
        "shop: id=5",
        "  version   8; 1 commit that may have changed rows, by its change feed",
        '  now       v="a", w=NULL',
        "  now       the row is there",
        "",
        "  begins    at version 0: the table begins there",
        "",
        "  Nothing has changed it since.",
    ]


@pytest.mark.parametrize(
    ("came_from", "told"),
    [
        (None, []),
        (SourcePlaces(no_file="it is \x1bgone"), [r"  file      not known: it is \x1bgone"]),
        (SourcePlaces((SourcePlace("/a\x1b.csv", (1234,)),)), [r"  file      /a\x1b.csv, line 1,234"]),
        (
            SourcePlaces((SourcePlace("a", (2, 7)), SourcePlace("b", (2, 3, 9), is_cut=True))),
            ["  file      a, lines 2 and 7", "  file      b, lines 2, 3, 9 and more"],
        ),
        (
            SourcePlaces((SourcePlace("a", no_line="it has changed"),)),
            ["  file      a; line not known: it has changed"],
        ),
    ],
)
def test_where_the_row_came_from(came_from, told):
    begins = Beginning(0, "the table begins there", (), is_complete=True)

    text = row_history_text(RowHistory("shop", {"id": "5"}, None, 8, 1, True, (OLD,), (), begins, came_from))

    assert text.splitlines()[3 : 3 + len(told) + 1] == [*told, ""]

"""The last audit, on a table's page: every text in it is text, whatever it contains."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.approval.audit import Against, Audit, Compared, Finding, Write
from tests.api.conftest import PAGE
from tests.metadata.rows import acquired, registered

pytestmark = pytest.mark.slow


def test_the_page_of_a_table_shows_its_last_audit(user, store):
    table = registered(store, "orders")
    own = acquired(store, table)
    assert "Last audit" not in user.get(f"{PAGE}/tables/orders").text
    sides = (
        Compared(
            *(Against.PUBLISHED, Finding.DRIFT, "the table at version 2", "every row was compared", None),
            *(own.refresh_id, 1200, 0, 1, 7),
        ),
        Compared(Against.SOURCE, Finding.UNKNOWN, "<i>files</i>", "a\x1b[31m<b>gone", None, "f" * 32),
    )
    audit = Audit("a" * 32, "orders", "", "<u>ann", 3, None, (Write(3, "<s>UPDATE"),), sides)

    store.audits.keep(table.id, audit, 1_700_000_000_000)
    shown = user.get(f"{PAGE}/tables/orders").text

    assert "drift: rows 1,200 missing, 0 extra, 1 different, 7 the same; every row was compared" in shown
    assert f'refreshes/{own.refresh_id}">partitions and rows</a>' in shown
    assert "f" * 32 not in shown, "its history is shed"
    for text in ("&lt;u&gt;ann", "&lt;s&gt;UPDATE", "&lt;i&gt;files", r"a\x1b[31m&lt;b&gt;gone"):
        assert text in shown
    assert "drift, repaired since" not in shown
    store.audits.repaired(table.id, "a" * 32, own.refresh_id)
    assert "drift, repaired since" in user.get(f"{PAGE}/tables/orders").text

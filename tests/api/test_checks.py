"""What checks have found, on the page of the refresh: every name and rule is text, whatever it contains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.approval.check import ALL, CheckResult
from tests.api.conftest import PAGE
from tests.metadata.rows import CHUNKS, SEAL, acquired, registered

pytestmark = pytest.mark.slow


def test_the_page_of_a_refresh_says_what_checks_have_found(user, store):
    own = acquired(store, registered(store, "orders"))
    broken = CheckResult("<b>low", "expression", "a < 3", "warn", ALL, num_rows=60, num_failed=2)
    held = CheckResult("not_null a", "not_null", "a is not NULL", "fail", ALL, num_rows=60)
    store.merging.seal(own, replace(SEAL, checks=(broken, held)), CHUNKS, {})

    shown = user.get(f"{PAGE}/tables/orders/refreshes/{own.refresh_id}").text

    assert "<strong>Warn:</strong> &lt;b&gt;low: 2 rows break `a &lt; 3`, of 60 rows." in shown
    assert "<li>not_null a: holds for 60 rows.</li>" in shown
    assert store.refresh(own.refresh_id).seal.checks == store.report(own.refresh_id).checks == (broken, held)

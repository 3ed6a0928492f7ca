"""The example that audits the table of another one."""

from __future__ import annotations

import pytest

from tests.dags.test_flights import real_rows, write

pytestmark = [pytest.mark.slow, pytest.mark.in_test_all]


def test_a_row_that_another_program_has_changed_fails_the_task(home, examples):
    write(home.root, real_rows()[:200])
    assert set(examples.run(examples.load("flights")).states.values()) == {"success"}
    dag = examples.load("audit_flights")

    good = examples.run(dag)
    home.sql("UPDATE {t} SET dest = 'XXX' WHERE distance > 0", path="flights")
    bad = examples.run(dag)

    assert (good.states, bad.states) == ({"audit": "success"}, {"audit": "failed"})
    assert home.store.last_audit(home.store.table("flights").id).is_drift

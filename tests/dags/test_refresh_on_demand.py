"""The example with a trigger form."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def orders(home):
    home.write("SELECT id, concat('v', id) AS v FROM range(8)")
    home.apply()
    return home


def test_the_form_refreshes_the_table_it_names(orders, examples):
    run = examples.run(examples.load("refresh_on_demand"), table="orders")

    assert run.states == {"refresh": "success"}
    assert orders.rows("orders") == orders.rows("raw/orders")
    assert list(run.xcoms.values()) == [orders.store.history(1)[0].refresh_id]


@pytest.mark.in_test_all
def test_a_guard_is_set_aside_for_one_run(orders, examples):
    orders.refresh()
    orders.write("SELECT id, 'x' AS v FROM range(1)")
    dag = examples.load("refresh_on_demand")

    refused = examples.run(dag, table="orders")
    allowed = examples.run(dag, table="orders", overrides=["max_deleted_fraction"], note="as announced")

    assert (refused.states, refused.tries) == ({"refresh": "failed"}, {"refresh": 1})
    assert "[MV-GUARD] orders: max_deleted_fraction" in str(refused.errors["refresh"][0])
    assert allowed.states == {"refresh": "success"}
    assert orders.rows("orders") == orders.rows("raw/orders")


def test_read_only_writes_nothing(orders, examples):
    run = examples.run(examples.load("refresh_on_demand"), table="orders", read_only=True)

    assert orders.store.report(run.refresh_id).rows_inserted == 8
    assert not (orders.root / "orders").exists()


@pytest.mark.parametrize(
    "conf",
    [{"overrides": ["fence"]}, {"overrides": "x"}, {"read_only": "yes"}, {"table": "{{ 1 }}"}, {"table": "../x"}],
    ids=str,
)
def test_what_the_form_does_not_offer_is_refused_before_a_task_runs(orders, examples, conf):
    from airflow.sdk.exceptions import ParamValidationError

    dag = examples.load("refresh_on_demand")

    with pytest.raises((ParamValidationError, ValueError)):
        examples.run(dag, **({"table": "orders"} | conf))

"""What a run asks for: checked value by value, and added to what the DAG's author wrote."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.request import Request, combined, parse_request
from airflow_mv_provider.core.scope import EVERYTHING, Scope
from airflow_mv_provider.exceptions import DefinitionError

JANUARY = Scope(start="2013-01-01", end="2013-02-01")


@pytest.mark.parametrize(
    "params",
    [
        {"overrides": ["fence"]},
        {"overrides": "max_deleted_fraction"},
        {"overrides": {"allow_empty": True}},
        {"overrides": [["allow_empty"]]},
        {"overrides": [{"a": 1}]},
        {"read_only": "false"},
        {"read_only": 1},
        {"force": "{{ 1 == 1 }}"},
        {"force": []},
        {"stale": "yes"},
        {"partitions": "2013-01-01"},
        {"partitions": {"a": 1}},
    ],
    ids=str,
)
def test_a_value_that_is_not_what_it_has_to_be_is_refused(params):
    name = {"stale": "is_stale_only"}.get(next(iter(params)), next(iter(params)))

    with pytest.raises(DefinitionError, match=f"param {name}: .* is not allowed"):
        parse_request(params)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"overrides": None, "read_only": None, "force": None, "partitions": None, "from": None, "until": ""},
        {"other": "x"},
    ],
    ids=str,
)
def test_a_run_that_asks_for_nothing_gets_what_the_author_wrote(params):
    written = Request(read_only=True, overrides=("allow_empty",), force=True, scope=JANUARY)

    assert combined(written, parse_request(params)) == written


def test_a_run_may_ask_for_more():
    run = parse_request({"overrides": ["allow_empty"], "force": True, "partitions": ["2013-01-01"]})

    found = combined(Request(overrides=("max_deleted_fraction",)), run)

    assert found == Request(False, ("max_deleted_fraction", "allow_empty"), True, Scope(('["2013-01-01"]',)))


def test_a_run_cannot_change_the_scope_that_was_written():
    with pytest.raises(DefinitionError, match="the task covers partitions from 2013-01-01 until 2013-02-01"):
        combined(Request(scope=JANUARY), parse_request({"from": "2013-03-01"}))

    assert combined(Request(scope=JANUARY), Request()).scope == JANUARY
    assert combined(Request(), Request(scope=JANUARY)).scope == JANUARY
    assert combined(Request(), Request()).scope == EVERYTHING


@pytest.mark.parametrize("more", [{"force": True}, {"partitions": ["a"]}, {"from": "a"}], ids=str)
def test_stale_goes_with_nothing_else(more):
    with pytest.raises(DefinitionError, match="`stale` takes no partitions and no `force`"):
        parse_request({"stale": True} | more)

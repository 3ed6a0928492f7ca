"""What a run asks for: checked value by value, and added to what the DAG's author wrote."""

from __future__ import annotations

import json

import pytest

from airflow_mv_provider.core.scope.request import Request, check_note, combined, names_scope, parse_request, to_params
from airflow_mv_provider.core.scope.scope import EVERYTHING, Scope
from airflow_mv_provider.exceptions import ArgumentError

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

    with pytest.raises(ArgumentError, match=f"param {name}: .* is not allowed"):
        parse_request(params)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"overrides": None, "read_only": None, "force": None, "partitions": None, "from": None, "until": ""},
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
    with pytest.raises(ArgumentError, match="the task covers partitions from 2013-01-01 until 2013-02-01"):
        combined(Request(scope=JANUARY), parse_request({"from": "2013-03-01"}))

    assert combined(Request(scope=JANUARY), Request()).scope == JANUARY
    assert combined(Request(), Request(scope=JANUARY)).scope == JANUARY
    assert combined(Request(), Request()).scope == EVERYTHING


@pytest.mark.parametrize("more", [{"force": True}, {"partitions": ["a"]}, {"from": "a"}], ids=str)
def test_stale_goes_with_nothing_else(more):
    with pytest.raises(ArgumentError, match="`stale` excludes partitions and `force`"):
        parse_request({"stale": True} | more)


# -- a form's scope, and why ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"scope": "as usual"},
        {"scope": "everything", "partitions": []},
        {"scope": "range", "from": "2013-01-01"},
        {"scope": "partitions", "partitions": ["a", ["b", None]]},
        {"scope": "stale"},
        {"overrides": ["allow_empty"], "note": "why", "read_only": True, "force": True, "strategy": "replace"},
    ],
    ids=str,
)
def test_a_request_survives_its_params(params):
    if params.get("partitions"):
        params = params | {"partitions": [["a", "x"], ["b", None]]}
    request = parse_request(params)

    assert parse_request(json.loads(json.dumps(to_params(request)))) == request


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"scope": "all"}, "'all' is not allowed"),
        ({"scope": 1}, "1 is not allowed"),
        ({"scope": "range"}, "Give from or until"),
        ({"scope": "partitions"}, "Give partitions"),
        ({"scope": "everything", "from": "a"}, "Leave from empty"),
        ({"scope": "as usual", "partitions": ["a"]}, "Leave partitions empty"),
        ({"scope": "stale", "until": "a"}, "Leave until empty"),
        ({"scope": "range", "from": "a", "stale": True}, "Leave stale empty"),
        ({"note": 1}, "param note"),
        ({"note": "x" * 1001}, "at most 1000 characters"),
    ],
    ids=str,
)
def test_a_form_that_contradicts_itself_widens_nothing(params, problem):
    with pytest.raises(ArgumentError, match=problem):
        parse_request(params)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, False),
        ({"scope": "as usual", "partitions": [], "from": None}, False),
        ({"scope": "everything"}, True),
        ({"stale": True}, True),
        ({"until": "b"}, True),
    ],
)
def test_who_names_a_scope_is_not_given_another(params, expected):
    assert names_scope(params) is expected


def test_a_guard_is_set_aside_only_by_who_says_why():
    check_note(Request())
    check_note(Request(overrides=("allow_empty",), note="the shop has closed"))

    for note in (None, "", "  "):
        with pytest.raises(ArgumentError, match="overriding allow_empty needs a reason"):
            check_note(Request(overrides=("allow_empty",), note=note))


def test_a_runs_note_comes_before_the_authors():
    assert combined(Request(note="a"), Request(note="b")).note == "b"
    assert combined(Request(note="a"), Request()).note == "a"


# -- what a hostile run sends ------------------------------------------------------------------------------------------

NOT_A_RUN_S = [
    *("url", "jdbc_url", "driver", "conn_id", "database_url", "warehouse", "mv_conn_id", "user", "password"),
    *("spark.jars", "spark.jars.packages", "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"),
    *("spark.plugins", "spark.hadoop.fs.s3a.access.key", "spark_conf", "conf", "autoDeserialize", "socketFactory"),
    *("source", "definition", "definition_file", "format", "options", "select", "sql", "path", "callable", "key"),
    *("override", "Overrides", "read_only ", "", "{{ var.value.secret }}", "__class__", "is_stale_only", "scopes"),
]


@pytest.mark.parametrize("name", NOT_A_RUN_S)
def test_what_no_run_can_give_is_refused_by_name(name):
    with pytest.raises(ArgumentError, match="unknown") as caught:
        parse_request({name: "c4n4ry", "force": True})

    assert repr(name) in str(caught.value)
    assert "declares further params in the DAG's `params`" in caught.value.advice
    assert "c4n4ry" not in str(caught.value)


def test_what_the_author_declares_is_passed_over():
    assert parse_request({"spark.jars": "x", "ticket": 7, "force": True}, {"ticket", "spark.jars"}) == Request(
        force=True
    )


DEEP: object = "c4n4ry"
for _ in range(900):
    DEEP = [DEEP]
HUGE = [
    *({name: "x" * 10_000_000} for name in ("read_only", "overrides", "force", "partitions", "from", "strategy")),
    *({name: ["x" * 1_000_000] * 10} for name in ("overrides", "partitions")),
    *({name: DEEP} for name in ("read_only", "overrides", "partitions", "from", "strategy")),
    *({name: 10**4000} for name in ("read_only", "overrides", "partitions", "from", "until", "strategy")),
    {"partitions": [10**4000]},
    {"partitions": list(range(100_000))},
    {"x" * 1_000_000: 1},
    {f"spark.{number}": number for number in range(100_000)},
    {"from": "9" * 1001},
    {"overrides": [{"a": DEEP}]},
]


@pytest.mark.parametrize("params", HUGE, ids=lambda params: f"{next(iter(params))[:20]}-{len(params)}")
def test_what_is_huge_or_deep_is_refused_in_one_line(params):
    with pytest.raises(ArgumentError) as caught:
        parse_request(params)

    assert len(str(caught.value)) < 1000
    assert caught.value.advice
    assert str(caught.value).isprintable()


def test_a_guard_named_a_million_times_is_set_aside_once():
    assert parse_request({"overrides": ["allow_empty"] * 1_000_000}).overrides == ("allow_empty",)

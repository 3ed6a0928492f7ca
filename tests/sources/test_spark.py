"""Which data sources of Spark a definition may name, with which options."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from airflow_mv_provider.sources.spark.frontier import SparkFrontier
from airflow_mv_provider.sources.spark.model import SparkSource, option_obstacle


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"format": "csv"}, "type: files"),
        ({"format": "delta"}, "type: delta"),
        ({"format": "JDBC"}, "type: jdbc"),
        ({"format": "a b"}, "not the name of a data source"),
        ({"format": "m:a.b"}, "not the name of a data source"),
        ({"format": "x", "options": {"a b": "1"}}, "not the name of an option"),
        ({"format": "x", "options": {"path": "/etc"}}, "next to `format`"),
        ({"format": "x", "options": {"password": "1"}}, "may be a secret"),
        ({"format": "x", "options": {"url": "https://a:b@c"}}, "may be a secret"),
        ({"format": "x", "version": {"sfPassword": "1"}}, "may be a secret"),
        ({"format": "x", "options": {"to": "host=h;Password = x"}}, "may be a secret"),
        ({"format": "x", "conn_id": "c"}, "belong together"),
        ({"format": "x", "credentials": {"a": "login"}}, "belong together"),
        ({"format": "x", "conn_id": "c", "credentials": {"a": "secret text"}}, "none of login"),
        ({"format": "x", "conn_id": "c", "credentials": {"a": "login"}, "options": {"a": "1"}}, "options and the cred"),
        ({"format": "x", "path": "a", "version": {"a": "1"}}, "without a path"),
        ({"format": "x", "watermark": "a"}, "cannot have a watermark"),
    ],
)
def test_definition_that_cannot_be_is_refused(given, words):
    with pytest.raises(ValidationError, match=words):
        SparkSource(**given)


SNOWFLAKE = SparkSource(
    "snowflake",
    options={"sfDatabase": "d", "dbtable": "t"},
    conn_id="c",
    credentials={"sfUrl": "host", "sfPassword": "password"},
    version={"sfDatabase": "d", "query": "SELECT max(at) FROM t"},
)


@pytest.mark.parametrize(
    ("source", "allowed", "words"),
    [
        (SNOWFLAKE, "", None),
        (SNOWFLAKE.model_copy(update={"options": {"preactions": "DROP"}}), "", "preactions is not among"),
        (SNOWFLAKE.model_copy(update={"version": {"sfurl": "x"}}), "", "sfurl is not among"),
        (SNOWFLAKE.model_copy(update={"credentials": {"preactions": "login"}}), "", "preactions"),
        (SparkSource("bigquery", options={"query": "SELECT tokens FROM secrets"}), "", None),
        (SparkSource("x"), "", None),
        (SparkSource("x", options={"table": "t"}), "", "none is allowed yet"),
        (SparkSource("x", options={"table": "t"}), "y=table; x=other", "allowed are other"),
        (SparkSource("x", options={"table": "t"}), " x = other, table ;y=z", None),
        (SparkSource("m:C", options={"table": "t"}), "", None),
    ],
)
def test_only_options_of_the_list_are_allowed(source, allowed, words):
    found = option_obstacle(source, allowed)

    assert found is None if words is None else words in (found or "")


def test_frontier_survives_its_stored_form():
    for frontier in (SparkFrontier(None), SparkFrontier('["1", "2"]')):
        assert SparkFrontier.from_json(frontier.to_json()) == frontier
        assert frontier.describe()

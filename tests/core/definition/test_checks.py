"""Which checks a definition may have, and what is said about one that it may not have."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.definition.table import parse_table
from airflow_mv_provider.core.strategy import feed_obstacle
from airflow_mv_provider.exceptions import DefinitionError
from tests.core.test_strategy import USUAL

TABLE = {"name": "orders", "source": {"type": "delta", "path": "raw/orders"}, "key": ["id"]}


def table_with(*checks, **more):
    return parse_table(TABLE | {"checks": list(checks)} | more)


@pytest.mark.parametrize(
    ("check", "rule", "title", "text"),
    [
        ({"not_null": ["a"]}, "not_null", "not_null a", "a is not NULL"),
        ({"not_null": ["a", "b"]}, "not_null", "not_null a, b", "a, b are not NULL"),
        ({"unique": ["a"]}, "unique", "unique a", "a is unique"),
        ({"unique": ["a", "b"], "name": "pair"}, "unique", "pair", "a, b are together unique"),
        (
            {"accepted_values": {"column": "a", "values": ["x", 1, True]}},
            *("accepted_values", "accepted_values a", "a is one of x, 1, true"),
        ),
        (
            {"accepted_values": {"column": "a", "values": list(range(12))}},
            *("accepted_values", "accepted_values a", "a is one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"),
        ),
        ({"matches": {"column": "a", "pattern": "x+"}}, "matches", "matches a", "a matches x+"),
        ({"name": "positive", "expression": "a > 0"}, "expression", "positive", "a > 0"),
        (
            {"references": {"column": "a", "table": "gold.shops", "key": "id"}},
            *("references", "references a", "a is among id of gold.shops"),
        ),
        ({"name": "some", "expect": "count(*) > 0"}, "expect", "some", "count(*) > 0"),
    ],
)
def test_rule_and_its_words(check, rule, title, text):
    [found] = table_with(check).checks

    assert (found.rule, found.title, found.text, found.severity) == (rule, title, text, "fail")


@pytest.mark.parametrize(
    ("checks", "more", "said"),
    [
        (
            [{}],
            {},
            "one rule of not_null, unique, accepted_values, matches, expression, expect, references; none is given",
        ),
        ([{"not_null": ["a"], "unique": ["a"]}], {}, "not_null and unique are given"),
        ([{"not_null": "a"}], {}, "checks.0.not_null: expected a list, found 'a': write [a]"),
        ([{"not_null": []}], {}, "checks.0.not_null: empty"),
        ([{"notnull": ["a"]}], {}, "checks.0.notnull: unknown name (did you mean not_null?)"),
        ([{"expression": "a > 0"}], {}, "expression needs a name"),
        ([{"expect": "count(*) > 0"}], {}, "expect needs a name"),
        ([{"not_null": ["a"], "severity": "error"}], {}, "checks.0.severity: expected 'fail', 'hold', 'quarantine'"),
        ([{"not_null": ["a"]}, {"not_null": ["a"]}], {}, "two checks are called 'not_null a'"),
        ([{"not_null": ["a"], "severity": "quarantine"}], {}, "quarantine needs errors"),
        ([{"unique": ["a"], "severity": "quarantine"}], {"errors": {}}, "unique is about all rows"),
        ([{"name": "n", "expect": "true", "severity": "quarantine"}], {"errors": {}}, "expect is about all rows"),
        (
            [{"references": {"column": "a", "table": "shops", "key": "id"}, "severity": "quarantine"}],
            {"errors": {}},
            "references is about another table",
        ),
        ([{"references": {"column": "a", "table": "orders", "key": "id"}}], {}, "cannot reference its own table"),
        ([{"references": {"column": "a", "table": "shops"}}], {}, "checks.0.references.key: missing"),
        ([{"accepted_values": {"column": "a", "values": [1.5]}}], {}, "use `expression`"),
        ([{"accepted_values": {"column": "a", "values": []}}], {}, "checks.0.accepted_values.values: empty"),
        ([{"name": "a\x1b[2J", "not_null": ["a"]}], {}, "a character that cannot be shown"),
        (
            [{"not_null": ["a"], "severity": "hold"}],
            {"publish": "progressive", "partition_by": ["p"]},
            "severity hold needs publish: atomic",
        ),
    ],
)
def test_what_a_definition_may_not_have(checks, more, said):
    with pytest.raises(DefinitionError) as caught:
        table_with(*checks, **more)

    assert said in str(caught.value)


def test_only_checks_that_leave_rows_out_determine_main():
    plain = table_with(errors={})
    warned = table_with({"not_null": ["a"], "severity": "warn"}, errors={})
    quarantined = table_with({"not_null": ["a"], "severity": "quarantine"}, errors={})
    renamed = table_with({"not_null": ["a"], "severity": "quarantine", "name": "other"}, errors={})

    assert plain.content_hash == warned.content_hash != quarantined.content_hash == renamed.content_hash


@pytest.mark.parametrize(
    ("check", "obstacle"),
    [
        ({"not_null": ["a"]}, None),
        ({"unique": ["a"]}, "the check unique a is about all rows"),
        ({"name": "some", "expect": "count(*) > 0"}, "the check some is about all rows"),
    ],
)
def test_check_of_all_rows_needs_all_rows(check, obstacle):
    assert feed_obstacle(table_with(check), USUAL, "auto") == obstacle


def test_definition_survives_json():
    table = table_with({"accepted_values": {"column": "a", "values": ["x", 1, True]}}, {"not_null": ["a"]})

    assert parse_table(table.to_json()) == table

"""Names from outside: plain or refused, and quoted so that nothing breaks out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.definition.identifier import (
    check_column_name,
    check_table_name,
    literal,
    needs_mapping,
    quoted,
)
from airflow_mv_provider.exceptions import DefinitionError, InvalidIdentifierError

HOSTILE = [
    *("", " ", "x; DROP TABLE y", "x`; DROP TABLE y; --", "`x`", "x--", "a/b", "../x", "a\\b", "x'y", 'x"y', "a=b"),
    *("x\x00", "x\n", "\nx", "x\r", "x\x1b[31m", "a b", "a,b", "a;b", "a(b)", "{a}", "{{ var.value.secret }}"),
    *("${env}", "x" * 300, "a\tb"),
]


@pytest.mark.parametrize("name", ["orders", "gold.orders", "lake.gold.orders", "_a", "A1", "x" * 128, "mv_x", "a_mv_"])
def test_plain_table_name_is_taken_as_it_is(name):
    assert check_table_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *(*HOSTILE, "a.b.c.d", ".", "a.", ".a", "a..b", "1a", "a.1b", "x" * 129, "größe", "a\u200bb", "😀", "a%2e%2eb"),
        *("_mv", "_mv_x", "gold._mv", "_mv.orders", "a._mv_b.c"),
    ],
    ids=lambda n: repr(n)[:30],
)
def test_table_name_that_is_none_is_refused(name):
    with pytest.raises(InvalidIdentifierError) as caught:
        check_table_name(name)

    assert isinstance(caught.value, DefinitionError)
    assert len(str(caught.value)) < 250
    assert not any(ord(char) < 32 for char in str(caught.value)), "the message would speak to a terminal"


@pytest.mark.parametrize("name", ["id", "größe", "a-b", "a.b", "😀", "1", "%20", "x" * 255, "a'b", "mv_x", "ID"])
def test_column_name_that_delta_stores_is_taken(name):
    assert check_column_name(name) == name
    assert not needs_mapping(name)


@pytest.mark.parametrize(
    "name", ["a b", "a,b", "a;b", "a{b", "a}b", "a(b", "a)b", "a\nb", "a\tb", "a=b", "x; DROP TABLE y"]
)
def test_column_name_that_delta_has_to_map_is_taken_and_told(name):
    assert check_column_name(name) == name
    assert needs_mapping(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "\n", "`", "a`b", "\x00", "a\x7f", "a\rb", "a\x1bb"),
        *("x" * 256, "_mv_hash", "_MV_HASH", "_Mv_x"),
    ],
    ids=lambda n: repr(n)[:30],
)
def test_column_name_that_delta_refuses_or_we_use_is_refused(name):
    with pytest.raises(InvalidIdentifierError) as caught:
        check_column_name(name)

    assert len(str(caught.value)) < 250


def test_long_name_is_cut_in_the_message():
    with pytest.raises(InvalidIdentifierError) as caught:
        check_table_name("x" * 300)

    assert "'" + "x" * 57 + "...'" in str(caught.value)


@given(st.text())
def test_quoted_name_cannot_be_left(name):
    inside = quoted(name)[1:-1]

    assert quoted(name)[0] == quoted(name)[-1] == "`"
    assert inside.replace("``", "").count("`") == 0
    assert inside.replace("``", "`") == name


@given(st.text(alphabet=st.sampled_from("ab'\\\"\n")))
def test_literal_reads_back_as_it_was(text):
    inside = literal(text)[1:-1]
    read, position = "", 0
    while position < len(inside):
        assert inside[position] != "'", "the literal ends too early"
        position += inside[position] == "\\"
        read += inside[position]
        position += 1

    assert read == text

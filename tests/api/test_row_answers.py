"""Why a row is as it is, on a table's page: who may ask, who sees the answers, and that they are text."""

from __future__ import annotations

import pytest

from tests.api.conftest import PAGE
from tests.metadata.rows import registered

pytestmark = pytest.mark.slow

FORM = 'data-asks="answering"'


def page(browser, name):
    return browser.get(f"{PAGE}/tables/{name}").text


def test_who_may_act_on_a_table_asks_about_a_row_and_sees_the_answers(viewer, user, store):
    table = registered(store, "regions", key=["id", "<b>day"])
    before = page(user, "regions")
    told = "regions: id=5\n  update  \x1b[31m<script>alert(1)</script>"
    store.row_answers.keep(table.id, "<u>ann", 'id=5, <b>day="1"', told)
    store.row_answers.keep(table.id, None, "id=x", "[MV-ARGUMENT] regions: 'x' is no INT.", is_error=True)

    shown = page(user, "regions")

    assert FORM in shown
    assert 'data-table="regions"' in shown
    assert 'data-column="id"' in shown
    assert 'data-column="&lt;b&gt;day"' in shown
    assert "<script>alert" not in shown
    for text in (
        r"\x1b[31m&lt;script&gt;alert(1)&lt;/script&gt;",
        "asked by &lt;u&gt;ann",
        "no answer",
        "[MV-ARGUMENT]",
    ):
        assert text in shown, text
        assert text not in before, text
    for hidden in ("Why is a row as it is", "MV-ARGUMENT", "script&gt;alert"):
        assert hidden not in page(viewer, "regions"), hidden


def test_who_may_not_start_the_dag_that_answers_is_told_the_command(user, store, rights):
    registered(store, "regions", key=["id", "day"])
    rights["POST"] |= {"answering"}

    shown = page(user, "regions")

    assert FORM not in shown
    assert "amv why regions id=VALUE day=VALUE" in shown


def test_a_new_answer_makes_an_open_page_show_it(user, store):
    table = registered(store, "regions")
    before = user.get(f"{PAGE}/tables/regions/now").text
    store.row_answers.keep(table.id, "ann", "id=5", "it is there")

    assert user.get(f"{PAGE}/tables/regions/now").text != before

"""Whatever words the pages show, none of them is markup, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import quote

import pytest
from sqlalchemy import update

from airflow_mv_provider.core.cost import Estimate
from airflow_mv_provider.core.outcome import ErrorReport, Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.partition import partition_name
from airflow_mv_provider.core.progress.seal import SealedPartition
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.metadata.models import RefreshableTableRow
from tests.api.conftest import PAGE, assert_harmless
from tests.metadata.rows import (
    SEAL,
    a_caller,
    acquired,
    registered,
    walk,
)

pytestmark = pytest.mark.slow

URL = f"{PAGE}/tables/orders"
HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}&\x1b[31m"


@pytest.fixture
def table(store):
    return registered(store, "orders")


def test_hostile_words_stay_words(user, store, table):
    error = ErrorReport("MV-ENGINE", HOSTILE, HOSTILE)
    own = acquired(store, table, choice=Choice("corrections", HOSTILE, (Estimate("replace", None, HOSTILE),)))
    store.merging.seal(own, SEAL, (Chunk(0, None),), {}, frozen=[partition_name([HOSTILE])], schema_changes=[HOSTILE])
    store.abandon(own, Outcome.FAILED, error, {})
    store.pause(table.id, HOSTILE)
    again = acquired_although_paused(store, table)
    name = partition_name([HOSTILE])
    store.merging.seal(again, replace(SEAL, partitions=(SealedPartition(name, 1, 2),)), (Chunk(0, (name,)),), {})
    store.queue.take_ticket(table.id, a_caller(HOSTILE), patience_ms=60_000)

    for path in (URL, f"{URL}/now", f"{PAGE}/"):
        assert_harmless(user.get(path).text)
    page = user.get(URL).text
    assert "&lt;img src=x" in page
    assert "{{7*7}}" in page, "nothing is a template twice"


def acquired_although_paused(store, table):
    store.resume(table.id)
    own = acquired(store, table, key=HOSTILE, choice=Choice("corrections", HOSTILE))
    store.pause(table.id, HOSTILE)
    return own


def test_a_hostile_name_that_got_into_the_database_stays_a_name(user, store, table):
    with store.engine.begin() as db:
        db.execute(update(RefreshableTableRow).values(name=HOSTILE))

    listed = user.get(f"{PAGE}/").text

    assert_harmless(listed)
    [link] = re.findall(r'href="\./tables/([^"]*)"', listed)
    assert re.fullmatch(r"[\w%.~-]+", link)


@pytest.mark.parametrize("place", ["tables", "dags", "static"])
@pytest.mark.parametrize("name", [HOSTILE, HOSTILE.replace("/", "\\")], ids=["slashes", "none"])
def test_a_hostile_address_is_not_given_back(user, store, place, name):
    answer = user.get(f"{PAGE}/{place}/{quote(name, safe='')}", headers={"accept": "text/html"})

    assert_harmless(answer.text)


def test_a_dags_own_title_is_escaped(user, store):
    registered(store, "regions")

    page = user.get(f"{PAGE}/tables/regions").text

    assert "&lt;b&gt;Alone &amp; bold&lt;/b&gt;" in page
    assert "<b>" not in page


def test_answers_carry_a_policy_that_lets_nothing_in(user, table):
    for path in (URL, f"{PAGE}/", f"{PAGE}/static/page.js"):
        policy = user.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy


def test_nothing_is_loaded_from_elsewhere(user, store, table):
    walk(store, acquired(store, table), Phase.NORMAL)
    texts = [user.get(path).text for path in (URL, f"{PAGE}/", f"{PAGE}/static/page.css", f"{PAGE}/static/page.js")]

    assert not re.findall(r"""(?:src|href|url|@import|from)\s*[=(]?\s*["']?(?:https?:)?//""", " ".join(texts))
    assert not re.findall(r"<[^>]*\s(?:style|on\w+)=", " ".join(texts[:2])), "the policy would refuse these"

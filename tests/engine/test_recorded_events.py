"""Events that Debezium's real connector wrote, folded to the rows that PostgreSQL had then.

`tests/record_debezium.py` has recorded them, in acts: after each one the recording has PostgreSQL's own rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from airflow_mv_provider.exceptions import EventIncompleteError
from airflow_mv_provider.spark.errors import translated
from scripts.shop_database import SCHEMAS, SELECTS
from tests.engine.folding import Log, folded, kept
from tests.engine.record_forms import Json
from tests.record_debezium import plain, read

LEFT_OUT = "__debezium_unavailable_value"
_KINDS = (
    "id INT, small SMALLINT, big BIGINT, exact DECIMAL(30,10), any_scale STRING, single FLOAT, double DOUBLE,"
    " words STRING, short STRING, fixed STRING, flag BOOLEAN, day STRING, at STRING, moment TIMESTAMP, clock STRING,"
    " uid STRING, doc STRING, bytes BINARY, numbers ARRAY<INT>, texts ARRAY<STRING>, feeling STRING, host STRING,"
    " span BIGINT"
)
# What a definition selects, to get PostgreSQL's values out of texts of Debezium's own form.
_OF_KINDS = [
    "id", "small", "big", "exact", "any_scale", "single", "double", "words", "short", "fixed", "flag",
    "to_date(left(day, 10)) AS day", "CAST(rtrim('Z', at) AS TIMESTAMP_NTZ) AS at", "moment",
    "rtrim('Z', clock) AS clock", "uid", "doc", "base64(bytes) AS bytes", "numbers", "texts", "feeling", "host",
]  # fmt: skip
_FORMS = {name: Json(ddl) for name, ddl in (SCHEMAS | {"kinds": _KINDS}).items()}
_KEYS = {"customers": "customer_id", "accounts": "account_id"}


@dataclass
class Recorded:
    """A recorded topic: its records, and after how many of them PostgreSQL had which rows."""

    log: Log
    acts: list[tuple[int, Counter[str]]] = field(default_factory=list)

    @property
    def rows(self) -> Counter[str]:
        """PostgreSQL's rows at the end."""
        return self.acts[-1][1]

    def ends(self, moment: int) -> list[int]:
        """Return where each partition ends after so many records."""
        before = self.log.records[:moment]
        return [sum(each[0] == partition for each in before) for partition in range(self.log.num)]


def recorded(name: str) -> Recorded:
    head, *lines = read(name)
    found = Recorded(Log(head["partitions"]))
    for line in lines:
        if "rows" in line:
            found.acts.append((len(found.log.records), _multiset(line["rows"])))
        else:
            found.log.add(_text(line["key"]), line["value"], line["p"])
    return found


def _text(key: Any) -> str | None:
    return None if key is None else json.dumps(key)


def _multiset(rows: Sequence[Sequence[Any]]) -> Counter[str]:
    return Counter(json.dumps(row, ensure_ascii=False) for row in rows)


def rows_of(frame: DataFrame, select: Sequence[str]) -> Counter[str]:
    """Return rows as a recording has them."""
    with translated("t"):
        shown = frame.selectExpr(*select)
        found = shown.collect()
    # Spark hands out a TIMESTAMP in this machine's zone, without saying so.
    is_moment = [isinstance(column.dataType, TimestampType) for column in shown.schema.fields]
    rows = [
        [value.astimezone(UTC) if in_zone and value else value for value, in_zone in zip(row, is_moment, strict=True)]
        for row in found
    ]
    return _multiset(plain(rows))


def test_recordings_have_what_a_connector_tells():
    """Each kind of event, values that are left out, a key that changes, and events that came again."""
    events = {name: [json.loads(value) for *_, value in recorded(name).log.records if value] for name in _KEYS}
    every = [event for found in events.values() for event in found]

    ops = Counter(event["op"] for event in every)
    assert set(ops) == {"r", "c", "u", "d", "t"}
    assert sum(len(recorded(name).log.records) for name in _KEYS) >= 500
    assert any(event["after"] and event["after"].get("note") == LEFT_OUT for event in events["customers"])
    for name, key in _KEYS.items():
        told = Counter((e["source"]["lsn"], e["op"], (e["after"] or e["before"] or {}).get(key)) for e in events[name])
        assert max(told.values()) > 1, "no event came again"
        of_one_write = Counter(lsn for lsn, op, _ in told if op in "dc")
        assert max(of_one_write.values()) > 1, "no key has changed"


@pytest.mark.slow
@pytest.mark.parametrize("name", _KEYS)
@pytest.mark.sample("accounts")
def test_each_act_folds_to_the_rows_of_postgresql(spark, name):
    topic, key = recorded(name), _KEYS[name]
    start, main = [0] * topic.log.num, None

    for moment, rows in topic.acts:
        end = topic.ends(moment)
        main = kept(spark, folded(spark, topic.log, "debezium", start, end, main, _FORMS[name], key))
        start = end
        assert rows_of(main, SELECTS[name]) == rows


@pytest.mark.slow
@pytest.mark.in_test_all
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(sorted(_KEYS)))
def test_any_cut_and_any_repetition_fold_to_the_same_rows(spark, data, name):
    """A connector that died goes on from where it last noted how far it was: what it sends again has no gap."""
    topic, key = recorded(name), _KEYS[name]
    records = topic.log.records
    snapshot = max(n for n, (*_, value) in enumerate(records) if value and json.loads(value)["op"] == "r") + 1
    again = data.draw(st.integers(snapshot, len(records)), "repeated from")
    until = data.draw(st.integers(again, len(records)), "died after")
    repeated = Recorded(Log(topic.log.num, [*records[:until], *records[again:until], *records[until:]]))
    total = len(repeated.log.records)
    moments = data.draw(st.lists(st.integers(0, total), max_size=3).map(sorted), "cuts")

    start, main = [0] * topic.log.num, None
    for moment in [*moments, total]:
        end = repeated.ends(moment)
        try:
            main = kept(spark, folded(spark, repeated.log, "debezium", start, end, main, _FORMS[name], key))
        except EventIncompleteError:  # the cut is in a repetition, before the delete that comes again: retried later
            assert again < until
            assert moment < total
            continue
        start = end

    assert rows_of(main, SELECTS[name]) == topic.rows


@pytest.mark.slow
def test_each_type_of_postgresql_is_what_it_was(spark):
    topic = recorded("kinds")

    found = folded(spark, topic.log, "debezium", [0] * topic.log.num, topic.log.ends, None, _FORMS["kinds"])

    assert rows_of(found, _OF_KINDS) == topic.rows


@pytest.mark.slow
def test_large_value_of_a_row_whose_key_changes_is_nowhere(spark):
    """The connector leaves it out of the row that comes, whose key had no value before."""
    topic, form = recorded("moved"), Json("id INT, v STRING, note STRING")

    with pytest.raises(EventIncompleteError, match="note is not in the event"):
        rows_of(folded(spark, topic.log, "debezium", [0] * topic.log.num, topic.log.ends, None, form), ["id"])

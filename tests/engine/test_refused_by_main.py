"""What main itself refuses ends the refresh after one try: NORMAL, and once it is mended the next one publishes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import MainRefusedError, MainUnsupportedError, TerminalError
from airflow_mv_provider.runner import crash_points
from airflow_mv_provider.spark.refusal import _GONE, _REFUSING
from tests.conftest import Crash

pytestmark = pytest.mark.slow

FIRST = "SELECT id, CAST(id % 4 AS INT) AS p, concat('v', id) AS v FROM range(8)"
LATER = (
    "SELECT id, CAST(id % 4 + IF(id > 8, 9, 0) AS INT) AS p, IF(id = 5, NULL, concat('v', id)) AS v FROM range(1, 10)"
)


@pytest.fixture
def table(prepared: Callable[..., Any]) -> Any:
    """A table that was published once, and whose source has changed since."""

    def build(lake: Any) -> None:
        lake.write(FIRST)
        lake.apply(partition_by=["p"])
        lake.refresh()
        lake.write(LATER)

    return prepared("refused-by-main", build)


def alter(lake: Any, change: str, path: str = "orders") -> None:
    lake.sql(f"ALTER TABLE {{t}} {change}", path=path)


def add_feature(lake: Any, *, for_readers: bool = False) -> None:
    """Let main need a feature that no Delta knows, as a later one would."""
    log = lake.root / "orders/_delta_log"
    lines = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
    protocol = [line["protocol"] for line in lines if "protocol" in line][-1]
    for features in ("writerFeatures", "readerFeatures")[: 1 + for_readers]:
        protocol[features] = [*protocol[features], "ofTomorrow"]
    commit = [{"commitInfo": {"timestamp": 1, "operation": "UPGRADE PROTOCOL"}}, {"protocol": protocol}]
    newest(lake, 1).write_text("\n".join(json.dumps(line) for line in commit))


def drop_feature(lake: Any) -> None:
    newest(lake, 0).unlink()


def newest(lake: Any, ahead: int) -> Any:
    log = lake.root / "orders/_delta_log"
    number = max(int(file.stem) for file in log.glob("*.json")) + ahead
    (log / f".{number:020d}.json.crc").unlink(missing_ok=True)
    return log / f"{number:020d}.json"


def block(lake: Any) -> None:
    (lake.root / "orders/p=10").write_text("no directory")


REFUSALS = {
    "constraint": (
        lambda lake: alter(lake, "ADD CONSTRAINT early CHECK (id < 9)"),
        lambda lake: alter(lake, "DROP CONSTRAINT early"),
        "early",
    ),
    "append only": (
        lambda lake: alter(lake, "SET TBLPROPERTIES ('delta.appendOnly' = 'true')"),
        lambda lake: alter(lake, "UNSET TBLPROPERTIES ('delta.appendOnly')"),
        "DELTA_CANNOT_MODIFY_APPEND_ONLY",
    ),
    "path": (block, lambda lake: (lake.root / "orders/p=10").unlink(), "cannot be written"),
    "feature": (add_feature, drop_feature, "ofTomorrow"),
}


def check_ended(lake: Any, before: list[Any]) -> None:
    assert (lake.phase(), lake.rows("orders"), lake.workspaces()) == ("NORMAL", before, [])


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusal_ends_the_refresh_after_one_try(table, refusal):
    refuse, mend, said = REFUSALS[refusal]
    before = table.rows()
    refuse(table)

    with pytest.raises(MainRefusedError, match=r"refuses|cannot be written") as caught:
        table.refresh()

    assert said in caught.value.problem
    assert isinstance(caught.value, TerminalError)
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])
    mend(table)
    assert table.rows() == before
    assert table.refresh().outcome is Outcome.PUBLISHED
    assert Counter(table.rows()) == Counter(table.rows("raw/orders"))


@pytest.mark.in_test_all
def test_fence_that_main_refuses_is_tried_once(table):
    before, points = table.rows(), []
    add_feature(table)
    crash_points.arm(points.append)

    try:
        with pytest.raises(MainRefusedError, match="ofTomorrow"):
            table.refresh()
    finally:
        crash_points.arm(None)

    assert (points.count("fence.before"), points.count("fence.after")) == (1, 0)
    drop_feature(table)
    check_ended(table, before)


@pytest.mark.in_test_all
def test_mended_source_is_published_without_a_hand(table):
    REFUSALS["constraint"][0](table)
    with pytest.raises(MainRefusedError):
        table.refresh()
    table.write(f"SELECT * FROM ({LATER}) WHERE id < 9")

    assert table.refresh().outcome is Outcome.PUBLISHED
    assert Counter(table.rows()) == Counter(table.rows("raw/orders"))


@pytest.mark.in_test_all
@pytest.mark.parametrize("column", ["v VARCHAR(2)", "v STRING NOT NULL", "v STRING GENERATED ALWAYS AS (upper(w))"])
def test_first_publish_into_an_adopted_table_is_refused_once(lake, column):
    lake.sql(f"CREATE TABLE {{t}} (id BIGINT, w STRING, {column}) USING delta")
    lake.write("SELECT id, 'a' AS w, IF(id = 1, NULL, 'long') AS v FROM range(3)")
    lake.apply(adopt=True)

    with pytest.raises(MainRefusedError) as caught:
        lake.refresh()

    assert "long" not in caught.value.problem or "VARCHAR" in column
    check_ended(lake, [])


@pytest.mark.sample(1)
@pytest.mark.parametrize("for_readers", [False, True])
@pytest.mark.parametrize("point", ["seal.after", "publish.before"])
def test_main_that_refuses_even_the_fence_keeps_nobody_from_giving_up(table, at_point, point, for_readers):
    before = table.rows()
    at_point(point, lambda: add_feature(table, for_readers=for_readers))

    with pytest.raises((MainRefusedError, MainUnsupportedError), match="ofTomorrow"):
        table.refresh()

    assert table.phase() == "NORMAL"
    with pytest.raises((MainRefusedError, MainUnsupportedError)):
        table.refresh()
    drop_feature(table)
    check_ended(table, before)
    assert table.refresh().outcome is Outcome.PUBLISHED


@pytest.mark.in_test_all
@pytest.mark.sample(1, by=lambda case: case.partition("-")[0])
@pytest.mark.parametrize("how", ["recover", "abandon"])
@pytest.mark.parametrize("for_readers", [False, True])
def test_dead_owner_of_a_main_that_refuses_the_fence_is_cleared_away(table, crash_at, how, for_readers):
    crash_at("seal.after")
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)
    add_feature(table, for_readers=for_readers)

    runner = table.refresher()
    runner.recover(table.caller()) if how == "recover" else runner.abandon("orders", table.caller())

    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_error_table_that_refuses_its_records_ends_the_refresh(lake):
    folder = lake.root / "raw/lines"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("id,v\n1,a\nx,b\n")
    source = Files("raw/lines/*.csv", format="csv", schema="id BIGINT, v STRING")
    lake.apply(source=source, errors={"max_rows": 10})
    lake.refresh()
    (folder / "b.csv").write_text("id,v\n2,c\ny,d\n")
    alter(lake, "ADD CONSTRAINT few CHECK (source_file NOT LIKE '%b.csv')", "orders__errors")

    with pytest.raises(MainRefusedError, match=r"orders__errors.*few"):
        lake.refresh()

    assert lake.phase() == "NORMAL"
    alter(lake, "DROP CONSTRAINT few", "orders__errors")
    assert lake.refresh().outcome is Outcome.PUBLISHED
    assert [row[0] for row in lake.rows()] == [1, 2]
    assert len(lake.rows("orders__errors")) == 2


@pytest.mark.in_test_all
def test_nul_in_a_partition_is_refused_before_the_seal(lake):
    (lake.root / "raw").mkdir()
    (lake.root / "raw/a.csv").write_text("id,p\n1,a\0b\n")
    lake.apply(source=Files("raw/*.csv", format="csv", schema="id BIGINT, p STRING"), partition_by=["p"])

    with pytest.raises(TerminalError, match=r"MV-PARTITION-VALUE.*NUL"):
        lake.refresh()

    (lake.root / "raw/a.csv").write_text("id,p\n1,ab\n")
    assert lake.refresh().outcome is Outcome.PUBLISHED
    assert lake.rows() == [(1, "ab")]


@pytest.mark.in_process
def test_classes_of_deltas_own_states_are_told_apart(spark):
    def state(condition: str) -> str:
        return str(spark._jvm.org.apache.spark.sql.delta.DeltaThrowableHelper.getSqlState(condition))

    refused = [
        *("VIOLATE_CONSTRAINT_WITH_VALUES", "NOT_NULL_CONSTRAINT_VIOLATED", "EXCEED_CHAR_VARCHAR_LIMIT"),
        *(
            "CANNOT_MODIFY_APPEND_ONLY",
            "UNSUPPORTED_FEATURES_FOR_WRITE",
            "IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED",
        ),
        *("ADDING_DELETION_VECTORS_DISALLOWED", "ICEBERG_COMPAT_VIOLATION", "INVALID_PROTOCOL_VERSION"),
        *(
            "UNRECOGNIZED_INVARIANT",
            "CHANGE_TABLE_FEED_DISABLED",
            "METADATA_MISMATCH",
        ),
    ]
    retried = [
        *("CONCURRENT_APPEND", "CONCURRENT_TRANSACTION", "CONCURRENT_WRITE", "METADATA_CHANGED", "PROTOCOL_CHANGED"),
        *("MAX_COMMIT_RETRIES_EXCEEDED", "POST_COMMIT_HOOK_FAILED", "MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY"),
        *("FILE_NOT_FOUND", "TABLE_NOT_FOUND", "STATE_RECOVER_ERROR", "SCHEMA_CHANGE_SINCE_ANALYSIS"),
        *("TXN_LOG_FAILED_INTEGRITY", "VERSIONS_NOT_CONTIGUOUS"),
    ]

    states = {name: state(f"DELTA_{name}") for name in (*refused, *retried)}

    is_refused = {name: found.startswith(_REFUSING) and found not in _GONE for name, found in states.items()}
    assert is_refused == dict.fromkeys(refused, True) | dict.fromkeys(retried, False), states

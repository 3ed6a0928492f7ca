"""A refresh of some partitions: nothing outside is read into main, changed or deleted, and nobody takes it for all."""

from __future__ import annotations

import datetime
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.progress.partition import partition_name
from airflow_mv_provider.core.scope.column_order import order_of, value_of
from airflow_mv_provider.exceptions import ArgumentError, FrozenPartitionError, GuardRefusedError, KeyMovedError
from airflow_mv_provider.spark.partitions import is_member
from tests.conftest import Crash, a_table
from tests.scenarios.conftest import check_invariants

pytestmark = pytest.mark.slow

FIRST = """
    SELECT id, date_add(DATE'2013-01-01', CAST(id % 4 AS INT)) AS on_day, concat('v', id) AS v FROM range(40)
"""
LATER = """
    SELECT id, date_add(DATE'2013-01-01', CAST(id % 4 AS INT)) AS on_day, concat('w', id) AS v
    FROM range(44) WHERE id <> 1
"""
SECOND, THIRD = "2013-01-02", "2013-01-03"


@pytest.fixture
def table(prepared):
    """Published once, four days with ten rows each; then every row of the source changed."""

    def build(lake):
        lake.write(FIRST)
        lake.apply(partition_by=["on_day"], key=["id", "on_day"])
        lake.refresh()
        lake.write(LATER)

    return prepared("four-days", build)


def expected(lake, old, is_new):
    """Main as it should be: partitions for which `is_new` holds from the source, all others as they were."""
    rows = [row for row in old if not is_new(str(row[1]))] + [
        row for row in lake.rows("raw/orders") if is_new(str(row[1]))
    ]
    return Counter(rows)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("asked", "is_new"),
    [
        ({"partitions": [SECOND, "2013-01-04", "2020-01-01"]}, lambda day: day in (SECOND, "2013-01-04")),
        ({"from": SECOND, "until": "2013-01-04"}, lambda day: SECOND <= day < "2013-01-04"),
        ({"until": SECOND}, lambda day: day < SECOND),
    ],
    ids=["a list", "a range", "until"],
)
def test_only_the_scope_changes(table, asked, is_new):
    old = table.rows()

    report = table.refresh(**asked)

    assert report.outcome is Outcome.PUBLISHED
    assert Counter(table.rows()) == expected(table, old, is_new)
    assert report.scope is not None
    assert report.reason.startswith("requested: partitions")
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_refresh_of_everything_brings_the_rest(table):
    table.refresh(partitions=[SECOND])

    report = table.refresh()

    assert (report.outcome, report.reason) == (
        Outcome.PUBLISHED,
        "earlier refreshes covered only some partitions",
    )
    check_invariants(table)
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("asked", [{"partitions": [SECOND, "2020-01-01"]}, {"from": THIRD}], ids=["a list", "a range"])
def test_totals_of_main_follow_a_refresh_of_some_partitions(table, asked):
    table.refresh(**asked)

    found = table.published()
    table.write("SELECT * FROM {t}".format(t=f"delta.`{table.root}/orders`"))
    table.refresh(force=True)
    assert found == table.published()
    of_main, of_partitions = found
    assert of_main.num_rows == sum(each.num_rows for each in of_partitions.values()) == len(table.rows())
    assert len(of_partitions) >= 4


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["published.before", "published.after"])
def test_totals_of_main_are_right_or_forgotten_after_a_crash_beside_their_write(table, crash_at, point):
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh(partitions=[SECOND])
    table.clock.pass_ms(table.settings.lease_ms + 1)

    (report,) = table.refresher().recover(table.caller())

    assert report.outcome is Outcome.PUBLISHED
    # Before PUBLISHED nobody knows that main is what the dead epoch's totals say; the next refresh reads it.
    found = table.published()
    assert (found is None) == (point == "published.before")
    table.write("SELECT * FROM {t}".format(t=f"delta.`{table.root}/orders`"))
    report = table.refresh(force=True)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)
    assert found in (None, table.published())
    assert table.workspaces() == []


@pytest.mark.in_test_all
def test_first_refresh_may_be_of_some_partitions(lake):
    lake.write(FIRST)
    lake.apply(partition_by=["on_day"], key=["id", "on_day"])

    report = lake.refresh(partitions=[SECOND])

    assert report.rows_inserted == 10
    assert Counter(lake.rows()) == expected(lake, [], lambda day: day == SECOND)
    assert lake.refresh(**{"from": THIRD}).rows_inserted == 20
    assert lake.refresh().rows_inserted == 10
    check_invariants(lake)


@pytest.mark.in_test_all
def test_scope_with_nothing_in_it_is_no_empty_source(table):
    report = table.refresh(partitions=["2020-01-01"])

    assert (report.outcome, report.rows_inserted, report.rows_deleted) == (Outcome.PUBLISHED, 0, 0)


@pytest.mark.in_test_all
def test_scope_that_lost_all_its_rows_is_refused(table):
    old = table.rows()
    table.write(f"SELECT * FROM ({LATER}) WHERE on_day <> DATE'{SECOND}'")

    with pytest.raises(GuardRefusedError, match="the source has no rows, the table has 10"):
        table.refresh(partitions=[SECOND])

    assert table.rows() == old
    overrides = ["allow_empty", "max_deleted_fraction"]
    assert table.refresh(partitions=[SECOND], overrides=overrides).rows_deleted == 10


@pytest.mark.in_test_all
def test_the_same_scope_again_finds_nothing_but_looks(table):
    table.refresh(partitions=[SECOND])

    again = table.refresh(partitions=[SECOND])

    assert (again.outcome, again.rows_unchanged, again.rows_inserted) == (Outcome.PUBLISHED, 10, 0)


@pytest.mark.in_test_all
def test_stale_leaves_out_what_is_fresh_and_then_all_is(table):
    table.refresh(partitions=[SECOND])
    table.refresh(**{"from": THIRD, "until": "2013-01-04"})

    report = table.refresh(stale=True)

    assert report.rows_updated == 20
    assert report.scope == f'everything except partitions ["{SECOND}"] and partitions from {THIRD} until 2013-01-04'
    check_invariants(table)
    assert table.refresh(stale=True).outcome is Outcome.NOTHING_TO_DO
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_partition_without_a_value_is_in_no_named_one_and_stale_beside_it(lake):
    """NULL is not in a list of values, and is not outside of it either, unless somebody says which."""
    rows = "SELECT id, CAST(nullif(id % 3, 2) AS INT) AS p, '{}' AS v FROM range(9)"
    lake.write(rows.format("old"))
    lake.apply(partition_by=["p"])
    lake.refresh()
    lake.write(f"SELECT id, p, if(p = 1, 'new', v) AS v FROM ({rows.format('old')})")
    lake.refresh(partitions=["1"])

    assert lake.refresh().rows_unchanged == 9  # digests of all of main were kept
    lake.write(rows.format("newer"))
    lake.refresh(partitions=["1"])
    assert lake.refresh(stale=True).rows_updated == 6
    check_invariants(lake)


@pytest.mark.in_test_all
def test_stale_believes_nothing_of_an_older_state_or_of_a_main_that_others_changed(table):
    table.refresh(partitions=[SECOND])
    table.write(FIRST)
    assert table.refresh(stale=True).scope is None
    check_invariants(table)
    table.write(LATER)
    table.refresh(partitions=[SECOND])
    table.sql(f"DELETE FROM {{t}} WHERE on_day = DATE'{SECOND}'")
    table.refresh(stale=True)
    check_invariants(table)


@pytest.mark.in_test_all
def test_stale_believes_nothing_that_was_covered_before_others_changed_main(table):
    table.refresh(partitions=[SECOND])
    table.sql(f"DELETE FROM {{t}} WHERE on_day = DATE'{SECOND}'")
    table.refresh(partitions=[THIRD])

    table.refresh(stale=True)

    check_invariants(table)


@pytest.mark.in_test_all
def test_source_that_goes_back_to_what_was_published_before_a_scope_is_compared(lake):
    """Files, unlike Delta, may have the same token again: only a whole refresh may say that nothing is new."""
    place = lake.root / "raw" / "days"
    place.mkdir(parents=True)
    file, aside = place / "a.csv", lake.root / "aside.csv"
    file.write_text("id,on_day,v\n1,2013-01-01,old\n2,2013-01-02,old\n")
    source = {"type": "files", "path": "raw/days", "format": "csv", "schema": "id INT, on_day STRING, v STRING"}
    lake.apply(source=source, partition_by=["on_day"], key=["id", "on_day"])
    lake.refresh()
    file.rename(aside)
    (place / "b.csv").write_text("id,on_day,v\n1,2013-01-01,new\n2,2013-01-02,new\n")
    lake.refresh(partitions=["2013-01-01"])
    (place / "b.csv").unlink()
    aside.rename(file)

    report = lake.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert lake.rows() == [(1, "2013-01-01", "old"), (2, "2013-01-02", "old")]


@pytest.mark.in_test_all
def test_read_only_looks_at_the_scope_alone(table):
    report = table.refresh(read_only=True, partitions=[SECOND])

    assert (report.outcome, report.rows_updated, report.rows_inserted, report.rows_deleted) == (
        Outcome.DIFFERENCES,
        *(9, 1, 1),
    )


@pytest.mark.in_test_all
def test_a_row_that_moved_into_the_scope_is_refused(lake):
    lake.write(FIRST)
    lake.apply(partition_by=["on_day"])
    lake.refresh()
    old = lake.rows()
    lake.write(FIRST.replace("CAST(id % 4 AS INT)", "CAST(CASE WHEN id = 8 THEN 1 ELSE id % 4 END AS INT)"))

    with pytest.raises(KeyMovedError, match=r'\{"id":8\}'):
        lake.refresh(partitions=[SECOND])

    assert (lake.rows(), lake.phase(), lake.workspaces()) == (old, "NORMAL", [])
    lake.refresh()
    check_invariants(lake)


@pytest.mark.in_test_all
def test_a_row_that_another_writer_moves_out_of_the_scope_after_the_seal_is_not_inserted_twice(lake, at_point):
    lake.write(FIRST)
    lake.apply(partition_by=["on_day"])
    lake.refresh()
    old = lake.rows()
    lake.write(FIRST.replace("concat('v', id)", "concat('w', id)"))
    at_point("seal.after", lambda: lake.sql("UPDATE {t} SET on_day = DATE '2013-01-01' WHERE id = 5"))

    with pytest.raises(KeyMovedError, match=r'\{"id":5\}'):
        lake.refresh(partitions=[SECOND])

    assert (lake.phase(), lake.workspaces()) == ("NORMAL", [])
    moved = [(key, datetime.date(2013, 1, 1) if key == 5 else day, v) for key, day, v in old]
    assert Counter(lake.rows()) == Counter(moved)
    lake.refresh()
    check_invariants(lake)


@pytest.mark.sample("""{'from': '2013-02-30'}-'2013-02-30' is not a value of 'on_day'""")
@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"partitions": ["tomorrow"]}, "'tomorrow' is not a value of 'on_day', which is a date"),
        ({"from": "2013-02-30"}, "'2013-02-30' is not a value of 'on_day'"),
        ({"partitions": [[SECOND, "x"]]}, "needs one value for each of on_day"),
        ({"partitions": ["2013-01-01'); DROP TABLE orders; --"]}, "is not a value of 'on_day'"),
    ],
    ids=str,
)
def test_a_value_that_is_none_is_refused_and_leaves_nothing(table, asked, problem):
    old = table.rows()

    with pytest.raises(ArgumentError, match=problem.replace("(", r"\(")):
        table.refresh(**asked)

    assert (table.phase(), table.rows(), table.workspaces()) == ("NORMAL", old, [])


@pytest.mark.in_test_all
def test_frozen_partitions_are_left_and_reported(table):
    old = table.rows()
    table.apply(partition_by=["on_day"], key=["id", "on_day"], frozen_before=THIRD)

    report = table.refresh()

    assert Counter(table.rows()) == expected(table, old, lambda day: day >= THIRD)
    assert report.frozen == ('["2013-01-01"]', '["2013-01-02"]')
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO
    for asked in ({"partitions": [SECOND]}, {"until": THIRD}):
        with pytest.raises(FrozenPartitionError, match="is frozen: older than 2013-01-03"):
            table.refresh(**asked)
    table.apply(partition_by=["on_day"], key=["id", "on_day"])
    assert table.refresh().rows_updated == 19
    check_invariants(table)


@pytest.mark.in_test_all
def test_range_of_a_text_column_is_in_the_order_of_texts(lake):
    lake.write("SELECT id, CAST(id AS STRING) AS p, 'a' AS v FROM range(8, 12)")
    definition = {"partition_by": ["p"], "key": ["id", "p"]}
    lake.apply(**definition)
    for asked in ({"from": "9", "until": "11"}, {"from": "11", "until": "9"}) * 2:
        # The first two times the type is not known before the source is read, then it is.
        if asked["from"] == "9":
            with pytest.raises(ArgumentError, match=r"from '9' until '11' is empty: 'p' is of type string"):
                lake.refresh(**asked)
        else:
            assert lake.refresh(**asked).outcome is Outcome.PUBLISHED

    assert lake.store.state(lake.store.table("orders").id).partition_type == "string"
    assert [row[1] for row in lake.rows()] == ["11", "8"]
    found = lake.store.ledger(lake.store.table("orders").id)
    assert [(e.start, e.end, str(e.state)) for e in found] == [("11", "9", "done")]
    lake.apply(**definition, frozen_before="9")
    assert lake.refresh().rows_inserted == 1, "the text '10' is frozen, '9' is not"
    with pytest.raises(FrozenPartitionError):
        lake.refresh(partitions=["11"])


@pytest.mark.in_test_all
def test_bounds_that_only_spark_understands_are_those_that_it_reads(lake):
    lake.write("SELECT id, timestamp'2024-01-01' + make_dt_interval(CAST(id AS INT)) AS p, 'a' AS v FROM range(5)")
    lake.apply(partition_by=["p"], key=["id", "p"], frozen_before="2023-01-01 00:00:00 Europe/Berlin")
    berlin = {"from": "2024-01-02 00:00:00 Europe/Berlin", "until": "2024-01-03 12:00:00"}

    assert [lake.refresh(**berlin).rows_inserted for _ in range(2)] == [2, 0]  # before the type is known, and after
    assert [row[0] for row in lake.rows()] == [1, 2]


@pytest.mark.in_test_all
def test_bound_of_frozen_partitions_is_a_value_of_their_column(lake):
    lake.write("SELECT id, DATE'2024-01-01' AS on_day, 'a' AS v FROM range(3)")
    for bound, problem in (
        ("2024-02-30", "'2024-02-30' is not a value of 'on_day', which is a date"),
        ("2024-02-03", ""),
    ):
        lake.apply(partition_by=["on_day"], key=["id", "on_day"], frozen_before=bound)
        if problem:
            with pytest.raises(ArgumentError, match=problem):
                lake.refresh()
            assert (lake.phase(), lake.workspaces()) == ("NORMAL", [])
        else:
            assert lake.refresh(overrides=["allow_empty"]).rows_inserted == 0


@pytest.mark.in_test_all
@pytest.mark.parametrize("kind", ["string", "int", "bigint", "decimal(9,2)", "date", "timestamp", "boolean"])
@settings(max_examples=3, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_values_are_ordered_as_spark_orders_them(spark, kind, data):
    """Real values of each type, in all spellings that are drawn: core's order is Spark's, also of what Spark prints."""
    numbers = st.decimals(-1000, 1000, places=3) | st.integers(-(2**40), 2**40) | st.integers(-12, 12)
    parts = st.integers(1, 40)
    days = st.dates(datetime.date(1000, 1, 1)).map(str) | st.builds("2024-{}-{}".format, parts, parts)
    times = st.datetimes(datetime.datetime(1900, 1, 1)).map(str)
    zoned = st.builds("{}{}".format, times, st.sampled_from(["Z", "+02:00", "-11:30"]))
    others = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
    drawn = numbers.map(str) | days | times | zoned | others | st.sampled_from(["true", "F", " 7 ", "+7"])
    texts = list(dict.fromkeys(data.draw(st.lists(drawn, min_size=60, max_size=60))))
    rows = spark.createDataFrame([(text,) for text in texts], "text STRING")
    found = rows.selectExpr("text", f"try_cast(text AS {kind}) AS value").where("value IS NOT NULL")
    shown = found.selectExpr("text", "CAST(value AS STRING) AS shown", "dense_rank() OVER (ORDER BY value) AS place")
    values = shown.orderBy("place").collect()
    name = found.schema["value"].dataType.jsonValue()
    order = order_of(name)

    places = [row.place for row in values]
    assert places == dense_ranks([order(row.shown) for row in values])
    known = [row for row in values if value_of(name, row.text) is not None]
    assert [order(row.text) for row in known] == [order(row.shown) for row in known]
    assert len(known) >= len(values) / 2


def dense_ranks(ordered):
    ranks = {key: place for place, key in enumerate(sorted(set(ordered)), 1)}
    return [ranks[key] for key in ordered]


@pytest.mark.in_test_all
def test_a_condition_on_many_partitions_of_two_columns_is_evaluated(spark):
    """As a chain it overflowed Spark's stack."""
    table = a_table(partition_by=["p", "q"])
    rows = spark.sql("SELECT CAST(id AS INT) AS p, CAST(id % 7 AS INT) AS q FROM range(3000)")
    members = [partition_name([str(n), str(n % 7)]) for n in range(0, 3000, 2)]

    found = rows.where(is_member(rows, table, members)).collect()
    assert Counter(found) == Counter((number, number % 7) for number in range(0, 3000, 2))

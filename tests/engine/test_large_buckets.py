"""What is seen by large buckets first is what small ones show."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.fence import CommitNote
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.exceptions import PartitionValueError, SealBrokenError
from airflow_mv_provider.spark import overwrite, partitions, staging
from airflow_mv_provider.spark.compare import buckets, digest_algebra, digests, hashing, large_buckets
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.layout import Layout, columns
from tests.conftest import a_table

pytestmark = [pytest.mark.slow, pytest.mark.large_tables]

ROWS = """SELECT id, nullif(CAST(id % 5 AS INT), 4) AS p, concat('v', id) AS v,
                 timestamp'2026-10-25 00:30:00.000001' + make_interval(0, 0, 0, 0, CAST(id % 3 AS INT)) AS t
          FROM range(3000)"""
LAYOUTS = {
    "flat": {},
    "partitioned": {"partition_by": ["p"]},
    "not named": {"partition_by": ["p"]},
    "by two": {"partition_by": ["t", "p"]},
    "hash partitions": {"hash_partitions": 3},
}
CHANGES = {
    "nothing": "SELECT * FROM t",
    "a few rows": """SELECT id, p, if(id IN (7, 12, 14), 'late', v) AS v, t FROM t WHERE id <> 27
                     UNION ALL SELECT 9999, 2, 'new', timestamp'2026-10-25 00:30:00.000001'""",
    "one partition": "SELECT id, p, if(p = 2, 'late', v) AS v, t FROM t",
    "partitions come and go": """SELECT * FROM t WHERE p <=> NULL OR p <> 3
                                 UNION ALL SELECT id + 5000, 77, v, t FROM t WHERE id < 20""",
    "a key without a value": "SELECT * FROM t UNION ALL SELECT NULL, 1, 'lost', NULL",
    "a key twice": "SELECT * FROM t UNION ALL SELECT * FROM t WHERE id = 11",
    "only the NULL partition": "SELECT id, p, if(p IS NULL, 'late', v) AS v, t FROM t",
}


@pytest.fixture
def published(spark, tmp_path, monkeypatch):
    """The digests of ROWS, whose large buckets may all differ."""
    monkeypatch.setattr(buckets, "MIN_ROWS_TO_CHOOSE", 0)
    monkeypatch.setattr(large_buckets, "_IN_TABLE", 16)
    monkeypatch.setattr(buckets, "MAX_DIFFERING", 1.0)

    def build(table, text=ROWS):
        rows = spark.sql(text)
        layout = Layout(table, schema.columns_of(rows.schema.jsonValue()))
        path = str(tmp_path / "published")
        num_buckets = digests.write(_hashed(rows, layout), table, path, None)
        return layout, PublishedDigests(
            "r",
            path,
            num_buckets,
            *digests.summed(digests.read(spark, layout, path), table),
            columns=schema.fingerprint(layout.columns),
        )

    return build


@pytest.mark.in_test_all
@pytest.mark.parametrize("by", LAYOUTS)
@pytest.mark.parametrize("change", CHANGES)
def test_large_buckets_show_what_small_ones_do(spark, tmp_path, published, monkeypatch, change, by):
    monkeypatch.setattr(partitions, "MAX_NAMED", 0 if by == "not named" else 200)
    layout, before = published(a_table(**LAYOUTS[by]))
    table = layout.table
    spark.sql(ROWS).createOrReplaceTempView("t")
    source = spark.sql(CHANGES[change])
    expected = digest_algebra.digested(_hashed(source, layout), table, before.num_buckets)
    theirs = digests.read(spark, layout, before.path).persist()
    small = buckets.compared(expected, theirs, table, before.num_buckets)

    staged = staging.load(source, layout, (None, str(tmp_path / "new")), before, is_large_first=True)

    assert staged.digests == (before.path if change == "nothing" else str(tmp_path / "new"))
    assert _multiset(digests.read(spark, layout, staged.digests)) == _multiset(expected)
    large = staged.buckets
    if by == "hash partitions":  # they are runs of small buckets
        assert (large.has_large, staged.is_as_published) == (False, change == "nothing")
        assert large.partitions == small.partitions
        staged.close()
        small.close()
        return
    assert _multiset(large.differing) == _multiset(small.differing)
    assert _multiset(large.new_keys) == _multiset(small.new_keys)
    assert (large.has_large, small.has_large) == (True, False)
    assert _without_buckets(large) == _without_buckets(small)
    if change != "nothing":  # then it is not asked how many buckets there are
        most = {name: part.buckets for name, part in large.partitions.items()}
        assert all(part.buckets <= most[name] <= 2 * part.buckets for name, part in small.partitions.items())
    others = dict.fromkeys(["beside", "differing", "new_keys", "kept", "partitions", "has_large"])
    assert replace(large, **others) == replace(small, **others)
    staged.close()
    small.close()


@pytest.mark.in_test_all
def test_most_of_them_differing_is_for_small_buckets_alone(spark, published, monkeypatch):
    layout, before = published(a_table(partition_by=["p"]))
    monkeypatch.setattr(buckets, "MAX_DIFFERING", 0.5)
    rows = _hashed(spark.sql(f"SELECT id, p, 'late' AS v, t FROM ({ROWS})"), layout)

    assert large_buckets.compared(rows, layout, before) is None


@pytest.mark.in_test_all
def test_what_was_published_is_known_without_its_digests(spark, published):
    layout, before = published(a_table(partition_by=["p"]))
    rows = _hashed(spark.sql(ROWS), layout)

    with closing(large_buckets.compared(rows, layout, replace(before, path="/gone"))) as same:
        assert (same.num_differing, same.main_rows, same.main_digest) == (0, before.num_rows, before.digest)


@pytest.mark.in_test_all
@pytest.mark.parametrize("others", ["TRUE", "id NOT IN (4, 5)"], ids=["two more", "two for two others"])
def test_rows_that_a_xor_forgets_are_differences(spark, published, others):
    layout, before = published(a_table(partition_by=["p"]))
    spark.sql(ROWS).createOrReplaceTempView("t")
    thrice = (
        f"SELECT id, p, v, t.t FROM t LATERAL VIEW explode(IF(id = 6, array(1, 2, 3), array(1))) e AS n WHERE {others}"
    )

    with closing(large_buckets.compared(_hashed(spark.sql(thrice), layout), layout, before)) as found:
        assert found.num_differing


@pytest.mark.in_test_all
def test_digests_that_are_not_what_was_recorded_are_not_believed(spark, published):
    layout, before = published(a_table(partition_by=["p"]))
    rows = _hashed(spark.sql(ROWS), layout)

    assert large_buckets.compared(rows, layout, replace(before, digest=1)) is None


@pytest.mark.in_test_all
@pytest.mark.parametrize("recorded", [{"num_rows": 1}, {"digest": 1}], ids=str)
def test_hash_partitions_are_not_made_of_digests_that_are_not_what_was_recorded(spark, published, recorded):
    layout, before = published(a_table(hash_partitions=3))

    with pytest.raises(SealBrokenError):
        large_buckets.unchanged(spark, layout, replace(before, **recorded))


@pytest.mark.in_test_all
def test_source_that_gives_other_rows_the_second_time_is_noticed(spark, tmp_path, published):
    layout, before = published(a_table(partition_by=["p"]))
    first, second = (
        _hashed(spark.sql(f"SELECT id, p, if(id < {n}, 'late', v) AS v, t FROM ({ROWS})"), layout) for n in (9, 8)
    )

    with closing(large_buckets.compared(first, layout, before)) as looked, pytest.raises(SealBrokenError):
        large_buckets.write_changed(second, layout, str(tmp_path / "new"), before, looked)


@pytest.mark.in_test_all
def test_partition_value_that_delta_cannot_keep_is_told(spark, tmp_path, published):
    text = f"SELECT id, CAST(p AS STRING) AS p, v, t FROM ({ROWS})"
    layout, before = published(a_table(partition_by=["p"]), text)
    source = spark.sql(f"{text} UNION ALL SELECT 9999, '', 'new', NULL")

    staged = staging.load(source, layout, (None, str(tmp_path / "new")), before, is_large_first=True)

    with pytest.raises(PartitionValueError, match="'p'"):
        staging.seal(spark, staged, source, layout)


def _without_buckets(found):
    return {name: replace(part, buckets=0) for name, part in found.partitions.items()}


def _hashed(rows, layout):
    return hashing.aligned(rows, layout).select(*columns(layout.table.group_by), hashing.HASH)


def _multiset(rows):
    return Counter(tuple(row) for row in rows.collect())


@pytest.fixture
def chosen(spark, published):
    """The digests of ROWS, and rows of which some are others: chosen so that count and xor of all hashes are the same.

    Of a hundred rows with another value, some can always be chosen.
    """
    layout, before = published(a_table())
    spark.sql(ROWS).createOrReplaceTempView("t")
    other = spark.sql("SELECT id, p, 'another' AS v, t FROM t WHERE id < 100")
    hashes = [
        {row.id: row[hashing.HASH] for row in hashing.aligned(rows, layout).select("id", hashing.HASH).collect()}
        for rows in (spark.sql("SELECT * FROM t WHERE id < 100"), other)
    ]
    others = ", ".join(map(str, _with_xor_of_zero({key: old ^ hashes[1][key] for key, old in hashes[0].items()})))
    return layout, before, spark.sql(f"SELECT id, p, if(id IN ({others}), 'another', v) AS v, t FROM t")


@pytest.mark.in_test_all
def test_rows_chosen_to_keep_count_and_xor_are_seen(spark, tmp_path, chosen):
    layout, before, source = chosen

    staged = staging.load(source, layout, (None, str(tmp_path / "new")), before, is_large_first=True)
    staged.close()

    assert not staged.is_as_published
    sums = digests.summed(digests.read(spark, layout, str(tmp_path / "new")), layout.table)
    assert sums[:2] == before.sums[:2]
    assert sums[2] != before.mixed


@pytest.mark.in_test_all
def test_rows_chosen_to_keep_count_and_xor_are_not_what_was_sealed(spark, tmp_path, chosen):
    layout, before, source = chosen
    copy, sums = str(tmp_path / "copy"), str(tmp_path / "new")
    staging.load(source, layout, (copy, sums), None)
    parts = (SealedPartition(WHOLE_TABLE, before.num_rows, before.digest),)
    seal = Seal(copy, sums, before.num_buckets, 0, parts, layout.columns, mixed=before.mixed)
    main, note = Main(spark, TableRef(str(tmp_path / "main")), "u"), CommitNote("u", "r", 1, "publish", 1)

    mine = digests.read(spark, layout, sums)
    with closing(buckets.compared(mine, mine, layout.table, before.num_buckets)) as found:
        assert found.sealed == seal.partitions
        with pytest.raises(SealBrokenError, match="the digests are no longer of the rows that were sealed"):
            found.check_sealed("orders", seal)
    with pytest.raises(SealBrokenError, match="does not match the seal"):
        overwrite.publish(main, layout, seal, source, note)
    assert main.properties() is None
    assert not overwrite.publish(main, layout, replace(seal, rows=None), source, note)


def _with_xor_of_zero(numbers):
    """Return the keys of some of them whose xor is 0: elimination, by the highest bit."""
    basis = {}
    for key, signed in numbers.items():
        members, number = {key}, signed & (2**64 - 1)
        while number and (held := basis.get(number.bit_length())):
            number, members = number ^ held[0], members ^ held[1]
        if not number:
            return members
        basis[number.bit_length()] = (number, members)
    raise AssertionError("64 bits, and a hundred numbers")

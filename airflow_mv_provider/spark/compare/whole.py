"""Compare all rows of the source with main's, and write the corrections.

    totals of the source ──▶ equal those of the last publish: nothing to do
                         ──▶ natural partitions with other totals; only these are looked at below
    probe  rows whose fingerprints main does not have ──▶ main's rows with their keys ──▶ corrections
                                                      ──▶ keys that the source has lost
    join   both sides by key

The probe is right if main's former totals and the corrections add up to the source's totals, and then it is the whole
difference, as surely as hashes are trusted anywhere. If they do not (a key twice, a collision, damaged fingerprints),
or nothing is known of main, the join finds the difference, or the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.location import What
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.published import bytes_in_memory
from airflow_mv_provider.core.progress.totals import Totals, total, with_added
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError
from airflow_mv_provider.spark import partitions, storage
from airflow_mv_provider.spark.compare import corrections, feed, fingerprints, hashing, keys, recorded_changes, totals
from airflow_mv_provider.spark.compare.corrections import CHANGE_COLUMNS
from airflow_mv_provider.spark.compare.hashing import HASH
from airflow_mv_provider.spark.compare.recorded_changes import Written
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns

log = logging.getLogger(__name__)

_MAX_HASHED_KEYS = 20_000_000
_MAX_NAMED = 500
_MAX_SHOWN = 20
_KEY = "_mv_key"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of main's rows, as the last publish left them and as they still are.

    partitions   : their totals, of those that are compared
    fingerprints : their layers, as `fingerprints.read` returns them; none if there are none
    """

    partitions: Mapping[str, Totals]
    fingerprints: tuple[DataFrame, ...] = ()
    num_shards: int = 0

    def fit(self, spark: SparkSession) -> bool:
        """True if there are fingerprints, and not too many to be sent to every task."""
        rows = (each.num_rows for each in self.partitions.values())
        return bool(self.fingerprints) and fingerprints.fit(spark, bytes_in_memory(rows, self.num_shards))


@dataclass(frozen=True, slots=True)
class Summed:
    """The totals of the source's rows, by partition.

    null_keys   : how many rows have a NULL key
    num_changes : about how many rows main does not have; None if that is not known
    """

    partitions: Mapping[str, Totals]
    null_keys: int = 0
    num_changes: int | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison.

    written    : the corrections; None if nothing differs
    partitions : the totals of the source's rows
    null_keys  : how many of them have a NULL key
    was_joined : by a join of both sides, because nothing right is known of main's rows
    """

    written: Written | None
    partitions: Mapping[str, Totals]
    null_keys: int = 0
    was_joined: bool = False


def compared(
    hashed: DataFrame,
    main: DataFrame,
    layout: Layout,
    known: Known | None,
    place: Callable[[What], str],
    *,
    small: int,
    summed: Summed | None = None,
    are_totals_first: bool = False,
) -> Compared:
    """Compare the rows of the source with main's, and write the corrections.

    hashed : the source's rows, (*columns, _mv_hash bigint), the same whenever they are read
    main   : (*columns), arbitrary rows
    known  : of exactly these rows of main; None if nothing is known
    place  : returns where something is to be written
    small  : up to so many rows are joined whole; of more only keys and hashes, and then the rows that differ
    summed : the source's totals, if they are known already
    are_totals_first : most rows, or most natural partitions, are expected to be as published
    cost  : one scan of the source if nothing differs, or two with `are_totals_first` if something does. A probe: a scan
            of main for the keys of changed rows; with deletes a join of all keys. A join: a scan of both, and a shuffle
            of their keys and hashes. Where nothing is known, one more scan of the source
    raises : SealBrokenError; EngineError, and any other error of reading the source
    """
    if known is None:
        summed = summed or summed_up(hashed, layout, None)
        is_small = total(summed.partitions.values()).num_rows <= small
        written = _joined(hashed, main, layout, place, hashed, is_small=is_small)
        return Compared(written, summed.partitions, summed.null_keys, was_joined=True)
    before, probed = known.partitions, known.fingerprints
    if summed is None and are_totals_first:
        summed = summed_up(hashed, layout, None)
    if summed is not None:
        now = summed.partitions
        differing = sorted(name for name in {*now, *before} if now.get(name, Totals()) != before.get(name, Totals()))
        if not differing:
            return Compared(None, now, summed.null_keys)
        if layout.table.partition_by and len(differing) <= _MAX_NAMED:
            hashed, main = (_of(side, layout, differing) for side in (hashed, main))
            probed = tuple(_of(each, layout, differing) for each in probed)
            before = {name: found for name, found in before.items() if name in set(differing)}
    kept = {name: found for name, found in known.partitions.items() if name not in before}
    of_these = Known(before, probed, known.num_shards)
    may_probe = of_these.fit(hashed.sparkSession)
    if may_probe:
        found = _unless_it_fails(layout, lambda: _probed(hashed, main, layout, of_these, place))
        if found is not None:
            return Compared(found.written, kept | dict(found.partitions), found.null_keys)
    seen = Observation()
    with translated(layout.table.name):
        observed = hashed.observe(seen, *totals.measure(), totals.null_keys(layout.table))
    written = _joined(observed, main, layout, place, hashed, is_small=total(before.values()).num_rows <= small)
    now_there, null_keys = totals.observed(seen)
    after = with_added(before, written.added if written else {})
    is_anew = may_probe or not probed  # else they are right, and too many of them differ
    if total(after.values()) != now_there and not null_keys:
        log.warning("%s: the totals of its last publish and the changes do not add up", layout.table.name)
        after, null_keys = totals.by_partition(_narrow(hashed, layout), layout.table)
        is_anew = True
    return Compared(written, kept | after, null_keys, was_joined=is_anew)


def summed_up(hashed: DataFrame, layout: Layout, known: Known | None) -> Summed:
    """Return the totals of the source's rows, and about how many of them main does not have.

    cost : a scan of the source, two of one with partitions; every 256th row is looked up
    """
    table, narrow = layout.table, _narrow(hashed, layout)
    if known is None or not known.fit(hashed.sparkSession):
        return Summed(*totals.by_partition(narrow, table))
    found, num_shards = known.fingerprints, known.num_shards
    seen = Observation()
    rows = narrow.observe(seen, *totals.measure(), totals.null_keys(table))
    some = rows.where(F.col(HASH).bitwiseAND(F.lit(0xFF00).cast("bigint")) == 0)

    def count() -> int:
        with translated(table.name):
            return 256 * fingerprints.unknown(some, found, table, num_shards).count()

    num_changes = _unless_it_fails(layout, count)
    if table.partition_by or num_changes is None:
        return Summed(*totals.by_partition(narrow, table), num_changes)
    now, null_keys = totals.observed(seen)
    return Summed({WHOLE_TABLE: now}, null_keys, num_changes)


def _unless_it_fails(layout: Layout, look: Callable[[], T]) -> T | None:
    """Return what is found by fingerprints; None if they are damaged, or memory does not suffice for them.

    An error that is the source's comes again when the rows are read without fingerprints.
    """
    try:
        return look()
    except InterruptedRefreshError:
        raise
    except MvError as error:
        log.warning("%s: rows are not looked up by their fingerprints: %s", layout.table.name, error.problem)
        return None


def frozen_differences(source: DataFrame, main: DataFrame, layout: Layout) -> tuple[str, ...]:
    """Return the first twenty frozen partitions in which the source and main differ.

    source, main : all of their rows
    cost         : a scan of the frozen rows on both sides
    """
    mine, theirs = frozen_totals(source, layout), frozen_totals(main, layout)
    names = sorted({*mine, *theirs})
    return tuple(name for name in names if mine.get(name) != theirs.get(name))[:_MAX_SHOWN]


def frozen_totals(rows: DataFrame, layout: Layout) -> dict[str, Totals]:
    """Return the totals of the frozen partitions of all rows of a side; scans them."""
    frozen = layout.shaped(rows.where(partitions.is_frozen(rows, layout.table)))
    return totals.by_partition(hashing.aligned(frozen, layout), layout.table)[0]


def _of(side: DataFrame, layout: Layout, members: Sequence[str]) -> DataFrame:
    return side.where(partitions.is_member(side, layout.table, members))


def _narrow(hashed: DataFrame, layout: Layout) -> DataFrame:
    return hashed.select(*columns(layout.table.group_by), HASH)


def _probed(
    hashed: DataFrame, main: DataFrame, layout: Layout, known: Known, place: Callable[[What], str]
) -> Compared | None:
    """Compare by fingerprints; None if that does not account for all differences.

    hashed : the source's rows, (*columns, _mv_hash bigint)
    main   : (*columns), with the totals in `known`
    """
    table, spark, seen = layout.table, hashed.sparkSession, Observation()
    candidates, changes = place("candidates"), place("changes")
    with translated(table.name):
        observed = hashed.observe(seen, *totals.measure(), totals.null_keys(table))
        storage.write(fingerprints.unknown(observed, known.fingerprints, table, known.num_shards), candidates)
    now, null_keys = totals.observed(seen)
    new = storage.read(spark, table.name, candidates, [*layout.columns, hashing.HASHED])
    feed.write_replacing(new, main, layout, changes)
    written, before = recorded_changes.measured(spark, layout, changes), total(known.partitions.values())
    if before.num_rows + written.total.num_rows > now.num_rows:
        with translated(table.name):
            lost = _lost(hashed, main, layout, before.num_rows)
            if table.may_move:  # a row that moved is deleted already, in its old partition
                deleted = recorded_changes.read(spark, layout, changes).where(F.col(corrections.OP) == "D")
                lost = keys.missing(lost, deleted, table)
            storage.append(lost, changes)
        written = recorded_changes.measured(spark, layout, changes)
    if before + written.total != now and not null_keys:
        log.info("%s: fingerprints do not show all that differs, so both sides are joined", table.name)
        return None
    return Compared(written if written.num_rows else None, with_added(known.partitions, written.added), null_keys)


def _lost(hashed: DataFrame, main: DataFrame, layout: Layout, num_rows: int) -> DataFrame:
    """Return the corrections that delete the rows whose keys the source has no longer.

    Keys are looked for by their hashes; if a lost one has the hash of another, the totals show that it is missing.

    main     : has each key once
    num_rows : of main
    cost     : a scan of main, and of the keys of the source; a shuffle of the keys of both
    """
    key = _key_hash(columns(layout.table.group_by)).alias(_KEY)
    theirs = _narrow(hashing.aligned(layout.shaped(main), layout), layout).withColumn(_KEY, key)
    mine = hashed.select(key)
    mine = mine.hint("shuffle_hash") if num_rows <= _MAX_HASHED_KEYS else mine  # half the time of sorting both sides
    return corrections.deletions(theirs.join(mine, _KEY, "left_anti").drop(_KEY), layout)


def _key_hash(key: Sequence[Column]) -> Column:
    return F.xxhash64(*key)


def _joined(
    observed: DataFrame,
    main: DataFrame,
    layout: Layout,
    place: Callable[[What], str],
    again: DataFrame,
    *,
    is_small: bool,
) -> Written | None:
    """Join both sides by key, and write the corrections; None if there are none.

    observed : the source's rows, (*columns, _mv_hash bigint); read once
    again    : the same, to be read once more if both sides are large: then only keys and hashes are shuffled first
    """
    table, spark = layout.table, observed.sparkSession
    existing = _narrow(hashing.aligned(layout.shaped(main), layout), layout)
    with translated(table.name):
        if is_small:
            path = place("changes")
            storage.write(corrections.between(observed, existing, layout), path)
        else:
            found = place("differing")
            storage.write(corrections.keys_between(_narrow(observed, layout), existing, layout), found)
            by = [layout.column(name) for name in table.group_by]
            differing = storage.read(spark, table.name, found, [*CHANGE_COLUMNS, *by])
            are_few = differing.count() <= feed.MAX_BROADCAST_KEYS
            path = place("changes")
            storage.write(corrections.with_values(differing, again, layout, are_few=are_few), path)
    written = recorded_changes.measured(spark, layout, path)
    return written if written.num_rows else None

"""What owners of a lake do to a source and to main beside this package, at random; after it a refresh has to be right.

A round does one to four things to a table's source or main, by Spark or delta-rs: statements, OPTIMIZE, VACUUM,
RESTORE, features switched on and off, folders put back from a backup or made anew, logs cleaned up, files that age.
Then the table is refreshed, what an error advises is done, and main is compared with its source by delta-rs as a
multiset. A seed draws the same rounds again.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import GuardRefusedError, MvError, TransientError
from tests.conftest import Lake, large_tables, read_independently

_DAY_S = 86_400
_NUM_PARTITIONS = 4
_NUM_WORLDS = 2  # of a lake: so few that much befalls each of them
_MAX_TRIES = 4
_REFUSED = (PySparkException, DeltaError, OSError, ValueError)  # what others did may not be possible then


class WrongError(AssertionError):
    """A refresh that was wrong, got stuck, or gave advice that did not help."""


@dataclass(frozen=True)
class World:
    """One table and its source."""

    name: str
    is_partitioned: bool
    is_progressive: bool
    is_large: bool
    properties: tuple[str, ...]

    @property
    def source(self) -> str:
        return f"raw/{self.name}"


FEED, VECTORS = "delta.enableChangeDataFeed", "delta.enableDeletionVectors"
WORLDS = (
    World("plain", False, False, False, ()),
    World("with_feed", False, False, False, (FEED,)),
    World("with_vectors", True, False, False, (VECTORS,)),
    World("progressive", True, True, False, (FEED, VECTORS)),
    World("large", False, False, True, (FEED,)),
    World("large_by_files", True, False, True, ()),
)


@dataclass
class Summary:
    """What the rounds have come to."""

    rounds: int = 0
    deeds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)  # by Spark or delta-rs
    errors: Counter[str] = field(default_factory=Counter)  # of a refresh, all mended by what they advised
    outcomes: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)


class OtherHands:
    """Rounds on the tables of one lake."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.summary = Summary()
        self._lake, self._random = lake, random.Random(seed)
        self._next_id = 0
        lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        self._worlds = self._random.sample(WORLDS, _NUM_WORLDS)
        for world in self._worlds:
            self._create(world)
            lake.apply(
                name=world.name,
                source=DeltaSource(world.source),
                key=["id", "p"] if world.is_progressive else ["id"],
                partition_by=["p"] if world.is_progressive else (),
                publish="progressive" if world.is_progressive else "atomic",
                guards={"max_deleted_fraction": 1.0, "allow_empty": True},
            )
            self._refresh(world, ["first refresh"])

    def round(self) -> None:
        """Do something to one table, refresh it and look at it.

        raises : WrongError
        """
        world = self._random.choice(self._worlds)
        done = [self._do(world) for _ in range(self._random.randint(1, 4))]
        self._refresh(world, done)
        if self._random.random() < 0.3:
            report = self._refresh(world, [*done, "nothing"])
            if report.outcome is not Outcome.NOTHING_TO_DO:
                raise self._wrong(world, done, f"a refresh after it has not nothing to do: {report.reason}")
        self.summary.rounds += 1

    # -- refresh, and what must be true then --------------------------------------------------------------------------

    def _refresh(self, world: World, done: list[str]) -> Any:
        lake, asked, told = self._lake, dict[str, Any](), list[str]()
        for _ in range(_MAX_TRIES):
            try:
                with large_tables(lake, is_large=world.is_large):
                    report = lake.refresh(world.name, **asked)
                break
            except MvError as error:
                told.append(str(error))
                self.summary.errors[error.code] += 1
                asked |= self._advised(world, done, error)
        else:
            raise self._wrong(world, done, f"what the errors advise does not help: {told}")
        self.summary.outcomes[str(report.outcome)] += 1
        self.summary.ways[str(report.strategy)] += 1
        state = lake.phase(world.name)
        if state != "NORMAL" or (left := lake.workspaces()):
            raise self._wrong(world, done, f"it is in {state}, and staging has {left[:3] if state == 'NORMAL' else ''}")
        main, source = (Counter(read_independently(lake.root / place)) for place in (world.name, world.source))
        if main != source:
            found = f"{(main - source).total()} rows too many, {(source - main).total()} missing"
            raise self._wrong(world, done, f"{found}; {report.outcome} by {report.strategy}: {report.reason}")
        return report

    def _advised(self, world: World, done: list[str], error: MvError) -> Mapping[str, Any]:
        """Return what the next refresh is asked for, as an error says."""
        if isinstance(error, GuardRefusedError):
            return {"overrides": list(error.facts["guards"]), "note": "looked at"}
        if "--force" in error.advice:
            return {"force": True}
        if isinstance(error, TransientError) or "refresh again" in error.advice.lower():
            return {}
        raise self._wrong(world, done, f"no refresh helps here: {error}")

    def _wrong(self, world: World, done: list[str], problem: str) -> WrongError:
        return WrongError(f"round {self.summary.rounds}: {world.name} after {', '.join(done)}: {problem}")

    # -- what others do -----------------------------------------------------------------------------------------------

    def _do(self, world: World) -> str:
        """Do something to a source, or now and then to main; return what."""
        is_main = self._random.random() < 0.25
        deeds = {name: each for name, each in self._deeds.items() if not (is_main and name in _OF_SOURCES)}
        deed = self._random.choices(list(deeds), [weight for weight, _ in deeds.values()])[0]
        place = self._lake.root / (world.name if is_main else world.source)
        what = f"{deed} of {'main' if is_main else 'the source'}"
        self.summary.deeds[deed] += 1
        try:
            deeds[deed][1](place, world)
        except _REFUSED as error:
            self.summary.refused[deed] += 1
            return f"{what} (refused: {str(error).splitlines()[0][:80]})"
        return what

    @property
    def _deeds(self) -> Mapping[str, tuple[int, Callable[[Path, World], None]]]:
        return {
            "INSERT": (4, lambda place, _: self._sql(f"INSERT INTO {{t}} VALUES {self._values()}", place)),
            "UPDATE": (
                4,
                lambda place, _: self._sql(f"UPDATE {{t}} SET v = '{self._word()}' WHERE {self._some()}", place),
            ),
            "DELETE": (3, lambda place, _: self._sql(f"DELETE FROM {{t}} WHERE {self._some()}", place)),
            "MERGE": (2, self._merge),
            "move": (1, lambda place, _: self._sql(f"UPDATE {{t}} SET p = (p + 1) % 4 WHERE {self._some()}", place)),
            "overwrite": (1, self._overwrite),
            "OPTIMIZE": (2, lambda place, _: self._sql("OPTIMIZE {t}", place)),
            "PURGE": (1, lambda place, _: self._sql("REORG TABLE {t} APPLY (PURGE)", place)),
            "VACUUM": (3, lambda place, _: self._sql("VACUUM {t} RETAIN 0 HOURS", place)),
            "RESTORE": (2, self._restore),
            "feature": (1, self._switch),
            "delta-rs append": (2, lambda place, _: write_deltalake(str(place), self._rows(3), mode="append")),
            "delta-rs delete": (2, lambda place, _: DeltaTable(str(place)).delete(self._some())),
            "delta-rs update": (2, self._update_by_delta_rs),
            "delta-rs overwrite": (1, self._overwrite_by_delta_rs),
            "delta-rs compact": (1, lambda place, _: DeltaTable(str(place)).optimize.compact()),
            "delta-rs vacuum": (1, self._vacuum_by_delta_rs),
            "backup": (4, self._back_up),
            "put back": (4, self._put_back),
            "written again": (3, self._write_again),
            "age": (2, lambda place, _: self._age(place, 8)),
            "log clean-up": (2, self._clean_up),
            "made anew": (1, self._make_anew),
        }

    def _sql(self, text: str, place: Path) -> None:
        self._lake.spark.sql(text.format(t=f"delta.`{place}`")).collect()

    def _merge(self, place: Path, _: World) -> None:
        new = f"SELECT * FROM VALUES {self._values()} AS n (id, p, v)"
        old = f"SELECT id, p, '{self._word()}' AS v FROM {{t}} WHERE {self._some()}"
        when = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
        self._sql(f"MERGE INTO {{t}} t USING ({new} UNION ALL {old}) s ON t.id = s.id AND t.p = s.p {when}", place)

    def _overwrite(self, place: Path, world: World) -> None:
        """Of one partition, where the table has some."""
        frame = self._lake.spark.sql(f"SELECT * FROM {{t}} WHERE {self._some()}".format(t=f"delta.`{place}`"))
        writer = frame.write.format("delta").mode("overwrite")
        if world.is_partitioned:
            part = self._random.randrange(_NUM_PARTITIONS)
            frame, writer = frame.where(f"p = {part}"), None
            writer = frame.write.format("delta").mode("overwrite").option("replaceWhere", f"p = {part}")
        writer.save(str(place))

    def _restore(self, place: Path, _: World) -> None:
        newest = DeltaTable(str(place)).version()
        self._sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {self._random.randint(max(0, newest - 6), newest)}", place)

    def _switch(self, place: Path, _: World) -> None:
        name, value = self._random.choice((FEED, VECTORS)), self._random.choice(("true", "false"))
        self._sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{name}' = '{value}')", place)

    def _update_by_delta_rs(self, place: Path, _: World) -> None:
        DeltaTable(str(place)).update({"v": f"'{self._word()}'"}, predicate=self._some())

    def _overwrite_by_delta_rs(self, place: Path, _: World) -> None:
        write_deltalake(str(place), self._rows(self._random.randrange(20)), mode="overwrite")

    def _vacuum_by_delta_rs(self, place: Path, _: World) -> None:
        DeltaTable(str(place)).vacuum(0, dry_run=False, enforce_retention_duration=False)

    def _back_up(self, place: Path, _: World) -> None:
        shutil.rmtree(_backup(place), ignore_errors=True)
        shutil.copytree(place, _backup(place))

    def _put_back(self, place: Path, _: World) -> None:
        if not _backup(place).exists():
            raise FileNotFoundError("no backup")
        shutil.rmtree(place)
        shutil.copytree(_backup(place), place)

    def _write_again(self, place: Path, world: World) -> None:
        """Put back a backup, and write it up to the version that it had before."""
        version = DeltaTable(str(place)).version()
        self._put_back(place, world)
        while DeltaTable(str(place)).version() < version:
            write_deltalake(str(place), self._rows(1), mode="append")

    def _age(self, place: Path, days: int) -> None:
        for file in (each for each in place.rglob("*") if each.is_file()):
            then = file.stat().st_mtime - days * _DAY_S
            os.utime(file, (then, then))

    def _clean_up(self, place: Path, _: World) -> None:
        """As a later checkpoint does: the log's files that are older than a month."""
        self._age(place, 40)
        table = DeltaTable(str(place))
        table.create_checkpoint()
        table.cleanup_metadata()

    def _make_anew(self, place: Path, world: World) -> None:
        shutil.rmtree(place)
        self._create(world)

    def _create(self, world: World) -> None:
        columns = "id BIGINT, p INT, v STRING"
        parts = " PARTITIONED BY (p)" if world.is_partitioned else ""
        properties = "".join(f", '{each}' = 'true'" for each in world.properties)
        options = f" TBLPROPERTIES ('delta.checkpointInterval' = '5'{properties})"
        place = self._lake.root / world.source
        self._sql(f"CREATE TABLE {{t}} ({columns}) USING delta{parts}{options}", place)
        self._sql(f"INSERT INTO {{t}} VALUES {self._values(12)}", place)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _new(self, number: int) -> list[tuple[int, int, str]]:
        """Return rows with ids that no table has had yet."""
        self._next_id += number
        ids = range(self._next_id - number, self._next_id)
        return [(each, self._random.randrange(_NUM_PARTITIONS), self._word()) for each in ids]

    def _values(self, number: int = 3) -> str:
        return ", ".join(f"({each}L, {p}, '{v}')" for each, p, v in self._new(number))

    def _rows(self, number: int) -> pa.Table:
        ids, parts, words = zip(*self._new(number), strict=True) if number else ((), (), ())
        columns = (pa.array(ids, pa.int64()), pa.array(parts, pa.int32()), pa.array(words, pa.string()))
        return pa.table(dict(zip(("id", "p", "v"), columns, strict=True)))

    def _word(self) -> str:
        return f"v{self._random.randrange(10**6)}"

    def _some(self) -> str:
        """Return a condition that holds for some rows."""
        modulus = self._random.choice((2, 3, 5, 7))
        return f"id % {modulus} = {self._random.randrange(modulus)}"


# What makes main another table than the one that is registered, which no refresh may mend.
_OF_SOURCES = ("made anew",)


def _backup(place: Path) -> Path:
    return place.parent.parent / "backups" / place.relative_to(place.parent.parent)

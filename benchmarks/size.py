"""Trials of size: thousands of files, thousands of columns; each refresh is killed once in its middle and recovered.

    python benchmarks/size.py files                      5,000 csv files
    python benchmarks/size.py columns --number 500       500 columns in the place of 2,000

For each case a process with a Spark of its own refreshes the table and is killed with SIGKILL at a durable write; this
process takes over, and then refreshes once more undisturbed. After each of them main and the source, read by plain
Spark, are compared as multisets of full rows. Printed are seconds, beside those of a plain overwrite in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame

from airflow_mv_provider import DeltaSource, Files
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.spark.session import local_session

T = TypeVar("T")

# The command, in a process that dies at the point that is its first argument.
AMV = """
import sys
from airflow_mv_provider.cli.main import main
from airflow_mv_provider.runner import crash_points
crash_points.arm(crash_points.kill_at(sys.argv.pop(1)))
main()
"""
ROWS_IN_A_FILE = 20


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("trial", choices=("files", "columns"))
    arguments.add_argument("--number", type=int)
    asked = arguments.parse_args()
    os.environ |= {"AMV_SPARK_MASTER": "local[2]"}
    with tempfile.TemporaryDirectory(prefix="amv-size-") as home:
        trial = Trial(Path(home), local_session())
        (files if asked.trial == "files" else columns)(trial, asked.number)
        print(json.dumps(trial.found, indent=2))


@dataclass
class Trial:
    """One table in a warehouse of its own, and what was found so far.

    schema : of csv files, for a source of these; else the source is a Delta table
    """

    home: Path
    spark: Any
    schema: str = ""
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        """Where the source lies."""
        return self.home / "raw"

    @property
    def runner(self) -> Refresher:
        """A runner as another process would have."""
        settings = Settings(f"sqlite:///{self.home / 'mv.db'}", str(self.home))
        return Refresher(open_store(settings), settings, lambda: self.spark)

    def case(self, name: str, change: Callable[[], None], kill_at: str, *, is_forced: bool = False) -> None:
        """Change the source and refresh: killed at a durable write and recovered; then once more, undisturbed.

        kill_at : before the seal for the first refresh, which then is begun anew and not repeated
        """
        change()
        until_killed = self.killed(kill_at, *(["--force"] if is_forced else []))
        caller = command_line_caller()
        self.runner.declare_dead("t", caller, "it was killed")
        _, recovered = self.timed(lambda: self.runner.recover(caller))
        report, seconds = self.timed(lambda: self.runner.refresh("t", command_line_caller()))
        self.check()
        if report.outcome is Outcome.NOTHING_TO_DO:
            change()
            request = Request(force=is_forced)
            report, seconds = self.timed(lambda: self.runner.refresh("t", command_line_caller(), request))
            self.check()
        figures = ("outcome", "strategy", "rows_inserted", "rows_updated", "rows_deleted", "phase_seconds")
        self.found[name] = {
            "seconds": seconds,
            f"killed at {kill_at} after": until_killed,
            "recovered in": recovered,
            "overwrite": self.timed(self.overwrite)[1],
        } | {figure: getattr(report, figure) for figure in figures}
        print(name, json.dumps(self.found[name]), file=sys.stderr, flush=True)

    def killed(self, point: str, *options: str) -> float:
        """Refresh in a process that dies at a durable write; return its seconds, of its Spark's start too."""
        environment = {"AMV_DATABASE_URL": f"sqlite:///{self.home / 'mv.db'}", "AMV_WAREHOUSE": str(self.home)}
        done, seconds = self.timed(
            lambda: subprocess.run(
                [sys.executable, "-c", AMV, point, "refresh", "t", *options],
                env=os.environ | environment,
                capture_output=True,
                text=True,
                check=False,
            )
        )
        assert done.returncode == -signal.SIGKILL, f"{point} was not reached: {done.stdout}{done.stderr[-3000:]}"
        return seconds

    def timed(self, action: Callable[[], T]) -> tuple[T, float]:
        """Return what an action returns, and its seconds."""
        began = time.perf_counter()
        found = action()
        return found, round(time.perf_counter() - began, 1)

    def rows(self) -> DataFrame:
        """Return the source as plain Spark reads it."""
        if self.schema:
            return self.spark.read.schema(self.schema).option("header", "true").csv(str(self.source))
        return self.spark.read.format("delta").load(str(self.source))

    def overwrite(self) -> None:
        """Do what a person does without this package."""
        written = self.rows().write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        written.save(str(self.home / "overwritten"))

    def check(self) -> None:
        """Compare main with the source."""
        source, main = self.rows(), self.spark.read.format("delta").load(str(self.home / "t"))
        assert sorted(source.columns) == sorted(main.columns)
        # By one text a row: EXCEPT ALL of 2,000 columns is more than Spark compiles.
        row = f"to_json(struct({quoted(source.columns)}), map('ignoreNullFields', 'false')) AS row"
        left, right = source.selectExpr(row), main.selectExpr(row)
        assert left.exceptAll(right).isEmpty() and right.exceptAll(left).isEmpty(), "main is not the source"


def quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def files(trial: Trial, number: int | None) -> None:
    """Refresh a table of csv files: all of them new, one corrected, none changed."""
    number, edits = number or 5_000, [0]
    trial.schema = "id BIGINT, day DATE, amount DECIMAL(12,2), note STRING"
    trial.source.mkdir()
    for file in range(number):
        write_file(trial.source, file, 0)
    trial.runner.apply(RefreshableTable(name="t", source=Files("raw", format="csv", schema=trial.schema), key=["id"]))

    def correct() -> None:
        edits[0] += 1
        write_file(trial.source, number // 2, edits[0])

    trial.case("first refresh", lambda: None, "staging.after")
    trial.case("one file corrected", correct, "publish.before")
    trial.case("nothing changed, all is read", lambda: None, "seal.after", is_forced=True)
    report, seconds = trial.timed(lambda: trial.runner.refresh("t", command_line_caller()))
    trial.found["nothing changed"] = {"seconds": seconds, "outcome": report.outcome}


def write_file(folder: Path, number: int, edit: int) -> None:
    first = number * ROWS_IN_A_FILE
    lines = (
        f"{n},2026-01-{n % 28 + 1:02},{n % 997}.25,note {edit} of {n}" for n in range(first, first + ROWS_IN_A_FILE)
    )
    text = "id,day,amount,note\n" + "\n".join(lines) + "\n"
    (folder / f"part-{number:06}.csv").write_text(text, encoding="utf-8")


def columns(trial: Trial, number: int | None) -> None:
    """Refresh a table of many columns: all rows new, one changed, a column added."""
    number, edits = number or 2_000, [0]
    more = (f"id * {n} + 0.5D AS c{n}" if n % 2 else f"concat('v{n}-', id) AS c{n}" for n in range(number - 1))
    trial.spark.range(1_000).selectExpr("id", *more).write.format("delta").save(str(trial.source))
    trial.runner.apply(RefreshableTable(name="t", source=DeltaSource("raw"), key=["id"], schema_policy="add"))

    def change_row() -> None:
        edits[0] += 1
        trial.spark.sql(f"UPDATE delta.`{trial.source}` SET c0 = 'edit {edits[0]}' WHERE id = 7")

    def add_column() -> None:
        edits[0] += 1
        trial.spark.sql(f"ALTER TABLE delta.`{trial.source}` ADD COLUMNS (more{edits[0]} STRING)")
        trial.spark.sql(f"UPDATE delta.`{trial.source}` SET more{edits[0]} = 'here' WHERE id % 100 = 0")

    trial.case("first refresh", lambda: None, "seal.before")
    trial.case("one row changed", change_row, "publish.before")
    trial.case("a column added", add_column, "publish.before")


if __name__ == "__main__":
    main()

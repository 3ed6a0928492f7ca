"""The demo: an Airflow DAG keeps a table of a year of real flights equal to its files, through changes and a kill.

    1  a first DAG run creates the table and fills it
    2  the files change as reality changes them; a second run writes only the differences
    3  they change again, and the process of the third run is killed in the middle of Merging
    4  the next run takes over and completes the refresh
    5  two readers that share no code compare table and files, row by row
    6  an export ends early: the refresh awaits approval, and is approved without the deletes after a look

All its files are in .demo beside the Makefile. The DAG is dags/flights.py; scripts/demo_worker.py runs it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from demo_flights import (
    Change,
    Row,
    change_like_reality,
    end_early,
    rows_of_main,
    rows_of_source,
    shipped_flights,
    write_months,
)
from demo_processes import FILES, HOME, LEASE_S, LOG, STATE, WAREHOUSE, Worker, environment
from demo_telling import ROOT, Amv, say, shown, title
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from airflow_mv_provider.core.outcome import EXIT_RETRY, Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.partition import partition_values
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata.status import TableStatus
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.report_text.figures import number, partition_text, size, table
from airflow_mv_provider.runner.local import open_store
from airflow_mv_provider.runner.settings import Settings

NAME = "flights"
KEY = ("flight_date", "carrier", "flight", "origin")
amv = Amv(environment, LOG)
KILL_AT = "seal.after"  # the corrections are recorded, and nothing is published; so with every strategy

DOES = {
    Phase.NORMAL: "Airflow starts the run",
    Phase.REFRESHING: "reading and comparing the source",
    Phase.MERGING: "publishing",
    Phase.CLEANUP: "removing working files",
}


def main() -> None:
    began = time.monotonic()
    prepare()
    store = open_store(Settings(f"sqlite:///{STATE}"))
    with Worker() as worker:
        title(1, "The first run creates the table and fills it")
        flights = shipped_flights()
        say(f"{number(len(flights))} flights in {write_months(flights, FILES)} files, {shown(FILES)}/*.csv")
        show(refresh(worker, store))

        title(2, "The files change as reality changes them, and the second run writes only the differences")
        say(described(change_like_reality(FILES, day=1)))
        show(refresh(worker, store))

        title(3, "They change again, and the third run is killed in the middle of Merging")
        say(described(change_like_reality(FILES, day=2)))
        worker.start(crash_at=KILL_AT)
        watch(worker, store)
        if worker.answer() != "dead" or worker.wait() != -signal.SIGKILL:
            amv.fail("The run was expected to be killed, and ended otherwise.")
        say("Killed with SIGKILL. The durable state now:\n")
        amv("status", NAME)
    killed = store.status(store.table(NAME)).refresh_id

    title(4, "The next run takes over and completes the refresh")
    with Worker() as worker:
        wait_for_the_lease(store)
        refresh(worker, store)
    show(store.report(killed or ""))

    title(5, "Are table and files equal?")
    columns = columns_of_main(store)
    verify(store, columns)
    say("The table was read by delta-rs and the files by pandas; neither shares code with Spark.")

    title(6, "An export ends early: the refresh awaits approval, and is approved without its deletes")
    decide_about_a_difference(store, columns)
    look_further(time.monotonic() - began)


# -- the steps -------------------------------------------------------------------------------------------------


def prepare() -> None:
    """Start from nothing: the directory is the demo's own."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    print(f"All files of this demo are in {shown(HOME)}; the logs of Airflow and Spark are in {shown(LOG)}.")


def refresh(worker: Worker, store: Store) -> RefreshReport:
    """Run the DAG once and return the report of its refresh."""
    worker.start()
    watch(worker, store)
    state = worker.answer()
    if state != "success":
        amv.fail(f"The DAG run ended as {state}.")
    return store.history(store.table(NAME).id, 1)[0]


def wait_for_the_lease(store: Store) -> None:
    """Wait until the dead process' lease has expired, as a scheduler's next run would."""
    say(f"The dead process' lease expires after {LEASE_S} s; a live owner is never taken over.")
    while store.status(store.table(NAME)).is_lease_live:
        time.sleep(0.2)


def columns_of_main(store: Store) -> tuple[str, ...]:
    from deltalake import DeltaTable

    return tuple(field.name for field in DeltaTable(store.table(NAME).location).schema().fields)


def verify(store: Store, columns: tuple[str, ...], kept: Counter[Row] | None = None) -> None:
    """Compare main with the files, and with rows that it keeps beside them, as multisets of whole rows."""
    expected = rows_of_source(FILES, columns) + (kept or Counter())
    found = rows_of_main(Path(store.table(NAME).location), columns)
    if found != expected:
        amv.fail(f"They differ: {(expected - found).total()} rows are missing, {(found - expected).total()} too many.")
    beside = f", {number(kept.total())} of them kept beside the files" if kept else ""
    say(f"Equal: {number(found.total())} rows of {len(columns)} columns{beside}, compared as multisets.")


def decide_about_a_difference(store: Store, columns: tuple[str, ...]) -> None:
    """Hold a refresh that would delete half of the table, look at it, and approve the rest of it."""
    before = rows_of_main(Path(store.table(NAME).location), columns)
    say(described(end_early(FILES, last_day=15)))
    with amv.server():
        amv("refresh", NAME, exit_code=EXIT_RETRY)
        amv("diff", NAME, "--limit", "2")
        amv("approve", NAME, "--without-deletes", "--note", "the export ended early; its delays are right")

    def key_of(row: Row) -> Row:
        return tuple(row[columns.index(name)] for name in KEY)

    in_files = {key_of(row) for row in rows_of_source(FILES, columns)}
    verify(store, columns, Counter({row: n for row, n in before.items() if key_of(row) not in in_files}))


def look_further(seconds: float) -> None:
    """Print the locations of all files, and the commands that show more."""
    place = f"--database sqlite:///{shown(STATE)} --warehouse {shown(WAREHOUSE)}"
    print(f"\nDone in {seconds:.0f} s. For more, run in {ROOT}:\n")
    for command in (f"status {NAME}", f"history {NAME}", f"refresh {NAME} --read-only"):
        print(f"  .venv/bin/amv {command} {place}")
    rows = [
        (shown(FILES), "the source: change a file, then refresh"),
        (shown(WAREHOUSE / NAME), "the table; _delta_log/ holds a fence and a publish for each refresh"),
        (shown(LOG), "the logs of Airflow and Spark"),
        ("dags/flights.py, dags/flights.yaml", "the DAG, and the table's definition"),
    ]
    print("\n" + "\n".join("  " + line for line in table(("where", "what"), rows, numbers_from=2)))


# -- what is shown ---------------------------------------------------------------------------------------------


def watch(worker: Worker, store: Store) -> None:
    """Show the table's state, read from the metadata database as `amv status` does, until the run has ended."""
    has_begun = False
    with on_terminal() if sys.stdout.isatty() else in_lines() as tell:
        while worker.is_busy:
            with contextlib.suppress(TableNotFoundError):  # the first run registers it
                status = store.status(store.table(NAME))
                has_begun = has_begun or status.phase is not Phase.NORMAL
                tell(status, doing(status, has_begun=has_begun))
            time.sleep(0.2)


Tell = Callable[[TableStatus, str], None]


@contextlib.contextmanager
def on_terminal() -> Iterator[Tell]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[phase]:<10}"),
        BarColumn(bar_width=30),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(DOES[Phase.NORMAL], total=None, phase=Phase.NORMAL)

        def tell(status: TableStatus, text: str) -> None:
            total = status.partitions_total or None
            bar.update(task, phase=status.phase, description=text, total=total)
            bar.update(task, completed=status.partitions_completed)

        yield tell


@contextlib.contextmanager
def in_lines() -> Iterator[Tell]:
    began, last = time.monotonic(), [""]

    def tell(status: TableStatus, text: str) -> None:
        line = f"{status.phase:<10} {text}"
        if line != last[0]:
            print(f"  {time.monotonic() - began:5.1f} s  {line}", flush=True)
            last[0] = line

    yield tell


def doing(status: TableStatus, *, has_begun: bool) -> str:
    if status.phase is Phase.NORMAL and has_begun:
        return "done; Airflow ends the run"
    if status.phase is not Phase.MERGING:
        return DOES[status.phase]
    if status.partitions_completed == status.partitions_total:
        return f"publishing: {status.partitions_total} partitions are compared"
    return f"comparing: {status.partitions_completed} of {status.partitions_total} partitions are done"


def show(report: RefreshReport) -> None:
    """Show a refresh: its sums, its phases, and the partitions that it changed."""
    if report.outcome is not Outcome.PUBLISHED:
        amv.fail(f"The refresh ended as {report.outcome}.")
    written = bytes_by_partition(report)
    print()
    phases = [(phase, f"{report.phase_seconds[phase]:.1f} s") for phase in Phase if phase in report.phase_seconds]
    lines = table(("phase", "time"), [*phases, ("total", f"{sum(report.phase_seconds.values()):.1f} s")])
    counted = ("rows_inserted", "rows_updated", "rows_deleted", "rows_unchanged")
    changed = [p for p in report.partitions if p.rows_inserted or p.rows_updated or p.rows_deleted]
    rows = [
        (partition_text(p.partition)[:7], *(number(getattr(p, c)) for c in counted), size(written[p.partition]))
        for p in changed
    ]
    rows.append(("total", *(number(getattr(report, c)) for c in counted), size(report.bytes_main)))
    lines += ["", *table(("month", "inserted", "updated", "deleted", "unchanged", "bytes"), rows)]
    if rest := len(report.partitions) - len(changed):
        lines += ["", f"{rest} months had no change and were not written."]
    lines.append(f"Staging took {size(report.bytes_staging)}; the table is at version {report.main_version}.")
    print("\n".join("  " + line if line else "" for line in lines))


def bytes_by_partition(report: RefreshReport) -> Counter[str]:
    """Return the bytes that the publish added to each partition, files and deletion vectors, from main's own log."""
    commit = WAREHOUSE / NAME / "_delta_log" / f"{report.main_version:020d}.json"
    named = {partition_values(p.partition): p.partition for p in report.partitions}
    found: Counter[str] = Counter()
    for line in commit.read_text().splitlines():
        if added := json.loads(line).get("add"):
            vector = added.get("deletionVector") or {}
            is_new_file = not vector
            partition = named[tuple(added["partitionValues"].values())]
            found[partition] += added["size"] if is_new_file else vector["sizeInBytes"]
    return found


def described(change: Change) -> str:
    return (
        f"{number(change.corrected)} delays corrected, {number(change.withdrawn)} cancelled flights withdrawn, "
        f"{number(change.added)} flights of a new day"
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worker ends too
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nStopped. Run it again to start from the beginning.") from None

"""Three levels of views: after a change of their inputs each computes what the change can have touched, and no more.

    1  two million orders with eight million lines, as a shop's database would export them; three tables are filled
    2  some lines of the newest orders are corrected: each level follows, and says what it has computed again
    3  the same of the oldest, and every query is run whole and compared with all of its table: it takes that long, and
       would also write what was overlooked before

The tables are those of dags/revenue.yaml; all files are in .demo-views beside the Makefile.
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Sequence

from demo_telling import ROOT, say, shown, title

from airflow_mv_provider import definition_file
from airflow_mv_provider.core.changeset import Units
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.report_text.figures import number, table, total_seconds
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.settings import Settings

HOME = ROOT / ".demo-views"
WAREHOUSE = HOME / "warehouse"
DEFINITIONS = ROOT / "dags" / "revenue.yaml"
RAW = {
    "orders": """
        SELECT id AS order_id, id * 7919 % 60000 AS customer_id,
          element_at(array('AT', 'CH', 'DE', 'ES', 'FR', 'IT', 'NL', 'PL'), 1 + int(id % 8)) AS country,
          date_add(DATE '2023-01-01', int(id * 1400 / 2000000)) AS ordered_on
        FROM range(2000000)""",
    "lines": """
        SELECT id AS line_id, id div 4 AS order_id, id * 31 % 5000 AS product_id,
          int(1 + id % 4) AS quantity, CAST(5 + id * 17 % 9500 / 100 AS DECIMAL(10, 2)) AS price
        FROM range(8000000)""",
}
NUM_LINES, CORRECTED = 8_000_000, 1_000
FOLLOWING = Request(strategy="incremental")


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(HOME, ignore_errors=True)
    print(f"All files of this demo are in {shown(HOME)}; the definitions are {shown(DEFINITIONS)}.", flush=True)
    settings = Settings(f"sqlite:///{HOME}/state.db", warehouse=str(WAREHOUSE))
    store = open_store(settings)
    from delta.tables import DeltaTable

    from airflow_mv_provider.runner.refresh import Refresher

    logging.getLogger("airflow_mv_provider").setLevel(logging.ERROR)
    refresher = Refresher(store, settings)
    names = [refresher.apply(each).name for each in definition_file.load(DEFINITIONS)]

    def refresh(name: str, request: Request) -> RefreshReport:
        return refresher.refresh(name, command_line_caller(), request)

    title(1, "Three tables are filled")
    for name, sql in RAW.items():
        refresher.spark.sql(sql).write.format("delta").option("delta.enableChangeDataFeed", True).save(
            str(WAREHOUSE / "raw" / name)
        )
    show([refresh(name, Request()) for name in names])

    lines = DeltaTable.forPath(refresher.spark, str(WAREHOUSE / "raw" / "lines"))

    title(2, f"{number(CORRECTED)} lines of the newest orders get another quantity, and each level follows")
    lines.update(f"line_id >= {NUM_LINES - CORRECTED}", {"quantity": "quantity + 1"})
    found, read = [], []
    for name in names:
        plan = refresher.plan(name, FOLLOWING)
        read.append(changed_rows(plan.units) if plan.units else CORRECTED)
        found.append(refresh(name, FOLLOWING))
    show(found, read)

    title(3, f"{number(CORRECTED)} lines of the oldest orders, and every query is run whole and compared with all")
    lines.update(f"line_id < {CORRECTED}", {"quantity": "quantity + 1"})
    whole = [refresh(name, Request(strategy="corrections")) for name in names]
    show(whole)
    # A row that was overlooked is of the newest orders: it is not among those that the second change touches.
    if written(found) != written(whole):
        raise SystemExit("\nNot as many rows were written: following has overlooked some.")
    ratio = sum(map(seconds, found)) / sum(map(seconds, whole))
    say("")
    say(f"As many rows were written, so none was overlooked. Following took {ratio:.2f} of the time.")
    print(f"\nDone in {time.monotonic() - began:.0f} s. What the queries depend on, and why:\n")
    print(f"  .venv/bin/amv explain {shown(DEFINITIONS)} --warehouse {shown(WAREHOUSE)}")


def written(reports: Sequence[RefreshReport]) -> list[int]:
    """Return how many rows each refresh has written."""
    return [report.rows_inserted + report.rows_updated + report.rows_deleted for report in reports]


def changed_rows(units: Units) -> int:
    return sum(each.num_changed or 0 for each in units.inputs)


def seconds(report: RefreshReport) -> float:
    return total_seconds(report) or 0.0


def show(reports: Sequence[RefreshReport], read: Sequence[int] = ()) -> None:
    """Show what each table's refresh read, computed, and wrote."""
    rows = []
    for position, (report, num_written) in enumerate(zip(reports, written(reports), strict=True)):
        if report.outcome not in (Outcome.PUBLISHED, Outcome.NOTHING_TO_DO) or report.error is not None:
            raise SystemExit(f"\nThe refresh of {report.table} ended as {report.outcome}.")
        changed = number(read[position]) if read else "all"
        rows.append((report.table, report.strategy or "", changed, number(num_written), f"{seconds(report):.1f} s"))
    for line in table(("table", "strategy", "input rows read", "rows written", "time"), rows, numbers_from=2):
        say(line)
    for report in reports:
        if "computed again" in (report.reason or ""):
            say(f"{report.table}: {(report.reason or '').rpartition('; ')[2] or report.reason}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nStopped. Run it again to start from the beginning.")

"""Run DAG `flights` once for every line on stdin, in this one process; answer each with a line: the run's state.

A line names a crash point (see `runner/crash_points.py`) or is empty. stdout carries the answers alone; whatever
Airflow and Spark print goes to stderr, which the demo keeps in its log.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # Imported here, so that nothing they print on import can get among the answers.
    from airflow.dag_processing.dagbag import DagBag
    from airflow.utils.db import initdb

    from airflow_mv_provider.runner.crash_points import arm, kill_at

    initdb()
    bag = DagBag(str(Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]) / "flights.py"))
    if bag.import_errors:
        raise SystemExit(f"The DAG cannot be loaded: {bag.import_errors}")
    for line in sys.stdin:
        arm(kill_at(line.strip()))
        run = bag.dags["flights"].test()
        print(run.state.value, file=answers)


if __name__ == "__main__":
    main()

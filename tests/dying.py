"""Be a program of this package that kills itself with SIGKILL at a durable write.

    python tests/dying.py publish.before amv refresh orders       the command line
    spark-submit tests/dying.py publish.before driver orders      what is submitted to a cluster

The package itself has no such switch: nobody's environment may end somebody's refresh.
"""

from __future__ import annotations

import sys

from airflow_mv_provider.runner.crash_points import arm, kill_at

if __name__ == "__main__":
    _, point, program, *arguments = sys.argv
    arm(kill_at(point))
    if program == "amv":
        from airflow_mv_provider.cli.main import main as amv

        amv(arguments)
    else:
        from airflow_mv_provider.cli.driver import main as driver

        sys.argv[1:] = arguments
        driver()

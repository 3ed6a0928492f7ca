"""Refresh one table on a cluster: what spark-submit runs.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 spark_apps/refresh_table.py TABLE
        [--read-only] [--override GUARD --note WHY] [--json]

The metadata database is named by AMV_DATABASE_URL, or by the file in AMV_DATABASE_URL_FILE, in the environment.
Exit codes: 0 done or nothing to do, 1 a person must act, 75 a retry may succeed, 2 wrong usage.
"""

from airflow_mv_provider.cli.driver import main

if __name__ == "__main__":
    main()

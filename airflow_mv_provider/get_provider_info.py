"""The provider's metadata for Airflow: its modules, the connection type `mv` and the `[mv]` configuration.

Provider discovery calls this while Airflow's own configuration is still loading, so it imports nothing. An entry that
violates Airflow's schema breaks every `airflow` command; `tests/provider/test_provider_info.py` validates against it.
"""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata."""
    return {
        "package-name": "airflow-mv-provider",
        "name": "Refreshable Delta tables",
        "description": "Keep Delta tables in sync with sources that have no change feed.",
        "integrations": [
            {
                "integration-name": "Refreshable Delta tables",
                "tags": ["software"],
            }
        ],
        "hooks": [_modules("airflow_mv_provider.hooks.mv")],
        "operators": [_modules(*(f"airflow_mv_provider.operators.{name}" for name in _OPERATORS))],
        "sensors": [_modules(*(f"airflow_mv_provider.sensors.{name}" for name in ("phase", "freshness", "health")))],
        "triggers": [_modules("airflow_mv_provider.triggers.commits", "airflow_mv_provider.triggers.wait")],
        "extra-links": ["airflow_mv_provider.links.TableLink", "airflow_mv_provider.links.HistoryLink"],
        "notifications": [
            "airflow_mv_provider.notifications.RefreshNotifier",
            "airflow_mv_provider.notifications.FreshnessNotifier",
        ],
        "cli": ["airflow_mv_provider.cli.airflow_commands.get_commands"],
        "connection-types": [_CONNECTION],
        "config": {"mv": {"description": "Refreshable Delta tables.", "options": _OPTIONS}},
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": "Refreshable Delta tables", "python-modules": list(names)}


def _field(label: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"], **schema}}


def _option(description: str, *, type: str = "string", example: str, **more: Any) -> dict[str, Any]:
    # No defaults here: an option that always has a value would hide the AMV_* variables, which are read after it.
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": type,
        "example": example,
        "default": None,
        **more,
    }


_OPERATORS = ("refresh", "groups", "ingest", "submit", "maintenance", "transfer", "audit", "row_history", "factory")

_CONNECTION: dict[str, Any] = {
    "connection-type": "mv",
    "hook-class-name": "airflow_mv_provider.hooks.mv.MvHook",
    "hook-name": "Refreshable tables (state)",
    "ui-field-behaviour": {
        "hidden-fields": [],
        "relabeling": {"schema": "Database", "login": "User"},
        "placeholders": {"host": "PostgreSQL host; empty for a SQLite file", "port": "5432", "schema": "mv"},
    },
    "conn-fields": {
        "warehouse": _field("Warehouse", "Root directory or URI of the tables."),
        "source_roots": _field("Source roots", "Further roots of sources, separated by colons."),
        "sqlite_file": _field("SQLite file", "Absolute path of the database, when there is no host."),
        "sslmode": _field(
            "SSL mode",
            "How PostgreSQL's certificate is checked.",
            enum=[None, "disable", "allow", "prefer", "require", "verify-ca", "verify-full"],
        ),
    },
}

_OPTIONS: dict[str, Any] = {
    "sql_alchemy_conn": _option(
        "Address of the metadata database, SQLite or PostgreSQL. Without it: AMV_DATABASE_URL, the connection"
        " mv_state_default, or SQLite under AIRFLOW_HOME.",
        example="postgresql://mv@localhost:5432/mv",
        sensitive=True,
    ),
    "warehouse": _option(
        "Root directory or URI of the tables. Without it: AMV_WAREHOUSE, or the connection's.",
        example="s3a://bucket/warehouse",
    ),
    "source_roots": _option(
        "Further roots of sources, separated by colons. Without it: AMV_SOURCE_ROOTS.",
        example="/data/landing:/data/archive",
    ),
    "source_hosts": _option(
        "Hosts that connections of sources may lead to, separated by commas; * stands for any text. Without it:"
        " AMV_SOURCE_HOSTS, and every host without that.",
        example="db1.example.com, *.warehouse.example.com",
    ),
    "source_databases": _option(
        "Where sources are, separated by commas: postgresql, mariadb, sqlite, kafka, avro. A Spark that a task starts"
        " loads their drivers and connector. Without it: AMV_SOURCE_DATABASES.",
        example="postgresql",
    ),
    "lease_s": _option(
        "Seconds without a sign of life after which another process may continue a refresh; 60 unless set.",
        type="float",
        example="60",
    ),
    "handover_s": _option(
        "How many seconds a table is kept for the next task of its run; 3600 unless set.",
        type="float",
        example="3600",
    ),
    "answer_s": _option(
        "Seconds without an answer after which the database or a Spark Connect server is unavailable; 30 unless set.",
        type="float",
        example="30",
    ),
    "history_days": _option(
        "How many days the history of a refresh is kept after its end; 90 unless set. The hourly maintenance removes"
        " what is older, but never a table's last publish.",
        type="float",
        example="90",
    ),
    "spark_remote": _option(
        "Address of a Spark Connect server; Spark runs in the task's process without it.",
        example="sc://spark.example.com:15002",
        sensitive=True,
    ),
    "s3_single_driver": _option(
        "Set to true if only one Spark driver ever writes to tables on S3: Delta's own log store is enough for that."
        " Without it such a table needs a log store for several drivers.",
        type="boolean",
        example="true",
    ),
    "fingerprint_rows": _option(
        "From how many rows on fingerprints of a table's rows are kept, by which it is compared; of fewer rows both"
        " sides are read and joined as fast. 200000 unless set.",
        type="integer",
        example="200000",
    ),
    "queue_timeout_s": _option(
        "How many seconds a task waits for a table that another owner refreshes; 3600 unless set.",
        type="float",
        example="3600",
    ),
}

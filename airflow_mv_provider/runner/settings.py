"""The settings of an installation; every entry point (command line, Airflow, spark-submit) builds the same ones."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from airflow_mv_provider.core.location import absolute_root
from airflow_mv_provider.core.secret import check_no_password, every_spelling, of_connect_address
from airflow_mv_provider.exceptions import SettingError
from airflow_mv_provider.sources.credentials import Lookup, of_environment
from airflow_mv_provider.spark.causes.databases import drivers_of

DATABASE_VARIABLE = "AMV_DATABASE_URL"
WAREHOUSE_VARIABLE = "AMV_WAREHOUSE"
_YEAR_S = 31_622_400
_HOUR_S = 3_600  # kernels do not monitor a silent connection for much longer
DAY_MS = 86_400_000
_CENTURY_DAYS = 36_525


@dataclass(frozen=True, slots=True)
class Settings:
    """The locations of state and tables, and the time limits.

    lease_ms    : an owner that does not renew for this long may be taken over
    handover_ms : how long a table is reserved for the next task of its run
    answer_ms   : how long the database, or a Spark Connect server, may be silent before it counts as unavailable
    history_ms  : how long an ended refresh is kept in the history, unless something still refers to it
    source_hosts : hosts that a source's connection may lead to, or patterns of them; none allows all
    source_databases : names of the databases whose JDBC drivers Spark loads
    spark_remote : address of a Spark Connect server; None for Spark in this process
    connections : finds the connection of a source by its id; Airflow's hook gives Airflow's own
    is_s3_single_driver : only one Spark driver ever writes to a table on S3, so Delta's default log store is enough
    fingerprint_rows : rows of main from which fingerprints of them are kept; fewer are read and joined as fast
    """

    database_url: str
    warehouse: str | None = None
    source_roots: tuple[str, ...] = ()
    lease_ms: int = 60_000
    handover_ms: int = 3_600_000
    answer_ms: int = 30_000
    history_ms: int = 90 * DAY_MS
    source_hosts: tuple[str, ...] = ()
    source_databases: tuple[str, ...] = ()
    spark_remote: str | None = None
    is_s3_single_driver: bool = False
    fingerprint_rows: int = 200_000
    connections: Lookup = field(default=of_environment, compare=False)

    def __post_init__(self) -> None:
        if self.warehouse is not None:
            object.__setattr__(self, "warehouse", absolute_root(self.warehouse))
        object.__setattr__(self, "source_roots", tuple(absolute_root(root) for root in self.source_roots))

    def __repr__(self) -> str:
        return f"Settings(warehouse={self.warehouse!r})"  # the address may hold a password


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """Return the texts that no output may contain, longer ones first; an address without a password is not one."""
    from sqlalchemy import exc, make_url

    url, of_remote = settings.database_url, of_connect_address(settings.spark_remote)
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        return (url, *of_remote)  # it cannot be parsed, so all of it may be secret
    options = [str(value) for name, value in parsed.query.items() if "pass" in name.lower()]
    # An address whose password has an @ not written as %40 is refused, and the parsed password is only a part of it.
    meant = url.rpartition("@")[0].partition("://")[2].partition(":")[2]
    read = (str(parsed.password or ""), meant if "@" in meant else "", *options)
    passwords = [password for password in read if password]
    return (*([url] if passwords else []), *every_spelling(passwords), *of_remote)


def from_environment(
    *, database_url: str | None = None, warehouse: str | None = None, environ: Mapping[str, str] = os.environ
) -> Settings:
    """Build the settings from arguments first, then from AMV_* variables, then from defaults.

    AMV_DATABASE_URL_FILE names a file that holds the address, for secrets that are mounted as files.

    raises : SettingError, for a value that cannot be used
    """
    url = database_url or environ.get(DATABASE_VARIABLE) or _from_file(environ.get(f"{DATABASE_VARIABLE}_FILE"))
    check_no_password("AMV_SOURCE_ROOTS", environ.get("AMV_SOURCE_ROOTS", ""))  # before it is split
    # Separated by colons, as in PATH; the colons of s3://bucket and of a port are not separators.
    roots = tuple(root for root in re.split(r":(?!//|\d+(?:[/:]|$))", environ.get("AMV_SOURCE_ROOTS", "")) if root)
    settings = Settings(url or default_database_url(environ), source_roots=roots)
    hosts = _names(environ, "AMV_SOURCE_HOSTS")
    drivers_of(environ.get("AMV_SOURCE_DATABASES", ""))  # raises for one that is not known
    place = warehouse or environ.get(WAREHOUSE_VARIABLE)
    return replace(
        settings,
        warehouse=_absolute(place) if place else None,
        source_hosts=hosts,
        source_databases=_names(environ, "AMV_SOURCE_DATABASES"),
        lease_ms=_milliseconds(environ, "AMV_LEASE_S", settings.lease_ms),
        handover_ms=_milliseconds(environ, "AMV_HANDOVER_S", settings.handover_ms),
        answer_ms=_milliseconds(environ, "AMV_ANSWER_S", settings.answer_ms, most=_HOUR_S),
        history_ms=_milliseconds(environ, "AMV_HISTORY_DAYS", settings.history_ms, "days", _CENTURY_DAYS),
        spark_remote=environ.get("AMV_SPARK_REMOTE") or None,
        is_s3_single_driver=_flag(environ, "AMV_S3_SINGLE_DRIVER"),
        fingerprint_rows=_number(environ, "AMV_FINGERPRINT_ROWS", settings.fingerprint_rows),
    )


def default_database_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return the address of the default database, an SQLite file under AIRFLOW_HOME."""
    return f"sqlite:///{default_home(environ) / 'airflow_mv.db'}"


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of files that no setting places elsewhere: AIRFLOW_HOME."""
    return Path(environ.get("AIRFLOW_HOME") or Path.home() / "airflow").absolute()


def _names(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(each for each in re.split(r"[,\s]+", environ.get(name, "")) if each)


def _absolute(place: str) -> str:
    return place if ":" in place else str(Path(place).absolute())


def _from_file(name: str | None) -> str | None:
    if not name:
        return None
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingError(
            f"{DATABASE_VARIABLE}_FILE", f"{name} cannot be read: {error.strerror}.", hint="Check the secret's file."
        ) from error
    except UnicodeDecodeError:
        problem = f"{name} is not UTF-8 text."
        # From None: the UnicodeDecodeError holds the file's bytes, which are secret.
        raise SettingError(f"{DATABASE_VARIABLE}_FILE", problem, hint="Check the secret's file.") from None


def _flag(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "").strip().lower()
    if value not in ("", "true", "false", "1", "0"):
        raise SettingError(name, f"{value!r} is neither true nor false.", hint="Set it to true, or leave it out.")
    return value in ("true", "1")


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    value = environ.get(name, "").strip()
    if value and not re.fullmatch(r"\d{1,15}", value):
        raise SettingError(name, f"{value!r:.80} is not a number of rows.", hint="Set it to a whole number.")
    return int(value) if value else default


def _milliseconds(
    environ: Mapping[str, str],
    name: str,
    default: int,
    unit: Literal["seconds", "days"] = "seconds",
    most: int = _YEAR_S,
) -> int:
    value = environ.get(name)
    if not value:
        return default
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not 0 < found <= most:
        hint = f"Set it to a number above 0 and up to {most:,}."
        raise SettingError(name, f"{value!r:.80} is not a number of {unit}.", hint=hint)
    return max(1, round(found * (DAY_MS if unit == "days" else 1000)))

"""Names that lie elsewhere in other versions of Airflow, and what a version lacks.

The only module that looks at Airflow's version. What has moved comes from apache-airflow-providers-common-compat, as in
Airflow's own providers; each other name is tried where it lies now, then where it lay before. What a version lacks is
None here, or a flag; `needs` says so in one line to whoever asks for it. docs/airflow.md has the table of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
    BaseHook,
    Stats,
    conf,
)
from airflow.providers.common.compat.version_compat import get_base_airflow_version_tuple

from airflow_mv_provider.exceptions import DependencyError

VERSION: tuple[int, int, int] = get_base_airflow_version_tuple()
if VERSION < (3, 1, 8):
    _have = ".".join(map(str, VERSION))
    raise DependencyError(
        "airflow",
        f"version {_have}, and this package needs 3.1.8 or newer.",
        hint='pip install "apache-airflow>=3.1.8".',
    )

if TYPE_CHECKING or VERSION >= (3, 2, 0):
    from airflow.sdk import CronDataIntervalTimetable
    from airflow.sdk.definitions.callback import Callback
    from airflow.sdk.definitions.deadline import BaseDeadlineReference, DeadlineAlert
    from airflow.sdk.exceptions import AirflowRescheduleException
else:
    from airflow.exceptions import AirflowRescheduleException
    from airflow.sdk.definitions.deadline import Callback, DeadlineAlert
    from airflow.timetables.interval import CronDataIntervalTimetable

    BaseDeadlineReference = object

HAS_OWN_DEADLINES = VERSION >= (3, 2, 0)  # deadlines whose time is counted from what a plugin knows
HAS_WAITING_TASKS = VERSION >= (3, 3, 0)  # a task waits for a person's answer without a slot
HAS_RETRY_POLICIES = VERSION >= (3, 3, 0)


def needs(has: bool, what: str, version: str, instead: str) -> None:
    """Raise `DependencyError` if Airflow lacks something.

    Args:
        what: What it lacks, in the plural.
        version: From which it has them.
        instead: What to do here, as a sentence.
    """
    if not has:
        have = ".".join(map(str, VERSION))
        raise DependencyError("airflow", f"Airflow {have} has no {what}; {version} has.", hint=instead)


__all__ = [
    "HAS_OWN_DEADLINES",
    "HAS_RETRY_POLICIES",
    "HAS_WAITING_TASKS",
    "VERSION",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowRescheduleException",
    "AirflowSkipException",
    "BaseDeadlineReference",
    "BaseHook",
    "Callback",
    "CronDataIntervalTimetable",
    "DeadlineAlert",
    "Stats",
    "conf",
    "needs",
]
